"""Published checkpoints' names and shapes land on our full-size models, one to one."""

import json
import re
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BlipConfig, CLIPModel
from transformers.models.blip.modeling_blip import BlipVisionModel
from transformers.models.blip.modeling_blip_text import BlipTextModel

from recast_eval.errors import MissingError
from recast_eval.scorers.blip import convert_text, convert_vision
from recast_eval.scorers.heads import mlp_head
from recast_eval.scorers.models import hpsv2, image_reward
from recast_eval.scorers.open_clip import convert_open_clip
from recast_eval.scorers.weights import load_into, unwrapped

GOLDEN = Path(__file__).parents[1] / "golden" / "checkpoint_tensors.json"


def listed(name: str) -> dict[str, tuple[int, ...]]:
    """The list of one checkpoint, with {a-b} written out."""
    found: dict[str, tuple[int, ...]] = {}
    for pattern, shape in json.loads(GOLDEN.read_text())[name]["tensors"].items():
        span = re.search(r"\{(\d+)-(\d+)\}", pattern)
        numbers = range(int(span[1]), int(span[2]) + 1) if span else [0]
        for n in numbers:
            key = pattern.replace(span[0], str(n)) if span else pattern
            assert key not in found, key
            found[key] = tuple(shape)
    return found


def sources(name: str) -> list[dict[str, Any]]:
    """What public code and threads say of one checkpoint."""
    found: list[dict[str, Any]] = json.loads(GOLDEN.read_text())[name]["sources"]
    return found


CHECKPOINTS = ("hpsv2", "image-reward", "aesthetic")
CITED = [(name, key) for name in CHECKPOINTS for s in sources(name) for key in s.get("names", ())]


def tensors(name: str) -> dict[str, torch.Tensor]:
    """The same without memory for any number."""
    return {k: torch.empty(s, device="meta") for k, s in listed(name).items()}


def shapes(values: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {k: tuple(v.shape) for k, v in values.items() if "position_ids" not in k}


def blip_config() -> BlipConfig:
    return BlipConfig(
        text_config=image_reward.text_config(), vision_config=image_reward.vision_config()
    )


@pytest.mark.parametrize(("name", "key"), sorted(set(CITED)), ids=lambda v: str(v))
def test_a_name_that_a_public_source_reads_is_listed_and_understood(name: str, key: str) -> None:
    assert key in listed(name)
    file = {key: torch.empty(listed(name)[key], device="meta")}
    if name == "hpsv2":
        assert convert_open_clip(file)
    elif "blip.visual_encoder." in key:
        assert convert_vision(file, "blip.visual_encoder.")
    elif "blip.text_encoder." in key:  # position_ids are counted out, not read
        assert bool(convert_text(file, "blip.text_encoder.")) != key.endswith("position_ids")


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_every_name_has_a_public_source(name: str) -> None:
    known = {key for n, key in CITED if n == name}
    classes = tuple(c for s in sources(name) for c in s.get("classes", ()))
    assert all(s["where"].startswith("https://") and s["says"] for s in sources(name))
    alone = [k for k in listed(name) if k not in known and not k.startswith(classes)]
    assert not alone, f"no source for {alone}"


@pytest.mark.parametrize("name", ["hpsv2", "image-reward"])
def test_the_published_file_has_room_for_these_tensors_and_no_other(name: str) -> None:
    size = json.loads(GOLDEN.read_text())[name]["bytes"]
    numbers = {k: prod(shape) for k, shape in listed(name).items()}
    payload = sum(n * (8 if "position_ids" in k else size["number"]) for k, n in numbers.items())
    around = (size["file"] - payload) / len(numbers)
    assert 100 < around < 1000, f"{around:.0f} bytes a tensor for its name and place in the file"


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_wrapped_state_dict_is_unwrapped(name: str) -> None:
    file = tensors(name)
    wrapped = {f"module.{k}": v for k, v in file.items()}
    assert unwrapped(wrapped).keys() == file.keys()
    assert unwrapped({**wrapped, "epoch": torch.empty(())}).keys() == {*wrapped, "epoch"}
    assert unwrapped(file).keys() == file.keys()


def test_hpsv2_is_exactly_clip_h() -> None:
    with torch.device("meta"):
        model = CLIPModel(hpsv2.config())
    assert shapes(convert_open_clip(tensors("hpsv2"))) == shapes(model.state_dict())
    assert sum(prod(s) for s in listed("hpsv2").values()) == 986_109_441


def test_image_reward_is_exactly_blip_with_its_head() -> None:
    with torch.device("meta"):
        vision = BlipVisionModel(blip_config().vision_config)
        text = BlipTextModel(blip_config().text_config, add_pooling_layer=False)
    file = tensors("image-reward")
    seen = convert_vision(file, "blip.visual_encoder.")
    read = convert_text(file, "blip.text_encoder.")
    assert shapes(seen) == shapes(vision.state_dict())
    assert shapes(read) == shapes(text.state_dict())
    unused = {k for k in file if not re.match(r"blip\.(visual|text)_encoder\.|mlp\.", k)}
    assert {k.split(".")[1] for k in unused} == {"vision_proj", "text_proj"}


@pytest.mark.parametrize(
    ("name", "prefix"), [("image-reward", "mlp.layers"), ("aesthetic", "layers")]
)
def test_heads_take_768_numbers_and_give_one(name: str, prefix: str) -> None:
    file = {k: torch.zeros(s) for k, s in listed(name).items() if k.startswith(prefix)}
    head = mlp_head(file, prefix)
    assert [(m.in_features, m.out_features) for m in head] == [  # type: ignore[union-attr]
        (768, 1024),
        (1024, 128),
        (128, 64),
        (64, 16),
        (16, 1),
    ]


@pytest.mark.parametrize("change", ["lost", "strange", "resized"])
def test_a_checkpoint_that_differs_is_refused(change: str) -> None:
    file = tensors("hpsv2")
    if change == "lost":
        del file["visual.ln_post.bias"]
    elif change == "resized":
        file["positional_embedding"] = torch.empty(248, 1024, device="meta")
    with torch.device("meta"):
        model = CLIPModel(hpsv2.config())
    if change == "strange":
        file["visual.transformer.resblocks.0.ls_1.gamma"] = torch.empty(1280, device="meta")
        with pytest.raises(ValueError, match="no tensor of an open_clip"):
            convert_open_clip(file)
        return
    with pytest.raises(MissingError, match="do not fit"):
        load_into(model, convert_open_clip(file), hpsv2.CARD)
