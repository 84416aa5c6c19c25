"""What MARBLE and its rivals share: refresh every N steps, remember, report."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from recast_train.aggregators.base import Combined
from recast_train.gradients import cosines, mixture, worst_cosine
from recast_train.recipe_types import STRICT


@dataclass(frozen=True, slots=True, kw_only=True)
class BalancingConfig:
    """When coefficients are solved anew, and how they are remembered in between."""

    __pydantic_config__: ClassVar = STRICT

    refresh_every: int = 10
    """Optimiser steps between refreshes; 1 is un-amortised: K backwards each step."""
    rho: float = 0.7
    """EMA of the coefficients, share of the past in [0, 1)."""
    start: Literal["first", "uniform", "budgets"] = "first"
    """What the EMA starts from: the first solution, 1/K (of those with a budget), or the
    budgets."""
    refresh_uses: Literal["solution", "ema"] = "solution"
    """Whether the refresh step itself takes the new solution or the EMA, each as it is meant:
    coefficients of unit gradients go to unit gradients."""
    uniform_from: int = -1
    """Optimiser step from which coefficients are 1/K, without refreshes; -1 is never."""
    gram_share: float = 1.0
    """Share of the work items of a refresh that the Gram matrix is measured on. Below 1 a
    refresh costs less: K backwards on that share, one on all; its error is reported."""

    def problems(self) -> Iterator[str]:
        """What is out of range."""
        if self.refresh_every < 1:
            yield f"refresh_every: must be 1 or more, got {self.refresh_every}"
        if not 0.0 <= self.rho < 1.0:
            yield f"rho: must be in [0, 1), got {self.rho}"
        if self.uniform_from < -1:
            yield f"uniform_from: must be -1 or a step, got {self.uniform_from}"
        if not 0.0 < self.gram_share <= 1.0:
            yield f"gram_share: must be in (0, 1], got {self.gram_share}"


class Solver(Protocol):
    """Weights on gradients from the Gram matrix of those that have a signal."""

    def __call__(self, gram: np.ndarray, refresh: int) -> "Solution":
        """Solve; ``refresh`` counts refreshes, for solvers that draw."""
        ...


@dataclass(frozen=True, slots=True)
class Solution:
    """Of one refresh, over the active rewards."""

    weights: np.ndarray
    """On the gradients as they are, for the refresh step."""
    remembered: np.ndarray
    """On the advantages of the steps in between (before the EMA)."""
    for_unit: bool = False
    """Whether ``remembered`` belongs to gradients of length 1, as MARBLE's alpha does."""


