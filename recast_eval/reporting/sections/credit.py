"""Where the credit went: W, its drift, the curves and gains behind it."""

from collections.abc import Iterator, Sequence

import numpy as np

from recast_eval.plots import PLOTS
from recast_eval.plots.credit_drift import credit_drift_info
from recast_eval.plots.credit_weights import credit_weights_info
from recast_eval.plots.lines import lines_info
from recast_eval.plots.shares import shares_info
from recast_eval.records import CreditRecord
from recast_eval.reporting.blocks import Block, Maker, NoteBlock, Section, number_text
from recast_eval.reporting.facts import Facts, command_of
from recast_eval.reporting.inputs import Run
from recast_eval.stats.intervals import normal_critical

SHOWN_GROUPS = 6
SHOWN_REWARDS = 8
ESTIMATORS = (
    "The curve that W was solved from (used), and what each estimator said before pooling: "
    "cross-fit is a lower bound, forward pairs are unbiased but noisy, corrected is both "
    "together. Where they part, believe the pairs. Beyond the axis is cut off here and kept in "
    "the numbers."
)
BAND = "95 % bands that hold for all points of a curve together (Bonferroni)"
THIRDS = ("noisy third", "middle third", "clean third")


def section(facts: Facts, maker: Maker) -> Section | None:
    """W and what it was solved from, for every kind of credit and budget."""
    groups = credit_groups(facts.runs)
    if not groups:
        return None
    blocks: list[Block] = []
    for runs in groups[:SHOWN_GROUPS]:
        blocks += _group(runs, maker)
    if len(groups) > SHOWN_GROUPS:
        left = len(groups) - SHOWN_GROUPS
        blocks.append(NoteBlock(f"{left} more budgets are not drawn here; give fewer folders."))
    return Section(
        "credit",
        "Credit over the denoising steps",
        "Which reward is listened to at which noise level, and the measurement behind it. "
        "Every reward keeps its budget; only the steps at which it is spent differ.",
        tuple(blocks),
    )


def credit_groups(runs: Sequence[Run]) -> list[list[Run]]:
    """Runs with the same kind of credit, rewards, budgets and steps; seeds differ."""
    groups: dict[tuple[object, ...], list[Run]] = {}
    for run in runs:
        if run.credits:
            last = run.credits[-1]
            budgets = tuple(round(b, 6) for b in last.budgets)
            key = (last.kind, tuple(last.rewards), budgets, tuple(last.sigmas))
            groups.setdefault(key, []).append(run)
    return sorted(groups.values(), key=lambda g: (g[0].credit_kind == "static", g[0].name))


def _label(runs: Sequence[Run]) -> str:
    last = runs[0].credits[-1]
    if np.allclose(last.budgets, last.budgets[0]):
        budgets = "equal budgets"
    else:
        named = zip(last.rewards, last.budgets, strict=True)
        budgets = ", ".join(f"{name} {budget:.2g}" for name, budget in named)
    seeds = f"{len(runs)} seeds" if len(runs) > 1 else runs[0].name
    return f"{last.kind}, {budgets} ({seeds})"


def _group(runs: Sequence[Run], maker: Maker) -> Iterator[Block]:
    last = runs[0].credits[-1]
    label, source = _label(runs), command_of(runs[0])
    info = credit_weights_info(
        last.rewards,
        last.sigmas,
        np.array([run.credits[-1].weights for run in runs]),
        last.budgets,
        last.column_mass,
    )
    if np.allclose(info.multiplier, 1.0, atol=1e-9):
        yield NoteBlock(f"{label}: W is the static one, 1 everywhere, so it is not drawn.")
        return
    read = PLOTS.load("credit-weights").read
    if info.seeds > 1:
        read += f" Mean over {info.seeds} seeds."
    read += f" As last set, in epoch {last.epoch + 1}."
    title = f"Credit W: {label}"
    yield maker.figure("credit-weights", info, title=title, source=source, read=read)
    if info.seeds > 1:
        yield maker.figure("credit-spread", info, title=f"Spread of W: {label}", source=source)
    yield _realised(last, label, source, maker)
    if last.curves is not None:
        yield from _measured(last, label, source, maker)
    yield from _drift(runs[0], source, maker)


