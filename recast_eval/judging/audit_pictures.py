"""Picture properties, and what they do to a judge's verdicts.

A judge may rightly like brighter pictures; a reader must know that it does. The raw share
(does the brighter one win?) mixes the models in, the slope holds them apart.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, UInt8
from scipy import ndimage

from recast_eval.errors import DataError
from recast_eval.images import load_image
from recast_eval.judging.audit_measures import measure, share
from recast_eval.judging.audit_records import Measure, NotMeasured, PropertyBias
from recast_eval.judging.records import VerdictRecord
from recast_eval.stats import Undefined, adjusted_win_rate, holm

Pixels = UInt8[np.ndarray, "height width 3"]
Key = tuple[str, str, int]
"""(model, prompt_id, sample)."""

TextArea = Callable[[Pixels], float]
"""Share of the picture covered by text that a reader sees, in [0, 1]."""


def brightness(pixels: Pixels) -> float:
    """Mean luma (Rec. 601), in [0, 1]."""
    return float((pixels @ np.array([0.299, 0.587, 0.114])).mean() / 255)


def saturation(pixels: Pixels) -> float:
    """Mean HSV saturation, in [0, 1]."""
    high = pixels.max(axis=2).astype(np.float64)
    low = pixels.min(axis=2)
    return float(np.divide(high - low, high, out=np.zeros_like(high), where=high > 0).mean())


def sharpness(pixels: Pixels) -> float:
    """Log of one plus the variance of the Laplacian of luma on the 0-255 scale."""
    luma = pixels @ np.array([0.299, 0.587, 0.114])
    return float(np.log1p(ndimage.laplace(luma).var()))


def properties_of(path: Path, text: TextArea | None) -> dict[str, float]:
    """Measure one picture as judges see it.

    Raises:
        DataError: The file is no whole image.
    """
    pixels = load_image(path).pixels
    found = {
        "brightness": brightness(pixels),
        "saturation": saturation(pixels),
        "sharpness": sharpness(pixels),
        "megapixels (log)": float(np.log(pixels.shape[0] * pixels.shape[1] / 1e6)),
        "aspect ratio (log)": float(np.log(pixels.shape[1] / pixels.shape[0])),
        "file size (log)": float(np.log(path.stat().st_size)),
    }
    if text is not None:
        found["text area"] = text(pixels)
    return found


def measure_pictures(
    paths: Mapping[Key, Path],
    text: TextArea | None = None,
    on_picture: Callable[[], None] = lambda: None,
) -> tuple[dict[Key, dict[str, float]], list[str]]:
    """Measure all pictures, and list those that could not be."""
    found: dict[Key, dict[str, float]] = {}
    problems = []
    for key, path in paths.items():
        try:
            found[key] = properties_of(path, text)
        except DataError as error:
            problems.append(str(error))
        on_picture()
    return found, problems


class PropertyAudit(NamedTuple):
    """Properties of one judge's pairs."""

    biases: list[PropertyBias]
    raw: Measure
    adjusted: Measure
    pair: list[str]


def property_audit(
    records: Sequence[VerdictRecord], axis: str, pictures: Mapping[Key, dict[str, float]]
) -> PropertyAudit:
    """Set a judge's verdicts against the properties of the pictures it saw."""
    rows = []
    for record in records:
        outcome = record.axes.get(axis)
        sides = [pictures.get((m, record.prompt_id, record.sample)) for m in _models(record)]
        if outcome is None or outcome.score_a is None or sides[0] is None or sides[1] is None:
            continue
        score = outcome.score_a if _models(record)[0] == record.model_a else 1 - outcome.score_a
        gap = {name: sides[0][name] - sides[1][name] for name in sides[0] if name in sides[1]}
        rows.append((_models(record), record.prompt_id, score, gap))
    if not rows:
        reason = NotMeasured(reason="no scored pair has both pictures here")
        return PropertyAudit([], reason, reason, [])
    pairs = [row[0] for row in rows]
    main = max(dict.fromkeys(pairs), key=pairs.count)
    mine = [row for row in rows if row[0] == main]
    names = list(rows[0][3])
    prompts, scores = [row[1] for row in mine], [row[2] for row in mine]
    gaps = {name: [row[3][name] for row in mine] for name in names}
    raw = share(scores, prompts, "")
    joint = adjusted_win_rate(scores, prompts, gaps)
    adjusted: Measure = (
        NotMeasured(reason=joint.reason)
        if isinstance(joint, Undefined)
        else measure(joint.adjusted, len(scores), len(set(prompts)))
    )
    slopes = {name: _slope(scores, prompts, name, gaps[name]) for name in names}
    known = [name for name, (_, p) in slopes.items() if p is not None]
    adjusted_p = dict(zip(known, holm([slopes[name][1] or 0.0 for name in known]), strict=True))
    biases = [
        PropertyBias(
            name=name,
            higher_wins=_higher_wins(rows, name),
            slope=slopes[name][0],
            p_holm=float(adjusted_p.get(name, 1.0)),
        )
        for name in names
    ]
    return PropertyAudit(biases, raw, adjusted, list(main))


def _slope(
    scores: Sequence[float], prompts: Sequence[str], name: str, gaps: Sequence[float]
) -> tuple[Measure, float | None]:
    """One property by itself: beside others that go with it, each would hide the other."""
    found = adjusted_win_rate(scores, prompts, {name: gaps})
    if isinstance(found, Undefined):
        return NotMeasured(reason=found.reason), None
    if not found.slopes:
        return NotMeasured(reason="the pictures never differ in it"), None
    slope = found.slopes[0]
    return measure(slope.log_odds, found.n_pairs, found.n_prompts), slope.p


def _models(record: VerdictRecord) -> tuple[str, str]:
    low, high = sorted((record.model_a, record.model_b))
    return low, high


def _higher_wins(
    rows: Sequence[tuple[tuple[str, str], str, float, dict[str, float]]], name: str
) -> Measure:
    gaps: Float[np.ndarray, " pair"] = np.array([row[3].get(name, 0.0) for row in rows])
    tiny = 1e-9 * max(1.0, float(np.abs(gaps).max()))
    keep = [i for i, gap in enumerate(gaps) if abs(gap) > tiny]
    values = [rows[i][2] if gaps[i] > 0 else 1 - rows[i][2] for i in keep]
    return share(values, [rows[i][1] for i in keep], "the pictures never differ in it")
