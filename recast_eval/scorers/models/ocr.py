"""Reward ``ocr``: the text that PP-OCRv4's recogniser reads against the text asked for.

Runs the recognition network of the rapidocr wheel on the ink alone, through onnxruntime:
neither OpenCV nor a detector is needed, and one picture takes about 8 ms on one thread.
"""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
from PIL import Image

from recast_eval.errors import MissingError
from recast_eval.records import Failed, Scored
from recast_eval.scorers.base import ScorerCard, ScorerSpec
from recast_eval.scorers.each import NOT_APPLICABLE, EachScorer
from recast_eval.scorers.text import asked_text, closeness, crop_text, plain

CARD: Final = ScorerCard(
    name="ocr",
    version=1,
    family="pp-ocr",
    what="the text read is the quoted text of the prompt",
    unit="1 - min(edit distance, length) / length",
    low=0.0,
    high=1.0,
    needs=("pip install 'recast-eval[ocr]' (rapidocr-onnxruntime, weights in the wheel)",),
    source="PP-OCRv4, Baidu; reward as in Flow-GRPO, Liu et al. 2025 (arXiv 2505.05470)",
    licence="Apache-2.0",
    weights="rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
    preprocessing="cut to the ink, 48 pixels high, width a multiple of 32 from 96 to 320",
)
_HEIGHT: Final = 48
_FILE: Final = "ch_PP-OCRv4_rec_infer.onnx"


def _weights_file(given: str | None) -> Path:
    if given:
        path = Path(given)
    else:
        spec = find_spec("rapidocr_onnxruntime")
        if spec is None or spec.origin is None:
            raise MissingError("ocr needs rapidocr-onnxruntime: pip install 'recast-eval[ocr]'")
        path = Path(spec.origin).parent / "models" / _FILE
    if not path.is_file():
        raise MissingError(f"ocr: no {path}; pip install --force-reinstall rapidocr-onnxruntime")
    return path


def prepare(crop: np.ndarray) -> np.ndarray:
    """A crop as the network takes it: float32 (1, 3, 48, W), BGR in [-1, 1], zero-padded."""
    height, width = crop.shape[:2]
    wanted = min(320, max(1, round(width * _HEIGHT / height)))
    image = Image.fromarray(crop).resize((wanted, _HEIGHT), Image.Resampling.BICUBIC)
    values = np.asarray(image, np.float32)[..., ::-1] / 127.5 - 1
    room = min(320, max(96, -(-(wanted + 8) // 32) * 32))
    out = np.zeros((1, 3, _HEIGHT, room), np.float32)
    out[0, :, :, :wanted] = values.transpose(2, 0, 1)
    return out


def _reader(path: Path) -> Callable[[np.ndarray], str]:
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingError("ocr needs onnxruntime: pip install 'recast-eval[ocr]'") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session: Any = onnxruntime.InferenceSession(
        str(path), options, providers=["CPUExecutionProvider"]
    )
    name = session.get_inputs()[0].name
    letters = session.get_modelmeta().custom_metadata_map["character"].splitlines()
    alphabet = ["", *letters, " "]  # place 0 is CTC's blank

    def read(crop: np.ndarray) -> str:
        best = session.run(None, {name: prepare(crop)})[0][0].argmax(axis=1)
        kept = [k for i, k in enumerate(best) if i == 0 or k != best[i - 1]]
        return "".join(alphabet[k] for k in kept)

    return read


def _build(*, device: str = "cpu", weights: str | None = None) -> EachScorer:
    del device  # onnxruntime's CPU build
    read = _reader(_weights_file(weights))

    def score(pixels: np.ndarray, prompt: str) -> Scored | Failed:
        asked = asked_text(prompt)
        if asked is None or not plain(asked):
            return Failed(reason=NOT_APPLICABLE, detail="the prompt quotes no text")
        crop = crop_text(pixels)
        text = read(crop) if crop is not None else ""
        return Scored(value=closeness(text, asked), detail={"read": text, "asked": asked})

    return EachScorer(CARD, score)


SPEC: Final = ScorerSpec(CARD, _build)
