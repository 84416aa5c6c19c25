"""The trainer's second-order solver (``sampler.solver: dpm2``) as a scheduler of diffusers."""

from typing import Any

import torch
from diffusers import FlowMatchEulerDiscreteScheduler
from diffusers.schedulers.scheduling_flow_match_euler_discrete import (
    FlowMatchEulerDiscreteSchedulerOutput as Output,
)
from torch import Tensor


class SecondOrderScheduler(FlowMatchEulerDiscreteScheduler):  # type: ignore[misc]  # untyped
    """DPM-Solver++ of order 2 on the path ``x_t = (1-t) x_0 + t noise``, in the data prediction.

    First-order where its history says nothing: the step from pure noise, the one after it, and the
    step to 0. Same noise levels as the Euler scheduler that it is configured from.

    References:
        Lu et al. 2022, DPM-Solver++, arXiv:2211.01095, Algorithm 2.
    """

    _before: Tensor | None = None
    """The x_0 that the step before this one predicted."""

    def step(
        self,
        model_output: Tensor,
        timestep: Tensor,
        sample: Tensor,
        *,
        return_dict: bool = True,
        **_: Any,
    ) -> Any:
        """One step; see ``FlowMatchEulerDiscreteScheduler.step``."""
        if self.step_index is None:
            self._init_step_index(timestep)
        j, x = self.step_index, sample.float()
        here, there = self.sigmas[j], self.sigmas[j + 1]
        x_0 = x - here * model_output.float()
        estimate = x_0
        if j >= 2 and there > 0 and self._before is not None:
            ratio = _span(here, there) / _span(self.sigmas[j - 1], here)
            estimate = x_0 + 0.5 * ratio * (x_0 - self._before)
        x = there / here * x + (1 - there / here) * estimate
        self._before, self._step_index = x_0, j + 1
        x = x.to(model_output.dtype)
        return Output(prev_sample=x) if return_dict else (x,)


def _span(here: Tensor, there: Tensor) -> Tensor:
    """Step in half log-SNR, ``log((1-t)/t)``."""
    return torch.log((1 - there) * here / (there * (1 - here)))
