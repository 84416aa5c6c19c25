"""What an epoch shows to a credit that learns, computed when it asks and not before."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Generator, Tensor

from recast_train.credit.base import Probes
from recast_train.methods.base import Outputs, Work
from recast_train.policies.base import Rollout, VelocityPolicy

ScoreRows = Callable[[Tensor, Tensor], np.ndarray]
"""(latents (B, ...), sample index (B,)) -> (K, B) rewards of the decoded images."""


def probe_steps(num_steps: int, wanted: int) -> list[int]:
    """Up to ``wanted`` steps spread over the grid, without pure noise, whose x_0 says nothing."""
    inner = max(num_steps - 1, 1)
    picks = np.linspace(min(1, num_steps - 1), num_steps - 1, min(wanted, inner))
    return sorted({round(float(p)) for p in picks})


@dataclass(slots=True)
class ProbeCollector:
    """Keeps the old policy's x_0 estimates that training computes anyway.

    A sample skips a noise level now and then, and some methods never look at noised samples:
    such gaps are filled by a forward of the old policy when the estimates are asked for.
    """

    policy: VelocityPolicy
    rollout: Rollout
    steps: list[int]
    rows: Tensor
    """(N',) the samples that are shown."""
    score: ScoreRows
    generator: Generator
    _found: dict[tuple[int, int], Tensor] = field(default_factory=dict)

    def observer(self, subset: Tensor) -> Callable[[Work, Outputs], None]:
        """What remembers the estimates of work on ``subset`` (its rows are places in that)."""
        shown = set(self.rows.tolist())
        names = subset.tolist()

        def observe(work: Work, outputs: Outputs) -> None:
            if "x_0_hat" not in outputs.tensors:
                return
            pairs = zip(work.rows.tolist(), work.steps.tolist(), strict=True)
            for place, (row, step) in enumerate(pairs):
                if names[row] in shown and step in self.steps:
                    estimate = outputs.tensors["x_0_hat"][place].detach()
                    self._found[step, names[row]] = estimate

        return observe

    def probes(self, epoch: int, rewards: np.ndarray, groups: np.ndarray) -> Probes:
        """Offer them; ``rewards`` (K, N) and ``groups`` (N,) are the whole epoch's."""
        rows = self.rows.numpy()
        noise = torch.randn(self.rollout.x_0[self.rows].shape, generator=self.generator)
        estimates = _Once(lambda: [self._estimates(s, noise) for s in self.steps])
        return Probes(
            epoch=epoch,
            rewards=rewards[:, rows],
            prompts=groups[rows],
            sigmas=self.policy.sigmas[self.steps].numpy().astype(np.float64),
            x0_rewards=lambda: np.stack([self.score(x, self.rows) for x in estimates()]),
            features=lambda: np.stack([_pooled(x) for x in estimates()]),
            complete=lambda index: self._complete(self.steps[index], noise),
        )

    def _noised(self, step: int, rows: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        x_0 = self.rollout.x_0[rows]
        sigma = self.policy.sigmas[step].to(x_0)
        return (1 - sigma) * x_0 + sigma * noise.to(x_0), sigma.expand(len(rows))

    def _estimates(self, step: int, noise: Tensor) -> Tensor:
        """(N', ...) x_0 estimates at one step."""
        missing = [i for i, row in enumerate(self.rows.tolist()) if (step, row) not in self._found]
        if missing:
            places = torch.tensor(missing)
            rows = self.rows[places]
            x_t, sigma = self._noised(step, rows, noise[places])
            filled = self.policy.estimate(x_t, sigma, self.rollout.condition.take(rows))
            for row, value in zip(rows.tolist(), filled, strict=True):
                self._found[step, row] = value
        return torch.stack([self._found[step, row] for row in self.rows.tolist()])

    def _complete(self, step: int, noise: Tensor) -> np.ndarray:
        """(K, N') rewards of one stochastic completion each; the same noise at every step."""
        x_t, _ = self._noised(step, self.rows, noise)
        condition = self.rollout.condition.take(self.rows)
        return self.score(self.policy.complete(x_t, step, condition, self.generator), self.rows)


class _Once:
    """A value computed at the first call."""

    def __init__(self, compute: Callable[[], list[Tensor]]) -> None:
        self._compute = compute
        self._value: list[Tensor] | None = None

    def __call__(self) -> list[Tensor]:
        if self._value is None:
            self._value = self._compute()
        return self._value


def _pooled(latents: Tensor) -> np.ndarray:
    """(N, 2C) mean and deviation of each channel."""
    flat = latents.flatten(2)
    pooled = torch.cat([flat.mean(dim=2), flat.std(dim=2, correction=0)], dim=1)
    return pooled.cpu().numpy().astype(np.float64)
