"""Folders that can be scored: pictures with a table, and a checkpoint."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from recast_eval.content.prompts import Prompt
from recast_eval.records import (
    CheckpointCard,
    file_sha256,
    write_json,
)

PROMPTS = [Prompt(prompt_id=f"p-{i}", prompt=f"thing {i}", category="x") for i in range(5)]


def image_folder(folder: Path, names: Sequence[str] = (), **extra: Any) -> Path:
    folder.mkdir(parents=True)
    lines = []
    for i, prompt in enumerate(PROMPTS):
        name = names[i] if names else f"{i}.png"
        Image.new("RGB", (8, 8), (i * 40, 0, 0)).save(folder / name)
        row = {"file_name": name, "prompt": prompt.prompt, "prompt_id": prompt.prompt_id} | extra
        lines.append(json.dumps(row))
    (folder / "metadata.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def checkpoint(folder: Path, rewards: dict[str, str] | None = None, **extra: Any) -> Path:
    (folder / "adapter").mkdir(parents=True)
    (folder / "adapter/pytorch_lora_weights.safetensors").write_bytes(b"weights of " + b"x" * 50)
    (folder / "adapter/adapter_config.json").write_text("{}", encoding="utf-8")
    files = {
        p.relative_to(folder).as_posix(): file_sha256(p) for p in sorted(folder.glob("adapter/*"))
    }
    card = CheckpointCard(
        base_model="owner/base",
        policy=extra.pop("policy", "sd3"),
        step=20,
        recipe_name="r",
        recipe_digest="d",
        rewards=rewards or {"composition": "card-segmentation"},
        sampler={"steps": 10, "guidance_scale": 1.0, "solver": "euler", "shift": None},
        files=files,
        **extra,
    )
    write_json(folder / "checkpoint.json", card)
    return folder
