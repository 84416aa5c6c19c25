"""ImageReward 1.0: BLIP and a reward head (Xu et al. 2023, arXiv:2304.05977)."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from recast_eval.records import Failed, Scored
from recast_eval.scorers.base import Scorer, ScorerCard, ScorerSpec
from recast_eval.scorers.needed import BERT_NAMES, BERT_TOKENIZER, borrowed, converted

CARD: Final = ScorerCard(
    name="image-reward",
    version=1,
    family="image-reward",
    what="people would prefer this picture for the prompt",
    unit="standardised reward, about N(0, 1); negative is below the average of its training data",
    text_limit=35,
    needs=("weights THUDM/ImageReward, file ImageReward.pt, converted",),
    source="https://github.com/zai-org/ImageReward",
    licence="Apache-2.0",
    weights="THUDM/ImageReward",
    preprocessing="bicubic to 224, centre crop, OpenAI mean and deviation",
)
FILE: Final = "image-reward.safetensors"
MEAN: Final = 0.16717362830052426
DEVIATION: Final = 1.0333394966054072
"""Of the raw reward on its validation set, as published."""
LIMIT: Final = 35


def vision_config() -> dict[str, Any]:
    """BLIP's ViT-L/16."""
    return {
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "image_size": 224,
        "patch_size": 16,
        "layer_norm_eps": 1e-6,
    }


def text_config() -> dict[str, Any]:
    """BLIP's BERT-base with cross attention; two tokens more than BERT's own."""
    return {
        "vocab_size": 30524,
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "encoder_hidden_size": 1024,
        "max_position_embeddings": 512,
    }


class ImageRewardScorer:
    """Image tokens are read by the text encoder; the first token's state is scored."""

    card = CARD

    def __init__(
        self, vision: Any, text: Any, head: Any, tokenizer: Any, processor: Any, device: str
    ) -> None:
        self._vision, self._text, self._head = vision, text, head
        self._tokenizer, self._processor, self._device = tokenizer, processor, device

    def __call__(
        self, images: Sequence[np.ndarray], prompts: Sequence[str]
    ) -> list[Scored | Failed]:
        """See ``Scorer``."""
        from recast_eval.scorers.each import check_batch

        check_batch(images, prompts)
        found: list[Scored | Failed] = []
        for start in range(0, len(images), 16):
            found += self._batch(images[start : start + 16], prompts[start : start + 16])
        return found

    def _batch(self, images: Sequence[np.ndarray], prompts: Sequence[str]) -> list[Scored | Failed]:
        import torch
        from PIL import Image

        lengths = [len(i) for i in self._tokenizer(list(prompts), verbose=False)["input_ids"]]
        text = self._tokenizer(
            list(prompts),
            padding="max_length",
            max_length=LIMIT,
            truncation=True,
            return_tensors="pt",
        ).to(self._device)
        pictures = [Image.fromarray(i) for i in images]
        with torch.no_grad():
            pixels = self._processor(pictures, return_tensors="pt")["pixel_values"]
            seen = self._vision(pixel_values=pixels.to(self._device)).last_hidden_state
            state = self._text(
                input_ids=text["input_ids"],
                attention_mask=text["attention_mask"],
                encoder_hidden_states=seen,
                encoder_attention_mask=seen.new_ones(seen.shape[:2]),
            ).last_hidden_state[:, 0]
            raw = self._head(state).squeeze(-1).tolist()
        return [
            Scored(value=(r - MEAN) / DEVIATION, truncated=n > LIMIT, detail={"raw": r})
            for r, n in zip(raw, lengths, strict=True)
        ]


PUBLISHED: Final = "ImageReward.pt"
PARTS: Final = (
    borrowed("bert-base-uncased", BERT_TOKENIZER, BERT_NAMES),
    converted(
        FILE,
        f"hf download {CARD.weights} {PUBLISHED} --local-dir .",
        PUBLISHED,
        (
            "mlp.layers.7.weight",
            "blip.visual_encoder.cls_token",
            "blip.text_encoder.embeddings.word_embeddings.weight",
        ),
    ),
)


def build(*, device: str = "cpu", weights: str | None = None) -> Scorer:
    """See ``ScorerFactory``. The folder holds the tensors and a BERT tokenizer."""
    from transformers import BertTokenizer, BlipConfig, CLIPImageProcessorPil
    from transformers.models.blip.modeling_blip import BlipVisionModel
    from transformers.models.blip.modeling_blip_text import BlipTextModel

    from recast_eval.scorers.blip import convert_text, convert_vision
    from recast_eval.scorers.heads import mlp_head
    from recast_eval.scorers.weights import (
        check_files,
        load_into,
        load_pretrained,
        read_tensors,
        sized_config,
    )

    check_files(CARD, weights, PARTS)
    tensors = read_tensors(CARD, weights, FILE)
    published = BlipConfig(text_config=text_config(), vision_config=vision_config())
    config = sized_config(BlipConfig, CARD, weights, published)
    vision = BlipVisionModel(config.vision_config).eval()
    load_into(vision, convert_vision(tensors, "blip.visual_encoder."), CARD)
    text = BlipTextModel(config.text_config, add_pooling_layer=False).eval()
    load_into(text, convert_text(tensors, "blip.text_encoder."), CARD)
    side = config.vision_config.image_size
    processor = CLIPImageProcessorPil(
        size={"shortest_edge": side}, crop_size={"height": side, "width": side}
    )
    tokenizer = load_pretrained(BertTokenizer, CARD, weights)
    head = mlp_head(tensors, "mlp.layers").to(device)
    return ImageRewardScorer(vision.to(device), text.to(device), head, tokenizer, processor, device)


SPEC: Final = ScorerSpec(CARD, build, parts=PARTS)
