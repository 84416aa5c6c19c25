"""The training loop: the only place that knows every part. One epoch reads from top to bottom."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from recast_eval.errors import RecastError
from recast_eval.records import MetricRecord
from recast_train import distributed
from recast_train.columns import column_shares, spent_on, whitened
from recast_train.credit import reward_step_advantages, step_advantages
from recast_train.data import Epoch, rank_rows
from recast_train.methods.base import Work
from recast_train.parts import Parts
from recast_train.policies.base import Condition, Rollout
from recast_train.probes import ProbeCollector, probe_steps
from recast_train.rewards import RewardTable, score, score_each, silences, tell_apart
from recast_train.rngs import derive_seed
from recast_train.update import accumulate, balance, measure, step_optimiser

log = logging.getLogger(__name__)


def train(
    parts: Parts,
    *,
    stop: Callable[[], bool] = lambda: False,
    progress: Callable[[range], Iterable[int]] = lambda epochs: epochs,
) -> bool:
    """Run the epochs that are left; leaves a checkpoint at the end, also when stopped.

    Args:
        parts: Everything, built and, if resumed, put back where it stood.
        stop: Asked after every epoch.
        progress: Wraps the epoch numbers.

    Returns:
        Whether the run is finished; False if it was stopped.
    """
    recipe = parts.plan.recipe
    for number in progress(range(parts.epoch, recipe.epochs)):
        run_epoch(parts, number)
        stopped = bool(distributed.add(torch.tensor(int(stop()))))
        last = number + 1 == recipe.epochs
        if last or stopped or (number + 1) % recipe.checkpoint_every == 0:
            parts.save()
        if stopped and not last:
            return False
    return True


def run_epoch(parts: Parts, number: int) -> None:
    """Draw, score, compare, update; then let credit and the old policy follow."""
    recipe, policy, method = parts.plan.recipe, parts.policy, parts.method
    began = time.monotonic()
    batch = parts.sampler.epoch(number)
    rollout, rewards = draw(parts, batch, number)
    groups = compared(rollout, batch.groups).numpy()
    _heed_silence(parts, rewards, groups, number)
    if number == 0:
        parts.record_credit(parts.credit.record(0))
    collector = _collector(parts, rollout, batch, number)
    order = torch.randperm(len(groups), generator=parts.streams["order"])
    for rows in order.tensor_split(recipe.steps_per_epoch):
        logs = _optimise(parts, rollout, rewards, groups, rows, collector)
        parts.step += 1
        parts.ema.update(parts.step)
        logs |= {f"reward/{name}": mean for name, mean in rewards.means.items()}
        logs |= {f"failed/{name}": float(n) for name, (n, _) in rewards.failed.items()}
        logs["seconds/draw"] = parts.draw_seconds
        parts.record_metric(
            MetricRecord(
                step=parts.step,
                epoch=number,
                seconds=time.monotonic() - began,
                values=logs,
                scored=rewards.counts,
            )
        )
    if collector is not None:
        learnt = parts.credit.observe(
            collector.probes(number, rewards.values, batch.groups.numpy())
        )
        if learnt is not None:
            parts.record_credit(learnt)
    policy.update_old(method.old_decay(parts.step, number))
    parts.epoch = number + 1
    if recipe.samples_every and (number == 0 or (number + 1) % recipe.samples_every == 0):
        _save_samples(parts, number + 1)


def draw(parts: Parts, batch: Epoch, number: int) -> tuple[Rollout, RewardTable]:
    """Roll out and score; the next images are drawn while these are scored.

    Every process draws its share of the rows and gets all of them back.
    """
    began = time.monotonic()
    condition = _condition(parts, batch)
    total = len(batch.prompts)
    group = parts.plan.recipe.groups.group_size
    batch_size = parts.plan.recipe.sampler.rollout_batch
    pieces, pending = [], []
    with ThreadPoolExecutor(max_workers=1) as pool:
        for drawn in draw_pieces(total, group, batch_size):
            start, length = drawn.start, len(drawn)
            first, last = rank_rows(length, distributed.rank(), distributed.world())
            mine = torch.arange(start + first, start + last)
            plan = {
                **parts.method.rollout_plan,
                "rows": (first, last, length),
                "group_size": group,
                "epoch": number,
            }
            piece = parts.policy.rollout(condition.take(mine), parts.streams["rollout"], plan)
            images = parts.policy.decode(piece.x_0)
            texts = [batch.prompts[i] for i in mine.tolist()]
            pieces.append((piece, first, length))
            pending.append(pool.submit(score_each, parts.scorers, images, texts))
        tables = [future.result() for future in pending]
    gathered = [
        distributed.gather_rows(
            torch.from_numpy(np.concatenate([table.values, table.applicable]).T.copy()),
            first,
            length,
        )
        for table, (_, first, length) in zip(tables, pieces, strict=True)
    ]
    values, applicable = np.split(torch.cat(gathered).T.numpy(), 2)
    said = zip(*(table.reasons for table in tables), strict=True)
    reasons = tuple(next(filter(None, of_reward), "") for of_reward in said)
    table = RewardTable(tuple(parts.scorers), values, applicable > 0, reasons)
    parts.draw_seconds = time.monotonic() - began
    return _joined(pieces, condition), table


def draw_pieces(total: int, group: int, batch: int) -> list[range]:
    """Rows of each rollout: whole groups, as some methods start a group from one noise.

    Args:
        total: Images of an epoch.
        group: Images of a prompt.
        batch: ``sampler.rollout_batch``; 0 is all at once.
    """
    size = max((batch or total) // group, 1) * group
    return [range(start, min(start + size, total)) for start in range(0, total, size)]


def _heed_silence(parts: Parts, rewards: RewardTable, groups: np.ndarray, number: int) -> None:
    """Say, once each, which rewards fail; stop where failures leave nothing to learn from.

    Raises:
        RecastError: All advantages are 0, and failures are why.
    """
    sentences = dict(silences(rewards))
    wanted = parts.plan.budgets > 0
    lost = [n for n, w in zip(rewards.names, wanted, strict=True) if w and n in rewards.failed]
    if lost and not mixed_advantages(parts, rewards.values, groups).any():
        # Images may also be equally good; then a failure here and there is not to blame.
        together = parts.plan.recipe.mode == "pre"
        dead = any(name not in rewards.means for name in lost)
        if dead or not tell_apart(rewards, groups, wanted, together=together):
            raise RecastError(
                f"epoch {number + 1}: nothing to learn from: "
                f"{'; '.join(sentences[name] for name in lost)}. Mend that, and the same command "
                "with --resume goes on from the last checkpoint"
            )
    for name, sentence in sentences.items():
        case = (name, name not in rewards.means)
        if case not in parts.told and distributed.rank() == 0:
            log.warning("epoch %d: %s", number + 1, sentence)
        parts.told.add(case)


def compared(rollout: Rollout, groups: Tensor) -> Tensor:
    """Whose rewards are compared: samples of a prompt that explored the same steps.

    A branching rollout adds noise at another step in each part of a group, and noise costs reward
    at some steps more than at others: between the parts, advantages would tell which step was
    noisy, not which noise was good (TempFlow-GRPO, arXiv:2508.04324: advantages for each step).

    Args:
        rollout: N samples; those of a deterministic rollout have nothing to tell them apart.
        groups: (N,) prompt group of each.

    Returns:
        (N,) integer labels; the partition of ``groups`` where all explored the same steps.
    """
    if "stds" not in rollout.trace:
        return groups
    explored = (rollout.trace["stds"] > 0).cpu().to(groups.dtype)
    keys = torch.cat([groups[:, None], explored], dim=1)
    labels: Tensor = torch.unique(keys, dim=0, return_inverse=True)[1]
    return labels


def _condition(parts: Parts, batch: Epoch) -> Condition:
    """Each prompt encoded once, then a row a sample."""
    unique = list(dict.fromkeys(batch.prompts))
    encoded: Condition = parts.policy.encode(unique)
    return encoded.take(batch.groups)


def _joined(pieces: list[tuple[Rollout, int, int]], condition: Condition) -> Rollout:
    def whole(pick: Callable[[Rollout], Tensor]) -> Tensor:
        parts = [distributed.gather_rows(pick(p), first, length) for p, first, length in pieces]
        return torch.cat(parts)

    trace = {key: whole(lambda p, k=key: p.trace[k]) for key in pieces[0][0].trace}  # type: ignore[misc]
    return Rollout(whole(lambda p: p.x_0), condition, trace)


def _optimise(
    parts: Parts,
    rollout: Rollout,
    rewards: RewardTable,
    groups: np.ndarray,
    rows: Tensor,
    collector: ProbeCollector | None,
) -> dict[str, float]:
    """One optimiser step on some of the epoch's samples."""
    recipe, aggregator = parts.plan.recipe, parts.aggregator
    observe = None if collector is None else collector.observer(rows)
    part, generator = rollout.take(rows), parts.streams["training"]

    def works() -> Iterator[Work]:
        return parts.method.works(part, parts.num_steps, recipe.micro_batch, generator)

    shared = (parts.method, parts.policy, part)
    logs: dict[str, float] = {}
    refresh = aggregator.wants_gradients(parts.step)
    if refresh:
        each = per_reward_advantages(parts, rewards.values, groups)[..., rows]
    if refresh and aggregator.gram_share >= 1.0:
        logs = balance(*shared, works(), each, aggregator, observe)
    else:
        if refresh:
            # The same work is drawn twice: measured on a share of it, then stepped on in full.
            position = generator.get_state()
            logs = measure(*shared, works(), each, aggregator)
            generator.set_state(position)
        mixed = mixed_advantages(parts, rewards.values, groups)[..., rows]
        logs |= accumulate(*shared, works(), mixed, observe, scale=aggregator.scale())
    norm = step_optimiser(
        parts.optimiser, parts.policy.parameters(), recipe.optimiser.max_grad_norm
    )
    decay = parts.method.old_decay(parts.step + 1, parts.epoch)
    return {**logs, "grad_norm": norm, "old_decay": decay}


