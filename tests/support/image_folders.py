"""Small image folders with a table, as a user would give them."""

import json
from pathlib import Path

import numpy as np
from PIL import Image


def make_folder(
    folder: Path,
    *,
    prompts: int,
    samples: int = 1,
    seed: int = 0,
    size: int = 16,
    flat: bool = False,
) -> Path:
    """Random images (noise, or one colour each if ``flat``), ``metadata.jsonl`` beside them."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(seed)
    lines = []
    for i in range(prompts):
        for sample in range(samples):
            name = f"{i}-{sample}.png"
            drawn = (1, 1, 3) if flat else (size, size, 3)
            pixels = random.integers(0, 256, drawn, dtype=np.uint8)
            pixels = np.broadcast_to(pixels, (size, size, 3)).copy()
            Image.fromarray(pixels).save(folder / name)
            lines.append(
                {
                    "file_name": name,
                    "prompt": f"a card with the number {i}",
                    "prompt_id": f"p{i}",
                    "sample": sample,
                    "category": "numbers" if i % 2 else None,
                }
            )
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "metadata.jsonl").write_text(text, encoding="utf-8")
    return folder
