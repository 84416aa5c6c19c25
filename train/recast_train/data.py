"""Which prompts an epoch draws: a function of the seed and the epoch, nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from recast_train.rngs import derive_seed


@dataclass(frozen=True, slots=True)
class Epoch:
    """The samples of one epoch, groups in a row."""

    prompts: tuple[str, ...]
    """(N,) text of each sample."""
    groups: Tensor
    """(N,) integer group of each, 0 .. P-1; every group has exactly G samples."""


class GroupSampler:
    """Deals prompts out in shuffled passes, G samples each.

    An epoch is computed, not drawn from a stream: no state has to be saved, a prefetch cannot
    run ahead, and every process computes the same one, whatever their number.

    Args:
        prompts: All training prompts.
        prompts_per_epoch: P.
        group_size: G.
        seed: Of the run.

    Raises:
        ValueError: Fewer prompts than an epoch needs, as a prompt would be two groups.
    """

    def __init__(
        self, prompts: Sequence[str], *, prompts_per_epoch: int, group_size: int, seed: int
    ) -> None:
        if len(prompts) < prompts_per_epoch:
            raise ValueError(f"an epoch needs {prompts_per_epoch} prompts, got {len(prompts)}")
        self._prompts = tuple(prompts)
        self._per_epoch, self._size, self._seed = prompts_per_epoch, group_size, seed
        self._epochs_per_pass = len(prompts) // prompts_per_epoch

    def epoch(self, number: int) -> Epoch:
        """The samples of epoch ``number``, counted from 0.

        Each pass over the prompts is shuffled anew; what does not fill an epoch is left out of
        that pass.
        """
        turn, place = divmod(number, self._epochs_per_pass)
        generator = Generator().manual_seed(derive_seed(self._seed, "prompts", turn))
        order = torch.randperm(len(self._prompts), generator=generator)
        chosen = order[place * self._per_epoch :][: self._per_epoch]
        texts = [self._prompts[i] for i in chosen.tolist() for _ in range(self._size)]
        groups = torch.arange(self._per_epoch).repeat_interleave(self._size)
        return Epoch(tuple(texts), groups)

    def first(self, count: int) -> list[str]:
        """The first ``count`` prompts of the set, for pictures that can be compared."""
        return list(self._prompts[:count])


def rank_rows(total: int, rank: int, world: int) -> tuple[int, int]:
    """First and last + 1 of the rows that a process draws; all rows once, sizes differ by 1."""
    return total * rank // world, total * (rank + 1) // world
