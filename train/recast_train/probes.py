"""What an epoch shows to a credit that learns, computed when it asks and not before."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Generator, Tensor

from recast_train import distributed
from recast_train.credit.base import Probes
from recast_train.data import rank_rows
from recast_train.methods.base import Outputs, Work
from recast_train.policies.base import Policy, Rollout
from recast_train.rngs import derive_seed

ScoreRows = Callable[[np.ndarray, Tensor], np.ndarray]
"""(images (B, H, W, 3), sample index (B,)) -> (K, B) rewards."""


def probe_steps(num_steps: int, wanted: int) -> list[int]:
    """Up to ``wanted`` steps spread over the grid, without pure noise, whose x_0 says nothing."""
    inner = max(num_steps - 1, 1)
    picks = np.linspace(min(1, num_steps - 1), num_steps - 1, min(wanted, inner))
    return sorted({round(float(p)) for p in picks})


@dataclass(slots=True)
class ProbeCollector:
    """Keeps the old policy's x_0 estimates that training computes anyway.

    A sample skips a noise level now and then, and some methods never look at noised samples:
    such gaps are filled by a forward of the old policy when the estimates are asked for. With
    several processes each one looks at its own share of the samples.
    """

    policy: Policy
    rollout: Rollout
    steps: list[int]
    rows: Tensor
    """(N',) the samples that are shown."""
    score: ScoreRows
    seed: int
    """Of this epoch's probes: the same noise at every step."""
    _found: dict[tuple[int, int], Tensor] = field(default_factory=dict)

    def observer(self, subset: Tensor) -> Callable[[Work, Outputs], None]:
        """What remembers the estimates of work on ``subset`` (its rows are places in that)."""
        shown, names = set(self._own().tolist()), subset.tolist()

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
        return Probes(
            epoch=epoch,
            rewards=rewards[:, rows],
            prompts=groups[rows],
            sigmas=self.policy.sigmas[self.steps].numpy().astype(np.float64),
            x0_rewards=lambda: np.stack([self._scored(x) for x in self._all_estimates()]),
            features=lambda: np.stack([self._featured(x) for x in self._all_estimates()]),
            complete=lambda index: self._complete(self.steps[index]),
        )

    def _span(self) -> tuple[int, int]:
        return rank_rows(len(self.rows), distributed.rank(), distributed.world())

    def _own(self) -> Tensor:
        first, last = self._span()
        return self.rows[first:last]

    def _gathered(self, values: np.ndarray) -> np.ndarray:
        """(F, own rows) of each process to (F, N')."""
        rows = torch.from_numpy(np.ascontiguousarray(values.T))
        return distributed.gather_rows(rows, self._span()[0], len(self.rows)).numpy().T

    def _scored(self, x_0: Tensor) -> np.ndarray:
        """(K, N') rewards of the own rows' pictures, and of everyone's."""
        return self._gathered(self.score(self.policy.decode(x_0), self._own()))

    def _featured(self, x_0: Tensor) -> np.ndarray:
        return self._gathered(self.policy.features(x_0).T).T

    def _all_estimates(self) -> list[Tensor]:
        return [self._estimates(step) for step in self.steps]

    def _noised(self, step: int) -> Tensor:
        """The own rows at a step, from the same draw at every step."""
        first, last = self._span()
        x_0 = self.rollout.x_0[self.rows]
        noise = torch.randn(x_0.shape, generator=Generator().manual_seed(self.seed))
        return self.policy.noised(x_0[first:last], step, noise[first:last])

    def _estimates(self, step: int) -> Tensor:
        own = self._own()
        missing = [i for i, row in enumerate(own.tolist()) if (step, row) not in self._found]
        if distributed.sharded() and distributed.largest(len(missing)):
            missing = list(range(len(own)))  # a sharded forward needs everyone
        if missing:
            places = torch.tensor(missing)
            rows = own[places]
            condition = self.rollout.condition.take(rows)
            sigma = self.policy.sigmas[step].expand(len(rows))
            filled = self.policy.estimate(self._noised(step)[places], sigma, condition)
            for row, value in zip(rows.tolist(), filled, strict=True):
                self._found[step, row] = value
        return torch.stack([self._found[step, row] for row in own.tolist()])

    def _complete(self, step: int) -> np.ndarray:
        """(K, N') rewards of one stochastic completion each."""
        own, (first, last) = self._own(), self._span()
        x_0 = self.policy.complete(
            self._noised(step),
            step,
            self.rollout.condition.take(own),
            Generator().manual_seed(derive_seed(self.seed, "complete", step)),
            rows=(first, last, len(self.rows)),
        )
        return self._scored(x_0)
