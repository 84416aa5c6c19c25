"""One optimiser step: forwards, backwards, and one gradient out of K rewards."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from recast_eval.errors import RecastError
from recast_train import distributed
from recast_train.aggregators.base import Aggregator, Combined
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
    *,
    scale: float = 1.0,
) -> dict[str, float]:
    """One backward a work item at a mixed advantage; gradients end up in ``.grad``.

    Args:
        method: Gives the loss.
        policy: Its parameters get the gradient, summed over processes.
        rollout: The samples of this optimiser step.
        works: All work of all processes; each takes its share.
        advantages: (T, N) of each step and sample.
        observe: Sees each work item's outputs.
        scale: Factor on the reward part: what an aggregator's weights sum to.

    Returns:
        Logged means.
    """
    logs: dict[str, Tensor] = {}
    for _, work in _share(works):
        outputs = method.outputs(policy, rollout, work)
        loss = method.loss(outputs, advantages[work.steps, work.rows])
        penalty = method.penalty(outputs)
        total = scale * loss.loss + penalty.loss if scale != 1.0 else loss.loss + penalty.loss
        torch.autograd.backward(total * work.weight)
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
    parts, logs = _reward_gradients(method, policy, rollout, works, advantages, observe)
    gradients, penalty = parts[0, :-1], parts[0, -1]
    gram = _gram(gradients)
    combined = aggregator.combine(gram, _active(advantages, gram))
    weights = combined.weights.to(gradients)
    _assign(policy.parameters(), weights @ gradients + penalty)
    return logs | _named(combined)


def measure(
    method: Method[Any],
    policy: Policy,
    rollout: Rollout,
    works: Iterator[Work],
    advantages: Tensor,
    aggregator: Aggregator,
) -> dict[str, float]:
    """Refresh the coefficients from a share of the work items; leaves no gradient behind.

    Arguments as in ``balance``; the share is the aggregator's ``gram_share``.

    Returns:
        The aggregator's diagnostics, and, if the share is two items or more,
        ``aggregator/cosine_error``: half the largest difference of a cosine between its halves.
    """
    every = max(1, round(1.0 / aggregator.gram_share))
    some = (work for index, work in enumerate(works) if index % every == 0)
    parts, _ = _reward_gradients(method, policy, rollout, some, advantages, None, halves=2)
    gram = _gram(parts.sum(dim=0)[:-1])
    combined = aggregator.combine(gram, _active(advantages, gram))
    found = _named(combined)
    if bool(parts.flatten(1).any(dim=1).all()):
        first, second = (_cosines(_gram(half[:-1])) for half in parts)
        found["aggregator/cosine_error"] = float((first - second).abs().max()) / 2.0
    return found


def _reward_gradients(
    method: Method[Any],
    policy: Policy,
    rollout: Rollout,
    works: Iterator[Work],
    advantages: Tensor,
    observe: Observer | None,
    halves: int = 1,
) -> tuple[Tensor, dict[str, float]]:
    """(halves, K + 1, parameters) float32 gradients of each reward and, last, the penalty."""
    parameters = policy.parameters()
    size = sum(p.numel() for p in parameters)
    found = torch.zeros(halves, len(advantages) + 1, size, device=parameters[0].device)
    logs: dict[str, Tensor] = {}
    for index, work in _share(works):
        outputs = method.outputs(policy, rollout, work)
        losses = [method.loss(outputs, a[work.steps, work.rows]) for a in advantages]
        # A measurement, in halves, is about the rewards alone.
        penalty = method.penalty(outputs) if halves == 1 else Loss(losses[0].loss.detach() * 0, {})
        graphs = [*(part.loss for part in losses), penalty.loss]
        for row, graph in enumerate(graphs):
            if graph.requires_grad:
                gradient = torch.autograd.grad(
                    graph * work.weight,
                    parameters,
                    retain_graph=any(g.requires_grad for g in graphs[row + 1 :]),
                    allow_unused=True,
                )
                found[index % halves, row] += _flatten(gradient, parameters)
        total = torch.stack([g.detach() for g in graphs[:-1]]).mean() + penalty.loss.detach()
        _log(logs, work, [losses[0], penalty], total)
        if observe is not None:
            observe(work, outputs)
    return distributed.add(found), _reduced(logs)


def _gram(gradients: Tensor) -> Tensor:
    """(K, K) inner products in float64, on the CPU."""
    wide = gradients.double()
    gram = (wide @ wide.T).cpu()
    if not bool(gram.isfinite().all()):
        raise RecastError(
            "a reward's gradient is not finite: lower the learning rate, or use precision fp32; "
            "the last checkpoint is from before"
        )
    return gram


def _cosines(gram: Tensor) -> Tensor:
    norms = gram.diagonal().clamp_min(1e-300).sqrt()
    return gram / norms[:, None] / norms[None, :]


def _active(advantages: Tensor, gram: Tensor) -> Tensor:
    """(K,) whether a reward said anything: on-policy, a silent one has no gradient at all."""
    return (advantages.abs().flatten(1).amax(dim=1) > 0).cpu() & (gram.diagonal() > 0)


def _named(combined: Combined) -> dict[str, float]:
    return {f"aggregator/{key}": value for key, value in combined.diagnostics.items()}


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


def _share(works: Iterator[Work]) -> Iterator[tuple[int, Work]]:
    """This process's items, numbered among all. All draw all noise: the split changes nothing."""
    rank, world = distributed.rank(), distributed.world()
    for index, work in enumerate(works):
        if index % world == rank:
            yield index, work
        last = index, work
    if distributed.sharded() and last[0] % world < rank:
        # A sharded forward needs everyone: this one counts for nothing.
        yield last[0], last[1]._replace(weight=0.0)


def _log(logs: dict[str, Tensor], work: Work, parts: Sequence[Loss], total: Tensor) -> None:
    values = {"loss": total.detach()}
    for part in parts:
        values |= part.logs
    for name, value in values.items():
        logs[name] = logs.get(name, torch.zeros(())) + work.weight * value.detach().float().cpu()


def _reduced(logs: dict[str, Tensor]) -> dict[str, float]:
    # A process without work knows no names, but must take part: else the others wait for ever.
    size = distributed.largest(len(logs))
    values = torch.stack(list(logs.values())) if logs else torch.zeros(size)
    return dict(zip(logs, distributed.add(values).tolist(), strict=False))


def _flatten(values: Sequence[Tensor | None], parameters: Sequence[Parameter]) -> Tensor:
    pairs = zip(values, parameters, strict=True)
    return torch.cat([(torch.zeros_like(p) if v is None else v).flatten() for v, p in pairs])


def _assign(parameters: Sequence[Parameter], flat: Tensor) -> None:
    parts = torch.split(flat, [p.numel() for p in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.grad = part.view_as(parameter)
