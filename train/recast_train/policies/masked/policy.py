"""The masked policy: tokens are drawn in stages; log-probabilities of them under any masks."""

from collections import OrderedDict
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor
from torch.nn import Parameter

from recast_eval.errors import ConfigError
from recast_train.policies.base import Condition, PolicySetup, Rollout, Who
from recast_train.policies.masked.config import MaskedConfig, too_many_steps
from recast_train.policies.masked.loading import Parts, load_parts
from recast_train.policies.masked.order import draw_tokens, least_confident, planned_steps
from recast_train.policies.sd3.adapters import Adapters
from recast_train.rebrl import mask_counts, nested_masks

_REMEMBER = 1024


def build(config: MaskedConfig, setup: PolicySetup) -> "MaskedPolicy":
    """Load the model that a recipe names.

    Raises:
        ConfigError: There is no such model, or it is no aMUSEd.
        MissingError: The starter is not installed.
    """
    device = torch.device(setup.device)
    half = setup.precision == "bf16" and setup.device != "cpu"
    parts = load_parts(config.base, torch.bfloat16 if half else torch.float32, device)
    return MaskedPolicy(parts, config, setup)


class MaskedPolicy:
    """Draws with ``old``, trains ``new``, remembers the base as ``reference``.

    Args:
        parts: A masked image model of aMUSEd's classes.
        config: The recipe's ``model:`` block.
        setup: Steps, guidance, decode order (``solver``), device.

    Raises:
        ConfigError: A LoRA target names nothing, there are more steps than tokens, or the
            scheduler's masking is unknown.
    """

    def __init__(self, parts: Parts, config: MaskedConfig, setup: PolicySetup) -> None:
        self._setup, self._config, self.parts = setup, config, parts
        self._device = torch.device(setup.device)
        self.adapters = Adapters(
            parts.transformer, config.lora, Generator().manual_seed(setup.seed)
        )
        side = parts.transformer.config.sample_size
        self.grid = (side, side)
        if setup.steps > side * side:
            raise ConfigError([too_many_steps(side * side, setup.steps)])
        self.mask_id = int(parts.scheduler.config.mask_token_id)
        try:
            self.counts = mask_counts(
                side * side, setup.steps, parts.scheduler.config.masking_schedule
            )
        except ValueError as error:
            raise ConfigError([f"model.base: {config.base}: masking_schedule: {error}"]) from error
        self.sigmas = torch.as_tensor(self.counts / self.counts[0], dtype=torch.float32)
        self._known: OrderedDict[str, tuple[Tensor, Tensor]] = OrderedDict()

    @property
    def tokens(self) -> int:
        """N, tokens of a picture."""
        return int(self.counts[0])

    @property
    def nominal_masks(self) -> Bool[Tensor, "steps tokens"]:
        """(T, N) masks with the schedule's counts; a method's column mass follows from them."""
        return torch.from_numpy(nested_masks(self.counts))

    @property
    def on_policy(self) -> bool:
        """Whether ``old`` and ``new`` are the same numbers, so that one forward serves both."""
        return self.adapters.on_policy

    def parameters(self) -> list[Parameter]:
        """The ``new`` adapter's, in a fixed order."""
        return list(self.adapters.new.values())

    def encode(self, prompts: Sequence[str]) -> Condition:
        """``embeds`` (B, L, width) and ``pooled`` (B, width) of each prompt; no graph."""
        pairs = [self._encode_one(prompt) for prompt in prompts]
        embeds, pooled = (torch.cat(part) for part in zip(*pairs, strict=True))
        return Condition({"embeds": embeds, "pooled": pooled})

    @torch.no_grad()
    def _encode_one(self, prompt: str) -> tuple[Tensor, Tensor]:
        """Alone, since the last bits of a product depend on the batch, and a resumed run's do."""
        if prompt in self._known:
            self._known.move_to_end(prompt)
            return self._known[prompt]
        tokenizer = self.parts.tokenizer
        ids = tokenizer(
            [prompt],
            return_tensors="pt",
            padding="max_length",
            truncation=True,
            max_length=tokenizer.model_max_length,
        ).input_ids.to(self._device)
        found = self.parts.text_encoder(ids, output_hidden_states=True)
        self._known[prompt] = (found.hidden_states[-2], found.text_embeds)
        if len(self._known) > _REMEMBER:
            self._known.popitem(last=False)
        return found.hidden_states[-2], found.text_embeds

    # ---- probabilities ------------------------------------------------------------------

    def distribution(
        self, state: Int[Tensor, "batch tokens"], condition: Condition, *, who: Who
    ) -> Float[Tensor, "batch tokens vocabulary"]:
        """Log-probabilities of every token at every place of partly masked states, float32.

        One rule for rollouts and losses: the same guidance and temperature.
        """
        graph = who == "new" and torch.is_grad_enabled()
        with torch.set_grad_enabled(graph), self.adapters.use(who):
            logits = self._logits(state, condition)
            scale = self._setup.guidance_scale
            if scale != 1.0:
                nothing = self.encode([""]).take(torch.zeros(len(state), dtype=torch.long))
                plain = self._logits(state, nothing)
                logits = plain + scale * (logits - plain)
            return torch.log_softmax(logits / self._config.temperature, dim=-1)

    def log_probs(
        self,
        tokens: Int[Tensor, "batch tokens"],
        masks: Bool[Tensor, "batch tokens"],
        condition: Condition,
        *,
        who: Who,
    ) -> Float[Tensor, "batch tokens"]:
        """Log-probability of given tokens at every place, while those in ``masks`` are hidden."""
        state = tokens.masked_fill(masks, self.mask_id)
        found = self.distribution(state, condition, who=who)
        return found.gather(-1, tokens[..., None])[..., 0]

    def _logits(self, state: Tensor, condition: Condition) -> Tensor:
        dtype = self.parts.transformer.dtype
        side = float(self.parts.codec.image_size)
        micro = torch.tensor([side, side, 0.0, 0.0, 6.0], device=self._device, dtype=dtype)
        with self._autocast():
            found = self.parts.transformer(
                input_ids=state.to(self._device).view(-1, *self.grid),
                encoder_hidden_states=condition.tensors["embeds"].to(self._device, dtype),
                pooled_text_emb=condition.tensors["pooled"].to(self._device, dtype),
                micro_conds=micro.expand(len(state), -1),
            )
        logits: Tensor = found.float().flatten(2).mT
        return logits

    def _autocast(self) -> AbstractContextManager[Any]:
        if self._setup.precision == "fp32":
            return nullcontext()
        return torch.autocast(self._device.type, torch.bfloat16)

    # ---- drawing ------------------------------------------------------------------------

    def rollout(self, condition: Condition, generator: Generator, plan: dict[str, Any]) -> Rollout:
        """Draw one token grid a row with the ``old`` weights; see ``Policy.rollout``.

        ``trace["decode_step"]`` (N, tokens): the step, from 0, that revealed each token;
        ``trace["counts"]`` (N, T+1): the schedule's, as orders may hold them on average only.
        ``plan``: ``solver``, a decode order; ``rows``.
        """
        count = len(condition.tensors["embeds"])
        rows = plan.get("rows", (0, count, count))
        blank = torch.full((count, self.tokens), self.mask_id, device=self._device)
        order = plan.get("solver") or self._setup.solver
        drawn, steps = self._draw(blank, 0, condition, generator, order, rows)
        counts = torch.from_numpy(self.counts).expand(count, -1)
        return Rollout(drawn, condition, {"decode_step": steps, "counts": counts})

    def complete(
        self,
        x_t: Tensor,
        step: int,
        condition: Condition,
        generator: Generator,
        *,
        rows: tuple[int, int, int] | None = None,
    ) -> Int[Tensor, "batch tokens"]:
        """One draw of the masked tokens of ``x_t``, a state before ``step``, in random order."""
        count = len(x_t)
        whole = rows or (0, count, count)
        return self._draw(x_t, step, condition, generator, "random", whole)[0]

    def noised(
        self, x_0: Int[Tensor, "batch tokens"], step: int, noise: Float[Tensor, "batch tokens"]
    ) -> Int[Tensor, "batch tokens"]:
        """Mask as many tokens of finished samples as are masked before ``step``.

        Those with the smallest noise: the same noise gives nested states over the steps.
        """
        rank = noise.argsort(-1).argsort(-1).to(x_0.device)
        return x_0.masked_fill(rank < int(self.counts[step]), self.mask_id)

    @torch.no_grad()
    def estimate(
        self, x_t: Int[Tensor, "batch tokens"], sigma: Tensor, condition: Condition
    ) -> Int[Tensor, "batch tokens"]:
        """The likeliest token at each masked place, all at once, by the old policy."""
        del sigma  # the model sees how much is masked
        best = self._batched(x_t, condition).argmax(-1)
        return torch.where(x_t == self.mask_id, best, x_t)

    def features(self, x_0: Int[Tensor, "batch tokens"]) -> np.ndarray:
        """Pooled statistics (B, 2C): each token's share, and that of equal neighbours."""
        squares = torch.nn.functional.one_hot(x_0.view(-1, *self.grid), self.mask_id).double()
        joined = (squares[:, 1:] * squares[:, :-1]).mean((1, 2))
        joined = joined + (squares[:, :, 1:] * squares[:, :, :-1]).mean((1, 2))
        pooled: np.ndarray = torch.cat([squares.mean((1, 2)), joined], 1).cpu().numpy()
        return pooled

    @torch.no_grad()
    def _draw(
        self,
        state: Tensor,
        first: int,
        condition: Condition,
        generator: Generator,
        order: str,
        rows: tuple[int, int, int],
    ) -> tuple[Tensor, Tensor]:
        def noise() -> Tensor:
            # all rows of the larger draw, so that any number of processes draws the same
            return torch.rand((rows[2], self.tokens), generator=generator)[rows[0] : rows[1]].to(
                state.device
            )

        last = len(self.counts) - 2
        hidden = state == self.mask_id
        steps = torch.zeros_like(state)
        planned = None if order == "confidence" else self._plan(order, noise(), hidden, first)
        for step in range(first, last + 1):
            found = self._batched(state, condition)
            drawn = draw_tokens(found, noise())
            if planned is not None:
                shown = hidden & (planned == step)
            elif step == last:
                shown = hidden
            else:
                sure = found.gather(-1, drawn[..., None])[..., 0].exp()
                keep = least_confident(
                    sure,
                    hidden,
                    noise(),
                    keep_masked=int(self.counts[step + 1]),
                    temperature=self._choice_temperature(step),
                )
                shown = hidden & ~keep
            state = torch.where(shown, drawn, state)
            steps = torch.where(shown, step, steps)
            hidden = hidden & ~shown
        return state, steps

    def _plan(self, order: str, noise: Tensor, hidden: Tensor, first: int) -> Tensor:
        if first == 0:
            return planned_steps(order, noise, self.counts, self.grid)
        # masked tokens in random order: the rest of a rollout that stands before ``first``
        rank = noise.masked_fill(~hidden, torch.inf).argsort(-1).argsort(-1)
        ends = torch.as_tensor(self.counts[first] - self.counts[first + 1 : -1])
        return first + (rank[:, :, None] >= ends.to(rank.device)).sum(-1)

    def _choice_temperature(self, step: int) -> float:
        begin, end = self._config.choice_temperature
        return float(np.linspace(begin, end, self._setup.steps)[step])

    def _batched(self, state: Tensor, condition: Condition) -> Tensor:
        size = self._setup.rollout_batch or len(state)
        rows = torch.arange(len(state))
        parts = [
            self.distribution(state[i : i + size], condition.take(rows[i : i + size]), who="old")
            for i in range(0, len(state), size)
        ]
        return torch.cat(parts)

    @torch.no_grad()
    def decode(self, x_0: Tensor) -> np.ndarray:
        """Token grids to uint8 RGB images (N, H, W, 3)."""
        return self.parts.codec.decode(x_0.view(-1, *self.grid))

    # ---- weights ------------------------------------------------------------------------

    def save_adapter(self, folder: Path, weights: Sequence[Tensor] | None = None) -> None:
        """Write a LoRA that ``peft`` and ``UVit2DModel.load_lora_adapter`` read without us."""
        self.adapters.save(folder, weights)

    def update_old(self, decay: float) -> None:
        """Set old <- decay * old + (1 - decay) * new."""
        self.adapters.update_old(decay)

    def state(self) -> dict[str, Any]:
        """Both adapters' weights."""
        return self.adapters.state()

    def load_state(self, state: dict[str, Any]) -> None:
        """Put back what ``state`` gave."""
        self.adapters.load_state(state)
