"""Every kind of credit, on a policy whose curves are known."""

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from recast_eval.errors import ConfigError, DataError
from recast_eval.records import write_json
from recast_train.credit import CREDITS, CreditSetup, solve_weights, static_weights
from recast_train.credit.gaussian import (
    shifted_sigmas,
)
from recast_train.credit.kinds.shuffled import other_rows
from recast_train.credit.profile import (
    Curve,
    Profile,
    profile_gains,
    read_profile,
)
from tests.support.credit_world import (
    BUDGETS,
    NAMES,
    PROBES,
    SETUP,
    SIGMAS,
    exact_gains,
    make,
    margins,
    probes,
)


def test_all_kinds_are_found_and_say_what_they_are() -> None:
    names = "static static-rms recast recast-published recast-online reversed shuffled separable"
    for name in (*names.split(), "fixed-columns"):
        spec = CREDITS.load(name)
        assert spec.name == name
        assert spec.summary


def test_no_kind_takes_numbers_that_are_not_finite() -> None:
    for name in CREDITS:
        config = CREDITS.load(name).config
        numbers = [
            f.name for f in fields(config) if f.type in ("float", float) or "float" in str(f.type)
        ]
        for key in numbers:
            for value in (np.nan, np.inf):
                with pytest.raises(ValidationError, match="finite"):
                    TypeAdapter(config).validate_python({"profile": "p", key: value})


def test_static_is_the_budgets_over_the_steps() -> None:
    credit = make("static")
    assert (credit.weights() == static_weights(BUDGETS, 10)).all()
    assert not credit.wants(0)
    mass = np.arange(1.0, 11) / 55
    masked = make("static", replace(SETUP, column_mass=mass))
    np.testing.assert_allclose(masked.weights(), np.outer(BUDGETS, mass))
    assert masked.record(0).column_mass == mass.tolist()


def test_recast_from_a_profile_is_near_the_exact_solution(path: str) -> None:
    credit = make("recast", profile=path, floor=0.0)
    margins(credit)
    want = solve_weights(exact_gains(), BUDGETS)
    np.testing.assert_allclose(10 * credit.weights(), 10 * want, atol=0.12)
    record = credit.record(0)
    assert record.curves is not None
    assert np.shape(record.curves) == (3, 11)
    assert record.reliability is not None
    assert min(record.reliability) > 0.9
    assert {"cross-fit", "forward-pair", "corrected", "plug-in"} <= set(record.raw_curves)
    peaks = credit.weights().argmax(1)
    assert peaks[0] < peaks[1] <= peaks[2]  # coarse is decided before fine


@pytest.mark.parametrize("gain", ["r2", "d2", "kl"])
@pytest.mark.parametrize("estimator", ["", "forward-pair", "cross-fit", "plug-in", "ratios"])
def test_gain_and_estimator_are_one_line(path: str, gain: str, estimator: str) -> None:
    margins(make("recast", profile=path, gain=gain, estimator=estimator))


def test_a_column_mass_is_kept(path: str) -> None:
    mass = np.arange(1.0, 11) / 55
    credit = make("recast", replace(SETUP, column_mass=mass), profile=path)
    np.testing.assert_allclose(credit.weights().sum(0), mass, atol=1e-12)


