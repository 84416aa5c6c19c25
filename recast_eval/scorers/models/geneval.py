"""GenEval: objects, counts, colours and places, by a detector and CLIP (arXiv:2310.11513).

Mask2Former and CLIP through transformers instead of mmdet: same architecture and training data,
so that accuracies are close to the published ones and not equal to them.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from recast_eval.records import Failed, Scored
from recast_eval.scorers.base import Scorer, ScorerCard, ScorerSpec
from recast_eval.scorers.needed import CLIP_TOKENIZER, pretrained

CARD: Final = ScorerCard(
    name="geneval",
    version=1,
    family="geneval",
    what="the objects asked for are there, in the number, colours and places asked for",
    unit="share of what was asked for (strict verdict in `detail.correct`)",
    low=0.0,
    high=1.0,
    needs=(
        "weights facebook/mask2former-swin-small-coco-instance in a folder detector/",
        "weights openai/clip-vit-large-patch14 in a folder clip/",
    ),
    source="https://github.com/djghosh13/geneval",
    licence="MIT (rule), MIT and Apache-2.0 (weights)",
    weights="facebook/mask2former-swin-small-coco-instance",
    preprocessing="the detector's own; colours on the object's pixels, the rest made grey",
)
CLIP_WEIGHTS: Final = "openai/clip-vit-large-patch14"
THRESHOLD, COUNTING_THRESHOLD = 0.3, 0.9
"""Least confidence of a detection; counting prompts use the higher one, as published."""


class GenevalScorer:
    """Detects, names colours where colours were asked for, and applies the rule."""

    card = CARD

    def __init__(self, detector: Any, processor: Any, clip: Any) -> None:
        self._detector, self._processor, self._clip = detector, processor, clip
        self._names: dict[int, str] = dict(detector.config.id2label)

    def __call__(
        self, images: Sequence[np.ndarray], prompts: Sequence[str]
    ) -> list[Scored | Failed]:
        """See ``Scorer``; a prompt that is not GenEval's is a failure, never a zero."""
        from recast_eval.scorers.each import check_batch

        check_batch(images, prompts)
        return [self._one(i, p) for i, p in zip(images, prompts, strict=True)]

    def _one(self, image: np.ndarray, prompt: str) -> Scored | Failed:
        from recast_eval.scorers.each import NOT_APPLICABLE
        from recast_eval.scorers.geneval_prompts import parse_geneval
        from recast_eval.scorers.geneval_rule import judge

        request = parse_geneval(prompt, frozenset(self._names.values()))
        if request is None:
            return Failed(reason=NOT_APPLICABLE, detail="not a GenEval prompt")
        colors = {w.name for w in request.objects if w.color}
        counting = len(request.objects) == 1 and request.objects[0].count > 1
        found = self._detect(image, COUNTING_THRESHOLD if counting else THRESHOLD, colors)
        verdict = judge(request, found)
        seen = [{"name": d.name, "score": round(d.score, 4), "color": d.color} for d in found]
        return Scored(value=verdict.score, detail={"correct": verdict.correct, "found": seen})

    def _detect(self, image: np.ndarray, threshold: float, colors: set[str]) -> list[Any]:
        import torch
        from PIL import Image

        from recast_eval.scorers.geneval_rule import Detection

        inputs = self._processor(images=[Image.fromarray(image)], return_tensors="pt")
        with torch.no_grad():
            outputs = self._detector(**inputs.to(self._detector.device))
        result = self._processor.post_process_instance_segmentation(
            outputs, threshold=threshold, target_sizes=[image.shape[:2]], return_binary_maps=True
        )[0]
        found = []
        masks = result["segmentation"]
        for info in result["segments_info"]:
            mask = np.asarray(masks[info["id"]]).astype(bool)
            rows, cols = np.nonzero(mask.any(1))[0], np.nonzero(mask.any(0))[0]
            if not rows.size:
                continue
            box = (float(cols[0]), float(rows[0]), float(cols[-1] + 1), float(rows[-1] + 1))
            name = self._names[info["label_id"]]
            color = self._color(image, mask, box, name) if name in colors else None
            found.append(Detection(name, float(info["score"]), box, color))
        return found

    def _color(
        self, image: np.ndarray, mask: np.ndarray, box: tuple[float, ...], name: str
    ) -> str | None:
        from recast_eval.scorers.geneval_prompts import COLORS

        left, top, right, bottom = map(int, box)
        crop = np.where(mask[..., None], image, np.uint8(153))[top:bottom, left:right]
        texts, _ = self._clip.texts([f"a photo of a {c} {name}" for c in COLORS])
        return COLORS[int((self._clip.images([crop]) @ texts.T).argmax())]


PARTS: Final = (
    pretrained(CARD.weights, folder="detector"),
    pretrained(CLIP_WEIGHTS, tokenizer=CLIP_TOKENIZER, folder="clip"),
)


def build(*, device: str = "cpu", weights: str | None = None) -> Scorer:
    """See ``ScorerFactory``; a local folder holds ``detector/`` and ``clip/``."""
    from pathlib import Path

    from transformers import Mask2FormerForUniversalSegmentation, Mask2FormerImageProcessorPil

    from recast_eval.scorers.clip import Clip
    from recast_eval.scorers.weights import check_files, load_pretrained, locate

    check_files(CARD, weights, PARTS)
    folder = Path(locate(CARD, weights))
    local = folder.is_dir()
    detector = str(folder / "detector") if local else weights
    model = load_pretrained(
        Mask2FormerForUniversalSegmentation, CARD, detector, use_safetensors=True
    )
    processor = load_pretrained(Mask2FormerImageProcessorPil, CARD, detector)
    clip = Clip.load(CARD, str(folder / "clip") if local else CLIP_WEIGHTS, device)
    return GenevalScorer(model.to(device).eval().requires_grad_(False), processor, clip)


SPEC: Final = ScorerSpec(CARD, build, parts=PARTS)
