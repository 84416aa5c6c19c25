"""Groups: exactly G members, whatever the world, whenever resumed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recast_train.data import GroupSampler, rank_rows
from recast_train.rngs import STREAMS, Streams, derive_seed


def _sampler(prompts: int, per_epoch: int, size: int, seed: int = 0) -> GroupSampler:
    texts = [f"prompt {i}" for i in range(prompts)]
    return GroupSampler(texts, prompts_per_epoch=per_epoch, group_size=size, seed=seed)


@given(
    st.integers(1, 6), st.integers(2, 5), st.integers(0, 30), st.integers(0, 9), st.integers(1, 7)
)
def test_every_group_is_whole(
    per_epoch: int, size: int, epoch: int, spare: int, world: int
) -> None:
    got = _sampler(per_epoch + spare, per_epoch, size).epoch(epoch)
    assert [int((got.groups == g).sum()) for g in range(per_epoch)] == [size] * per_epoch
    assert len(set(got.prompts)) == per_epoch
    for g in range(per_epoch):
        assert len({got.prompts[i] for i in (got.groups == g).nonzero().flatten()}) == 1
    total = per_epoch * size
    spans = [rank_rows(total, r, world) for r in range(world)]
    assert [i for a, b in spans for i in range(a, b)] == list(range(total))
    sizes = [b - a for a, b in spans]
    assert max(sizes) - min(sizes) <= 1


def test_a_pass_uses_every_prompt_once_and_the_next_is_shuffled_anew() -> None:
    sampler = _sampler(12, 4, 2)
    passes = [
        [p for e in range(3 * n, 3 * n + 3) for p in sampler.epoch(e).prompts[::2]] for n in (0, 1)
    ]
    assert sorted(passes[0]) == sorted(passes[1]) == sorted(f"prompt {i}" for i in range(12))
    assert passes[0] != passes[1]


def test_an_epoch_needs_no_history() -> None:
    first, second = _sampler(9, 3, 2), _sampler(9, 3, 2)
    for epoch in range(5):
        first.epoch(epoch)
    assert first.epoch(7).prompts == second.epoch(7).prompts
    assert _sampler(9, 3, 2, seed=1).epoch(7).prompts != second.epoch(7).prompts


def test_too_few_prompts() -> None:
    with pytest.raises(ValueError, match="needs 4 prompts, got 3"):
        _sampler(3, 4, 2)


def test_streams_are_apart_and_restorable() -> None:
    import torch

    streams = Streams(7)
    state = streams.state()
    draws = {name: torch.rand(3, generator=streams[name]) for name in STREAMS}
    assert len({tuple(d.tolist()) for d in draws.values()}) == len(STREAMS)
    other = Streams(8)
    other.load_state(state)
    assert all(torch.equal(torch.rand(3, generator=other[n]), draws[n]) for n in STREAMS)


def test_seeds_depend_on_every_part() -> None:
    seeds = {derive_seed(s, *p) for s in (0, 1) for p in ((), ("a",), ("a", 1), ("a", 2), ("b",))}
    assert len(seeds) == 10
    assert all(0 <= s < 2**63 for s in seeds)
