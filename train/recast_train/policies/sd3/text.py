"""Prompts to embeddings, each encoded once."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch

from recast_train.policies.base import Condition


class PromptEncoder:
    """The pipeline's text encoders with a memory.

    A prompt is encoded alone, never in a batch: the last bits of a matrix product depend on
    the batch, and a resumed run, whose memory is cold, must see the same embedding.

    Args:
        pipeline: A ``StableDiffusion3Pipeline``.
        max_sequence_length: T5 tokens.
        device: Of the encoders; embeddings stay there.
        remember: Prompts kept, the least recently used go first.
    """

    def __init__(
        self, pipeline: Any, max_sequence_length: int, device: str, remember: int = 1024
    ) -> None:
        self._pipeline, self._length, self._remember = pipeline, max_sequence_length, remember
        self._device = torch.device(device)
        self._known: OrderedDict[str, tuple[torch.Tensor, torch.Tensor]] = OrderedDict()

    def __call__(self, prompts: Sequence[str]) -> Condition:
        """Encode: ``embeds`` (B, tokens, width) and ``pooled`` (B, width), float32."""
        pairs = [self._one(prompt) for prompt in prompts]
        embeds, pooled = (torch.cat(parts) for parts in zip(*pairs, strict=True))
        return Condition({"embeds": embeds, "pooled": pooled})

    @torch.no_grad()
    def _one(self, prompt: str) -> tuple[torch.Tensor, torch.Tensor]:
        if prompt in self._known:
            self._known.move_to_end(prompt)
            return self._known[prompt]
        embeds, _, pooled, _ = self._pipeline.encode_prompt(
            prompt=prompt,
            prompt_2=None,
            prompt_3=None,
            device=self._device,
            do_classifier_free_guidance=False,
            max_sequence_length=self._length,
        )
        found = self._known[prompt] = (embeds, pooled)
        if len(self._known) > self._remember:
            self._known.popitem(last=False)
        return found
