"""The files of a run, and what is already there."""

import fcntl
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml
from PIL import Image

from recast_eval.errors import ConfigError
from recast_eval.records import (
    CreditRecord,
    Manifest,
    MetricRecord,
    append_record,
    file_sha256,
    hardware,
    package_versions,
    read_records,
    write_atomic,
    write_json,
)
from recast_train.config import Plan, read_yaml

log = logging.getLogger(__name__)
_GAP: Final = 2
_OURS: Final = frozenset((".lock", "recipe.yaml", "manifest.json", "metrics.jsonl", "credit.jsonl"))
_FOLDERS: Final = frozenset(("samples", "checkpoints"))


class RunFolder:
    """``runs/NAME``: recipe, manifest, metrics, credit, samples, checkpoints, and who holds it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.recipe = root / "recipe.yaml"
        self.metrics = root / "metrics.jsonl"
        self.credit = root / "credit.jsonl"
        self.samples = root / "samples"
        self.checkpoints = root / "checkpoints"
        self.lock = root / ".lock"

    @contextmanager
    def held(self, *, flock: Callable[[int, int], None] = fcntl.flock) -> Iterator[None]:
        """Keep every other process from training here; the system lets go when we end, however.

        Args:
            flock: What locks a descriptor.

        Raises:
            ConfigError: Another process trains here, or the folder is not a run's.
        """
        self._refuse_others_files()
        self.root.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.lock, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            try:
                flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ConfigError(
                    [
                        f"{self.root}: another process is training here: wait for it or stop it, "
                        "or choose another --out"
                    ]
                ) from error
            except OSError as error:  # some network file systems have no locks
                log.warning("%s: cannot be locked (%s); start one run here", self.root, error)
            yield
        finally:
            os.close(descriptor)

    def prepare(self, plan: Plan, *, resume: bool) -> None:
        """Make the folder, or check that what is there is this very run.

        A start that ended before its first step (a wrong weights folder, a full disk) binds
        nothing: its recipe is replaced.

        Raises:
            ConfigError: The folder holds a run and ``resume`` is off, or another recipe's run.
        """
        if not (self.recipe.exists() and self._begun()):
            self._refuse_others_files()
            self.root.mkdir(parents=True, exist_ok=True)
            text = yaml.safe_dump(plan.values(), sort_keys=False, allow_unicode=True)
            write_atomic(self.recipe, text)
        elif changes := self._changes(plan):
            raise ConfigError(
                [
                    f"{self.recipe}: the recipe changed since the run began: "
                    f"{', '.join(changes)}; put it back, or choose another --out"
                ]
            )
        elif not resume:
            raise ConfigError(
                [f"{self.root} holds a run already: add --resume, or choose another --out"]
            )
        self.samples.mkdir(exist_ok=True)
        self.checkpoints.mkdir(exist_ok=True)

    def _begun(self) -> bool:
        """Whether a step was done here."""
        steps = self.metrics.exists() and self.metrics.stat().st_size > 0
        return steps or any(self.checkpoints.glob("step-*"))

    def _refuse_others_files(self) -> None:
        """A folder that is neither empty nor a run's is left alone."""
        found = {p.name for p in self.root.iterdir()} if self.root.exists() else set()
        if self.recipe.exists() and (self._begun() or found >= _FOLDERS):
            return
        others = {name for name in found - _OURS - _FOLDERS if not name.endswith(".part")}
        if others or self._begun() or found == {"recipe.yaml"}:  # a recipe alone is a user's own
            raise ConfigError([f"{self.root} is not empty and holds no run: choose another --out"])

    def same_recipe(self, plan: Plan) -> bool:
        """Whether the folder holds a run of this very recipe."""
        return self.recipe.exists() and not self._changes(plan)

    def _changes(self, plan: Plan) -> list[str]:
        before, now = _flat(read_yaml(self.recipe)), _flat(plan.values())
        return [
            f"{key} ({before.get(key, 'absent')!r} -> {now.get(key, 'absent')!r})"
            for key in sorted(before.keys() | now.keys())
            if before.get(key) != now.get(key)
        ]

    def write_manifest(self, plan: Plan, prompts_digest: str, facts: dict[str, Any]) -> None:
        """Say what made this run."""
        recipe = plan.recipe
        cards = {f"scorer:{n}": spec.card.digest() for n, spec in plan.rewards.items()}
        files = plan.credit_config.files() if hasattr(plan.credit_config, "files") else {}
        read = {f"credit:{n}": file_sha256(Path(path)) for n, path in files.items()}
        manifest = Manifest(
            command=["recast-train", *sys.argv[1:]],
            versions=package_versions(),
            hardware=hardware(),
            seeds={"recipe": recipe.seed},
            digests={"recipe": plan.digest(), "prompts": prompts_digest, **cards, **read},
            facts={
                "name": recipe.name,
                "budgets": dict(zip(recipe.rewards, plan.budgets.tolist(), strict=True)),
                "heldout": list(recipe.heldout),
                "allow_shared_family": recipe.allow_shared_family,
                "credit": plan.credit.name,
                "method": plan.method.name,
                "aggregator": plan.aggregator.name,
                **facts,
            },
        )
        write_json(self.root / "manifest.json", manifest)

    def rewind(self, *, step: int, epoch: int) -> None:
        """Drop what was recorded after a checkpoint, as it will be recorded again."""
        if self.metrics.exists():
            kept = [r for r in read_records(self.metrics, MetricRecord) if r.step <= step]
            write_atomic(self.metrics, "".join(r.model_dump_json() + "\n" for r in kept))
        if self.credit.exists():
            credit = [r for r in read_records(self.credit, CreditRecord) if r.epoch < epoch]
            write_atomic(self.credit, "".join(r.model_dump_json() + "\n" for r in credit))

    def add_metric(self, record: MetricRecord) -> None:
        """Append a line to ``metrics.jsonl``."""
        append_record(self.metrics, record)

    def add_credit(self, record: CreditRecord) -> None:
        """Append a line to ``credit.jsonl``."""
        append_record(self.credit, record)

    def save_grid(self, name: str, images: np.ndarray) -> None:
        """Write pictures (N, H, W, 3) as one near-square sheet."""
        count, height, width, _ = images.shape
        columns = int(np.ceil(np.sqrt(count)))
        rows = -(-count // columns)
        sheet = np.full(
            (rows * (height + _GAP) + _GAP, columns * (width + _GAP) + _GAP, 3), 255, np.uint8
        )
        for i, image in enumerate(images):
            row, column = divmod(i, columns)
            y, x = _GAP + row * (height + _GAP), _GAP + column * (width + _GAP)
            sheet[y : y + height, x : x + width] = image
        part = self.samples / f".{name}.part"
        Image.fromarray(sheet).save(part, format="PNG")
        part.replace(self.samples / f"{name}.png")


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {prefix: value}
    inner = [_flat(v, f"{prefix}.{k}" if prefix else str(k)) for k, v in value.items()]
    return {k: v for part in inner for k, v in part.items()}
