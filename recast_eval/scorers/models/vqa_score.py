"""VQAScore: P("Yes") to a question about the prompt (Lin et al. 2024, arXiv:2404.01291).

Any vision-language model of transformers that generates from a chat with images will do; the
published numbers belong to other weights (CLIP-FlanT5), so only compare within one card version.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from recast_eval.records import Failed, Scored
from recast_eval.scorers.base import Scorer, ScorerCard, ScorerSpec
from recast_eval.scorers.needed import CLIP_TOKENIZER, pretrained

CARD: Final = ScorerCard(
    name="vqa-score",
    version=2,
    family="qwen2.5-vl",
    what="a vision-language model answers yes when asked whether the picture shows the prompt",
    unit="probability of Yes against No",
    low=0.0,
    high=1.0,
    needs=("weights Qwen/Qwen2.5-VL-3B-Instruct",),
    source="https://github.com/linzhiqiu/t2v_metrics (question), https://github.com/QwenLM (model)",
    licence="Apache-2.0 code; the weights have their own",
    weights="Qwen/Qwen2.5-VL-3B-Instruct",
    preprocessing="Qwen2-VL's own, through Pillow; another model's own processor",
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

    def _one(self, image: np.ndarray, prompt: str) -> Scored | Failed:
        import torch
        from PIL import Image

        question = QUESTION.replace("{prompt}", prompt)  # str.format would read braces in it
        chat = [
            {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": question}]}
        ]
        text = self._processor.apply_chat_template(chat, add_generation_prompt=True)
        try:
            inputs = self._processor(
                images=[Image.fromarray(image)], text=[text], return_tensors="pt"
            ).to(self._model.device)
        except ValueError as error:  # a strip that is too thin, say
            return Failed(
                reason="image_error", detail=f"the processor refuses the picture: {error}"
            )
        with torch.no_grad():
            logits = self._model(**inputs).logits[0, -1, self._answers].float()
        return Scored(value=float(logits.softmax(0)[0]), detail={"logits": logits.tolist()})


def load_processor(weights: str | None) -> Any:
    """What turns a chat with a picture into the model's inputs.

    Qwen's processors load their video half with torchvision, which no picture needs: they are put
    together without it, always with Pillow, so that an installed torchvision changes no score.

    Raises:
        MissingError: The files are not here, or another model's processor needs a package.
    """
    from transformers import AutoConfig, AutoProcessor, AutoTokenizer

    from recast_eval.errors import MissingError
    from recast_eval.scorers.weights import load_pretrained, locate

    if load_pretrained(AutoConfig, CARD, weights).model_type not in ("qwen2_vl", "qwen2_5_vl"):
        try:
            return load_pretrained(AutoProcessor, CARD, weights)
        except ImportError as error:
            reason = str(error).strip().splitlines()[0]
            raise MissingError(
                f"scorer vqa-score: this model's processor needs a package ({reason}): "
                "pip install torchvision, or use a Qwen2.5-VL"
            ) from error
    from transformers import Qwen2_5_VLProcessor, Qwen2VLImageProcessorPil

    class Pictures(Qwen2_5_VLProcessor):  # type: ignore[misc]  # untyped upstream
        def __init__(self, image_processor: Any, tokenizer: Any, **kwargs: Any) -> None:
            super().__init__(image_processor, tokenizer, None, **kwargs)

    tokenizer = load_pretrained(AutoTokenizer, CARD, weights)
    saved, _ = Pictures.get_processor_dict(locate(CARD, weights))
    return Pictures(
        load_pretrained(Qwen2VLImageProcessorPil, CARD, weights),
        tokenizer,
        chat_template=saved.get("chat_template") or tokenizer.chat_template,
    )


PARTS: Final = (pretrained(CARD.weights, tokenizer=CLIP_TOKENIZER),)


def build(*, device: str = "cpu", weights: str | None = None) -> Scorer:
    """See ``ScorerFactory``."""
    from transformers import AutoModelForImageTextToText

    from recast_eval.scorers.weights import check_files, load_pretrained

    check_files(CARD, weights, PARTS)
    processor = load_processor(weights)  # first, since the model is large
    model = load_pretrained(AutoModelForImageTextToText, CARD, weights, use_safetensors=True)
    return VqaScorer(model.to(device).eval().requires_grad_(False), processor)


SPEC: Final = ScorerSpec(CARD, build, parts=PARTS)
