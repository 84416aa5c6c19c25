"""CLIP features for the scorers built on them: preprocessing, truncation flags, batches."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from recast_eval.records import Failed, Scored
from recast_eval.scorers.base import ScorerCard
from recast_eval.scorers.each import check_batch
from recast_eval.scorers.weights import load_pretrained

BATCH = 32


class Clip:
    """A CLIP model with its tokenizer and image processor, in float32, without graph."""

    def __init__(self, model: Any, tokenizer: Any, processor: Any, device: str) -> None:
        self.model = model.to(device=device, dtype=torch.float32).eval().requires_grad_(False)
        self.tokenizer, self.processor, self.device = tokenizer, processor, device

    @classmethod
    def load(cls, card: ScorerCard, weights: str | None, device: str) -> "Clip":
        """Load all three from one folder or hub id."""
        from transformers import CLIPImageProcessorPil, CLIPModel, CLIPTokenizer

        model = load_pretrained(CLIPModel, card, weights, use_safetensors=True)
        tokenizer = load_pretrained(CLIPTokenizer, card, weights)
        processor = load_pretrained(CLIPImageProcessorPil, card, weights)
        return cls(model, tokenizer, processor, device)

    def images(self, images: Sequence[np.ndarray]) -> Tensor:
        """Unit image embeddings (N, D) of uint8 arrays; sizes may differ."""
        parts = []
        for start in range(0, len(images), BATCH):
            pictures = [Image.fromarray(i) for i in images[start : start + BATCH]]
            pixels = self.processor(pictures, return_tensors="pt")["pixel_values"].to(self.device)
            pooled = self.model.vision_model(pixel_values=pixels).pooler_output
            parts.append(self.model.visual_projection(pooled))
        return torch.nn.functional.normalize(torch.cat(parts), dim=-1)

    def texts(self, prompts: Sequence[str]) -> tuple[Tensor, list[bool]]:
        """Unit text embeddings (N, D), and whether each prompt was cut to the text limit."""
        limit = self.model.config.text_config.max_position_embeddings
        lengths = [len(ids) for ids in self.tokenizer(list(prompts), verbose=False)["input_ids"]]
        parts = []
        for start in range(0, len(prompts), BATCH):
            inputs = self.tokenizer(
                list(prompts[start : start + BATCH]),
                padding="max_length",
                max_length=limit,
                truncation=True,
                return_tensors="pt",
            ).to(self.device)
            pooled = self.model.text_model(
                input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]
            ).pooler_output
            parts.append(self.model.text_projection(pooled))
        return torch.nn.functional.normalize(torch.cat(parts), dim=-1), [n > limit for n in lengths]


class CosineScorer:
    """``scale`` times the cosine of image and prompt."""

    def __init__(self, card: ScorerCard, clip: Clip, scale: float) -> None:
        self.card, self._clip, self._scale = card, clip, scale

    @torch.no_grad()
    def __call__(
        self, images: Sequence[np.ndarray], prompts: Sequence[str]
    ) -> list[Scored | Failed]:
        """See ``Scorer``."""
        check_batch(images, prompts)
        if not images:
            return []
        texts, cut = self._clip.texts(prompts)
        cosines = (self._clip.images(images) * texts).sum(-1).tolist()
        return [
            Scored(value=self._scale * c, truncated=t, detail={"cosine": c})
            for c, t in zip(cosines, cut, strict=True)
        ]