def per_reward_advantages(parts: Parts, rewards: np.ndarray, groups: np.ndarray) -> Tensor:
    """(K, T, N) with the credit inside each reward: an aggregator's coefficients mix them."""
    cfg = parts.plan.recipe.advantage
    found = reward_step_advantages(
        rewards,
        groups,
        _weights(parts),
        mode=parts.plan.recipe.mode,
        eps=cfg.eps,
        normaliser=cfg.scale,
        rms_match=cfg.rms_match,
        clip=cfg.clip,
        budgets=parts.plan.budgets,
        column_mass=parts.column_mass,
    )
    return torch.from_numpy(found).float()


def _weights(parts: Parts) -> np.ndarray:
    return spent_on(parts.credit.weights(), parts.plan.budgets, parts.density)


def mixed_advantages(parts: Parts, rewards: np.ndarray, groups: np.ndarray) -> Tensor:
    """(T, N): budgets and credit alone, unless an aggregator holds other coefficients."""
    coefficients = np.asarray(parts.aggregator.coefficients(), dtype=np.float64)
    recipe = parts.plan.recipe
    cfg = recipe.advantage
    if np.array_equal(coefficients, parts.plan.budgets):
        found = step_advantages(
            rewards * parts.plan.scales[:, None],
            groups,
            _weights(parts),
            mode=recipe.mode,
            eps=cfg.eps,
            normaliser=cfg.scale,
            rms_match=cfg.rms_match,
            clip=cfg.clip if recipe.mode == "loss" else None,
            budgets=parts.plan.budgets,
            column_mass=parts.column_mass,
        )
        if recipe.mode == "pre":  # every step was normalised for itself
            found = found * column_shares(parts.credit.weights())[:, None]
        mixed = torch.from_numpy(found).float()
    else:
        each = per_reward_advantages(parts, rewards, groups)
        mixed = torch.einsum("k,ktn->tn", torch.from_numpy(coefficients).float(), each)
    return whitened(mixed, cfg.eps) if parts.aggregator.whiten else mixed


