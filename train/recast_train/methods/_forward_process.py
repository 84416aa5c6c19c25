"""What methods that train on noised clean samples share: their work items and their forwards.

Diffusion's forward process needs no trajectory: a finished sample is noised to any level, and the
velocity that leads back is known.
"""

from collections.abc import Iterator

import torch
from torch import Generator, Tensor

from recast_train.methods.base import Outputs, Work
from recast_train.policies.base import Rollout, VelocityPolicy


def noised_works(
    rollout: Rollout, steps: Tensor, micro_batch: int, generator: Generator
) -> Iterator[Work]:
    """Every sample at each of its steps, with fresh noise each time.

    Args:
        rollout: N clean samples.
        steps: (N, S) integer steps; column by column within a micro-batch.
        micro_batch: Samples an item, at most.
        generator: Of the noise.
    """
    count, used = steps.shape
    for first in range(0, count, micro_batch):
        rows = torch.arange(first, min(first + micro_batch, count))
        for column in range(used):
            shape = (len(rows), *rollout.x_0.shape[1:])
            noise = torch.randn(shape, generator=generator)
            yield Work(rows, steps[rows, column], noise, len(rows) / count / used)


def noised_outputs(
    policy: VelocityPolicy, rollout: Rollout, work: Work, *, reference: bool
) -> Outputs:
    """Noise the clean samples; old and reference velocities without graph, if needed.

    Args:
        policy: While it is on-policy, ``old`` is ``new`` without its graph.
        rollout: Clean samples and their conditions.
        work: From ``noised_works``.
        reference: Whether the base model's velocity is wanted.

    Returns:
        ``new``, ``old``, ``target``, ``x_0_hat`` (B, ...) and ``sigma`` (B,); ``reference`` on
        request.

    Raises:
        ValueError: The item carries no noise.
    """
    if work.noise is None:
        raise ValueError("work on noised samples carries its noise; this item has none")
    x_0 = rollout.x_0[work.rows]
    noise = work.noise.to(x_0)
    sigma = policy.sigmas[work.steps].to(x_0)
    level = sigma.reshape(-1, *(1,) * (x_0.ndim - 1))
    x_t = (1 - level) * x_0 + level * noise
    condition = rollout.condition.take(work.rows)
    new = policy.velocity(x_t, sigma, condition, who="new")
    old = new.detach()
    if not policy.on_policy:
        old = policy.velocity(x_t, sigma, condition, who="old")
    found = {"new": new, "old": old, "target": noise - x_0, "sigma": sigma}
    found["x_0_hat"] = x_t - level * old
    if reference:
        found["reference"] = policy.velocity(x_t, sigma, condition, who="reference")
    return Outputs(found)
