"""What made a result: versions, hardware, seeds, digests. No keys, no user names."""

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

from pydantic import Field

from recast_eval.records.base import Record

_PACKAGES = ("recast-eval", "torch", "diffusers", "transformers", "peft", "numpy", "openai")


class Manifest(Record):
    """``manifest.json`` of a run or an evaluation."""

    schema_version: Literal[1] = 1
    command: list[str]
    versions: dict[str, str]
    hardware: dict[str, str]
    seeds: dict[str, int] = Field(default_factory=dict)
    digests: dict[str, str] = Field(default_factory=dict)
    """What -> digest: recipe, prompt set, images, cards."""
    facts: dict[str, Any] = Field(default_factory=dict)
    """Anything else that a comparison needs: budgets, roles, sampler."""


def package_versions() -> dict[str, str]:
    """Installed versions of what changes numbers."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "absent"
    return found


def hardware() -> dict[str, str]:
    """The machine in words, without its name or its user's."""
    import torch  # here: reading a manifest must not pay for it

    devices = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "machine": platform.machine(),
        "system": platform.system(),
        "threads": str(torch.get_num_threads()),
        "devices": ", ".join(devices) or "cpu",
    }
