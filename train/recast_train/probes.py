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
    first, last = min(1, num_steps - 1), num_steps - 1
    count = min(wanted, max(last, 1))
    if count == 1:
        return [(first + last) // 2]  # next to pure noise, a single one would say nothing
    return sorted({round(float(p)) for p in np.linspace(first, last, count)})


@dataclass(slots=True)
class ProbeCollector:
    """Keeps the old policy's x_0 estimates that training computes anyway.

    A sample skips a noise level now and then, and some methods never look at noised samples:
    such gaps are filled by a forward of the old policy when the estimates are asked for. With
    several processes each one scores its own share of the samples, on the estimates that any
    of them has: who trained on what changes nothing.
    """

    policy: Policy
    rollout: Rollout
    steps: list[int]
    rows: Tensor
    """(N',) the samples that are shown."""
    score: ScoreRows
    seed: int
    """Of this epoch's probes: the same noise at every step."""
    keep: bool = True
    """Whether estimates will be asked for; else none is kept."""
    _found: dict[tuple[int, int], Tensor] = field(default_factory=dict)
    """(step, sample) -> what this process saw."""
    _complete_steps: dict[int, Tensor] = field(default_factory=dict)
    """Step -> estimates of this process's rows, without gaps."""

    def observer(self, subset: Tensor) -> Callable[[Work, Outputs], None]:
        """What remembers the estimates of work on ``subset`` (its rows are places in that)."""
        shown, names = set(self.rows.tolist()), subset.tolist()

        def observe(work: Work, outputs: Outputs) -> None:
            if not self.keep or "x_0_hat" not in outputs.tensors:
                return
            pairs = zip(work.rows.tolist(), work.steps.tolist(), strict=True)
            for place, (row, step) in enumerate(pairs):
                if names[row] in shown and step in self.steps:
                    # A copy: a view would keep the whole micro-batch.
                    estimate = outputs.tensors["x_0_hat"][place].detach().clone()
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
        """First and last + 1 of the rows that this process answers for, maybe none."""
        return rank_rows(len(self.rows), distributed.rank(), distributed.world())

    def _work_span(self) -> tuple[int, int]:
        """The rows that it works on: its own, and maybe one more, which is thrown away.

        All work on as many, so that they make the same calls: a forward of a split model needs
        every process, and nobody decodes or scores no image. The last process's share is the
        largest, hence no span leaves the rows.
        """
        first, _ = self._span()
        return first, first + -(-len(self.rows) // distributed.world())

    def _mine(self) -> Tensor:
        first, last = self._work_span()
        return self.rows[first:last]

    def _gathered(self, values: np.ndarray) -> np.ndarray:
        """(F, worked rows) of each process to (F, N')."""
        first, last = self._span()
        rows = torch.from_numpy(np.ascontiguousarray(values.T[: last - first]))
        return distributed.gather_rows(rows, first, len(self.rows)).numpy().T

    def _scored(self, x_0: Tensor) -> np.ndarray:
        """(K, N') rewards of the worked rows' pictures, and of everyone's."""
        return self._gathered(self.score(self.policy.decode(x_0), self._mine()))

    def _featured(self, x_0: Tensor) -> np.ndarray:
        return self._gathered(self.policy.features(x_0).T).T

    def _all_estimates(self) -> list[Tensor]:
        return [self._estimates(step) for step in self.steps]

    def _noised(self, step: int) -> Tensor:
        """The worked rows at a step, from the same draw at every step."""
        first, last = self._work_span()
        x_0 = self.rollout.x_0[self.rows]
        noise = torch.randn(x_0.shape, generator=Generator().manual_seed(self.seed))
        return self.policy.noised(x_0[first:last], step, noise[first:last])

    def _estimates(self, step: int) -> Tensor:
        """(worked rows, ...) estimates of a step."""
        if step not in self._complete_steps:
            seen = {row: x for (at, row), x in self._found.items() if at == step}
            self._found = {key: x for key, x in self._found.items() if key[0] != step}
            if distributed.world() > 1:
                seen = self._shared(seen)
            self._complete_steps[step] = self._filled(step, seen)
        return self._complete_steps[step]

    def _shared(self, seen: dict[int, Tensor]) -> dict[int, Tensor]:
        """Sample -> estimate, of all processes; the first one's, should two have seen a sample."""
        rank, count = distributed.rank(), distributed.world()
        rows = self.rows.tolist()
        holders = torch.zeros((count, len(rows)), dtype=torch.int64)
        holders[rank] = torch.tensor([count - rank if row in seen else 0 for row in rows])
        most, holder = distributed.add(holders).max(dim=0)
        if not bool(most.any()):
            return {}
        whole = self.rollout.x_0.new_zeros((len(rows), *self.rollout.x_0.shape[1:]))
        for place in ((holder == rank) & (most > 0)).nonzero().flatten().tolist():
            whole[place] = seen[rows[place]]
        distributed.add(whole)
        first, last = self._work_span()
        return {rows[place]: whole[place] for place in range(first, last) if most[place] > 0}

    def _filled(self, step: int, seen: dict[int, Tensor]) -> Tensor:
        """The worked rows' estimates; what nobody saw by a forward of the old policy."""
        mine = self._mine()
        missing = [i for i, row in enumerate(mine.tolist()) if row not in seen]
        places = torch.tensor(missing, dtype=torch.int64)
        if distributed.sharded():
            # A split forward needs everyone, as many times: the rest is thrown away.
            spare = distributed.largest(len(missing)) - len(missing)
            places = torch.cat([places, places.new_zeros(spare)])
        if len(places):
            rows = mine[places]
            condition = self.rollout.condition.take(rows)
            sigma = self.policy.sigmas[step].expand(len(rows))
            filled = self.policy.estimate(self._noised(step)[places], sigma, condition)
            seen = {**dict(zip(rows.tolist(), filled, strict=True)), **seen}
        return torch.stack([seen[row] for row in mine.tolist()])

    def _complete(self, step: int) -> np.ndarray:
        """(K, N') rewards of one stochastic completion each."""
        first, last = self._work_span()
        x_0 = self.policy.complete(
            self._noised(step),
            step,
            self.rollout.condition.take(self._mine()),
            Generator().manual_seed(derive_seed(self.seed, "complete", step)),
            rows=(first, last, len(self.rows)),
        )
        return self._scored(x_0)
