"""All parts of a run together: built from a plan, saved, and put back where they stood."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from recast_eval.errors import ConfigError
from recast_eval.records import CheckpointCard, CreditRecord, MetricRecord, digest
from recast_eval.scorers import Scorer
from recast_train import distributed
from recast_train.aggregators.base import Aggregator
from recast_train.checkpoint import (
    check_disk,
    list_checkpoints,
    load_checkpoint,
    prune_checkpoints,
    save_checkpoint,
)
from recast_train.config import Plan
from recast_train.credit import Credit, CreditSetup
from recast_train.data import GroupSampler
from recast_train.ema import Ema
from recast_train.methods.base import Method
from recast_train.policies.base import PolicySetup
from recast_train.rngs import Streams, derive_seed
from recast_train.run_folder import RunFolder

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Parts:
    """A run in memory."""

    plan: Plan
    folder: RunFolder
    policy: Any
    method: Method[Any]
    credit: Credit
    aggregator: Aggregator
    scorers: Mapping[str, Scorer]
    sampler: GroupSampler
    streams: Streams
    optimiser: torch.optim.Optimizer
    ema: Ema
    num_steps: int
    """T, noise levels that are trained on."""
    column_mass: np.ndarray | None = None
    """(T,) the method's own weighting of the steps; None: all alike."""
    density: np.ndarray | None = None
    """(T,) how often the method trains each step; None: all alike."""
    step: int = 0
    """Optimiser steps done."""
    epoch: int = 0
    """Epochs done."""
    draw_seconds: float = field(default=0.0)
    told: set[tuple[str, bool]] = field(default_factory=set)
    """Rewards that a warning was about, and whether they were silent: once is enough."""

    def state(self) -> dict[str, Any]:
        """Everything that the next epoch depends on."""
        return {
            "step": self.step,
            "epoch": self.epoch,
            "policy": self.policy.state(),
            "optimiser": self.optimiser.state_dict(),
            "ema": self.ema.state(),
            "streams": self.streams.state(),
            "credit": self.credit.state(),
            "aggregator": self.aggregator.state(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Put back what ``state`` gave."""
        self.step, self.epoch = state["step"], state["epoch"]
        self.policy.load_state(state["policy"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.ema.load_state(state["ema"])
        self.streams.load_state(state["streams"])
        self.credit.load_state(state["credit"])
        self.aggregator.load_state(state["aggregator"])

    def save(self) -> None:
        """Leave a checkpoint; the first process writes."""
        if distributed.rank() == 0:
            save_checkpoint(
                self.folder.checkpoints, self.step, self.state(), self._save_adapter, self._card
            )
            prune_checkpoints(self.folder.checkpoints, self.plan.recipe.keep_checkpoints)
        distributed.barrier()

    def _save_adapter(self, folder: Path) -> None:
        self.policy.save_adapter(folder, self.ema.weights)

    def _card(self, files: dict[str, str]) -> CheckpointCard:
        plan = self.plan
        return CheckpointCard(
            base_model=plan.policy_config.base,
            policy=plan.policy.name,
            step=self.step,
            recipe_name=plan.recipe.name,
            recipe_digest=plan.digest(),
            rewards={name: spec.card.family for name, spec in plan.rewards.items()},
            heldout=list(plan.recipe.heldout),
            allow_shared_family=plan.recipe.allow_shared_family,
            sampler=sampler_facts(plan),
            files=files,
        )

    def record_metric(self, record: MetricRecord) -> None:
        """Append a metric; the first process writes."""
        if distributed.rank() == 0:
            self.folder.add_metric(record)

    def record_credit(self, record: CreditRecord) -> None:
        """Append a credit; the first process writes."""
        if distributed.rank() == 0:
            self.folder.add_credit(record)


def sampler_facts(plan: Plan) -> dict[str, Any]:
    """What an evaluation needs to draw as the training did."""
    config = plan.policy_config
    extra = {
        key: getattr(config, key)
        for key in ("resolution", "max_sequence_length")
        if hasattr(config, key)
    }
    facts = {**asdict(plan.recipe.sampler), "solver": plan.solver, **extra}
    for own in ("rollout_batch", "precision"):
        facts.pop(own)
    return facts


def build_policy(plan: Plan, device: str) -> Any:
    """Load the policy that a recipe names; see ``PolicySpec``. The libraries load in silence."""
    _quieten()
    recipe = plan.recipe
    setup = PolicySetup(
        steps=recipe.sampler.steps,
        guidance_scale=recipe.sampler.guidance_scale,
        solver=plan.solver,
        shift=recipe.sampler.shift,
        rollout_batch=recipe.sampler.rollout_batch,
        precision=recipe.precision,
        rollout_precision=recipe.sampler.precision,
        device=device,
        seed=derive_seed(recipe.seed, "adapter"),
        shard=distributed.sharded(),
    )
    return plan.policy.build(plan.policy_config, setup)


def _quieten() -> None:
    """The libraries' own loading bars say nothing about training, and litter a log."""
    from diffusers.utils import logging as diffusers_logging
    from transformers.utils import logging as transformers_logging

    diffusers_logging.disable_progress_bar()
    transformers_logging.disable_progress_bar()


def build_parts(
    plan: Plan,
    folder: RunFolder,
    policy: Any,
    scorers: Mapping[str, Scorer],
    prompts: Sequence[str],
) -> Parts:
    """Put a run together, resumed from its last checkpoint if it has one.

    Args:
        plan: The checked recipe.
        folder: Prepared for this plan.
        policy: Built from the plan.
        scorers: The rewards, in the recipe's order.
        prompts: All training prompts.

    Raises:
        ConfigError: Too few prompts, or too little disk.
        DataError: The last checkpoint is damaged.
    """
    recipe = plan.recipe
    method = plan.method.build(plan.method_config)
    num_steps = len(policy.sigmas) - 1
    mass = method.column_mass(getattr(policy, "nominal_masks", None), num_steps)
    setup = CreditSetup(
        rewards=tuple(recipe.rewards),
        budgets=plan.budgets,
        sigmas=policy.sigmas.numpy().astype(np.float64),
        column_mass=None if mass is None else np.asarray(mass),
        seed=derive_seed(recipe.seed, "credit"),
        # one process is enough to say that a profile is of another model
        base_model="" if distributed.rank() else str(plan.policy_config.base),
    )
    cfg = recipe.optimiser
    parameters = policy.parameters()
    optimiser = torch.optim.AdamW(
        parameters,
        lr=cfg.learning_rate,
        betas=cfg.betas,
        eps=cfg.eps,
        weight_decay=cfg.weight_decay,
    )
    try:
        sampler = GroupSampler(
            prompts,
            prompts_per_epoch=recipe.groups.prompts_per_epoch,
            group_size=recipe.groups.group_size,
            seed=recipe.seed,
        )
    except ValueError as error:
        raise ConfigError([f"groups.prompts_per_epoch: {error}"]) from error
    parts = Parts(
        plan=plan,
        folder=folder,
        policy=policy,
        method=method,
        credit=plan.credit.build(plan.credit_config, setup),
        aggregator=plan.aggregator.build(plan.aggregator_config, plan.budgets),
        scorers=scorers,
        sampler=sampler,
        streams=Streams(recipe.seed),
        optimiser=optimiser,
        ema=Ema(parameters, recipe.ema_ceiling),
        num_steps=num_steps,
        column_mass=setup.column_mass,
        density=_density(method, policy.sigmas, recipe.epochs),
    )
    resume_parts(parts)
    check_disk(folder.root, checkpoint_bytes(parts) * ((recipe.keep_checkpoints or 3) + 1))
    return parts


def _density(method: Method[Any], sigmas: torch.Tensor, epochs: int) -> np.ndarray | None:
    # A method from elsewhere may be older than this question.
    ask = getattr(method, "step_density", None)
    found: np.ndarray | None = None if ask is None else ask(sigmas, epochs)
    return found


def resume_parts(parts: Parts) -> None:
    """Continue from the last checkpoint, and drop what was recorded after it."""
    found = list_checkpoints(parts.folder.checkpoints)
    if found:
        card, state = load_checkpoint(found[-1])
        if card.recipe_digest != parts.plan.digest():
            raise ConfigError([f"{found[-1]}: belongs to another recipe ({card.recipe_digest})"])
        parts.load_state(state)
        log.info("resumed after epoch %d (step %d)", parts.epoch, parts.step)
    if distributed.rank() == 0:
        parts.folder.rewind(step=parts.step, epoch=parts.epoch)
    distributed.barrier()


def checkpoint_bytes(parts: Parts) -> int:
    """About what one checkpoint takes: new, old, EMA, two moments, the adapter twice."""
    numbers: int = sum(p.numel() for p in parts.policy.parameters())
    return 7 * 4 * numbers + 1_000_000


def prompts_digest(prompts: Sequence[str]) -> str:
    """Name a prompt list by its content."""
    return digest(list(prompts))