@pytest.mark.parametrize("kind", ["recast", "static-rms", "recast-published"])
def test_a_profile_of_another_base_is_said_once(
    kind: str, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    make(kind, replace(SETUP, base_model="gaussian"), profile=path)
    make(kind, profile=path)  # who asks does not say whom for
    assert not caplog.records
    make(kind, replace(SETUP, base_model="starter"), profile=path)
    (said,) = caplog.messages
    assert "measured on gaussian" in said
    assert "trains starter" in said


def test_another_grid_and_order_of_rewards(path: str) -> None:
    setup = CreditSetup(("fine", "coarse"), np.array([0.5, 0.5]), shifted_sigmas(25), None, 0)
    w = make("recast", setup, profile=path).weights()
    assert w.shape == (2, 25)
    assert w[1].argmax() < w[0].argmax()


def test_reversed_is_the_mirror_image(path: str) -> None:
    credit = make("reversed", profile=path)
    margins(credit)
    np.testing.assert_allclose(
        credit.weights(), make("recast", profile=path).weights()[:, ::-1], atol=1e-11
    )


def test_shuffled_gives_nobody_their_own_gains(path: str) -> None:
    margins(make("shuffled", profile=path))
    for k in range(2, 9):
        rows = other_rows(k, 5)
        assert sorted(rows) == list(range(k))
        assert (rows != np.arange(k)).all()
    own, other = (make(kind, profile=path).record(0).gains for kind in ("recast", "shuffled"))
    assert own is not None
    assert other is not None
    np.testing.assert_array_equal(other, np.array(own)[other_rows(3, 3)])


def test_separable_keeps_budgets_and_frees_columns(path: str) -> None:
    w = make("separable", profile=path).weights()
    np.testing.assert_allclose(w.sum(1), BUDGETS)
    assert np.linalg.matrix_rank(w) == 1
    assert np.ptp(w.sum(0)) > 0.02


def test_separable_starts_from_the_methods_columns(path: str, profile: Profile) -> None:
    mass = np.arange(1.0, 11) / 55
    setup = replace(SETUP, column_mass=mass)
    w = make("separable", setup, profile=path).weights()
    demand = make("separable", profile=path, floor=0.0).weights().sum(0)
    want = 0.9 * mass * demand / (mass * demand).sum() + 0.1 * mass
    np.testing.assert_allclose(w, np.outer(BUDGETS, want), atol=1e-12)
    # gains that are the same at every step demand nothing: the method's columns stay
    steps = 1 - profile.probes[0] + np.zeros((3, len(profile.probes)))
    even = steps + (profile.probes[0] - np.array(profile.probes))
    flat = {
        name: curve.model_copy(
            update={"information": even.tolist(), "replicates": [even.tolist()] * 2}
        )
        for name, curve in profile.estimates.items()
    }
    write_json(Path(path), profile.model_copy(update={"estimates": flat}))
    alike = replace(setup, sigmas=np.linspace(1, 0, 11))
    w = make("separable", alike, profile=path, floor=0.0).weights()
    np.testing.assert_allclose(w, np.outer(BUDGETS, mass), atol=1e-6)


def test_separable_heeds_the_cap(path: str) -> None:
    gains = np.array(make("separable", profile=path, shrink=False).record(0).gains)
    ghat = gains / gains.mean(1, keepdims=True)
    want = np.exp(BUDGETS @ np.minimum(ghat, 1.5))
    w = make("separable", profile=path, shrink=False, floor=0.0, cap=1.5).weights()
    np.testing.assert_allclose(w.sum(0), want / want.sum(), atol=1e-9)


def test_window_and_tempflow_schedules() -> None:
    window = make("fixed-columns", schedule="window", start=2, length=4).weights()
    np.testing.assert_allclose(window[:, 2:6], BUDGETS[:, None] / 4 * np.ones(4))
    assert window[:, [0, 1, 6, 7, 8, 9]].sum() == 0
    w = make("fixed-columns").weights()
    np.testing.assert_allclose(w.sum(1), BUDGETS)
    noise = np.sqrt(SIGMAS[3] / (1 - SIGMAS[3]) * (SIGMAS[3] - SIGMAS[4]))
    later = np.sqrt(SIGMAS[6] / (1 - SIGMAS[6]) * (SIGMAS[6] - SIGMAS[7]))
    assert w[0, 3] / w[0, 6] == pytest.approx(noise / later)
    with pytest.raises(ConfigError, match="window"):
        make("fixed-columns", schedule="window", start=8, length=4)
    with pytest.raises(ConfigError, match="columns"):
        make("fixed-columns", replace(SETUP, column_mass=np.full(10, 0.1)))


def test_static_rms_is_as_loud_as_the_peaked_w(path: str) -> None:
    credit = make("static-rms", profile=path)
    peaked = make("recast", profile=path).weights()
    # uncorrelated rewards: the mean square at step j is |T w_j|^2
    want = np.sqrt(((10 * peaked) ** 2).sum(0).mean() / (BUDGETS**2).sum())
    np.testing.assert_allclose(credit.weights(), want * static_weights(BUDGETS, 10))
    assert credit.wants(7)
    seen = probes(0)
    same = np.repeat(seen.rewards[:1], 3, axis=0)  # one reward thrice: no W is louder
    credit.observe(replace(seen, rewards=same))
    np.testing.assert_allclose(credit.weights(), static_weights(BUDGETS, 10), rtol=1e-9)
    again = make("static-rms", profile=path)
    again.load_state(json.loads(json.dumps(credit.state())))
    assert (again.weights() == credit.weights()).all()


def test_static_rms_under_a_methods_columns_is_as_loud_as_recast(path: str) -> None:
    setup = replace(SETUP, column_mass=np.arange(1.0, 11) / 55)
    loud = make("static-rms", setup, profile=path).weights()
    peaked = make("recast", setup, profile=path).weights()
    assert (loud**2).sum() == pytest.approx((peaked**2).sum())  # uncorrelated rewards


class TestPublished:
    def test_from_a_profile(self, path: str, profile: Profile) -> None:
        margins(make("recast-published", profile=path))
        assert profile.published is not None
        # sigma 0: log mean (r / rbar)^2 = log(1 + CV^2), and the mean reward is 1/2
        want = np.log1p(4 * np.array(profile.variance))
        np.testing.assert_allclose(
            np.array(profile.published)[:, -1], want, atol=0.1
        )  # 20 images a mean

    def test_from_official_files(self, tmp_path: Path) -> None:
        setup = CreditSetup(("a", "b"), np.array([2, 1]) / 3, np.linspace(1, 0, 4), None, 0)
        early, late = np.exp([0, 0.8, 0.9]), np.exp([0, 0.1, 1.0])
        for name, row in (("a", early), ("b", late)):
            np.savez(tmp_path / f"{name}.npz", ratio=np.tile(row, (5, 1)), sigmas=setup.sigmas)
        files = {n: str(tmp_path / f"{n}.npz") for n in ("a", "b")}
        credit = make("recast-published", setup, ratios=files)
        # pin 3: D = (0, 1.6, 1.8) and (0, .2, 2), budgets (2, 1)
        np.testing.assert_allclose(
            credit.weights(),
            [
                [0.259435563775, 0.324659721960, 0.082571380931],
                [0.073897769558, 0.008673611373, 0.250761952402],
            ],
            atol=1e-11,
        )
        with pytest.raises(ConfigError, match="each reward"):
            make("recast-published", setup, ratios={"a": files["a"]})
        with pytest.raises(DataError, match=r"\(N, 10\)"):
            make("recast-published", replace(SETUP, rewards=("a", "b")), ratios=files)
        (tmp_path / "a.npz").write_bytes(b"PK nonsense")
        with pytest.raises(DataError, match="NPZ"):
            make("recast-published", setup, ratios=files)

    @pytest.mark.parametrize(
        ("arrays", "said"),
        [
            ({"ratio": np.ones((4, 10)), "sigmas": np.linspace(1, 0, 11)}, "sigmas are .* run's"),
            ({"ratio": np.ones((4, 10)), "sigmas": SIGMAS[::-1]}, "noise first"),
            ({"ratio": np.ones((4, 10)), "sigmas": SIGMAS[1:]}, "sigmas are .* run's"),
            ({"ratio": np.ones((4, 10))}, "'ratio' and 'sigmas'"),
            ({"ratio": np.ones((0, 10)), "sigmas": SIGMAS}, "N, T >= 1"),
            ({"ratio": np.zeros((4, 10)), "sigmas": SIGMAS}, "are 0"),
            ({"ratio": np.full((4, 10), 1j), "sigmas": SIGMAS}, "real numbers"),
            ({"ratio": np.full((4, 10), -1.0), "sigmas": SIGMAS}, ">= 0"),
            (b"", "NPZ"),
            ("npy", "NPZ"),
        ],
    )
    def test_a_file_that_does_not_fit_is_named(
        self, tmp_path: Path, arrays: Any, said: str
    ) -> None:
        file = tmp_path / "a.npz"
        if arrays == b"":
            file.write_bytes(b"")
        elif isinstance(arrays, str):
            np.save(tmp_path / "a.npy", np.ones((4, 10)))
            (tmp_path / "a.npy").rename(file)
        else:
            np.savez(file, **arrays)
        setup = CreditSetup(("a",), np.ones(1), SIGMAS, None, 0)
        with pytest.raises(DataError, match=f"a.npz: .*{said}"):
            make("recast-published", setup, ratios={"a": str(file)})

    def test_noise_levels_in_half_precision_are_the_same(self, tmp_path: Path) -> None:
        arrays = {"ratio": np.ones((4, 10)), "sigmas": SIGMAS.astype(np.float16)}
        np.savez(tmp_path / "a.npz", **arrays)
        setup = CreditSetup(("a",), np.ones(1), SIGMAS, None, 0)
        margins(make("recast-published", setup, ratios={"a": str(tmp_path / "a.npz")}), np.ones(1))

    def test_one_source(self) -> None:
        config = CREDITS.load("recast-published").config
        assert any("one of them" in p for p in config().problems())


class TestProfileFile:
    def test_round_trip(self, path: str, profile: Profile) -> None:
        assert read_profile(Path(path)) == profile

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("probes", [0.2, 0.5]),
            ("probes", [2.0]),
            ("mean", [0.5]),
            ("published", [[0.0]]),
            ("surprise", 1),
            ("sigmas", [0.0, 1.0]),
            ("sigmas", []),
            ("sigmas", [1.0]),
            ("rewards", ["coarse", "coarse", "fine"]),
            ("variance", [-0.1, 0.1, 0.1]),
        ],
    )
    def test_a_broken_file_is_refused(self, path: str, key: str, value: Any) -> None:
        broken = json.loads(Path(path).read_text("utf-8"))
        broken[key] = value
        Path(path).write_text(json.dumps(broken), "utf-8")
        with pytest.raises(DataError, match=key):
            read_profile(Path(path))
        config = CREDITS.load("recast").config(profile=path)
        assert any("recast-train profile" in p for p in config.problems())

    def test_one_replicate_has_no_spread(self, path: str, profile: Profile) -> None:
        short = {
            name: curve.model_copy(update={"replicates": curve.replicates[:1]})
            for name, curve in profile.estimates.items()
        }
        write_json(Path(path), profile.model_copy(update={"estimates": short}))
        with pytest.raises(DataError, match="replicates"):
            read_profile(Path(path))

    def test_a_folder_is_no_profile(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=f"{tmp_path}: .*directory"):
            read_profile(tmp_path)
        config = CREDITS.load("recast").config(profile=str(tmp_path))
        assert any("recast-train profile" in p for p in config.problems())

    def test_what_is_wrong_in_a_file_is_one_short_line(self, path: str) -> None:
        Path(path).write_text('{"rewards": 3}', "utf-8")
        with pytest.raises(DataError) as caught:
            read_profile(Path(path))
        assert str(caught.value) == f"{path}: recipe_name: Field required (and 12 more)"

    @pytest.mark.parametrize("value", [1e-308, 1e-320, 1e-4, np.inf, np.nan, 0.0, -1.0])
    def test_a_temperature_out_of_reach_is_refused(self, path: str, value: float) -> None:
        config = CREDITS.load("recast").config(profile=path, temperature=value)
        assert any(p.startswith("temperature: must be") for p in config.problems())
        each = CREDITS.load("recast").config(profile=path, temperature={"fine": value})
        assert any(p.startswith("temperature: must be") for p in each.problems())
        other = CREDITS.load("recast-published").config(profile=path, temperature=value)
        assert any(p.startswith("temperature: must be") for p in other.problems())

    def test_a_cap_that_is_no_number_is_refused(self, path: str) -> None:
        config = CREDITS.load("recast").config(profile=path, cap=np.nan)
        assert any(p.startswith("cap: must be") for p in config.problems())

    def test_what_does_not_fit_is_named(self, path: str, profile: Profile) -> None:
        with pytest.raises(ConfigError, match="not ocr"):
            make("recast", replace(SETUP, rewards=("coarse", "middle", "ocr")), profile=path)
        with pytest.raises(ConfigError, match="guess"):
            make("recast", profile=path, estimator="guess")
        with pytest.raises(ConfigError, match="temperature"):
            make("recast", profile=path, temperature={"coarse": 1.0})
        config = CREDITS.load("recast").config(profile=path, floor=2.0, temperature=-1.0, cap=0.0)
        assert len(list(config.problems())) == 3
        low = profile.model_copy(update={"mean": [-1.0, 0.5, 0.5]})
        with pytest.raises(ValueError, match="mean > 0"):
            profile_gains(low, NAMES, SIGMAS, gain="d2")

    def test_a_bound_that_is_all_noise_is_not_trusted(self, profile: Profile) -> None:
        rng = np.random.default_rng(0)
        noise = rng.normal(0.0, 0.05, (200, len(NAMES), len(profile.probes)))
        curve = Curve(
            information=np.full(noise.shape[1:], 0.01).tolist(),
            errors=np.full(noise.shape[1:], 0.05).tolist(),
            replicates=(0.01 + noise).tolist(),
        )
        estimates = {"cross-fit": curve, "forward-pair": curve}
        useless = profile.model_copy(update={"estimates": estimates})
        found = profile_gains(useless, NAMES, SIGMAS, estimator="cross-fit")
        assert not found.reliability.any()
        assert not found.gains.any()  # else all would seem decided at the last step

    def test_a_reward_that_was_not_measured_is_flat(self, path: str, profile: Profile) -> None:
        # As such a file was always written: no variance, and 0 at every level without error.
        values = profile.model_dump()
        values["variance"][1] = 0.0
        for curve in values["estimates"].values():
            curve["information"][1] = [0.0] * len(PROBES)
            curve["replicates"] = [[r[0], [0.0] * len(PROBES), r[2]] for r in curve["replicates"]]
        write_json(Path(path), Profile.model_validate(values))
        record = make("recast", profile=path).record(0)
        assert record.reliability is not None
        assert record.reliability[1] == 0
        assert record.gains is not None
        assert record.gains[1] == [1.0] * 10

    def test_unreliable_gains_are_pulled_to_static(self, path: str, profile: Profile) -> None:
        noisy = profile.model_copy(deep=True)
        rng = np.random.default_rng(0)
        for curve in noisy.estimates.values():
            spread = np.array(curve.replicates) + rng.standard_normal(np.shape(curve.replicates))
            object.__setattr__(curve, "replicates", spread.tolist())
        write_json(Path(path), noisy)
        static = static_weights(BUDGETS, 10)
        pulled = make("recast", profile=path).weights() - static
        free = make("recast", profile=path, shrink=False).weights() - static
        assert np.abs(pulled).sum() < 0.6 * np.abs(free).sum()


