"""Whole reports of planted folders, read back as a browser would read them."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from recast_eval.errors import ConfigError, DataError
from recast_eval.reporting.blocks import GalleryBlock, Maker
from recast_eval.reporting.compare import build_comparison
from recast_eval.reporting.facts import gather
from recast_eval.reporting.inputs import read_inputs
from recast_eval.reporting.page import build_report
from recast_eval.reporting.render import SHOWN_ROWS, clean
from recast_eval.reporting.sections import gallery
from recast_eval.reporting.thumbs import Thumbnails
from tests.support.page import Page, read_page
from tests.support.planted import (
    HOSTILE,
    HOSTILE_MODEL,
    Plant,
    plant_evaluation,
    plant_run,
    plant_sweep,
)

TINY = Plant(prompts=14, samples=1, distinct_images=4)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Page]:
    root = tmp_path_factory.mktemp("<b>hostile & $x$</b>".replace("/", "_"))
    models = ("base", "static", "recast", HOSTILE_MODEL)
    plant_evaluation(
        root / "eval", Plant(prompts=14, samples=1, models=models, hostile=True, distinct_images=4)
    )
    plant_run(root / "recast", rewards=(HOSTILE[0], HOSTILE[1], "一只猫", "$ocr$ 100 %"), epochs=4)
    html = build_report([root])
    return html, read_page(html)


def test_only_our_own_script_is_in_the_page(hostile: tuple[str, Page]) -> None:
    _, page = hostile
    kinds = [a.get("type") for tag, a in page.tags if tag == "script"]
    assert kinds == ["application/json", None]
    assert len(page.scripts) == 1
    assert "planted" not in page.scripts[0]


def test_no_planted_attribute_or_tag_came_alive(hostile: tuple[str, Page]) -> None:
    _, page = hostile
    handlers = [k for _, a in page.tags for k in a if k.startswith("on")]
    assert handlers == []
    assert {tag for tag, _ in page.tags} <= {
        *("html", "head", "meta", "title", "style", "body", "a", "header", "h1", "div", "button"),
        *("nav", "ul", "li", "bdi", "main", "section", "h2", "h3", "p", "article", "strong"),
        *("details", "summary", "figure", "figcaption", "span", "table", "thead", "tbody", "tr"),
        *("th", "td", "pre", "code", "footer", "script", "img"),
        *("svg", "defs", "g", "path", "use", "text", "tspan", "clippath", "rect", "image"),
        *("pattern", "lineargradient", "stop"),
    }


def test_every_planted_text_is_there_as_text(hostile: tuple[str, Page]) -> None:
    _, page = hostile
    for text in (*HOSTILE, HOSTILE_MODEL):
        assert clean(text) in page.text


def test_nothing_points_outside_the_file(hostile: tuple[str, Page]) -> None:
    _, page = hostile
    links = page.attributes("src") + page.attributes("href")
    assert len(links) > 20
    assert all(link.startswith(("data:image/", "data:text/csv", "#")) for link in links)
    policy = page.attributes("content")[0]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")


def test_the_data_block_is_strict_and_whole(hostile: tuple[str, Page]) -> None:
    found = hostile[1].numbers()
    assert found["schema_version"] == 1
    assert set(found["answers"]) == {"compared", "better", "much", "sure", "what"}
    assert len(found["tables"]) > 15


def test_pictures_have_words_and_figures_have_labels(hostile: tuple[str, Page]) -> None:
    _, page = hostile
    assert all(a.get("alt") for tag, a in page.tags if tag == "img")
    shown = [a for _, a in page.tags if a.get("role") == "img"]
    assert len(shown) > 10
    assert all(a.get("aria-label") for a in shown)


def test_ids_are_unique(hostile: tuple[str, Page]) -> None:
    ids = hostile[1].attributes("id")
    assert len(ids) == len(set(ids))


def test_right_to_left_prompts_choose_their_own_direction(hostile: tuple[str, Page]) -> None:
    prompts = [a for tag, a in hostile[1].tags if tag == "p" and "prompt" in (a.get("class") or "")]
    assert prompts
    assert all(a.get("dir") == "auto" for a in prompts)


def report_of(root: Path, plant: Plant) -> Page:
    plant_evaluation(root, plant)
    return read_page(build_report([root]))


def test_a_clear_winner_is_named_on_the_first_screen(tmp_path: Path) -> None:
    plant = Plant(prompts=60, samples=1, effects=(0.0, 0.0, 3.0), distinct_images=3)
    answers = report_of(tmp_path, plant).numbers()["answers"]
    assert answers["better"][0] == "recast is better than static."
    assert answers["much"][0].startswith("recast wins ")
    assert answers["sure"][0].startswith("Very sure")


def test_equal_models_cannot_be_told_apart(tmp_path: Path) -> None:
    plant = Plant(prompts=40, samples=1, effects=(0.0, 0.0, 0.0), distinct_images=3, seed=3)
    answers = report_of(tmp_path, plant).numbers()["answers"]
    assert "cannot be told apart" in answers["better"][0]
    assert not any("is better than" in text for text in answers["better"])
    assert answers["what"][0] == "No scorer tells recast and static apart beyond chance."
    assert answers["sure"][0].startswith("Not sure that they differ")
    against = [text for text in answers["better"] if text.startswith("recast against base")]
    assert "not beyond chance" in against[0]


def test_a_card_shows_the_verdict_of_its_own_pictures(tmp_path: Path) -> None:
    evaluation = plant_evaluation(tmp_path, Plant(prompts=6, samples=2, distinct_images=4))
    facts = gather(read_inputs([evaluation])).evaluations[0]
    found = gallery.section(facts, Maker("c"), Thumbnails())
    assert found is not None
    cards = [c for b in found.blocks if isinstance(b, GalleryBlock) for c in b.cards]
    assert cards
    assert all(len(card.words) <= 1 for card in cards)  # one judge, the sample that is shown


def test_curves_of_a_sweep_show_every_method(tmp_path: Path) -> None:
    tables = read_page(build_report([plant_sweep(tmp_path)])).numbers()["tables"].values()
    (curves,) = [t for t in tables if t["title"] == "Reward ocr"]
    shown = {row[0].split("-")[0] for row in curves["rows"]}
    assert shown == {"recast", "static"}


def test_reward_hacking_is_flagged_as_grave(tmp_path: Path) -> None:
    plant = Plant(prompts=60, samples=1, effects=(0.0, 0.0, 2.0), hack=True, distinct_images=3)
    page = report_of(tmp_path, plant)
    assert page.numbers()["distrust"][0].startswith("Reward hacking: recast")
    assert "Grave:" in page.text


def test_one_model_has_nothing_to_be_compared_with(tmp_path: Path) -> None:
    page = report_of(tmp_path, Plant(prompts=3, models=("only",), distinct_images=2))
    assert "nothing to compare it with" in page.numbers()["answers"]["compared"][0]


def test_one_prompt_makes_a_report(tmp_path: Path) -> None:
    page = report_of(tmp_path, Plant(prompts=1, samples=1, distinct_images=2))
    assert any("Only 1 prompts" in d for d in page.numbers()["distrust"])


def test_no_verdicts_are_said(tmp_path: Path) -> None:
    page = report_of(tmp_path, Plant(prompts=4, samples=1, verdicts=False, distinct_images=2))
    assert "Nothing was judged pairwise: no win rates." in page.numbers()["distrust"]


def test_a_run_alone_makes_a_report(tmp_path: Path) -> None:
    page = read_page(build_report([plant_run(tmp_path / "recast", epochs=4)]))
    assert "Nothing was evaluated" in page.numbers()["answers"]["compared"][0]


def test_a_sweep_is_matched_by_budget_and_seed(tmp_path: Path) -> None:
    page = read_page(build_report([plant_sweep(tmp_path)]))
    tables = page.numbers()["tables"].values()
    (matched,) = [t for t in tables if t["title"].startswith("Matched pairs")]
    assert [row[0] for row in matched["rows"]] == [
        "nft + zscore + recast minus nft + zscore + static"
    ] * 4
    assert all(row[2] == "8 / 0 / 0" for row in matched["rows"])  # 4 budgets x 2 seeds
    answers = page.numbers()["answers"]
    assert "of 4 scores 4 clearly higher, 0 clearly lower" in answers["sweep"][0]
    assert answers["better"][0].startswith("Not known")
    assert any("Nothing held out was measured" in d for d in page.numbers()["distrust"])
    assert any(t["title"].startswith("Pareto front") for t in tables)


def test_pictures_beyond_the_budget_are_left_out_and_counted(tmp_path: Path) -> None:
    root = plant_evaluation(tmp_path / "eval", TINY)
    html = build_report([root], thumbs=Thumbnails(budget=3000))
    assert "pictures were left out to keep this file small" in read_page(html).text
    assert html.count("data:image/png") < 8


def test_damaged_and_missing_pictures_are_said_in_their_place(tmp_path: Path) -> None:
    root = plant_evaluation(tmp_path / "eval", TINY)
    (root / "images" / "base" / "00000-0.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (root / "images" / "base" / "00001-0.png").unlink()
    text = read_page(build_report([root])).text
    assert "make or download it again" in text
    assert "restore it or remove its line" in text


def test_a_file_name_cannot_leave_its_folder(tmp_path: Path) -> None:
    root = plant_evaluation(tmp_path / "eval", TINY)
    (tmp_path / "secret.png").write_bytes((root / "images" / "base" / "00000-0.png").read_bytes())
    table = root / "images" / "base" / "metadata.jsonl"
    table.write_text(table.read_text().replace("00000-0.png", "../../../secret.png"))
    assert "name a file inside it" in read_page(build_report([root])).text


def test_a_torn_line_is_dropped_and_said(tmp_path: Path) -> None:
    root = plant_evaluation(tmp_path / "eval", TINY)
    with (root / "scores.jsonl").open("a") as file:
        file.write('{"schema_version": 1, "mod')
    found = read_page(build_report([root])).numbers()["distrust"]
    assert "eval/scores.jsonl: a torn last line was left out." in found


def test_a_broken_line_names_file_and_line(tmp_path: Path) -> None:
    root = plant_evaluation(tmp_path / "eval", TINY)
    lines = (root / "scores.jsonl").read_text().splitlines(keepends=True)
    lines[2] = '{"value": NaN}\n'
    (root / "scores.jsonl").write_text("".join(lines))
    with pytest.raises(DataError, match=r"scores\.jsonl:3"):
        build_report([root])


def test_folders_without_results_are_all_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError) as caught:
        build_report([tmp_path / "empty", tmp_path / "absent"])
    assert len(caught.value.problems) == 2


def test_weights_of_the_wrong_shape_are_refused(tmp_path: Path) -> None:
    root = plant_run(tmp_path / "run", epochs=1)
    record = json.loads((root / "credit.jsonl").read_text())
    record["weights"] = record["weights"][:1]
    (root / "credit.jsonl").write_text(json.dumps(record) + "\n")
    with pytest.raises(DataError, match="weights must be 4 rows of 10"):
        build_report([root])


def test_a_comparison_with_itself_changes_nothing(tmp_path: Path) -> None:
    root = plant_evaluation(tmp_path / "eval", TINY)
    other = shutil.copytree(root, tmp_path / "again")
    answers = read_page(build_comparison(root, Path(other))).numbers()["answers"]
    assert answers["better"][0].startswith("Yes: same prompts")
    assert "0 clearly rose, 0 clearly fell" in answers["much"][0]


def test_a_comparison_says_in_what_manifests_differ(tmp_path: Path) -> None:
    before = plant_evaluation(tmp_path / "before", TINY)
    after = plant_evaluation(
        tmp_path / "after", Plant(prompts=16, samples=1, distinct_images=4, seed=1)
    )
    found = read_page(build_comparison(before, after)).numbers()
    assert found["answers"]["better"][0].startswith("Only with care")
    assert any(d.startswith("digests.prompts: ") for d in found["distrust"])
    assert any(d.startswith("seeds.images: 0 before, 1 after") for d in found["distrust"])
    assert any("shared prompts have another text" in d for d in found["distrust"])


def run(*words: str) -> subprocess.CompletedProcess[str]:
    code = "from recast_eval.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, "report", *words], capture_output=True, text=True
    )


def test_the_command_writes_the_file_and_refuses_nonsense(tmp_path: Path) -> None:
    root = plant_evaluation(tmp_path / "eval", TINY)
    done = run(str(root))
    assert done.returncode == 0, done.stderr
    assert (root / "report.html").read_text("utf-8").startswith("<!doctype html>")
    wrong = run(str(tmp_path / "absent"), "--out", str(tmp_path / "x.html"))
    assert wrong.returncode == 2
    assert "no such folder" in wrong.stderr
    assert "Traceback" not in wrong.stderr
    assert not (tmp_path / "x.html").exists()


@pytest.mark.slow
def test_two_thousand_prompts_and_four_models_stay_small(tmp_path: Path) -> None:
    models = ("base", "static", "recast", "rival")
    root = plant_evaluation(tmp_path / "eval", Plant(prompts=2000, models=models, image_side=256))
    code = (
        "import resource, sys, time; start = time.process_time()\n"
        "from pathlib import Path; from recast_eval.reporting.page import build_report\n"
        "page = build_report([Path(sys.argv[1])])\n"
        "peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "print(len(page.encode()), time.process_time() - start, peak * 1024)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(root)], capture_output=True, text=True, check=True
    )
    size, seconds, peak = map(float, done.stdout.split())
    assert size < 20e6
    assert seconds < 60
    assert peak < 2e9
    assert SHOWN_ROWS < 2000
