"""Read what a report is made of. Files are hostile: all text stays text, nothing is run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from recast_eval.content.yaml_text import parse_yaml
from recast_eval.errors import ConfigError, DataError
from recast_eval.judging.audit_records import AuditRecord
from recast_eval.judging.records import VerdictRecord
from recast_eval.records import (
    CreditRecord,
    ImageRecord,
    Manifest,
    MetricRecord,
    Record,
    ScoreRecord,
    read_json,
    read_records,
)

R = TypeVar("R", bound=Record)
_RUN = ("metrics.jsonl", "credit.jsonl")
_EVALUATION = ("scores.jsonl", "verdicts.jsonl")
_NOT_ENTERED = {"checkpoints", "images", "samples", "adapter", "state", "audit", "review"}
_DEPTH = 4


@dataclass(frozen=True, slots=True)
class Run:
    """A training run: one folder of ``runs/``."""

    name: str
    path: Path
    manifest: Manifest | None
    recipe: dict[str, Any]
    metrics: tuple[MetricRecord, ...]
    credits: tuple[CreditRecord, ...]
    samples: tuple[Path, ...]

    @property
    def credit_kind(self) -> str:
        """Which credit made its last W; empty if it has none."""
        return self.credits[-1].kind if self.credits else ""

    @property
    def budgets(self) -> dict[str, float]:
        """Reward -> budget of its last W."""
        if not self.credits:
            return {}
        last = self.credits[-1]
        return dict(zip(last.rewards, last.budgets, strict=False))

    @property
    def method(self) -> str:
        """What distinguishes it inside a sweep, seeds and budgets apart."""
        facts = self.manifest.facts if self.manifest else {}
        parts = [_name_in(self.recipe.get(key, facts.get(key))) for key in ("method", "aggregator")]
        words = [*(part for part in parts if part), self.credit_kind]
        return " + ".join(word for word in words if word) or self.name

    @property
    def seed(self) -> int | None:
        """Its seed, if it says one."""
        if self.manifest and self.manifest.seeds:
            seeds = self.manifest.seeds
            return seeds.get("run", seeds.get("seed", next(iter(seeds.values()))))
        seed = self.recipe.get("seed")
        return seed if isinstance(seed, int) else None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One folder of ``evals/``."""

    name: str
    path: Path
    manifest: Manifest | None
    scores: tuple[ScoreRecord, ...]
    verdicts: tuple[VerdictRecord, ...]
    images: dict[str, tuple[ImageRecord, ...]]
    """Model -> its images; the folder's name is the model's."""
    audit: AuditRecord | None = None

    @property
    def models(self) -> tuple[str, ...]:
        """All models named anywhere, as the manifest lists them, then by first appearance."""
        listed = self.manifest.facts.get("models") if self.manifest else None
        names = [str(name) for name in listed] if isinstance(listed, (list, dict)) else []
        names += [record.model for record in self.scores]
        names += [m for verdict in self.verdicts for m in (verdict.model_a, verdict.model_b)]
        names += list(self.images)
        return tuple(dict.fromkeys(names))


@dataclass(frozen=True, slots=True)
class Inputs:
    """All that was found, and what was odd about it."""

    runs: tuple[Run, ...]
    evaluations: tuple[Evaluation, ...]
    notes: tuple[str, ...] = ()
    given: tuple[str, ...] = field(default=())
    """The folders as they were named on the command line."""


def read_inputs(folders: Sequence[Path]) -> Inputs:
    """Read every run and evaluation in or below the folders given.

    Raises:
        ConfigError: A folder does not exist or holds neither; all of them are named.
        DataError: A file in one of them does not fit its schema.
    """
    problems, found, notes = [], [], list[str]()
    for folder in folders:
        if not folder.is_dir():
            problems.append(f"{folder}: no such folder; give folders of runs or evaluations")
            continue
        inside = list(_walk(folder, _DEPTH))
        if not inside:
            problems.append(
                f"{folder}: neither a run ({', '.join(_RUN)}) nor an evaluation "
                f"({', '.join(_EVALUATION)}, images/) in it or below it"
            )
        found += inside
    if problems:
        raise ConfigError(problems)
    unique = {path.resolve(): path for path in found}
    names = _names(list(unique.values()))
    runs, evaluations = [], []
    for path in unique.values():
        if _is_run(path):
            runs.append(_read_run(path, names[path], notes))
        if _is_evaluation(path):
            evaluations.append(_read_evaluation(path, names[path], notes))
    return Inputs(tuple(runs), tuple(evaluations), tuple(notes), tuple(map(str, folders)))


def _is_run(path: Path) -> bool:
    return any((path / name).is_file() for name in _RUN)


def _is_evaluation(path: Path) -> bool:
    return any((path / name).is_file() for name in _EVALUATION) or any(
        path.glob("images/*/metadata.jsonl")
    )


