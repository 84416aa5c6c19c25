"""One optimiser step: forwards, backwards, and one gradient out of K rewards."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from recast_eval.errors import RecastError
from recast_train import distributed
from recast_train.aggregators.base import Aggregator
from recast_train.methods.base import Loss, Method, Outputs, Work
from recast_train.policies.base import Policy, Rollout

Observer = Callable[[Work, Outputs], None]


def accumulate(
    method: Method[Any],
    policy: Policy,
    rollout: Rollout,
    works: Iterator[Work],
    advantages: Tensor,
    observe: Observer | None = None,
) -> dict[str, float]:
    """One backward a work item at a mixed advantage; gradients end up in ``.grad``.

    Args:
        method: Gives the loss.
        policy: Its parameters get the gradient, summed over processes.
        rollout: The samples of this optimiser step.
        works: All work of all processes; each takes its share.
        advantages: (T, N) of each step and sample.
        observe: Sees each work item's outputs.

    Returns:
        Logged means.
    """
    logs: dict[str, Tensor] = {}
    for work in _share(works):
        outputs = method.outputs(policy, rollout, work)
        loss = method.loss(outputs, advantages[work.steps, work.rows])
        penalty = method.penalty(outputs)
        total = loss.loss + penalty.loss
        (total * work.weight).backward()
        _log(logs, work, [loss, penalty], total)
        if observe is not None:
            observe(work, outputs)
    parameters = policy.parameters()
    flat = distributed.add(_flatten([p.grad for p in parameters], parameters))
    _assign(parameters, flat)
    return _reduced(logs)


def balance(
    method: Method[Any],
    policy: Policy,
    rollout: Rollout,
    works: Iterator[Work],
    advantages: Tensor,
    aggregator: Aggregator,
    observe: Observer | None = None,
) -> dict[str, float]:
    """K backwards a work item on one graph; the aggregator makes one gradient of them.

    The advantage-free penalty is added after the aggregator has spoken: it has no vote.

    Args:
        method: As in ``accumulate``.
        policy: As in ``accumulate``.
        rollout: As in ``accumulate``.
        works: As in ``accumulate``.
        advantages: (K, T, N), a row a reward.
        aggregator: Solves for the K weights from the Gram matrix.
        observe: As in ``accumulate``.

    Returns:
        Logged means, and the aggregator's diagnostics as ``aggregator/...``.
    """
    parameters = policy.parameters()
    size = sum(p.numel() for p in parameters)
    buffers = torch.zeros(len(advantages) + 1, size, device=parameters[0].device)
    logs: dict[str, Tensor] = {}
    for work in _share(works):
        outputs = method.outputs(policy, rollout, work)
        losses = [method.loss(outputs, a[work.steps, work.rows]) for a in advantages]
        penalty = method.penalty(outputs)
        graphs = [*(part.loss for part in losses), penalty.loss]
        for row, graph in enumerate(graphs):
            if graph.requires_grad:
                found = torch.autograd.grad(
                    graph * work.weight,
                    parameters,
                    retain_graph=any(g.requires_grad for g in graphs[row + 1 :]),
                    allow_unused=True,
                )
                buffers[row] += _flatten(found, parameters)
        _log(logs, work, [losses[0], penalty], torch.stack(graphs[:-1]).mean() + penalty.loss)
        if observe is not None:
            observe(work, outputs)
    distributed.add(buffers)
    gradients = buffers[:-1]
    wide = gradients.double()
    gram = (wide @ wide.T).cpu()
    active = (advantages.abs().flatten(1).amax(dim=1) > 0).cpu() & (gram.diagonal() > 0)
    combined = aggregator.combine(gram, active)
    weights = combined.weights.to(gradients)
    _assign(parameters, weights @ gradients + buffers[-1])
    values = _reduced(logs)
    values |= {f"aggregator/{k}": v for k, v in combined.diagnostics.items()}
    return values


def step_optimiser(
    optimiser: torch.optim.Optimizer, parameters: Sequence[Parameter], limit: float
) -> float:
    """Limit the gradient's norm, step, clear; returns the norm before the limit.

    Raises:
        RecastError: The gradient is not finite; the parameters were left alone.
    """
    norm = float(torch.nn.utils.clip_grad_norm_(parameters, limit))
    if not norm < float("inf"):
        raise RecastError(
            f"the gradient's norm is {norm}: lower the learning rate, or use precision fp32; "
            "the last checkpoint is from before"
        )
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    return norm


def _share(works: Iterator[Work]) -> Iterator[Work]:
    """This process's items. All draw all noise, so that the split changes no number."""
    rank, world = distributed.rank(), distributed.world()
    count = 0
    for work in works:
        if count % world == rank:
            yield work
        count += 1
    if count < world:
        raise ValueError(f"{world} processes share {count} work items: lower micro_batch")


def _log(logs: dict[str, Tensor], work: Work, parts: Sequence[Loss], total: Tensor) -> None:
    values = {"loss": total.detach()}
    for part in parts:
        values |= part.logs
    for name, value in values.items():
        logs[name] = logs.get(name, torch.zeros(())) + work.weight * value.detach().float().cpu()


def _reduced(logs: dict[str, Tensor]) -> dict[str, float]:
    if not logs:
        return {}
    total = distributed.add(torch.stack(list(logs.values())))
    return dict(zip(logs, total.tolist(), strict=True))


def _flatten(values: Sequence[Tensor | None], parameters: Sequence[Parameter]) -> Tensor:
    pairs = zip(values, parameters, strict=True)
    return torch.cat([(torch.zeros_like(p) if v is None else v).flatten() for v, p in pairs])


def _assign(parameters: Sequence[Parameter], flat: Tensor) -> None:
    for parameter, part in zip(
        parameters, flat.split([p.numel() for p in parameters]), strict=True
    ):
        parameter.grad = part.view_as(parameter)
