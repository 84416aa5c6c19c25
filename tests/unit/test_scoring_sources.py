"""What can be scored: checkpoints and image folders, and how each mistake in one is named."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from recast_eval.commands._models import Wanted, bring_models
from recast_eval.content.prompts import Prompt
from recast_eval.errors import ConfigError, DataError
from recast_eval.records import (
    digest,
    file_sha256,
)
from recast_eval.scoring import (
    find_sources,
    verify_checkpoint,
)
from recast_eval.scoring.image_folder import check_images, match_prompts, read_metadata
from recast_eval.scoring.sources import unique_names
from tests.support.models_to_score import PROMPTS, checkpoint, image_folder


def test_names_are_safe_and_each_once() -> None:
    stems = ["a b", "a/b", "A-b", "..", "", "café", "x" * 200]
    names = unique_names(stems)
    assert names[:5] == ["a-b", "a-b-2", "A-b-3", "model", "model-2"]
    assert len({n.lower() for n in names}) == len(names)
    assert max(map(len, names)) <= 80


def test_a_whole_checkpoint_passes(tmp_path: Path) -> None:
    (source,) = find_sources([str(checkpoint(tmp_path / "runs/mine/checkpoints/step-000020"))])
    assert source.name == "mine-step-000020"
    assert source.kind == "checkpoint"
    assert source.base == "owner/base"
    assert source.families == {"card-segmentation"}


def test_a_run_is_its_last_checkpoint(tmp_path: Path) -> None:
    for step in ("step-000020", "step-000100"):
        checkpoint(tmp_path / "mine/checkpoints" / step)
    (source,) = find_sources([f"best={tmp_path / 'mine'}"])
    assert source.name == "best"
    assert source.path is not None
    assert source.path.name == "step-000100"


def test_pictures_in_folders_below_tell_two_models_apart(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        table = image_folder(tmp_path / name / "img") / "metadata.jsonl"
        rows = [json.loads(line) for line in table.read_text().splitlines()]
        rows = [r | {"file_name": f"img/{i}.png"} for i, r in enumerate(rows)]
        table.unlink()
        text = "".join(json.dumps(r) + "\n" for r in rows)
        (tmp_path / name / "metadata.jsonl").write_text(text, encoding="utf-8")
    Image.new("RGB", (8, 8), (1, 2, 3)).save(tmp_path / "b/img/3.png")
    before = find_sources([str(tmp_path / "a"), str(tmp_path / "b")])
    Image.new("RGB", (8, 8), (4, 5, 6)).save(tmp_path / "b/img/3.png")
    after = find_sources([str(tmp_path / "a"), str(tmp_path / "b")])
    assert before[0].digest == after[0].digest
    assert before[1].digest != after[1].digest
    (tmp_path / "b/img/3.png").unlink()  # a gap is no error yet
    assert find_sources([str(tmp_path / "b")])[0].digest not in {before[1].digest, after[1].digest}


def test_a_flat_folder_keeps_the_digest_that_evaluations_have_on_record(tmp_path: Path) -> None:
    folder = image_folder(tmp_path / "a")
    seen = [(f"{i}.png", file_sha256(folder / f"{i}.png")) for i in range(5)]
    table = file_sha256(folder / "metadata.jsonl")
    assert find_sources([str(folder)])[0].digest == digest(["images", table, seen])


def test_a_changed_byte_is_noticed(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "step-000020")
    weights = folder / "adapter/pytorch_lora_weights.safetensors"
    data = bytearray(weights.read_bytes())
    data[20] ^= 1
    weights.write_bytes(data)
    with pytest.raises(DataError, match=r"checkpoint\.json says .* changed; copy") as caught:
        verify_checkpoint(folder)
    assert str(weights) in str(caught.value)


def test_missing_foreign_and_outside_files_are_noticed(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "step-000020")
    (folder / "adapter/extra.safetensors").write_bytes(b"x")
    with pytest.raises(DataError, match="not listed"):
        verify_checkpoint(folder)
    (folder / "adapter/extra.safetensors").unlink()
    (folder / "adapter/adapter_config.json").unlink()
    with pytest.raises(DataError, match=r"adapter_config\.json: missing"):
        verify_checkpoint(folder)
    text = (folder / "checkpoint.json").read_text("utf-8")
    (folder / "checkpoint.json").write_text(
        text.replace("adapter/adapter_config", "../../adapter_config"), encoding="utf-8"
    )
    with pytest.raises(DataError, match="outside the checkpoint"):
        verify_checkpoint(folder)


def test_a_listed_name_that_cannot_be_looked_up_is_an_error(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "step-000020")
    text = (folder / "checkpoint.json").read_text("utf-8")
    (folder / "loop").symlink_to("loop")
    for name in ("a" * 300, "loop", "a\\u0000b"):
        named = text.replace("adapter/adapter_config.json", name)
        (folder / "checkpoint.json").write_text(named, encoding="utf-8")
        with pytest.raises(DataError, match=r"checkpoint\.json: lists .*cannot be looked up"):
            verify_checkpoint(folder)


def test_a_model_whose_name_is_too_long_is_no_model(tmp_path: Path) -> None:
    for name in ("m" * 300, "x=" + "m" * 300, "m/" * 3000):
        with pytest.raises(ConfigError, match="too long"):
            find_sources([name])
        with pytest.raises(ConfigError, match="too long"):
            bring_models(Wanted([name], tmp_path), scores=False)


def test_all_wrong_models_are_named_at_once(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    given = [str(tmp_path / "empty"), "no where", str(tmp_path / "gone/deeper/still")]
    with pytest.raises(ConfigError) as caught:
        find_sources(given)
    assert len(caught.value.problems) == 3
    folder = str(image_folder(tmp_path / "twice"))
    with pytest.raises(ConfigError, match="name it once"):
        find_sources([folder, folder])


def test_a_policy_that_diffusers_cannot_draw_is_refused(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "step-000001", policy="masked")
    with pytest.raises(ConfigError, match="policy 'masked' is not drawn here"):
        find_sources([str(folder)])


def test_images_are_matched_by_id_not_by_order(tmp_path: Path) -> None:
    folder = image_folder(tmp_path / "set", ["10.png", "2.png", "1.png", "b.png", "a.png"])
    records = match_prompts(folder, read_metadata(folder), PROMPTS[::-1], 1)
    assert [r.file_name for r in records] == ["a.png", "b.png", "1.png", "2.png", "10.png"]
    assert {r.category for r in records} == {"x"}


def test_columns_of_others_are_left_out(tmp_path: Path) -> None:
    folder = image_folder(tmp_path / "set", author="me", width=8)
    assert len(read_metadata(folder)) == 5


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda p: p.unlink(), "no image '3.png'"),
        (lambda p: p.write_bytes(p.read_bytes()[:40]), "truncated|again"),
        (lambda p: p.write_bytes(b""), "0 bytes"),
        (lambda p: p.write_text("<html>404</html>"), "HTML"),
    ],
)
def test_a_damaged_image_is_named(
    damage: Callable[[Path], None], says: str, tmp_path: Path
) -> None:
    folder = image_folder(tmp_path / "set")
    damage(folder / "3.png")
    with pytest.raises(DataError, match=says):
        check_images(folder, read_metadata(folder))


def test_a_recorded_digest_is_checked(tmp_path: Path) -> None:
    folder = image_folder(tmp_path / "set", sha256="0" * 64)
    with pytest.raises(DataError, match=r"5 of 5 images are unusable"):
        check_images(folder, read_metadata(folder))


def test_a_missing_prompt_and_another_text_are_refused(tmp_path: Path) -> None:
    folder = image_folder(tmp_path / "set")
    records = read_metadata(folder)
    with pytest.raises(DataError, match=r"no image for 1 of 5: p-4"):
        match_prompts(folder, records[:4], PROMPTS, 1)
    other = [Prompt(prompt_id="p-0", prompt="thing zero")]
    with pytest.raises(DataError, match=r"'thing 0'.*'thing zero'"):
        match_prompts(folder, records, other, 1)


@pytest.mark.parametrize("form", ["no line feed", "encoding mark", "CR LF"])
def test_a_table_that_a_person_wrote_loses_no_picture(form: str, tmp_path: Path) -> None:
    path = image_folder(tmp_path / "set", author="me") / "metadata.jsonl"
    data = path.read_bytes()
    path.write_bytes(
        {
            "no line feed": data.removesuffix(b"\n"),
            "encoding mark": b"\xef\xbb\xbf" + data,
            "CR LF": data.replace(b"\n", b"\r\n"),
        }[form]
    )
    assert [r.prompt for r in read_metadata(path.parent)] == [p.prompt for p in PROMPTS]
    _, (judged,) = bring_models(Wanted([str(path.parent)], tmp_path / "e"), scores=False)
    assert len(judged.records) == 5


@pytest.mark.parametrize(
    ("field", "value"),
    [("sample", -1), ("prompt_id", ""), ("prompt_id", "p" * 300), ("prompt", "")],
)
def test_a_field_out_of_range_is_named(field: str, value: object, tmp_path: Path) -> None:
    folder = image_folder(tmp_path / "set", **{field: value})
    with pytest.raises(DataError, match=rf"metadata\.jsonl:1: {field}: .*a line must read"):
        read_metadata(folder)


@pytest.mark.parametrize(
    "line", ["[" * 100_000, "{", "[]", '{"file_name": "a.png"}', '{"prompt_id": 3}']
)
def test_a_broken_metadata_line_is_named(line: str, tmp_path: Path) -> None:
    folder = image_folder(tmp_path / "set")
    path = folder / "metadata.jsonl"
    path.write_text(path.read_text("utf-8") + line + "\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"metadata\.jsonl:6: .*a line must read"):
        read_metadata(folder)


def test_an_image_listed_twice_is_refused(tmp_path: Path) -> None:
    folder = image_folder(tmp_path / "set")
    path = folder / "metadata.jsonl"
    path.write_text(path.read_text("utf-8") * 2, encoding="utf-8")
    with pytest.raises(DataError, match="on line 1 too"):
        read_metadata(folder)
