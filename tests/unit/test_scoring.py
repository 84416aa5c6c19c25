"""Scoring: what a model is, what may be drawn, what is done twice (nothing)."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from recast_eval.commands._models import Wanted, bring_models
from recast_eval.content.prompts import Prompt
from recast_eval.errors import ConfigError, DataError
from recast_eval.judging.offline import read_heldout_scores
from recast_eval.records import (
    Failed,
    ImageRecord,
    Manifest,
    Scored,
    ScoreRecord,
    append_record,
    read_json,
    read_records,
)
from recast_eval.scorers import SCORERS, ScorerCard
from recast_eval.scorers.each import NOT_APPLICABLE, EachScorer
from recast_eval.scoring import (
    ChosenScorer,
    EvalFolder,
    ModelSource,
    Sampler,
    choose_samplers,
    choose_scorers,
    collect_images,
    find_sources,
    open_folder,
    score_images,
)
from recast_eval.scoring.drawing import Draw, Job, plan_blocks
from recast_eval.scoring.folder import recorded_models
from recast_eval.scoring.image_folder import read_metadata
from recast_eval.scoring.plan import EvalPlan, load_prompts, run_evaluation
from tests.support.models_to_score import PROMPTS, checkpoint, image_folder


def test_noise_depends_on_id_sample_and_seed_alone() -> None:
    job = Job(PROMPTS[0], 0)
    others = [Job(PROMPTS[1], 0).seed(0), Job(PROMPTS[0], 1).seed(0), job.seed(1)]
    assert job.seed(0) not in others
    assert job.seed(0) == Job(Prompt(prompt_id="p-0", prompt="other words"), 0).seed(0)


def test_file_names_are_safe_and_distinct() -> None:
    ids = ["../../etc/passwd", "a/b", "a-b", "é", "x" * 190, "x" * 189, ".", "CON"]
    names = [Job(Prompt(prompt_id=i, prompt="x"), 0).file_name() for i in ids]
    assert len(set(names)) == len(names)
    assert all("/" not in n and not n.startswith(".") and len(n) < 100 for n in names)


def fake_load(calls: list[list[Job]], stop_after: int = 99) -> Callable[..., Draw]:
    def load(source: ModelSource, sampler: Sampler, *, seed: int, device: str) -> Draw:
        def draw(jobs: Sequence[Job]) -> np.ndarray:
            if len(calls) >= stop_after:
                raise KeyboardInterrupt
            calls.append(list(jobs))
            rows = [np.random.default_rng(j.seed(seed)).random((8, 8, 3)) for j in jobs]
            images = np.stack(rows)
            images[[j.prompt.prompt_id == "p-bad" for j in jobs]] = np.nan
            return images

        return draw

    return load


SOURCE = ModelSource("m", "pipeline", "m", None, "owner/base", "d")


def collect(folder: Path, load: Callable[..., Draw], prompts: Sequence[Prompt], n: int = 2) -> Any:
    return collect_images(
        EvalFolder(folder),
        [SOURCE],
        prompts,
        {"m": Sampler()},
        samples=n,
        seed=0,
        batch=2,
        load=load,
    )


def test_a_stopped_run_goes_on_and_comes_out_the_same(tmp_path: Path) -> None:
    whole = collect(tmp_path / "whole", fake_load([]), PROMPTS)
    calls: list[list[Job]] = []
    with pytest.raises(KeyboardInterrupt):
        collect(tmp_path / "cut", fake_load(calls, stop_after=2), PROMPTS)
    resumed = collect(tmp_path / "cut", fake_load([]), PROMPTS)
    assert resumed.images == whole.images
    assert (resumed.drawn, resumed.reused) == (6, 4)
    again = collect(tmp_path / "cut", fake_load([], stop_after=0), PROMPTS)
    assert (again.drawn, again.reused) == (0, 10)


def test_more_samples_and_prompts_keep_what_is_there(tmp_path: Path) -> None:
    first = collect(tmp_path, fake_load([]), PROMPTS[:3], 1)
    more = collect(tmp_path, fake_load([]), PROMPTS, 2)
    assert more.reused == 3
    kept = {(r.prompt_id, r.sample): r.sha256 for r in more.images["m"]}
    assert all(kept[r.prompt_id, r.sample] == r.sha256 for r in first.images["m"])


def test_a_line_of_ours_that_a_crash_cut_is_dropped(tmp_path: Path) -> None:
    collect(tmp_path, fake_load([]), PROMPTS, 1)
    path = tmp_path / "images/m/metadata.jsonl"
    path.write_bytes(path.read_bytes()[:-9])
    assert len(read_metadata(path.parent)) == 4


def test_a_changed_or_lost_picture_is_drawn_again(tmp_path: Path) -> None:
    first = collect(tmp_path, fake_load([]), PROMPTS)
    (tmp_path / "images/m" / first.images["m"][0].file_name).unlink()
    (tmp_path / "images/m" / first.images["m"][5].file_name).write_bytes(b"x")
    again = collect(tmp_path, fake_load([]), PROMPTS)
    assert again.drawn == 2
    assert again.images == first.images


def test_a_picture_that_is_not_finite_is_counted(tmp_path: Path) -> None:
    prompts = [*PROMPTS, Prompt(prompt_id="p-bad", prompt="nan")]
    out = collect(tmp_path, fake_load([]), prompts, 1)
    assert [j.key() for j in out.failed["m"]] == ["p-bad"]
    assert len(out.images["m"]) == 5


def test_another_text_under_the_same_id_is_refused(tmp_path: Path) -> None:
    collect(tmp_path, fake_load([]), PROMPTS, 1)
    changed = [Prompt(prompt_id="p-0", prompt="something else")]
    with pytest.raises(DataError, match="choose another --out"):
        collect(tmp_path, fake_load([]), changed, 1)


def test_blocks_cover_each_image_once_whatever_the_count() -> None:
    blocks = plan_blocks(PROMPTS, 3, 2)
    keys = [(j.key(), j.sample) for b in blocks for j in b]
    assert len(set(keys)) == len(keys) == 15
    assert plan_blocks(PROMPTS, 1, 2) == blocks[:3]


def test_a_folder_of_images_is_copied_once(tmp_path: Path) -> None:
    given = image_folder(tmp_path / "given")
    sources = find_sources([str(given)])
    folder = EvalFolder(tmp_path / "e")
    for copied, reused in ((5, 0), (0, 5)):
        out = collect_images(folder, sources, PROMPTS, {}, samples=1, seed=0)
        assert (out.copied, out.reused) == (copied, reused)
        assert len(out.images["given"]) == 5
    lines = (folder.images("given") / "metadata.jsonl").read_text("utf-8").splitlines()
    assert len(lines) == 5


def scorer(calls: list[int], version: int = 1, broken: str = "") -> ChosenScorer:
    def score(pixels: np.ndarray, prompt: str) -> Scored | Failed:
        calls.append(1)
        if prompt == broken:
            raise RuntimeError("boom")
        if prompt == "thing 4":
            return Failed(reason=NOT_APPLICABLE)
        return Scored(value=float(pixels.mean()))

    card = ScorerCard(name="s", version=version, family="f", what="w", unit="u")
    return ChosenScorer("s", EachScorer(card, score), "heldout")


def test_scores_are_computed_once_and_failures_again(tmp_path: Path) -> None:
    images = collect(tmp_path, fake_load([]), PROMPTS, 1).images
    folder, calls = EvalFolder(tmp_path), list[int]()
    first = score_images(folder, images, [scorer(calls, broken="thing 1")])
    tally = first.tallies()["m", "s"]
    assert (len(tally.values), tally.failed, tally.not_applicable, tally.total) == (3, 1, 1, 4)
    failed = [r for r in first.records if isinstance(r.outcome, Failed)]
    assert {r.outcome.reason for r in failed} == {"scorer_error", NOT_APPLICABLE}  # type: ignore[union-attr]
    calls.clear()
    second = score_images(folder, images, [scorer(calls)])
    assert (second.computed, second.reused, len(calls)) == (1, 4, 1)
    third = score_images(folder, images, [scorer(calls)])
    assert (third.computed, third.reused) == (0, 5)
    assert len(read_records(folder.scores, ScoreRecord)) == 5


def test_another_version_of_a_scorer_scores_again(tmp_path: Path) -> None:
    images = collect(tmp_path, fake_load([]), PROMPTS, 1).images
    folder = EvalFolder(tmp_path)
    score_images(folder, images, [scorer([])])
    again = score_images(folder, images, [scorer([], version=2)])
    assert again.computed == 5
    assert len(read_records(folder.scores, ScoreRecord)) == 5


def test_scores_of_other_models_stay(tmp_path: Path) -> None:
    images = collect(tmp_path, fake_load([]), PROMPTS, 1).images
    folder = EvalFolder(tmp_path)
    score_images(folder, {"other": [], **images}, [scorer([])])
    score_images(folder, {"m": images["m"][:2]}, [scorer([], version=2)])
    kept = read_records(folder.scores, ScoreRecord)
    assert len(kept) == 5
    assert len({r.scorer_digest for r in kept}) == 2


def test_a_picture_lost_before_scoring_fails_alone(tmp_path: Path) -> None:
    images = collect(tmp_path, fake_load([]), PROMPTS, 1).images
    (tmp_path / "images/m" / images["m"][2].file_name).unlink()
    result = score_images(EvalFolder(tmp_path), images, [scorer([])])
    (outcome,) = [r.outcome for r in result.records if r.prompt_id == "p-2"]
    assert isinstance(outcome, Failed)
    assert outcome.reason == "image_error"
    assert len(result.tallies()["m", "s"].values) == 3


CAPTIONS = [Prompt(prompt_id="a", prompt="a red circle")]


def test_a_trained_family_is_no_judge(tmp_path: Path) -> None:
    sources = find_sources([str(checkpoint(tmp_path / "step-000001"))])
    chosen, _ = choose_scorers(sources, CAPTIONS, names=["composition", "verifier"])
    assert [c.role for c in chosen] == ["train", "heldout"]
    with pytest.raises(ConfigError, match=r"composition: cannot be held out.*card-segmentation"):
        choose_scorers(sources, CAPTIONS, heldout=["composition"])
    broken = checkpoint(tmp_path / "step-000002", heldout=["composition"])
    with pytest.raises(ConfigError, match="cannot be held out"):
        choose_scorers(find_sources([str(broken)]), CAPTIONS)


def test_a_recipe_s_override_is_scored_as_trained_and_said(tmp_path: Path) -> None:
    card = {"heldout": ["composition"], "allow_shared_family": "to measure how much it matters"}
    sources = find_sources([str(checkpoint(tmp_path / "step-000001", **card))])
    chosen, notes = choose_scorers(sources, CAPTIONS)
    assert {c.name: c.role for c in chosen}["composition"] == "train"
    assert any("composition" in n and "how much it matters" in n for n in notes)
    with pytest.raises(ConfigError, match="cannot be held out"):
        choose_scorers(sources, CAPTIONS, heldout=["composition"])


def trained_evaluation(folder: Path, tmp_path: Path) -> Path:
    """An evaluation of a checkpoint, as ``recast-eval score`` leaves it, with one score."""
    sources = find_sources([f"tuned={checkpoint(tmp_path / 'step-000001')}"])
    chosen, _ = choose_scorers(sources, CAPTIONS, names=["composition", "verifier"])
    facts = {
        "roles": {c.name: c.role for c in chosen},
        "scorers": {c.name: asdict(c.scorer.card) for c in chosen},
    }
    samplers = choose_samplers(sources, {})
    made = open_folder(folder, sources, samplers, seed=0, digests={}, command=[], facts=facts)
    for c in chosen:
        append_record(made.scores, score_record("tuned", c.name, c.role))
    return folder


def score_record(model: str, name: str, role: Any) -> ScoreRecord:
    return ScoreRecord(
        model=model,
        prompt_id="p-0",
        sample=0,
        image="0" * 64,
        scorer=name,
        scorer_digest="d",
        role=role,
        outcome=Scored(value=0.5),
    )


def roles_of(folder: Path) -> set[tuple[str, str]]:
    return {(r.scorer, r.role) for r in read_records(folder / "scores.jsonl", ScoreRecord)}


def test_a_model_that_comes_later_makes_no_reward_a_judge(tmp_path: Path) -> None:
    folder = trained_evaluation(tmp_path / "e", tmp_path)
    mine = str(image_folder(tmp_path / "mine"))
    plan = EvalPlan(models=[mine], judges=["composition", "verifier"], samples=1, out=folder)
    run_evaluation(plan)
    assert roles_of(folder) == {("composition", "train"), ("verifier", "heldout")}
    jurors = {name for row in read_heldout_scores(folder / "scores.jsonl").values() for name in row}
    assert jurors == {"verifier"}
    manifest = read_json(folder / "manifest.json", Manifest)
    assert manifest.facts["roles"] == {"composition": "train", "verifier": "heldout"}
    with pytest.raises(ConfigError, match=r"composition: cannot be held out.*tuned \(reward"):
        run_evaluation(replace(plan, judges=[], heldout=["composition"]))


def test_a_reward_that_was_made_a_judge_before_is_set_right(tmp_path: Path) -> None:
    folder = trained_evaluation(tmp_path / "e", tmp_path)
    scores, manifest = folder / "scores.jsonl", folder / "manifest.json"
    scores.write_text(scores.read_text().replace('"train"', '"heldout"'))
    manifest.write_text(manifest.read_text().replace('"train"', '"heldout"'))
    plan = EvalPlan(
        models=[str(image_folder(tmp_path / "mine"))], judges=["verifier"], samples=1, out=folder
    )
    run_evaluation(plan)  # does not even name the scorer
    assert roles_of(folder) == {("composition", "train"), ("verifier", "heldout")}
    assert read_json(manifest, Manifest).facts["roles"]["composition"] == "train"


def test_a_checkpoint_that_comes_later_ends_the_role_of_judges(tmp_path: Path) -> None:
    """Opening is enough: ``recast-eval judge`` adds models without scoring them."""
    folder = tmp_path / "e"
    open_folder(folder, [SOURCE], {}, seed=0, digests={}, command=[])
    append_record(folder / "scores.jsonl", score_record("m", "composition", "heldout"))
    sources = find_sources([str(checkpoint(tmp_path / "step-000001"))])
    open_folder(folder, sources, {}, seed=0, digests={}, command=[])
    assert roles_of(folder) == {("composition", "train")}


def test_a_judge_that_an_earlier_model_was_promised_stays_one(tmp_path: Path) -> None:
    first = find_sources([str(checkpoint(tmp_path / "step-000001", heldout=["verifier"]))])
    open_folder(tmp_path / "e", first, {}, seed=0, digests={}, command=[])
    later = checkpoint(tmp_path / "step-000002", rewards={"verifier": "otsu-template"})
    with pytest.raises(ConfigError, match="verifier: cannot be held out"):
        choose_scorers(
            find_sources([str(later)]),
            CAPTIONS,
            names=["verifier"],
            recorded=recorded_models(tmp_path / "e"),
        )


def test_a_role_of_trained_outlives_a_lost_manifest(tmp_path: Path) -> None:
    images = collect(tmp_path, fake_load([]), PROMPTS, 1).images
    append_record(tmp_path / "scores.jsonl", score_record("other", "s", "train"))
    result = score_images(EvalFolder(tmp_path), images, [scorer([])])
    assert {r.role for r in result.records} == {"train"}


def test_unknown_scorers_are_all_named() -> None:
    with pytest.raises(ConfigError) as caught:
        choose_scorers([SOURCE], CAPTIONS, names=["compositon", "verifier", "nonsense"])
    assert len(caught.value.problems) == 2


def test_prompts_that_are_no_captions_need_named_scorers() -> None:
    with pytest.raises(ConfigError, match="--judges"):
        choose_scorers([SOURCE], PROMPTS)


def test_rewards_and_judges_of_the_starter_share_no_family() -> None:
    rewards = {"composition", "ocr", "alignment", "finish"}
    judges = {"ocr-tesseract", "alignment-heldout", "card-distance", "verifier"}
    families = {n: SCORERS.load(n).card.family for n in rewards | judges}
    assert not {families[n] for n in rewards} & {families[n] for n in judges}


def test_a_base_is_drawn_like_the_checkpoint_beside_it(tmp_path: Path) -> None:
    sources = [*find_sources([str(checkpoint(tmp_path / "step-000001"))]), SOURCE]
    samplers = choose_samplers(sources, {})
    assert samplers["m"] == samplers["step-000001"]
    assert samplers["m"].steps == 10
    assert choose_samplers(sources, {"steps": 4})["m"].steps == 4
    with pytest.raises(ConfigError, match="steps: must be a positive number"):
        choose_samplers(sources, {"steps": 0})


def test_a_checkpoint_s_solver_is_the_evaluation_s() -> None:
    facts = {"steps": 10, "guidance_scale": 1.0, "solver": "dpm2", "shift": None}
    assert Sampler.from_facts(facts, {}).solver == "dpm2"
    assert Sampler.from_facts({}, {}).solver == "euler"
    with pytest.raises(ConfigError, match="solver: must be euler or dpm2, got 'halton'"):
        Sampler.from_facts({"solver": "halton"}, {})


def test_a_folder_from_before_solvers_were_on_record_is_euler_s(tmp_path: Path) -> None:
    source = ModelSource("m", "pipeline", "m", None, "owner/base", "d")

    def opened(solver: str) -> EvalFolder:
        samplers = {"m": Sampler(solver=solver)}
        return open_folder(tmp_path, [source], samplers, seed=0, digests={}, command=[])

    manifest = opened("euler").manifest
    old = json.loads(manifest.read_text())
    del old["facts"]["models"]["m"]["sampler"]["solver"]
    manifest.write_text(json.dumps(old))
    opened("euler")
    with pytest.raises(ConfigError, match="drawn with"):
        opened("dpm2")


@pytest.mark.parametrize("steps", [1, 2, 3, 9])
@pytest.mark.parametrize("shift", [1.0, 3.0])
def test_the_second_order_scheduler_is_the_trainer_s_solver(steps: int, shift: float) -> None:
    from recast_eval.scoring.second_order import SecondOrderScheduler
    from recast_train.policies.sd3.sampling import integrate

    def velocity(x: torch.Tensor, sigma: torch.Tensor) -> torch.Tensor:
        return torch.sin(3 * x) + sigma.view(-1, 1) * x

    scheduler = SecondOrderScheduler(shift=shift)
    noise = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))
    for _ in range(2):  # a second run must not remember the first
        scheduler.set_timesteps(steps)
        x = noise
        for t in scheduler.timesteps:
            v = velocity(x, (t / 1000).expand(len(x)))
            (x,) = scheduler.step(v, t, x, return_dict=False)
        wanted = integrate(velocity, noise, scheduler.sigmas, solver="dpm2")
        torch.testing.assert_close(x, wanted, rtol=1e-5, atol=1e-5)
    euler = integrate(velocity, noise, scheduler.sigmas, solver="euler")
    assert (steps <= 3) == torch.allclose(x, euler, rtol=1e-4, atol=1e-4)


def test_a_folder_takes_no_other_model_seed_or_sampler(tmp_path: Path) -> None:
    def opened(digest: str = "d", seed: int = 0, steps: int = 10) -> EvalFolder:
        source = ModelSource("m", "pipeline", "m", None, "owner/base", digest)
        return open_folder(
            tmp_path, [source], {"m": Sampler(steps=steps)}, seed=seed, digests={}, command=[]
        )

    opened()
    opened()
    for wrong, says in (({"digest": "e"}, "another model"), ({"seed": 1}, "seed 0, not 1")):
        with pytest.raises(ConfigError, match=says):
            opened(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="drawn with"):
        opened(steps=11)


@pytest.mark.parametrize("command", ["score", "judge"])
def test_pictures_of_two_sizes_are_said_and_on_record(
    command: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    small, large = image_folder(tmp_path / "small"), image_folder(tmp_path / "large")

    def compare(folder: Path) -> Any:
        caplog.clear()
        models, out = [str(folder)], tmp_path / "e"
        if command == "score":
            run_evaluation(EvalPlan(models=models, judges=["finish"], samples=1, out=out))
        else:
            bring_models(Wanted(models, out), scores=False)
        return read_json(out / "manifest.json", Manifest).facts["models"]

    assert compare(small)["small"]["sizes"] == {"8x8": 5}
    assert "differ in size" not in caplog.text
    for i in range(5):
        Image.new("RGB", (16, 12), (i, 0, 0)).save(large / f"{i}.png")
    models = compare(large)  # the other one came before
    assert models["large"]["sizes"] == {"16x12": 5}
    assert models["small"]["sizes"] == {"8x8": 5}
    assert "differ in size (small 8x8; large 16x12)" in caplog.text


def test_a_limit_keeps_every_category() -> None:
    plan = EvalPlan(models=["m"], prompts="starter-geneval,starter-ocr", limit=12)
    prompts, digests = load_prompts(plan, [SOURCE])
    assert len(prompts) == 24
    assert len({p.category for p in prompts}) == 7
    assert set(digests) == {"prompts/starter-geneval/test", "prompts/starter-ocr/test"}


def test_sets_that_share_ids_are_refused() -> None:
    plan = EvalPlan(models=["m"], prompts="starter-ocr,starter-ocr")
    with pytest.raises(ConfigError, match="share prompt_id"):
        load_prompts(plan, [SOURCE])


def test_image_folders_bring_their_prompts(tmp_path: Path) -> None:
    sources = find_sources([str(image_folder(tmp_path / n)) for n in ("a",)])
    prompts, _ = load_prompts(EvalPlan(models=["a"]), sources)
    assert [p.prompt for p in prompts] == [p.prompt for p in PROMPTS]
    record = ImageRecord(file_name="x.png", prompt="y", prompt_id="p-0")
    assert record.sample == 0
