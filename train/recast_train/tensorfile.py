"""Nested state in one safetensors file: tensors as tensors, the rest as JSON. No pickle."""

import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

_JSON = "recast"


def _split(value: Any, name: str, tensors: dict[str, torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        tensors[name] = value.detach().cpu().contiguous().clone()
        return {"__tensor__": name}
    if isinstance(value, dict):
        return {"__dict__": [[k, _split(v, f"{name}.{k}", tensors)] for k, v in value.items()]}
    if isinstance(value, list | tuple):
        return [_split(v, f"{name}.{i}", tensors) for i, v in enumerate(value)]
    return value


def _join(value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    if isinstance(value, dict) and "__tensor__" in value:
        return tensors[value["__tensor__"]]
    if isinstance(value, dict):
        return {k: _join(v, tensors) for k, v in value["__dict__"]}
    if isinstance(value, list):
        return [_join(v, tensors) for v in value]
    return value


def save_state(path: Path, state: dict[str, Any]) -> None:
    """Write nested dicts and lists of tensors and JSON values, whole or not at all.

    Tuples come back as lists; keys may be strings or integers.
    """
    tensors: dict[str, torch.Tensor] = {}
    text = json.dumps(_split(state, "", tensors), allow_nan=False)
    part = path.with_name(path.name + ".part")
    save_file(tensors, part, metadata={_JSON: text})
    with part.open("rb+") as file:
        os.fsync(file.fileno())
    part.replace(path)


def load_state(path: Path) -> dict[str, Any]:
    """Read what ``save_state`` wrote.

    Raises:
        ValueError: The file is not one of ours.
    """
    with safe_open(path, framework="pt") as file:
        text = (file.metadata() or {}).get(_JSON)
        if text is None:
            raise ValueError(f"{path} has no recast state in it")
        tensors = {k: file.get_tensor(k) for k in file.keys()}  # noqa: SIM118 - not a dict
    state: dict[str, Any] = _join(json.loads(text), tensors)
    return state