def _realised(record: CreditRecord, label: str, source: str, maker: Maker) -> Block:
    weights = np.asarray(record.weights, float)
    parts = np.array_split(np.arange(weights.shape[1]), 3)
    rows = {
        f"{reward} (budget {number_text(sum(row), 2)})": {
            third: float(row[part].sum()) for third, part in zip(THIRDS, parts, strict=True)
        }
        for reward, row in zip(record.rewards, weights, strict=True)
    }
    info = shares_info(rows, THIRDS, unit="the reward's credit")
    return maker.figure("realised-credit", info, title=f"Realised credit: {label}", source=source)


def _measured(record: CreditRecord, label: str, source: str, maker: Maker) -> Iterator[Block]:
    assert record.curves is not None  # noqa: S101 - the caller checked
    points = len(record.sigmas) - 1
    multiplier = normal_critical(1 - 0.05 / points)
    band = BAND
    rewards = record.rewards[:SHOWN_REWARDS]
    errors = record.curve_errors
    yield maker.figure(
        "discriminability",
        lines_info(
            {r: (record.sigmas, record.curves[k]) for k, r in enumerate(rewards)},
            x_label="noise level",
            y_label="discriminability (share decided)",
            errors={r: errors[k] for k, r in enumerate(rewards)} if errors else None,
            multiplier=multiplier,
            band=band if errors else "",
            reverse_x=True,
            y_limits=_window([record.curves[k] for k in range(len(rewards))]),
        ),
        title=f"Discriminability: {label}",
        source=source,
    )
    if record.gains is not None:
        yield _gains(record, label, source, maker, multiplier)
    if record.raw_curves:
        for k, reward in enumerate(rewards):
            series = {"used": (record.sigmas, record.curves[k])}
            series |= {n: (record.sigmas, c[k]) for n, c in sorted(record.raw_curves.items())}
            yield maker.figure(
                "discriminability",
                lines_info(
                    series,
                    x_label="noise level",
                    y_label=f"share of {reward} decided",
                    reverse_x=True,
                    y_limits=_window([record.curves[k]]),
                ),
                title=f"Estimators of {reward}: {label}",
                source=source,
                read=ESTIMATORS,
            )


def _window(curves: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Room around the pooled curves: wild raw values must not flatten everything else."""
    top = max(max(map(max, curves)), 1e-9)
    return -0.3 * top, 1.4 * top


def _gains(record: CreditRecord, label: str, source: str, maker: Maker, multiplier: float) -> Block:
    series, errors = {}, {}
    for k, reward in enumerate(record.rewards[:SHOWN_REWARDS]):
        gains = np.asarray((record.gains or [])[k], float)
        mean = float(gains.mean())
        scaled = gains / mean if mean > 0 else np.full_like(gains, np.nan)
        series[reward] = (record.sigmas[:-1], scaled.tolist())
        if record.curve_errors is not None and mean > 0:
            # a gain is a difference of two curve points; without their covariance the sum of
            # variances is the honest (wide) choice
            error = np.asarray(record.curve_errors[k], float)
            errors[reward] = (np.hypot(error[1:], error[:-1]) / mean).tolist()
    info = lines_info(
        series,
        x_label="noise level at which the step starts",
        y_label="gain (mean of a curve is 1)",
        errors=errors,
        multiplier=multiplier,
        band=BAND if errors else "",
        reverse_x=True,
        zero=1.0,
    )
    return maker.figure("gains", info, title=f"Gains: {label}", source=source)


def _drift(run: Run, source: str, maker: Maker) -> Iterator[Block]:
    last = run.credits[-1]
    same = [r for r in run.credits if r.rewards == last.rewards and r.sigmas == last.sigmas]
    if len(same) < 2:
        return
    for k, reward in enumerate(last.rewards[:SHOWN_REWARDS]):
        info = credit_drift_info(
            reward,
            [r.epoch + 1 for r in same],
            last.sigmas,
            [r.weights[k] for r in same],
            [r.budgets[k] for r in same],
            last.column_mass,
        )
        yield maker.figure(
            "credit-drift", info, title=f"W over training: {reward} in {run.name}", source=source
        )
