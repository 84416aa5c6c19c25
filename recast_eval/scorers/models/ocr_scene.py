"""Reward ``ocr-scene``: the text that PP-OCRv4 finds in a photo against the text asked for.

Detection and recognition by rapidocr; the distance is that of the OCR reward of Flow-GRPO and
DiffusionNFT, which read with PaddleOCR's own runtime: close to their numbers, not equal.
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from recast_eval.errors import MissingError
from recast_eval.records import Failed, Scored
from recast_eval.scorers.base import ScorerCard, ScorerSpec
from recast_eval.scorers.each import NOT_APPLICABLE, EachScorer
from recast_eval.scorers.text import first_quoted, scene_closeness

CARD: Final = ScorerCard(
    name="ocr-scene",
    version=1,
    family="pp-ocr",
    what="the text in the prompt's first double quotes can be read in the picture",
    unit="1 - min(edit distance, length) / length; 1 if it is contained in all that is read",
    low=0.0,
    high=1.0,
    needs=("pip install 'recast-eval[ocr]' (rapidocr-onnxruntime, weights in the wheel)",),
    source="PP-OCRv4, Baidu; reward as in Flow-GRPO, Liu et al. 2025 (arXiv 2505.05470)",
    licence="Apache-2.0",
    weights="rapidocr_onnxruntime/models/ch_PP-OCRv4_{det,rec}_infer.onnx",
    preprocessing="longer side at most 960 pixels up to 959, 1500 up to 1499, then 2000; no "
    "turned lines; lines of confidence 0.5 and more, top to bottom",
)


def collect_text(prompt: str, read: Callable[[], str]) -> Scored | Failed:
    """Score what an engine reads in a whole picture; it is not asked where nothing is quoted."""
    asked = first_quoted(prompt)
    if asked is None:
        return Failed(reason=NOT_APPLICABLE, detail="the prompt quotes no text")
    text = read()
    return Scored(value=scene_closeness(text, asked), detail={"read": text, "asked": asked})


def _engine() -> Any:
    try:
        from rapidocr_onnxruntime import RapidOCR
    except ImportError as error:
        raise MissingError(
            f"ocr-scene needs {error.name}: pip install 'recast-eval[ocr]'"
        ) from error
    engine = RapidOCR(intra_op_num_threads=1, inter_op_num_threads=1, use_cls=False)
    # PaddleOCR's rule, as in the published reward: small pictures are not enlarged.
    engine.text_det.limit_type = "max"
    return engine


def _build(*, device: str = "cpu", weights: str | None = None) -> EachScorer:
    del device, weights  # onnxruntime's CPU build, the wheel's own networks
    engine = _engine()

    def read(pixels: np.ndarray) -> str:
        lines, _ = engine(np.ascontiguousarray(pixels[..., ::-1]))  # the networks take BGR
        return " ".join(text for _, text, _ in lines or ())

    return EachScorer(CARD, lambda pixels, prompt: collect_text(prompt, lambda: read(pixels)))


SPEC: Final = ScorerSpec(CARD, _build)
