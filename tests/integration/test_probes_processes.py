"""What a learning credit is shown does not depend on the number of processes."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from recast_train import distributed
from recast_train.methods.base import Outputs, Work
from recast_train.policies.base import Condition, Rollout
from recast_train.probes import ProbeCollector

ROWS = torch.tensor([0, 1, 2, 4, 5])
"""Samples shown, of six."""
STEPS = [1, 2]


class _Policy:
    """Estimates that tell what they were made from; counts rows, as no image is an error."""

    sigmas = torch.linspace(1, 0, 4)

    def noised(self, x_0: torch.Tensor, step: int, noise: torch.Tensor) -> torch.Tensor:
        return x_0 + step * noise

    def estimate(
        self, x_t: torch.Tensor, sigma: torch.Tensor, condition: Condition
    ) -> torch.Tensor:
        return x_t * sigma[:, None] + condition.tensors["prompt"]

    def complete(
        self,
        x_t: torch.Tensor,
        step: int,
        condition: Condition,
        generator: torch.Generator,
        *,
        rows: tuple[int, int, int],
    ) -> torch.Tensor:
        noise = torch.randn((rows[2], x_t.shape[1]), generator=generator)[rows[0] : rows[1]]
        return x_t + noise + condition.tensors["prompt"]

    def decode(self, x_0: torch.Tensor) -> np.ndarray:
        assert len(x_0)
        return x_0.numpy()

    def features(self, x_0: torch.Tensor) -> np.ndarray:
        assert len(x_0)
        return x_0.double().numpy()


def _score(images: np.ndarray, rows: torch.Tensor) -> np.ndarray:
    assert len(images) == len(rows) > 0
    return np.stack([images.sum(axis=1), images[:, 0] * rows.numpy()]).astype(np.float64)


def _shown() -> np.ndarray:
    """Everything that a credit can ask for, when each process trained on its share of the work."""
    x_0 = torch.arange(12.0).reshape(6, 2)
    rollout = Rollout(x_0, Condition({"prompt": torch.arange(6.0)[:, None]}))
    collector = ProbeCollector(
        policy=_Policy(),  # type: ignore[arg-type]
        rollout=rollout,
        steps=STEPS,
        rows=ROWS,
        score=_score,
        seed=7,
    )
    observe = collector.observer(torch.tensor([5, 3, 4, 0, 1, 2]))
    # As training deals it out: every n-th item. Samples 1 and 2 skip step 1.
    works = [([0, 1], [1, 1]), ([2, 3], [1, 2]), ([4, 5], [2, 3]), ([0, 3], [2, 1])]
    for index, (places, steps) in enumerate(works):
        if index % distributed.world() == distributed.rank():
            generator = torch.Generator().manual_seed(index)
            found = torch.randn((len(places), 2), generator=generator)
            work = Work(torch.tensor(places), torch.tensor(steps), None, 1.0)
            observe(work, Outputs({"x_0_hat": found}))
    probes = collector.probes(0, np.zeros((2, 6)), np.repeat([0, 1], 3))
    asked = [probes.x0_rewards(), probes.features().transpose(0, 2, 1), probes.x0_rewards()]
    return np.concatenate([*asked, *(probes.complete(i)[None] for i in range(len(STEPS)))])


@pytest.mark.parametrize("processes", [2, 7])
def test_any_number_of_processes_shows_the_same(processes: int, tmp_path: Path) -> None:
    """Seven: more processes than samples are shown."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *(f"--nproc_per_node={processes}", str(Path(__file__)), str(tmp_path)),
        ],
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr
    want = _shown()
    for rank in range(processes):
        np.testing.assert_array_equal(np.load(tmp_path / f"{rank}.npy"), want)


if __name__ == "__main__":
    torch.set_num_threads(1)
    distributed.start("cpu")
    np.save(Path(sys.argv[1]) / f"{distributed.rank()}.npy", _shown())
    distributed.stop()
