"""Which masks an update trains on, with their weights, and the stage credit to expect."""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike
from torch import Generator, Tensor

from recast_train.rebrl.config import RebalanceConfig, estimator_weights
from recast_train.rebrl.credit import stage_credit, stage_density
from recast_train.rebrl.schedule import nested_masks, stage_masks

_COUPLED = (0.2, 0.8)  # DiffuCoder draws the masked share of its pairs from this range
_FINE = 1024  # tokens that stand for the expectation over drawn masks, however small the grid


class Stages(NamedTuple):
    """What an update trains on: S masked states of each of B samples. CPU tensors."""

    masks: Bool[Tensor, "batch stages tokens"]
    weights: Float[Tensor, "batch stages tokens"]
    """a of the estimator, float32; 0 on visible tokens and on stages that are left out."""
    steps: Int[Tensor, " stages"]
    """The step 0..T-1 whose credit each stage uses."""


def draw_stages(
    decode_step: Int[Tensor, "batch tokens"],
    counts: ArrayLike,
    config: RebalanceConfig,
    generator: Generator,
) -> Stages:
    """Masks and weights of one update.

    Args:
        decode_step: The step, from 0, that revealed each token.
        counts: (T+1,) masked tokens that the schedule has before each step, and 0. A rollout's
            own can differ (``emerge``); drawn masks follow the schedule, as ``column_mass`` does.
        config: The estimator.
        generator: The only source of randomness; untouched by ``rollout`` masks of all stages.

    Raises:
        ValueError: A decode step is out of range.
    """
    left = np.asarray(counts)
    shares = left[:-1] / left[0]
    steps = np.arange(len(shares))
    replay = stage_masks(decode_step.cpu().numpy(), len(shares))
    if config.estimator == "full":
        masks, steps = np.ones_like(replay[:, :1]), steps[:1]  # chance can hide all later on too
    elif config.estimator == "coupled":
        masks, steps = _coupled(shares, replay.shape, generator)
    else:
        masks = _masks(replay, shares, config, generator)
    weights = estimator_weights(masks, config)
    if config.stages_per_update is not None:
        weights = weights * _drawn(masks.mean(-1), config, generator)[..., None]
    return Stages(
        torch.from_numpy(masks),
        torch.from_numpy(weights.astype(np.float32)),
        torch.from_numpy(steps),
    )


def _masks(
    replay: np.ndarray, shares: np.ndarray, config: RebalanceConfig, generator: Generator
) -> np.ndarray:
    if config.masks == "rollout":
        return replay
    batch, stages, tokens = replay.shape
    wanted = _wanted(shares, config)[:, None]
    rows = 1 if config.masks == "shared_uniform" else stages
    noise = torch.rand(batch, rows, tokens, generator=generator).numpy()
    drawn: np.ndarray = noise < wanted
    return drawn


def _wanted(shares: np.ndarray, config: RebalanceConfig) -> np.ndarray:
    """(T,) masked share of drawn masks."""
    wanted: np.ndarray = config.min_share + (1 - config.min_share) * shares
    return wanted


def _drawn(shares: np.ndarray, config: RebalanceConfig, generator: Generator) -> np.ndarray:
    """(B, S) times drawn / (draws x probability): 1 in expectation."""
    draws = config.stages_per_update or 1
    power = config.stage_power
    density = stage_density(shares, power=power, sampling=config.sampling)
    picks = torch.multinomial(
        torch.from_numpy(density), draws, replacement=True, generator=generator
    )
    times = (picks[..., None] == torch.arange(shares.shape[1])).sum(1).numpy()
    factor: np.ndarray = times / (draws * np.where(density > 0, density, 1.0))
    return factor


def _coupled_steps(shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Steps that a coupled pair may use, and those nearest to their complements."""
    low, high = _COUPLED
    inner = np.flatnonzero((shares >= low) & (shares <= high))
    if not len(inner):
        inner = np.array([np.abs(shares - 0.5).argmin()])
    return inner, np.abs(shares[None] - (1 - shares[inner])[:, None]).argmin(1)


def _coupled(
    shares: np.ndarray, shape: tuple[int, ...], generator: Generator
) -> tuple[np.ndarray, np.ndarray]:
    batch, _, tokens = shape
    inner, partner = _coupled_steps(shares)
    pick = int(torch.randint(len(inner), (), generator=generator))
    rank = torch.rand(batch, tokens, generator=generator).argsort(-1).argsort(-1).numpy()
    hidden = rank < max(1, round(tokens * float(shares[inner[pick]])))
    masks = np.stack([np.ones_like(hidden), hidden, ~hidden], axis=1)
    return masks, np.array([0, inner[pick], partner[pick]])


def column_mass(counts: ArrayLike, config: RebalanceConfig) -> Float[np.ndarray, " steps"]:
    """The share of the gradient that each step carries: what credit over steps must add up to.

    Exact for masks that follow the schedule's counts (random, Halton and confidence orders
    replayed); the expectation for masks that are drawn; near it where counts hold on average
    (the emerge order replayed).

    Args:
        counts: (T+1,) masked tokens before each step, and 0.
        config: The estimator.

    Returns:
        (T,) float64, sums to 1.
    """
    left = np.asarray(counts)
    shares = left[:-1] / left[0]
    wanted = _wanted(shares, config)
    if config.estimator == "full":
        mass = np.eye(len(shares))[0]
    elif config.estimator == "coupled":
        mass = np.zeros(len(shares))
        inner, partner = _coupled_steps(shares)
        mass[0] += 1.0
        np.add.at(mass, inner, 1 / len(inner))
        np.add.at(mass, partner, 1 / len(inner))
    elif config.masks == "rollout":
        mass = stage_credit(estimator_weights(nested_masks(left), config))
    elif config.estimator == "trajectory":
        mass = wanted - np.append(wanted[1:], 0.0)  # E[n_i] / N; rounded counts may say 0
    elif config.masks == "independent":
        mass = _independent_mass(wanted, config)
    else:
        fitted = np.rint(wanted * max(left[0], _FINE)).astype(int)
        mass = stage_credit(estimator_weights(nested_masks([*fitted, 0]), config))
    normalised: np.ndarray = mass / mass.sum()
    return normalised


def _independent_mass(shares: np.ndarray, config: RebalanceConfig) -> np.ndarray:
    """E[a_ik] of independent masks; with 1/F, E[1/(1+S)] over the other stages' masks S."""
    mass: np.ndarray = shares**config.stage_power
    if config.token == "none":
        return mass
    expected = np.empty(len(shares))
    for i in range(len(shares)):
        law = np.ones(1)
        for share in np.delete(shares, i):
            law = np.convolve(law, [1 - share, share])
        expected[i] = (law / np.arange(1, len(law) + 1)).sum()
    return mass * expected
