"""VQAScore: P("Yes") to a question about the prompt (Lin et al. 2024, arXiv:2404.01291).

Any vision-language model of transformers that generates from a chat with images will do; the
published numbers belong to other weights (CLIP-FlanT5), so only compare within one card version.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from recast_eval.records import Failed, Scored
from recast_eval.scorers.base import Scorer, ScorerCard, ScorerSpec

CARD: Final = ScorerCard(
    name="vqa-score",
    version=1,
    family="qwen2.5-vl",
    what="a vision-language model answers yes when asked whether the picture shows the prompt",
    unit="probability of Yes against No",
    low=0.0,
    high=1.0,
    needs=("weights Qwen/Qwen2.5-VL-3B-Instruct", "pip install torchvision, for its processor"),
    source="https://github.com/linzhiqiu/t2v_metrics (question), https://github.com/QwenLM (model)",
    licence="Apache-2.0 code; the weights have their own",
    weights="Qwen/Qwen2.5-VL-3B-Instruct",
    preprocessing="the model's own processor, PNG pixels as they are",
)
QUESTION: Final = 'Does this figure show "{prompt}"? Please answer yes or no.'


class VqaScorer:
    """One image a call: padding a batch would move the logits."""

    card = CARD

    def __init__(self, model: Any, processor: Any) -> None:
        self._model, self._processor = model, processor
        tokenizer = processor.tokenizer
        self._answers = [tokenizer.encode(w, add_special_tokens=False)[0] for w in ("Yes", "No")]
        if self._answers[0] == self._answers[1]:
            raise ValueError("the model's tokenizer does not tell Yes from No")

    def __call__(
        self, images: Sequence[np.ndarray], prompts: Sequence[str]
    ) -> list[Scored | Failed]:
        """See ``Scorer``."""
        from recast_eval.scorers.each import check_batch

        check_batch(images, prompts)
        return [self._one(i, p) for i, p in zip(images, prompts, strict=True)]

    def _one(self, image: np.ndarray, prompt: str) -> Scored:
        import torch
        from PIL import Image

        question = QUESTION.replace("{prompt}", prompt)  # str.format would read braces in it
        chat = [
            {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": question}]}
        ]
        text = self._processor.apply_chat_template(chat, add_generation_prompt=True)
        inputs = self._processor(
            images=[Image.fromarray(image)], text=[text], return_tensors="pt"
        ).to(self._model.device)
        with torch.no_grad():
            logits = self._model(**inputs).logits[0, -1, self._answers].float()
        return Scored(value=float(logits.softmax(0)[0]), detail={"logits": logits.tolist()})


def build(*, device: str = "cpu", weights: str | None = None) -> Scorer:
    """See ``ScorerFactory``."""
    from transformers import AutoModelForImageTextToText, AutoProcessor

    from recast_eval.errors import MissingError
    from recast_eval.scorers.weights import load_pretrained

    try:  # first, since it is what may not load, and the model is large
        processor = load_pretrained(AutoProcessor, CARD, weights)
    except ImportError as error:
        reason = str(error).strip().splitlines()[0]
        raise MissingError(
            f"scorer vqa-score: its processor needs a package ({reason}): pip install torchvision"
        ) from error
    model = load_pretrained(AutoModelForImageTextToText, CARD, weights, use_safetensors=True)
    return VqaScorer(model.to(device).eval().requires_grad_(False), processor)


SPEC: Final = ScorerSpec(CARD, build)
