"""Area of visible text in a picture, by PP-OCRv4's text detector."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
from PIL import Image

from recast_eval.errors import MissingError
from recast_eval.judging.audit_pictures import Pixels, TextArea

_FILE: Final = "ch_PP-OCRv4_det_infer.onnx"
_SIDE: Final = 736
"""Longer side as the network sees it; whole multiples of 32."""
_CERTAIN: Final = 0.3
"""Probability from which a pixel is text; the detector's own default."""
_HINT: Final = "--text needs rapidocr-onnxruntime: pip install 'recast-eval[ocr]'"


def text_area() -> TextArea:
    """Build the detector.

    Returns:
        Pixels -> share of the picture that the network calls the core of text lines, in [0, 1]:
        a little less than the lines themselves, by the same rule for every picture.

    Raises:
        MissingError: onnxruntime or the network is not installed.

    References:
        Liao et al. 2020, Real-time scene text detection with differentiable binarization,
        arXiv 1911.08947.
    """
    spec = find_spec("rapidocr_onnxruntime")
    if spec is None or spec.origin is None:
        raise MissingError(_HINT)
    path = Path(spec.origin).parent / "models" / _FILE
    if not path.is_file():
        raise MissingError(f"no {path}; {_HINT}")
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingError(_HINT) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session: Any = onnxruntime.InferenceSession(
        str(path), options, providers=["CPUExecutionProvider"]
    )
    name = session.get_inputs()[0].name

    def measure(pixels: Pixels) -> float:
        probability = session.run(None, {name: _prepared(pixels)})[0]
        return float((probability > _CERTAIN).mean())

    return measure


def _prepared(pixels: Pixels) -> np.ndarray:
    """Float32 (1, 3, H, W), BGR in [-1, 1], sides of whole multiples of 32."""
    height, width = pixels.shape[:2]
    scale = _SIDE / max(height, width)
    size = [max(32, round(side * scale / 32) * 32) for side in (width, height)]
    image = Image.fromarray(pixels).resize((size[0], size[1]), Image.Resampling.BICUBIC)
    values = np.asarray(image, np.float32)[..., ::-1] / 127.5 - 1
    return np.ascontiguousarray(values.transpose(2, 0, 1)[None])