@pytest.mark.parametrize(
    "kind",
    ["recast", "reversed", "shuffled", "separable", "static-rms", "recast-published"],
)
def test_another_profile_is_noticed_on_resume(kind: str, path: str, profile: Profile) -> None:
    state = json.loads(json.dumps(make(kind, profile=path).state()))
    make(kind, profile=path).load_state(state)
    other = profile.model_copy(deep=True)
    turned = {
        name: curve.model_copy(update={"information": curve.information[::-1]})
        for name, curve in profile.estimates.items()
    }
    assert profile.published is not None
    changed = {"estimates": turned, "published": profile.published[::-1]}
    write_json(Path(path), other.model_copy(update=changed))
    with pytest.raises(ConfigError, match=f"{kind}.*profile changed.*--out"):
        make(kind, profile=path).load_state(state)


def test_a_static_rms_run_from_before_its_profile_was_noted_goes_on(path: str) -> None:
    credit = make("static-rms", profile=path)
    credit.load_state({"factor": 1.25})
    np.testing.assert_allclose(credit.weights().sum(), 1.25)


def test_files_that_a_credit_reads_are_named(path: str) -> None:
    for kind in ("recast", "static-rms", "recast-published"):
        assert CREDITS.load(kind).config(profile=path).files() == {"profile": path}
    assert CREDITS.load("recast-published").config(ratios={"a": "b.npz"}).files() == {
        "ratios.a": "b.npz"
    }
