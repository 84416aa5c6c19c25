"""What a training method said about itself: ``aggregator/...``, ``rebrl/...``, any ``x/...``."""

import re
from collections.abc import Iterator, Sequence

from recast_eval.plots import PLOTS
from recast_eval.plots.lines import Lines, lines_info
from recast_eval.reporting.blocks import Block, Maker, NoteBlock, Section, number_text
from recast_eval.reporting.facts import Facts, command_of
from recast_eval.reporting.inputs import Run

SHOWN_RUNS = 4
SHOWN_LINES = 12
_SKIPPED = ("reward/", "seconds/", "time/", "memory/", "aggregator/gram/")
_INDEXED = re.compile(r"^(.*)_(\d+)$")
READ = {
    "aggregator/cosine": (
        "Cosines between the gradients of two rewards: below 0 they pull against each other."
    ),
    "aggregator/coefficient": (
        "What each reward's advantage is multiplied by: the memory of past solutions. A reward "
        "near 0 is being ignored."
    ),
    "aggregator/weight": "The balance solved at each refresh, before it is remembered.",
    "aggregator/norm": "Length of each reward's own gradient: a long one would drown the others.",
    "aggregator": (
        "The worst cosine between the common direction and a reward's gradient: above 0 no "
        "reward is sacrificed. Beside it, what a plain mean would have done."
    ),
    "rebrl/token_weight": (
        "Mean weight of a token by the stage at which it was decoded; a flat line means that "
        "early and late tokens are taught alike."
    ),
    "rebrl/stage_credit": (
        "Share of the loss that each decoding stage carries, first stage on the left."
    ),
    "rebrl/gradient_norm": (
        "Length of each decoding stage's own gradient: a stage far above the others drowns them."
    ),
    "rebrl/clip_fraction": "Share of tokens whose policy ratio was clipped, by stage.",
    "rebrl/kl": (
        "KL to the base model, a masked token, not weighted: how far the policy has moved."
    ),
}
TITLES = {
    "aggregator": "Worst alignment of the rewards",
    "aggregator/cosine": "Agreement of the rewards' gradients",
    "aggregator/coefficient": "Coefficient of each reward",
    "aggregator/weight": "Solved weight of each reward",
    "aggregator/norm": "Gradient norm of each reward",
    "rebrl/token_weight": "Token weight by decode group",
    "rebrl/stage_credit": "Credit by decoding stage",
    "rebrl/gradient_norm": "Gradient norm by decoding stage",
    "rebrl/clip_fraction": "Clipped ratios by decoding stage",
    "rebrl/kl": "KL to the base model",
}
"""What a family is called; one without a name keeps that of its metrics."""
LABELS = {
    "aggregator": "cosine",
    "aggregator/cosine": "cosine of two gradients",
    "aggregator/coefficient": "coefficient",
    "aggregator/weight": "weight",
    "aggregator/norm": "gradient norm",
    "rebrl/token_weight": "mean weight of a token",
    "rebrl/stage_credit": "share of the loss",
    "rebrl/gradient_norm": "gradient norm",
    "rebrl/clip_fraction": "share of tokens",
    "rebrl/kl": "KL a token (nats)",
}
APART = ("rebrl",)
"""Families whose members have different units: each has a figure of its own."""


def section(facts: Facts, maker: Maker) -> Section | None:
    """A figure a family of quantities and run."""
    blocks: list[Block] = []
    talking = [run for run in facts.runs if list(_names(run))]
    for run in talking[:SHOWN_RUNS]:
        blocks += _of_run(run, maker)
    if not blocks:
        return None
    if len(talking) > SHOWN_RUNS:
        blocks.append(NoteBlock(f"{len(talking) - SHOWN_RUNS} more runs are not drawn here."))
    return Section(
        "diagnostics",
        "Method diagnostics",
        "What the training method logged about itself: cosines between the rewards' gradients "
        "and their coefficients, token weights by decode group, credit by stage.",
        tuple(blocks),
    )


def _names(run: Run) -> Iterator[str]:
    for name in dict.fromkeys(k for m in run.metrics for k in m.values):
        if "/" in name and not name.startswith(_SKIPPED):
            yield name


def families(names: Sequence[str]) -> tuple[dict[str, list[str]], dict[str, dict[int, str]]]:
    """Sort metric names into lines over steps and profiles over an index.

    ``a/b/c`` joins the family ``a/b``, ``a/b`` the family ``a``; ``a/b_07`` is point 7 of the
    profile ``a/b``.
    """
    lines: dict[str, list[str]] = {}
    profiles: dict[str, dict[int, str]] = {}
    for name in names:
        if found := _INDEXED.match(name):
            profiles.setdefault(found[1], {})[int(found[2])] = name
            continue
        parts = name.split("/")
        if parts[1] == "cosine" and len(parts) == 4 and parts[2] == parts[3]:
            continue  # a gradient with itself
        own = len(parts) > 2 or parts[0] in APART
        lines.setdefault("/".join(parts[:2]) if own else parts[0], []).append(name)
    return lines, profiles


def _of_run(run: Run, maker: Maker) -> Iterator[Block]:
    lines, profiles = families(list(_names(run)))
    rewards, source = list(run.budgets), command_of(run)
    for family, members in sorted(lines.items()):
        if family in profiles:
            continue  # its profile says more than its mean
        series = {}
        for name in members[:SHOWN_LINES]:
            found = [(float(m.step), m.values[name]) for m in run.metrics if name in m.values]
            label = _label(name.removeprefix(f"{family}/"), rewards)
            series[label] = ([x for x, _ in found], [y for _, y in found])
        zero = 0.0 if "cosine" in " ".join(members) or "align" in family else None
        label = LABELS.get(family, family)
        info = lines_info(series, x_label="optimiser step", y_label=label, zero=zero)
        yield _drawn(info, family, run, maker, source)
    for family, points in sorted(profiles.items()):
        yield _profile(run, family, points, maker)


def _profile(run: Run, family: str, points: dict[int, str], maker: Maker) -> Block:
    index = sorted(points)
    logged = [m for m in run.metrics if any(points[i] in m.values for i in index)]
    nan = float("nan")
    ends = {"first optimiser step": logged[0], "last optimiser step": logged[-1]}
    series = {
        when: ([i + 1.0 for i in index], [m.values.get(points[i], nan) for i in index])
        for when, m in ends.items()
    }
    label = LABELS.get(family, family)
    info = lines_info(series, x_label="stage or decode group, first to last", y_label=label)
    return _drawn(info, family, run, maker, command_of(run))


def _drawn(info: Lines, family: str, run: Run, maker: Maker, source: str) -> Block:
    """A figure; one sentence if nothing ever moved."""
    title = f"{TITLES.get(family, family)}, {run.name}"
    values = {y for line in info.lines for y in line.y}
    if len(values) == 1:
        return NoteBlock(f"{title} ({family}): {number_text(values.pop())} throughout.")
    read = f"{READ.get(family, PLOTS.load('diagnostics').read)} Logged as {family}."
    return maker.figure("diagnostics", info, title=title, source=source, read=read)


def _label(member: str, rewards: Sequence[str]) -> str:
    """Indices of rewards as their names, where both are known."""
    parts = member.split("/")
    if all(part.isdigit() and int(part) < len(rewards) for part in parts):
        return " and ".join(rewards[int(part)] for part in parts)
    return member