class Balancer:
    """An aggregator around a solver. Its state is JSON.

    Args:
        config: Refresh interval, EMA, start.
        budgets: (K,) sum to 1; used as a start and where nothing has been solved yet.
        solve: The method.
    """

    needs_advantages = "zscore"
    whiten = False

    def __init__(self, config: BalancingConfig, budgets: np.ndarray, solve: Solver) -> None:
        self._config, self._solve = config, solve
        # A reward without a budget asks for nothing: it has no share in an even split either.
        wanted = np.asarray(budgets) > 0
        self._uniform: np.ndarray = wanted / wanted.sum()
        starts = {"uniform": self._uniform, "budgets": np.asarray(budgets, np.float64)}
        self._ema = starts.get(config.start)
        self._before = np.asarray(budgets, np.float64)
        self.gram_share = config.gram_share
        self._refreshes = 0
        self._step = 0

    def wants_gradients(self, step: int) -> bool:
        """Every ``refresh_every`` steps until the uniform stage; never for one reward alone."""
        self._step = step
        due = step % self._config.refresh_every == 0 and not self._is_uniform()
        return due and bool(np.count_nonzero(self._uniform) > 1)

    def coefficients(self) -> np.ndarray:
        """(K,) shares that sum to 1."""
        return mixture(self._weights()).shares

    def scale(self) -> float:
        """Factor on an ordinary step's loss: what the weights sum to."""
        return mixture(self._weights()).scale

    def combine(self, gram: Tensor, active: Tensor) -> Combined:
        """Solve on the rewards that have a signal; the others keep what they had."""
        matrix = gram.detach().cpu().numpy().astype(np.float64)
        norms = np.sqrt(np.maximum(matrix.diagonal(), 0.0))
        used = active.detach().cpu().numpy().astype(bool) & (norms > 1e-12 * norms.max())
        weights, stale = np.zeros(len(matrix)), self._weights()
        if used.any():
            solution = self._solve(matrix[np.ix_(used, used)], self._refreshes)
            weights[used] = solution.weights
            remembered = self._remember(solution.remembered, used)
            if self._config.refresh_uses == "ema":
                unit = solution.for_unit
                weights = _on_raw(remembered, norms, used) if unit else remembered
        self._refreshes += 1
        report = self._report(matrix, weights, used)
        # How well the coefficients of the steps since the last refresh still fit.
        report["worst_cosine_before"] = worst_cosine(matrix, stale, used) if used.any() else 0.0
        return Combined(torch.from_numpy(weights.copy()), report)

    def state(self) -> dict[str, Any]:
        """EMA, number of refreshes and step."""
        ema = None if self._ema is None else self._ema.tolist()
        return {"ema": ema, "refreshes": self._refreshes, "step": self._step}

    def load_state(self, state: dict[str, Any]) -> None:
        """Put back what ``state`` gave.

        Raises:
            ValueError: It is of another number of rewards.
        """
        ema = state["ema"]
        if ema is not None and len(ema) != len(self._uniform):
            raise ValueError(f"state of {len(ema)} rewards, but there are {len(self._uniform)}")
        self._ema = None if ema is None else np.asarray(ema, np.float64)
        self._refreshes, self._step = int(state["refreshes"]), int(state["step"])

    def _is_uniform(self) -> bool:
        return 0 <= self._config.uniform_from <= self._step

    def _weights(self) -> np.ndarray:
        if self._is_uniform():
            return self._uniform
        return self._before if self._ema is None else self._ema

    def _remember(self, solved: np.ndarray, used: np.ndarray) -> np.ndarray:
        """The new EMA; a reward without signal keeps its share, the others split what is left."""
        past = self._weights()
        target = np.where(used, 0.0, past)
        left = 1.0 - target.sum() / past.sum() if past.sum() > 0.0 else 1.0
        target[used] = solved * left
        if self._ema is None:
            self._ema = target
        else:
            self._ema = self._config.rho * self._ema + (1.0 - self._config.rho) * target
        return self._ema

    def _report(self, gram: np.ndarray, weights: np.ndarray, used: np.ndarray) -> dict[str, float]:
        unit = cosines(gram)
        report = {
            "worst_cosine": worst_cosine(gram, weights, used) if used.any() else 0.0,
            "worst_cosine_of_mean": worst_cosine(gram, self._uniform, used) if used.any() else 0.0,
            "active": float(used.sum()),
        }
        remembered = self._weights()
        for k in range(len(gram)):
            report[f"weight/{k}"] = float(weights[k])
            report[f"coefficient/{k}"] = float(remembered[k])
            report[f"norm/{k}"] = float(np.sqrt(max(gram[k, k], 0.0)))
            for other in range(k, len(gram)):
                report[f"gram/{k}/{other}"] = float(gram[k, other])
                report[f"cosine/{k}/{other}"] = float(unit[k, other])
        return report


def _on_raw(shares: np.ndarray, norms: np.ndarray, used: np.ndarray) -> np.ndarray:
    """Shares of unit gradients as weights on the raw ones, at their mean norm (MARBLE, Eq. 7).

    A reward without signal has no direction: the others split its share.
    """
    weights, total = np.zeros(len(shares)), shares[used].sum()
    if total > 0.0:
        weights[used] = shares[used] / total * norms[used].mean() / norms[used]
    return weights
