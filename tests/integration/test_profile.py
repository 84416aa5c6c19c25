"""From a policy to a profile to W and a run, on a tiny random SD3; and online in the loop."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from diffusers.utils import logging as diffusers_logging
from PIL import Image
from torch import Generator
from transformers.utils import logging as transformers_logging
from typer.testing import CliRunner

import recast_train.commands
from recast_eval.console import build_app
from recast_eval.errors import ConfigError, DataError, RecastError
from recast_eval.records import CreditRecord, Manifest, file_sha256, read_json, read_records
from recast_train.config import make_plan
from recast_train.credit import CREDITS
from recast_train.credit.profile import Profile, read_profile
from recast_train.parts import build_policy
from recast_train.profiling import (
    ProfileSettings,
    few_steps,
    read_image_list,
    run_profile,
)
from recast_train.run_folder import RunFolder
from tests.support.tiny_run import Book, tiny_recipe, tiny_run
from tests.support.tiny_sd3 import save_tiny_sd3

SMALL = ProfileSettings(prompts=4, per_prompt=3, probes=3)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_sd3(tmp_path_factory.mktemp("tiny") / "sd3")


@pytest.fixture(scope="module")
def recipe(base: Path) -> Path:
    prompts = base.parent / "prompts.txt"
    prompts.write_text("\n".join(f"a red circle on a {c} card" for c in "abcdef") + "\n", "utf-8")
    values = tiny_recipe(
        base, prompts={"set": str(prompts)}, rewards={"finish": 2, "composition": 1}, threads=1
    )
    path = base.parent / "recipe.yaml"
    path.write_text(yaml.safe_dump(values), "utf-8")
    return path


@pytest.fixture(scope="module")
def profile(recipe: Path) -> tuple[Path, Profile]:
    return run_profile(str(recipe), out=recipe.parent / "p.json", settings=SMALL, device="cpu")


def cli(*arguments: str) -> Any:
    return CliRunner().invoke(build_app(recast_train.commands, ""), list(arguments))


def test_a_profile_holds_every_estimator(profile: tuple[Path, Profile]) -> None:
    path, found = profile
    assert read_profile(path) == found
    assert set(found.estimates) == {"forward-pair", "cross-fit", "corrected", "ratios", "plug-in"}
    assert found.source == "rollouts"
    assert found.images == 12
    assert found.rewards == ["composition", "finish"]  # as the YAML lists them
    assert found.probes == found.sigmas[1:-1]
    assert found.scored["finish"] == [12, 12]


def test_a_reward_that_does_not_apply_is_no_failure(recipe: Path, tmp_path: Path) -> None:
    # "a red circle on a b card" is no caption, so that composition has nothing to compare with.
    done = cli(
        "profile", str(recipe), "--out", str(tmp_path / "p.json"), "--device", "cpu",
        "--prompts", "2", "--images-per-prompt", "2", "--probes", "1",
    )  # fmt: skip
    assert "composition: not applicable to 4 of 4 images" in done.output
    assert "could be scored" not in done.output
    # Nor was it measured, which a script that goes on with the file must be told.
    assert done.exit_code == 1, done.output
    assert "composition: not measured" in done.output
    assert "finish: not measured" not in done.output
    assert read_profile(tmp_path / "p.json").scored == {"composition": [0, 0], "finish": [4, 4]}


def test_the_same_seed_gives_the_same_profile(
    recipe: Path, profile: tuple[Path, Profile], tmp_path: Path
) -> None:
    _, again = run_profile(str(recipe), out=tmp_path / "p.json", settings=SMALL, device="cpu")
    assert again == profile[1]


def test_given_images_are_measured(recipe: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = []
    for i in range(6):
        pixels = rng.integers(0, 255, size=(20, 24, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{i}.png")
        lines.append(
            {"file_name": f"{i}.png", "prompt": f"card {i // 3}", "prompt_id": str(i), "x": 1}
        )
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "metadata.jsonl").write_text(text, "utf-8")
    _, found = run_profile(
        str(recipe), images=tmp_path, out=tmp_path / "p.json", settings=SMALL, device="cpu"
    )
    assert found.source == "images"
    assert (found.images, found.prompts) == (6, 2)


def test_what_is_wrong_is_said_before_a_model_is_loaded(recipe: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--prompts.*\n.*--images-per-prompt.*\n.*--probes"):
        run_profile(str(recipe), settings=ProfileSettings(prompts=1, per_prompt=1, probes=0))
    with pytest.raises(DataError, match="no such file"):
        run_profile(str(recipe), images=tmp_path)
    (tmp_path / "metadata.jsonl").write_text('{"file_name": "a.png"}\n', "utf-8")
    with pytest.raises(DataError, match=r"metadata\.jsonl:1"):
        read_image_list(tmp_path)
    one = {"file_name": "a.png", "prompt": "a", "prompt_id": "a"}
    (tmp_path / "metadata.jsonl").write_text(json.dumps(one) + "\n", "utf-8")
    with pytest.raises(ConfigError, match="2 prompts or more"):
        read_image_list(tmp_path)
    # One image a prompt: nothing to compare it with, within the prompt.
    some = [{**one, "prompt": p} for p in ("a", "b", "c", "c")]
    text = "".join(json.dumps(line) + "\n" for line in some)
    (tmp_path / "metadata.jsonl").write_text(text, "utf-8")
    with pytest.raises(ConfigError, match=r"2 images or more, and 1 of 3"):
        read_image_list(tmp_path)


def test_models_load_in_silence(base: Path, capfd: pytest.CaptureFixture[str]) -> None:
    diffusers_logging.enable_progress_bar()
    transformers_logging.enable_progress_bar()
    build_policy(make_plan(tiny_recipe(base), scorers=Book()), "cpu")
    assert "Loading" not in capfd.readouterr().err


def test_a_few_steps_to_the_end_are_the_estimate_at_the_last(base: Path) -> None:
    policy = build_policy(make_plan(tiny_recipe(base), scorers=Book()), "cpu")
    condition = policy.encode(["a", "b"])
    x = torch.randn((2, 4, 4, 4), generator=Generator().manual_seed(0))
    level = policy.sigmas[3].expand(2)
    torch.testing.assert_close(
        few_steps(policy, x, 3, condition), policy.estimate(x, level, condition)
    )
    # more steps: the sampler's own Euler path, if there are no more than it takes
    y = x
    for here, there in ((1, 2), (2, 3), (3, 4)):
        v = policy.velocity(y, policy.sigmas[here].expand(2), condition, who="old")
        y = y + (policy.sigmas[there] - policy.sigmas[here]) * v
    torch.testing.assert_close(few_steps(policy, x, 1, condition), y)


def test_weights_command(profile: tuple[Path, Profile], tmp_path: Path) -> None:
    picture, record = tmp_path / "w.png", tmp_path / "sub" / "w.json"
    done = cli(
        "weights", str(profile[0]), "--budget", "finish=3", "--budget", "composition=1",
        "--floor", "0.2", "--json", str(record), "--plot", str(picture),
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "finish" in done.output
    found = read_json(record, CreditRecord)
    np.testing.assert_allclose(np.sum(found.weights, axis=1), [0.75, 0.25], atol=1e-10)
    np.testing.assert_allclose(np.sum(found.weights, axis=0), 0.25, atol=1e-12)
    with Image.open(picture) as image:
        assert min(image.size) > 300


def test_weights_command_says_all_problems_at_once(profile: tuple[Path, Profile]) -> None:
    done = cli(
        "weights", str(profile[0]), "--budget", "finish=x", "--budget", "composition=1",
        "--budget", "composition=2", "--gain", "d3", "--floor", "2", "--temperature", "0",
    )  # fmt: skip
    assert isinstance(done.exception, RecastError)
    for part in ("finish=x", "twice", "d3", "floor", "temperature"):
        assert part in str(done.exception)
    done = cli("weights", str(profile[0]), "--budget", "ocr=1")
    assert "not ocr" in str(done.exception)


@pytest.mark.parametrize(
    "credit",
    [
        {"kind": "recast", "gain": "d2"},
        {"kind": "separable"},
        {"kind": "static-rms"},
    ],
)
def test_a_run_from_a_profile(base: Path, tmp_path: Path, credit: dict[str, Any]) -> None:
    made = _colour_profile(tmp_path)
    recipe = tiny_recipe(base, epochs=1, credit={**credit, "profile": str(made)})
    parts = tiny_run(recipe, tmp_path / "run")
    records = list(read_records(parts.folder.credit, CreditRecord))
    assert records[0].kind == credit["kind"]
    assert (tmp_path / "run" / "checkpoints").is_dir()


def test_budgets_whose_sum_overflows_are_refused(profile: tuple[Path, Profile]) -> None:
    done = cli(
        "weights", str(profile[0]), "--budget", "finish=1e308", "--budget", "composition=1e308"
    )
    assert isinstance(done.exception, RecastError)
    assert "--budget: their sum must be finite" in str(done.exception)


def test_weights_default_to_what_a_recipe_would_get(tmp_path: Path) -> None:
    path = str(_colour_profile(tmp_path))
    budgets = ("--budget", "red=3", "--budget", "blue=1")
    kind = CREDITS.load("recast").config(profile="").floor
    plain, same = (
        cli("weights", path, *budgets, *more).output for more in ((), ("--floor", str(kind)))
    )
    assert plain == same
    assert plain != cli("weights", path, *budgets, "--floor", "0").output


@pytest.mark.parametrize("out", [".", "taken/p.json"])
def test_a_place_that_cannot_be_written_is_said_before_a_model_is_loaded(
    recipe: Path, tmp_path: Path, out: str
) -> None:
    (tmp_path / "taken").write_text("", "utf-8")
    nothing = ["model.base=/nowhere"]  # loading it would be another error
    with pytest.raises(ConfigError, match="--out"):
        run_profile(str(recipe), out=tmp_path / out, overrides=nothing, device="cpu")


def test_the_manifest_names_the_profile_by_its_content(base: Path, tmp_path: Path) -> None:
    made = _colour_profile(tmp_path)
    values = tiny_recipe(base, credit={"kind": "recast", "profile": str(made)})
    RunFolder(tmp_path).write_manifest(make_plan(values, scorers=Book()), "0", {})
    digests = read_json(tmp_path / "manifest.json", Manifest).digests
    assert digests["credit:profile"] == file_sha256(made)


def _colour_profile(folder: Path) -> Path:
    """A profile of the rewards that the tiny run knows, in a file."""
    from recast_eval.records import write_json
    from recast_train.credit.gaussian import COARSE, FINE, draw, shifted_sigmas
    from recast_train.credit.profile import Origin, build_profile

    sigmas = shifted_sigmas(6)
    samples = draw(
        (COARSE, FINE), sigmas[1:-1], prompts=40, images=10, generator=np.random.default_rng(0)
    )
    origin = Origin("toy", "0" * 16, "gaussian", "rollouts", ("red", "blue"), sigmas)
    write_json(
        folder / "p.json", build_profile(origin, samples, generator=np.random.default_rng(0))
    )
    return folder / "p.json"


def test_online_credit_learns_in_the_loop(base: Path, tmp_path: Path) -> None:
    credit = {"kind": "recast-online", "refresh_every": 1, "correct_every": 2, "warm_up": 1}
    parts = tiny_run(tiny_recipe(base, epochs=4, credit=credit), tmp_path / "run")
    records = list(read_records(parts.folder.credit, CreditRecord))
    assert [r.epoch for r in records] == [0, 0, 1, 2, 3]
    for record in records:
        np.testing.assert_allclose(np.sum(record.weights, axis=1), 0.5, atol=1e-10)
        np.testing.assert_allclose(np.sum(record.weights, axis=0), 0.25, atol=1e-10)
    last = records[-1]
    assert set(last.raw_curves) == {"cross-fit", "forward-pair", "corrected"}
    assert last.curves is not None
    assert np.shape(last.curves) == (2, 5)
    assert len({r.digest for r in records}) > 1


def test_online_credit_of_unlearnt_rewards_equals_static_until_it_learns(
    base: Path, tmp_path: Path
) -> None:
    """During warm-up the run is the static run, bit for bit: looking changes nothing."""
    online = {"kind": "recast-online", "refresh_every": 1, "correct_every": 2, "warm_up": 99}
    from tests.support.tiny_run import flat_parameters

    a = tiny_run(tiny_recipe(base, epochs=3, credit=online), tmp_path / "a")
    b = tiny_run(tiny_recipe(base, epochs=3, credit={"kind": "static"}), tmp_path / "b")
    assert torch.equal(flat_parameters(a), flat_parameters(b))
