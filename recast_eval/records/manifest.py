"""What made a result: versions, hardware, seeds, digests. No keys, no user names."""

import os
import platform
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from recast_eval.records.base import Record

_PACKAGES = ("recast-eval", "torch", "diffusers", "transformers", "peft", "numpy", "openai")


def plain_word(word: Any) -> Any:
    """A word of a command line as a manifest keeps it.

    UTF-8 whatever the locale (bytes that are none become a mark), and ``~`` for the home
    folder, which names the user.
    """
    if not isinstance(word, str):
        return word
    text = os.fsencode(word).decode("utf-8", "replace")
    home = str(Path("~").expanduser())
    if len(home) < 2:
        return text
    return re.sub(rf"(^|=){re.escape(home)}(?=/|$)", r"\1~", text)


class Manifest(Record):
    """``manifest.json`` of a run or an evaluation."""

    schema_version: Literal[1] = 1
    command: list[Annotated[str, BeforeValidator(plain_word)]]
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
