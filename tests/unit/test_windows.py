"""Where rollouts are stochastic."""

import pytest
import torch

from recast_train.policies._windows import Window, find_window, window_range

SPEC = {"size": 2, "low": 0.0, "high": 1.0, "every": 1, "stride": 1, "branches": 1}


def _find(kind: str, samples: int = 6, steps: int = 8, epoch: int = 0, **changes: float) -> Window:
    generator = torch.Generator().manual_seed(3)
    spec = {**SPEC, "kind": kind, **changes}
    return find_window(spec, samples, steps, epoch=epoch, generator=generator)


def test_all_is_every_step() -> None:
    for window in (
        _find("all"),
        find_window(None, 6, 8, epoch=0, generator=torch.Generator()),
    ):
        assert all(window.at(step).all() for step in range(8))


def test_random_stays_between_its_bounds() -> None:
    generator = torch.Generator().manual_seed(0)
    spec = {**SPEC, "kind": "random", "size": 3, "low": 0.2, "high": 0.8}
    found = set()
    for _ in range(200):
        window = find_window(spec, 4, 10, epoch=0, generator=generator)
        assert len(set(window.first.tolist())) == 1
        assert (window.last - window.first == 3).all()
        found.add(int(window.first[0]))
    assert found == {2, 3, 4, 5}


def test_sliding_moves_and_stops() -> None:
    firsts = [int(_find("sliding", epoch=e, every=2, stride=2).first[0]) for e in range(12)]
    assert firsts == [0, 0, 2, 2, 4, 4, 6, 6, 6, 6, 6, 6]


def test_branches_share_a_step_and_cover_all() -> None:
    window = _find("branch", samples=16, size=1, branches=2)
    pairs = window.first.reshape(8, 2)
    assert (pairs[:, 0] == pairs[:, 1]).all()
    assert sorted(pairs[:, 0].tolist()) == list(range(8))


def test_windows_end_with_the_visible_steps_unless_they_are_larger() -> None:
    spec = {**SPEC, "kind": "sliding"}
    assert window_range(spec, 8) == (0, 8)
    assert window_range(spec, 8, visible=6) == (0, 6)
    assert window_range({**spec, "size": 7}, 8, visible=6) == (0, 7)
    assert window_range({**spec, "low": 0.5, "size": 3}, 8, visible=6) == (4, 7)


@pytest.mark.parametrize(
    ("kind", "changes", "law"),
    [("random", {"size": 5, "high": 0.5}, "does not fit"), ("hop", {}, "'hop'")],
)
def test_malformed(kind: str, changes: dict[str, float], law: str) -> None:
    with pytest.raises(ValueError, match=law):
        _find(kind, **changes)