def _collector(parts: Parts, rollout: Rollout, batch: Epoch, number: int) -> ProbeCollector | None:
    if not parts.credit.wants(number):
        return None
    cfg = parts.plan.recipe.probes
    shown = batch.groups < (cfg.groups or len(batch.groups))

    def score_rows(images: np.ndarray, rows: Tensor) -> np.ndarray:
        return score(parts.scorers, list(images), [batch.prompts[i] for i in rows.tolist()])

    return ProbeCollector(
        policy=parts.policy,
        rollout=rollout,
        steps=probe_steps(parts.num_steps, cfg.steps),
        rows=shown.nonzero().flatten(),
        score=score_rows,
        seed=derive_seed(parts.plan.recipe.seed, "probes", number),
        keep=parts.plan.credit.looks,
    )


def _save_samples(parts: Parts, epochs: int) -> None:
    """The same prompts from the same noise, so that sheets can be compared."""
    if distributed.rank() and not distributed.sharded():
        return
    prompts = parts.sampler.first(parts.plan.recipe.sample_prompts)
    generator = torch.Generator().manual_seed(derive_seed(parts.plan.recipe.seed, "samples"))
    rollout = parts.policy.rollout(parts.policy.encode(prompts), generator, {})
    if distributed.rank() == 0:
        parts.folder.save_grid(f"epoch-{epochs:06d}", parts.policy.decode(rollout.x_0))
