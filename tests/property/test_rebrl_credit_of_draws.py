"""What an update really draws carries the stage credit that its column mass promises."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from recast_train.policies.masked.order import planned_steps
from recast_train.rebrl import (
    PRESETS,
    RebalanceConfig,
    column_mass,
    draw_stages,
    mask_counts,
    preset,
)

MASKS = {
    **dict.fromkeys(PRESETS, ("rollout", "shared_uniform", "independent")),
    "mask-grpo": ("rollout", "shared_uniform"),  # trajectory needs nested masks
}
CASES = [
    (name, masks, share)
    for name in PRESETS
    for masks, share in itertools.product(MASKS[name], (0.0, 0.6, 0.9))
    if masks != "rollout" or share == 0
]


def _realised(
    config: RebalanceConfig, order: str, grid: tuple[int, int], steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """(T,) mean stage credit of 512 samples, and what was promised."""
    tokens, generator = grid[0] * grid[1], torch.Generator().manual_seed(3)
    counts = mask_counts(tokens, steps)
    total = np.zeros(steps)
    for _ in range(2):
        noise = torch.rand((256, tokens), generator=generator)
        decoded = planned_steps(order, noise, counts, grid)
        stages = draw_stages(decoded, counts, config, generator)
        np.add.at(total, stages.steps.numpy(), stages.weights.double().mean((0, 2)).numpy())
    return total / 2, column_mass(counts, config)


@pytest.mark.parametrize("order", ["random", "halton", "emerge"])
@pytest.mark.parametrize(("name", "masks", "share"), CASES)
def test_the_mean_of_draws_is_the_column_mass(
    name: str, masks: Any, share: float, order: str
) -> None:
    config = preset(name, masks=masks, min_share=share)
    for grid, steps in (((2, 2), 3), ((2, 2), 6), ((4, 4), 8), ((8, 8), 8)):
        found, mass = _realised(config, order, grid, steps)
        assert (found[mass <= 0] == 0).all()  # or the loss would divide 0 by 0
        assert found.sum() == pytest.approx(1, abs=1e-6)
        if grid != (2, 2) and name != "coupled":  # which draws one step for all samples
            np.testing.assert_allclose(found, mass, atol=0.012)


def test_a_balance_of_drawn_masks_has_no_closed_form_and_is_refused() -> None:
    with pytest.raises(ValueError, match="stage_balance needs masks rollout"):
        preset("mask-grpo", masks="shared_uniform", stage_balance=1.0)
