"""Draw a scene as a card. What the scene leaves open is drawn from ``rng``."""

import math
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from recast_eval.scorers.world.scene import BACKGROUNDS, COLORS, SIZE, Item, Scene

_SCALE: Final = 4  # drawn larger, then reduced: smooth edges
Point = tuple[float, float]


@lru_cache(maxsize=64)
def _font(size: int) -> ImageFont.FreeTypeFont:
    import matplotlib as mpl  # ships DejaVu, so that no system font is needed

    path = Path(mpl.get_data_path()) / "fonts" / "ttf" / "DejaVuSans-Bold.ttf"
    return ImageFont.truetype(str(path), size)


def _polygon(shape: str, x: float, y: float, r: float) -> list[Point]:
    def ring(n: int, radius: float, phase: float) -> list[Point]:
        turn = [phase + 2 * math.pi * i / n for i in range(n)]
        return [(x + radius * math.sin(a), y - radius * math.cos(a)) for a in turn]

    if shape == "square":
        h = 0.86 * r
        return [(x - h, y - h), (x + h, y - h), (x + h, y + h), (x - h, y + h)]
    if shape == "diamond":
        return [(x, y - 1.1 * r), (x + 0.75 * r, y), (x, y + 1.1 * r), (x - 0.75 * r, y)]
    if shape == "triangle":
        return [(x, y - r), (x + r, y + 0.8 * r), (x - r, y + 0.8 * r)]
    if shape == "star":
        outer, inner = ring(5, 1.1 * r, 0), ring(5, 0.45 * r, math.pi / 5)
        return [p for pair in zip(outer, inner, strict=True) for p in pair]
    if shape == "cross":
        w = 0.34 * r
        half = [(-w, -r), (w, -r), (w, -w), (r, -w), (r, w), (w, w)]
        return [(x + a, y + b) for a, b in half] + [(x - a, y - b) for a, b in half]
    if shape == "heart":
        turn = np.linspace(0, 2 * math.pi, 40, endpoint=False)
        hx = 16 * np.sin(turn) ** 3
        hy = 13 * np.cos(turn) - 5 * np.cos(2 * turn) - 2 * np.cos(3 * turn) - np.cos(4 * turn)
        return [(x + r * a / 16, y - r * b / 16) for a, b in zip(hx, hy, strict=True)]
    raise ValueError(f"no shape called {shape!r}")


def _draw_shape(
    pen: ImageDraw.ImageDraw, shape: str, at: Point, r: float, color: str, back: str
) -> None:
    x, y, r = at[0] * _SCALE, at[1] * _SCALE, r * _SCALE
    fill = COLORS[color]
    if shape in ("circle", "ring"):
        pen.ellipse([x - r, y - r, x + r, y + r], fill=fill)
        if shape == "ring":
            h = 0.55 * r
            pen.ellipse([x - h, y - h, x + h, y + h], fill=BACKGROUNDS[back])
    else:
        pen.polygon(_polygon(shape, x, y, r), fill=fill)


def _places(scene: Scene, rng: np.random.Generator) -> list[tuple[Point, float]]:
    """Centre and radius of each thing, in card pixels, none touching another."""
    total = sum(i.count for i in scene.items)
    mid = SIZE / 2
    if total == 1:
        r = rng.uniform(13, 20)
        x, y = rng.uniform(mid - 6, mid + 6, 2)
        return [((x, y), r)]
    if total == 2:
        relation = scene.relation or ("left of", "above", "right of", "below")[rng.integers(4)]
        radii = rng.uniform(10, 13.5, 2)
        along, across = 16 + rng.uniform(-1, 1), rng.uniform(-5, 5, 2)
        sign = -1 if relation in ("above", "left of") else 1
        ends = [(mid + sign * along, mid + across[0]), (mid - sign * along, mid + across[1])]
        if relation in ("above", "below"):
            ends = [(b, a) for a, b in ends]
        return [(e, float(q)) for e, q in zip(ends, radii, strict=True)]
    jitter = rng.uniform(-1.5, 1.5, (total, 2))
    grid = [(17, 17), (47, 17), (17, 47), (47, 47)]
    if total == 3:
        grid = (
            [(32, 16), (16, 46), (48, 46)] if rng.random() < 0.5 else [(16, 18), (48, 18), (32, 47)]
        )
    r = rng.uniform(9, 12)
    return [((x + a, y + b), r) for (x, y), (a, b) in zip(grid, jitter, strict=True)]


def _write(pen: ImageDraw.ImageDraw, text: str, color: str, rng: np.random.Generator) -> None:
    size = {1: 46, 2: 34, 3: 25, 4: 19}[len(text)] * _SCALE
    size = int(size * rng.uniform(0.92, 1.04))
    x, y = (SIZE / 2 + rng.uniform(-1.5, 1.5, 2) * (1 if len(text) > 1 else 3)) * _SCALE
    pen.text((x, y), text, font=_font(size), anchor="mm", fill=COLORS[color])


def draw_card(scene: Scene, rng: np.random.Generator) -> Image.Image:
    """Draw ``scene`` as an RGB picture of ``SIZE`` x ``SIZE`` pixels.

    Args:
        scene: What must be seen.
        rng: Chooses what the scene leaves open: colours, places, sizes.
    """
    back = scene.background or str(rng.choice(list(BACKGROUNDS)))
    image = Image.new("RGB", (SIZE * _SCALE, SIZE * _SCALE), BACKGROUNDS[back])
    pen = ImageDraw.Draw(image)

    def pick(color: str | None) -> str:
        return color or str(rng.choice(list(COLORS)))

    if scene.word:
        _write(pen, scene.word.text, pick(scene.word.color), rng)
    else:
        things: list[Item] = [i for i in scene.items for _ in range(i.count)]
        for item, (at, r) in zip(things, _places(scene, rng), strict=True):
            _draw_shape(pen, item.shape, at, r, pick(item.color), back)
    return image.resize((SIZE, SIZE), Image.Resampling.LANCZOS)
