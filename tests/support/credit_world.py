"""What tests of credit kinds share: a world with exact gains, its probes, and margins."""

from typing import Any

import numpy as np
from pydantic import TypeAdapter

from recast_train.credit import CREDITS, Credit, CreditSetup, Probes
from recast_train.credit.estimators import Samples
from recast_train.credit.gaussian import (
    COARSE,
    FINE,
    MIDDLE,
    draw,
    exact_information,
    shifted_sigmas,
)

COORDINATES = (COARSE, MIDDLE, FINE)
NAMES = ("coarse", "middle", "fine")
SIGMAS = shifted_sigmas(10)
PROBES = SIGMAS[[1, 3, 5, 7, 9]]
BUDGETS = np.array([2, 1, 1]) / 4
SETUP = CreditSetup(rewards=NAMES, budgets=BUDGETS, sigmas=SIGMAS, column_mass=None, seed=3)


def exact_gains() -> np.ndarray:
    return np.diff(np.stack([exact_information(SIGMAS, c) for c in COORDINATES]))


def samples(prompts: int, images: int, seed: int) -> Samples:
    generator = np.random.default_rng(seed)
    return draw(COORDINATES, PROBES, prompts=prompts, images=images, generator=generator)


def probes(epoch: int, prompts: int = 24, images: int = 24, **change: Any) -> Probes:
    drawn = samples(prompts, images, 100 + epoch)
    assert drawn.x0_rewards is not None
    assert drawn.completions is not None
    x0, completions = drawn.x0_rewards, drawn.completions
    given: dict[str, Any] = {
        "epoch": epoch,
        "rewards": drawn.rewards,
        "prompts": drawn.prompts,
        "sigmas": PROBES,
        "x0_rewards": lambda: x0,
        "features": lambda: np.zeros((len(PROBES), x0.shape[2], 1)),
        "complete": lambda index: completions[index],
    }
    return Probes(**{**given, **change})


def make(kind: str, setup: CreditSetup = SETUP, **config: Any) -> Credit:
    spec = CREDITS.load(kind)
    checked = TypeAdapter(spec.config).validate_python(config)
    problems = list(checked.problems()) if hasattr(checked, "problems") else []
    assert not problems, problems
    built: Credit = spec.build(checked, setup)
    return built


def margins(credit: Credit, budgets: np.ndarray = BUDGETS) -> None:
    w = credit.weights()
    np.testing.assert_allclose(w.sum(1), budgets, atol=1e-10)
    np.testing.assert_allclose(w.sum(0), 1 / w.shape[1], atol=1e-12)
    assert (w >= 0).all()
