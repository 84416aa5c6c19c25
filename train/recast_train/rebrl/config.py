"""The switches of a masked-diffusion estimator, and the published methods as presets."""

from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from recast_train.rebrl.credit import (
    Token,
    credit_weights,
    full_mask_weights,
    normalize_mass,
    trajectory_weights,
)

Estimator = Literal["masked", "trajectory", "full", "coupled"]


@dataclass(frozen=True, slots=True)
class RebalanceConfig:
    """What is summed, and with which weights."""

    estimator: Estimator = "masked"
    """``masked``: every masked token of each stage; ``trajectory``: tokens that a step
    reveals; ``full``: all tokens, all masked, before step 0; ``coupled``: all masked, plus a
    random set and its complement."""
    stage_power: float = 1.0
    """p of the stage factor t^p (masked): 0 ELBO, 1 and 2 RebRL's orders."""
    token: Token = "inv_freq"
    """Token factor (masked): ``none``, ``inv_freq`` (1/F) or ``exact`` (1/Z)."""
    masks: Literal["rollout", "shared_uniform", "independent"] = "rollout"
    """``rollout`` replays the decode order; ``shared_uniform``: one uniform number a token
    against every stage's share (nested, random order); ``independent``: fresh masks a stage."""
    min_share: float = 0.0
    """Smallest masked share of drawn masks (MaskGRPO's truncation), in [0, 1)."""
    stage_balance: float = 0.0
    """Trajectory: 0 weighs tokens alike, 1 stages."""
    normalize: Literal["mean1", "none"] = "mean1"
    """``mean1`` keeps the mean token weight at 1 for every choice above."""
    stages_per_update: int | None = None
    """Train on that many drawn stages a sample instead of all."""
    sampling: Literal["uniform", "lambda"] = "uniform"
    """How stages are drawn, see ``stage_density``."""

    def __post_init__(self) -> None:
        """Refuse what has no meaning.

        Raises:
            ValueError: All problems, a line each.
        """
        problems = []
        if self.stage_power < 0:
            problems.append(f"stage_power must be at least 0, got {self.stage_power}")
        if not 0 <= self.min_share < 1:
            problems.append(f"min_share must lie in [0, 1), got {self.min_share}")
        if self.estimator == "trajectory" and self.masks == "independent":
            problems.append("trajectory needs nested masks: rollout or shared_uniform")
        if self.stage_balance and self.estimator == "trajectory" and self.masks != "rollout":
            problems.append(
                "stage_balance needs masks rollout: the share of a stage of drawn masks has no "
                f"closed form but for 0, got {self.stage_balance}"
            )
        if self.masks == "independent" and self.token == "exact":
            problems.append("token exact needs nested masks: its divisor has no closed form else")
        if self.stages_per_update is not None and self.stages_per_update < 1:
            problems.append(f"stages_per_update must be at least 1, got {self.stages_per_update}")
        if problems:
            raise ValueError("\n".join(problems))


PRESETS: Final[dict[str, RebalanceConfig]] = {
    "unigrpo": RebalanceConfig(stage_power=0.0, token="none"),
    "maskgrpo": RebalanceConfig(stage_power=0.0, token="none", masks="independent", min_share=0.6),
    "diffu-grpo": RebalanceConfig(estimator="full"),
    "coupled": RebalanceConfig(estimator="coupled"),
    "mask-grpo": RebalanceConfig(estimator="trajectory"),
    "rebrl1": RebalanceConfig(stage_power=1.0, token="none"),
    "rebrl2": RebalanceConfig(stage_power=2.0, token="none"),
    "rebrl-token": RebalanceConfig(stage_power=0.0, token="inv_freq"),
    "rebrl": RebalanceConfig(stage_power=1.0, token="inv_freq"),
}
"""Weightings by the name of the method that they reproduce. Beyond the weighting, the
published methods differ in clips, learning rates and samplers: those are recipe values."""


def preset(name: str, **changes: object) -> RebalanceConfig:
    """A preset, with some switches changed.

    Raises:
        ValueError: No preset has this name; the message lists them.
    """
    if name not in PRESETS:
        raise ValueError(f"no preset {name!r}; one of {', '.join(PRESETS)}")
    return replace(PRESETS[name], **changes)  # type: ignore[arg-type]


def estimator_weights(
    masks: ArrayLike, config: RebalanceConfig
) -> Float[np.ndarray, "*batch steps tokens"]:
    """The weights a that a configuration gives to masks (..., T, N); float64.

    Raises:
        ValueError: The masks do not suit the estimator.
    """
    if config.estimator == "trajectory":
        weights = trajectory_weights(masks, stage_balance=config.stage_balance)
    elif config.estimator == "full":
        weights = full_mask_weights(masks)
    elif config.estimator == "coupled":
        weights = credit_weights(masks, stage_power=0.0, token="none", nested=False) / 2
    else:
        weights = credit_weights(
            masks,
            stage_power=config.stage_power,
            token=config.token,
            nested=config.masks != "independent",
        )
    return normalize_mass(weights) if config.normalize == "mean1" else weights