def _walk(folder: Path, depth: int) -> Iterator[Path]:
    if _is_run(folder) or _is_evaluation(folder):
        yield folder
    if depth:
        for child in sorted(folder.iterdir()):
            if child.is_dir() and not child.is_symlink() and child.name not in _NOT_ENTERED:
                yield from _walk(child, depth - 1)


def _names(paths: Sequence[Path]) -> dict[Path, str]:
    """Shortest endings of the paths that differ from each other."""
    whole = {path: path.resolve().parts for path in paths}
    for length in range(1, 12):
        short = {path: "/".join(parts[-length:]) for path, parts in whole.items()}
        if len(set(short.values())) == len(paths):
            return short
    return {path: str(path) for path in paths}


def _read_run(path: Path, name: str, notes: list[str]) -> Run:
    metrics = {r.step: r for r in _records(path / "metrics.jsonl", MetricRecord, notes)}
    credits = {r.epoch: r for r in _records(path / "credit.jsonl", CreditRecord, notes)}
    for record in credits.values():
        _check_credit(record, path / "credit.jsonl")
    samples = sorted(path.glob("samples/*.png"), key=lambda p: p.name)
    return Run(
        name,
        path,
        _manifest(path),
        _recipe(path / "recipe.yaml", notes),
        tuple(metrics[step] for step in sorted(metrics)),
        tuple(credits[epoch] for epoch in sorted(credits)),
        tuple(samples),
    )


def _check_credit(record: CreditRecord, path: Path) -> None:
    rewards, steps = len(record.rewards), len(record.sigmas) - 1
    if rewards < 1 or steps < 1:
        raise DataError(
            f"epoch {record.epoch}: a credit has rewards and two noise levels or more", path=path
        )
    rows = {
        "budgets": (record.budgets, rewards),
        "column_mass": (record.column_mass, steps),
        "reliability": (record.reliability, rewards),
    }
    for name, (row, width) in rows.items():
        if row is not None and len(row) != width:
            raise DataError(f"epoch {record.epoch}: {name} must be {width} numbers", path=path)
    tables = {
        "weights": (record.weights, steps),
        "curves": (record.curves, steps + 1),
        "curve_errors": (record.curve_errors, steps + 1),
        "gains": (record.gains, steps),
    } | {f"raw_curves.{k}": (v, steps + 1) for k, v in record.raw_curves.items()}
    for name, (table, width) in tables.items():
        if table is None:
            continue
        if len(table) != rewards or any(len(row) != width for row in table):
            raise DataError(
                f"epoch {record.epoch}: {name} must be {rewards} rows of {width}", path=path
            )


def _read_evaluation(path: Path, name: str, notes: list[str]) -> Evaluation:
    scores = {
        (r.model, r.prompt_id, r.sample, r.scorer): r
        for r in _records(path / "scores.jsonl", ScoreRecord, notes)
    }
    verdicts = {r.key(): r for r in _records(path / "verdicts.jsonl", VerdictRecord, notes)}
    images = {
        folder.parent.name: tuple(_records(folder, ImageRecord, notes))
        for folder in sorted(path.glob("images/*/metadata.jsonl"))
    }
    return Evaluation(
        name,
        path,
        _manifest(path),
        tuple(scores.values()),
        tuple(verdicts.values()),
        images,
        _audit(path / "audit.json", notes),
    )


def _records(path: Path, kind: type[R], notes: list[str]) -> list[R]:
    if not path.is_file():
        return []
    with path.open("rb") as file:
        file.seek(0, 2)
        if file.tell():
            file.seek(-1, 2)
            if file.read(1) != b"\n":
                notes.append(f"{path.parent.name}/{path.name}: a torn last line was left out.")
    return read_records(path, kind)


def _manifest(path: Path) -> Manifest | None:
    file = path / "manifest.json"
    return read_json(file, Manifest) if file.is_file() else None


def _recipe(path: Path, notes: list[str]) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        found = parse_yaml(path.read_text("utf-8"))
    except ValueError:
        notes.append(f"{path.parent.name}/{path.name} is no YAML and was left out.")
        return {}
    if not isinstance(found, dict):
        return {}
    if not _is_small(found):
        notes.append(f"{path.parent.name}/{path.name} is too large or repeats itself: left out.")
        return {}
    return found


def _is_small(tree: object, nodes: int = 10_000) -> bool:
    """Whether a tree has few nodes; aliases make one that does not end, or is astronomical."""
    level = [tree]
    while level and (nodes := nodes - len(level)) > 0:
        inner: list[object] = []
        for value in level:
            if isinstance(value, dict):
                inner += value.values()
            elif isinstance(value, list):
                inner += value
        level = inner
    return not level


def _audit(path: Path, notes: list[str]) -> AuditRecord | None:
    if not path.is_file():
        return None
    try:
        return read_json(path, AuditRecord)
    except DataError:
        notes.append(f"{path.parent.name}/{path.name} does not fit its schema and was left out.")
        return None


def _name_in(value: Any) -> str:
    if isinstance(value, dict):
        value = value.get("kind", value.get("name", ""))
    return value if isinstance(value, str) else ""
