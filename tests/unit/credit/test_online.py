"""Credit that learns while it trains."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from recast_eval.errors import ConfigError
from recast_train.credit import CREDITS, CreditSetup, solve_weights, static_weights
from recast_train.credit.kinds._moving import Moving
from tests.support.credit_world import (
    BUDGETS,
    PROBES,
    SIGMAS,
    exact_gains,
    make,
    margins,
    probes,
)


class TestOnline:
    def test_it_warms_up_then_follows_the_gains(self) -> None:
        credit = make("recast-online", refresh_every=1, correct_every=3, warm_up=2, floor=0.0)
        assert (credit.weights() == static_weights(BUDGETS, 10)).all()
        first = credit.observe(probes(0))
        assert first is not None
        assert (credit.weights() == static_weights(BUDGETS, 10)).all()
        for epoch in range(1, 12):
            record = credit.observe(probes(epoch))
        margins(credit)
        want = solve_weights(exact_gains(), BUDGETS)
        np.testing.assert_allclose(10 * credit.weights(), 10 * want, atol=0.2)
        assert record is not None
        assert record.kind == "recast-online"
        assert set(record.raw_curves) == {"cross-fit", "forward-pair", "corrected"}
        assert record.curve_errors is not None
        assert np.max(record.curve_errors) < 0.05

    def test_features_that_tell_nothing_leave_it_static(self) -> None:
        credit = make("recast-online", refresh_every=1, correct_every=0)
        rng = np.random.default_rng(0)
        for epoch in range(4):
            junk = probes(epoch, x0_rewards=lambda: rng.standard_normal((5, 3, 576)))
            credit.observe(junk)
        assert (credit.weights() == static_weights(BUDGETS, 10)).all()

    def test_features_that_tell_nothing_of_one_reward_leave_it_flat(self) -> None:
        credit = make("recast-online", refresh_every=1, correct_every=0)
        rng = np.random.default_rng(0)
        for epoch in range(3):
            junk = probes(epoch).x0_rewards().copy()
            junk[:, 1] = rng.standard_normal(junk[:, 1].shape)
            record = credit.observe(probes(epoch, x0_rewards=lambda junk=junk: junk))
        assert record is not None
        assert record.reliability is not None
        assert record.reliability[1] == 0
        assert min(record.reliability[0], record.reliability[2]) > 0.9
        assert record.gains is not None
        assert record.gains[1] == [1.0] * 10

    def test_when_it_looks(self) -> None:
        credit = make("recast-online", refresh_every=5, correct_every=12)
        assert [e for e in range(30) if credit.wants(e)] == [0, 5, 10, 12, 15, 20, 24, 25]
        alone = CreditSetup(("coarse",), np.ones(1), SIGMAS, None, 0)
        assert not make("recast-online", alone).wants(0)

    def test_levels_are_completed_in_turn(self) -> None:
        asked: list[int] = []
        credit = make("recast-online", refresh_every=1, correct_every=1, correct_probes=2)

        def complete(epoch: int) -> Any:
            inner = probes(epoch).complete
            return lambda index: (asked.append(index), inner(index))[1]

        for epoch in range(3):
            credit.observe(probes(epoch, complete=complete(epoch)))
        assert asked == [0, 1, 2, 3, 0, 4]

    def test_features_alone_need_no_decoding(self) -> None:
        def never() -> np.ndarray:
            raise AssertionError("must not be asked for")

        credit = make("recast-online", x0_rewards=False, refresh_every=1, correct_every=0)
        assert credit.observe(probes(0, x0_rewards=never)) is not None

    def test_a_resumed_run_goes_on_bit_for_bit(self) -> None:
        settings = {"refresh_every": 1, "correct_every": 2, "correct_probes": 2}
        whole, part = make("recast-online", **settings), make("recast-online", **settings)
        for epoch in range(3):
            whole.observe(probes(epoch))
            part.observe(probes(epoch))
        resumed = make("recast-online", **settings)
        resumed.load_state(json.loads(json.dumps(part.state(), allow_nan=False)))
        assert resumed.record(2) == whole.record(2)
        for epoch in range(3, 6):
            a, b = whole.observe(probes(epoch)), resumed.observe(probes(epoch))
            assert a == b
        assert (whole.weights() == resumed.weights()).all()

    @pytest.mark.parametrize("control", ["reversed", "shuffled"])
    def test_controls(self, control: str) -> None:
        plain = make("recast-online", refresh_every=1, floor=0.0)
        other = make("recast-online", refresh_every=1, floor=0.0, control=control)
        for epoch in range(3):
            plain.observe(probes(epoch))
            other.observe(probes(epoch))
        margins(other)
        assert np.abs(plain.weights() - other.weights()).max() > 0.01

    def test_what_does_not_fit_is_named(self) -> None:
        credit = make("recast-online", refresh_every=1, correct_every=0)
        with pytest.raises(ConfigError, match="2 prompts"):
            credit.observe(probes(0, prompts=1))
        credit.observe(probes(0))
        with pytest.raises(ConfigError, match="probed"):
            moved = PROBES - 1e-3
            credit.observe(probes(1, sigmas=moved))
        negative = make("recast-online", refresh_every=1, correct_every=0, gain="d2")
        with pytest.raises(ConfigError, match="mean > 0"):
            negative.observe(probes(0, rewards=-probes(0).rewards))
        config = CREDITS.load("recast-online").config(
            refresh_every=0, correct_every=-1, ema=1.0, min_reliability=2.0, folds=1
        )
        assert len(list(config.problems())) == 5

    def test_an_epoch_that_could_not_measure_a_reward_leaves_it_as_it_was(self) -> None:
        settings: dict[str, Any] = {"refresh_every": 1, "correct_every": 1, "correct_probes": 3}
        some, all_ = make("recast-online", **settings), make("recast-online", **settings)
        for epoch in range(6):
            given = probes(epoch)
            rewards = given.rewards.copy()
            if epoch % 3 != 1:
                rewards[0] = np.nan if epoch % 2 else 0.8
            some.observe(replace(given, rewards=rewards))
            if epoch % 3 == 1:
                # As many corrections as the other, so that the same levels are completed.
                all_.corrections = some.corrections - 1  # type: ignore[attr-defined]
                all_.observe(given)
        a, b = some.record(5), all_.record(5)
        assert a.curves is not None
        assert b.curves is not None
        assert a.reliability is not None
        assert b.reliability is not None
        assert a.curves[0] == b.curves[0]
        assert a.reliability[0] == b.reliability[0] > 0
        assert a.reliability[1] > b.reliability[1]

    @pytest.mark.parametrize("gain", ["r2", "d2", "kl"])
    @pytest.mark.parametrize("value", [np.nan, 0.3, 0.8, -0.8])
    def test_a_reward_never_measured_is_flat(self, gain: str, value: float) -> None:
        credit = make("recast-online", refresh_every=1, correct_every=1, gain=gain, floor=0.0)
        for epoch in range(2):
            given = probes(epoch)
            rewards = given.rewards.copy()
            rewards[1] = value
            record = credit.observe(replace(given, rewards=rewards))
        assert record is not None
        assert record.reliability is not None
        assert record.reliability[1] == 0
        assert record.gains is not None
        assert record.gains[1] == [1.0] * 10
        margins(credit)

    def test_a_state_with_one_weight_a_level_is_read(self) -> None:
        settings: dict[str, Any] = {"refresh_every": 1, "correct_every": 2, "correct_probes": 2}
        whole = make("recast-online", **settings)
        for epoch in range(3):
            whole.observe(probes(epoch))
        state = json.loads(json.dumps(whole.state()))
        for name in ("bound", "missing"):
            assert state[name]["weight"][0] == state[name]["weight"][1]
            state[name]["weight"] = state[name]["weight"][0]  # as it was stored before
        resumed = make("recast-online", **settings)
        resumed.load_state(state)
        assert whole.observe(probes(3)) == resumed.observe(probes(3))

    def test_a_failed_reward_does_not_stop_it(self) -> None:
        credit = make("recast-online", refresh_every=1, correct_every=1)
        for epoch in range(3):
            given = probes(epoch)
            rewards = given.rewards.copy()
            rewards[1] = np.nan
            rewards[0, :9] = np.nan
            assert credit.observe(replace(given, rewards=rewards)) is not None
        margins(credit)


def test_a_moving_mean_is_unbiased_from_the_start() -> None:
    moving = Moving(0.9)
    with pytest.raises(ValueError, match="nothing"):
        moving.mean()
    moving.add(np.array([[2.0, 4.0]]))
    np.testing.assert_allclose(moving.mean(), [[2, 4]])
    moving.add(np.array([[4.0, 0.0]]), np.array([True, False]))
    # (.9 * .1 * 2 + .1 * 4) / (.9 * .1 + .1) = .58 / .19
    np.testing.assert_allclose(moving.mean(), [[0.58 / 0.19, 4]])
