"""The edge behind ``recast-train weights``: a profile in; a table, a record, a picture out."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recast_eval.errors import ConfigError
from recast_eval.records import CreditRecord, write_json
from recast_train.credit.base import CreditSetup
from recast_train.credit.curves import GAINS, Gain, relative_gains
from recast_train.credit.kinds._measured import ProfileConfig, credit_from_profile
from recast_train.credit.profile import Profile, read_profile

_WIDTH = 10


def solve_profile(
    path: Path,
    budgets: Sequence[str],
    *,
    temperature: float = 1.0,
    floor: float = 0.1,
    gain: str = "r2",
    estimator: str = "",
    shrink: bool = True,
) -> CreditRecord:
    """W for these budgets on the profile's own grid.

    Args:
        path: Profile file.
        budgets: ``NAME=V`` each; only these rewards take part.
        temperature: > 0.
        floor: In [0, 1].
        gain: ``r2``, ``d2`` or ``kl``.
        estimator: Whose curve; the best if empty.
        shrink: Pull noisy gains to flat.

    Raises:
        ConfigError: With every problem of the arguments.
        DataError: The file is no profile.
    """
    profile = read_profile(path)
    shares, problems = parse_budgets(budgets)
    if gain not in GAINS:
        problems.append(f"--gain: must be one of {', '.join(GAINS)}, got {gain!r}")
    config = ProfileConfig(
        profile=str(path),
        estimator=estimator,
        gain=_gain(gain),
        temperature=temperature,
        floor=floor,
        shrink=shrink,
    )
    problems += [f"--{p}" for p in config.problems()]
    if problems:
        raise ConfigError(problems)
    values = np.array(list(shares.values()))
    setup = CreditSetup(
        rewards=tuple(shares),
        budgets=values / values.sum(),
        sigmas=np.array(profile.sigmas),
        column_mass=None,
        seed=0,
    )
    return credit_from_profile("recast", config, setup).record(0)


def _gain(name: str) -> Gain:
    return next((known for known in GAINS if known == name), "r2")


def parse_budgets(texts: Sequence[str]) -> tuple[dict[str, float], list[str]]:
    """``NAME=V`` each as a mapping, and what is wrong with them."""
    found: dict[str, float] = {}
    problems: list[str] = []
    for text in texts:
        name, equals, value = text.partition("=")
        try:
            number = float(value)
        except ValueError:
            number = -1.0
        if not name or not equals or not 0 <= number < float("inf"):
            problems.append(f"--budget {text}: must be NAME=V with V >= 0")
        elif name in found:
            problems.append(f"--budget {text}: {name} is given twice")
        else:
            found[name] = number
    total = sum(found.values())
    if not problems and not total > 0:
        problems.append("--budget: at least one must be positive")
    if not problems and total == float("inf"):
        problems.append("--budget: their sum must be finite")
    return found, problems


def table_text(record: CreditRecord) -> str:
    """Per step: source noise level, and per reward the relative gain and T W / budget."""
    w = np.array(record.weights)
    ghat = relative_gains(np.array(record.gains))
    with np.errstate(divide="ignore", invalid="ignore"):
        times = w.shape[1] * w / np.array(record.budgets)[:, None]
    names = [name[:_WIDTH] for name in record.rewards]
    lines = [
        "W from measured gains; noise first. gain: relative to the row's mean; "
        "W: times the static share.",
        "step  sigma " + "".join(f"{n:>{_WIDTH + 7}}" for n in names),
        "            " + "".join(f"{'gain':>10}{'W':>7}" for _ in names),
    ]
    for j in range(w.shape[1]):
        cells = "".join(f"{ghat[k, j]:10.2f}{_cell(times[k, j])}" for k in range(len(w)))
        lines.append(f"{j:4d}  {record.sigmas[j]:.3f} {cells}")
    lines.append(_row("budget", record.budgets))
    lines.append(_row("sum of W", w.sum(axis=1)))
    if record.reliability is not None:
        lines.append(_row("reliable", record.reliability))
    return "\n".join(lines)


def _cell(value: float) -> str:
    return f"{value:7.2f}" if np.isfinite(value) else f"{'-':>7}"  # a reward without budget


def _row(name: str, values: Any) -> str:
    return f"{name:12}" + "".join(f"{value:{_WIDTH + 7}.3f}" for value in values)


def save_json(path: Path, record: CreditRecord) -> None:
    """Write the record; its folder is made.

    Raises:
        ConfigError: It cannot be written there.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, record)
    except OSError as error:
        raise ConfigError([f"--json {path}: {error}"]) from error


def draw_weights(path: Path, record: CreditRecord) -> None:
    """Curves with bands above, W as a heat map below.

    Raises:
        ConfigError: The file name has no format that can be drawn, or cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 5.6), layout="constrained")
    FigureCanvasAgg(figure)
    top, bottom = figure.subplots(2, 1, height_ratios=(3, 2))
    steps = np.arange(len(record.sigmas))
    curves, errors = np.array(record.curves), np.array(record.curve_errors)
    for name, curve, error in zip(record.rewards, curves, errors, strict=True):
        (line,) = top.plot(steps, curve, marker="o", markersize=3, label=name)
        low, high = curve - 1.96 * error, curve + 1.96 * error
        top.fill_between(steps, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    top.set(ylabel="discriminability", title="decided so far, with 95 % bands")
    top.legend(frameon=False)
    w = np.array(record.weights)
    budgets = np.array(record.budgets)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        times = np.where(budgets > 0, w.shape[1] * w / budgets, np.nan)
    extent = (-0.5, w.shape[1] - 0.5, len(w) - 0.5, -0.5)
    image = bottom.imshow(times, aspect="auto", cmap="viridis", vmin=0, extent=extent)
    figure.colorbar(image, ax=bottom, label="times the static share")
    bottom.set_yticks(range(len(w)), record.rewards)
    bottom.set_xlabel("step, from noise to image")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise ConfigError([f"--plot {path}: {error}"]) from error


def profile_text(profile: Profile) -> str:
    """The best estimator's ICC at each probed noise level, and its standard error."""
    name = profile.default_estimator
    curve = profile.estimates[name]
    lines = [
        f"share of each reward's variance decided ({name}; {profile.images} images of "
        f"{profile.prompts} prompts); in brackets the standard error",
        "sigma " + "".join(f"{reward[:12]:>16}" for reward in profile.rewards),
    ]
    for p, sigma in enumerate(profile.probes):
        cells = "".join(
            f"{row[p]:9.3f} ({error[p]:.3f})"
            for row, error in zip(curve.information, curve.errors, strict=True)
        )
        lines.append(f"{sigma:.3f}{cells}")
    for reward, (scored, total) in profile.scored.items():
        if scored < total:
            lines.append(f"{reward}: only {scored} of {total} images could be scored")
    return "\n".join(lines)
