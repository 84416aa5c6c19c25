"""Each published scorer, on random weights of its own architecture: names and limits."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from recast_eval.errors import MissingError
from recast_eval.records import Failed, Scored
from recast_eval.scorers import SCORERS, Scorer
from recast_eval.scorers.conformance import CHECKS, Cases, cases
from recast_eval.scorers.open_clip import convert_open_clip
from tests.support import tiny_scorers

PROMPTS = ["a photo of a dog", "a photo of a red dog and a cat"]


def test_open_clip_names_are_turned_into_the_same_model(tmp_path: Path) -> None:
    model = tiny_scorers.clip(tmp_path)
    converted = convert_open_clip(tiny_scorers.open_clip_names(model))
    own = {k: v for k, v in model.state_dict().items() if "position_ids" not in k}
    assert converted.keys() == own.keys()
    for name, value in own.items():
        torch.testing.assert_close(converted[name], value, rtol=0, atol=0, msg=name)


def test_hpsv2_through_its_published_names_equals_the_clip_it_is(tmp_path: Path) -> None:
    tiny_scorers.hpsv2(tmp_path / "hps")
    tiny_scorers.clip(tmp_path / "clip")
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (32, 32, 3), dtype=np.uint8) for _ in range(4)]
    given = (images, [PROMPTS[i % 2] for i in range(4)])
    converted = SCORERS.load("hpsv2").build(weights=str(tmp_path / "hps"))
    plain = SCORERS.load("clip-score").build(weights=str(tmp_path / "clip"))
    for a, b in zip(converted(*given), plain(*given), strict=True):
        assert isinstance(a, Scored)
        assert isinstance(b, Scored)
        assert a.value == pytest.approx(b.value, abs=1e-6)


@pytest.mark.parametrize(("height", "width"), [(20, 40), (40, 20), (3, 900), (8, 8)])
def test_hpsv2_sees_a_picture_whole_between_black_bars(height: int, width: int) -> None:
    from PIL import Image

    from recast_eval.scorers.open_clip import DEVIATION, MEAN, PaddedSquare

    picture = np.full((height, width, 3), 255, np.uint8)
    seen = PaddedSquare(16)([Image.fromarray(picture)])["pixel_values"][0]
    shown = seen * torch.tensor(DEVIATION).view(3, 1, 1) + torch.tensor(MEAN).view(3, 1, 1)
    inside = [max(1, round(n * 16 / max(height, width))) for n in (height, width)]
    top, left = ((16 - n) // 2 for n in inside)
    assert shown.shape == (3, 16, 16)
    expected = torch.zeros(3, 16, 16)
    expected[:, top : top + inside[0], left : left + inside[1]] = 1
    torch.testing.assert_close(shown, expected, rtol=0, atol=1e-5)


def test_clip_equals_the_library_s_own_cosine(tmp_path: Path) -> None:
    from PIL import Image
    from transformers import CLIPImageProcessorPil, CLIPTokenizer

    model = tiny_scorers.clip(tmp_path)
    given = cases(PROMPTS)
    processor = CLIPImageProcessorPil.from_pretrained(tmp_path)
    tokenizer = CLIPTokenizer.from_pretrained(tmp_path)
    inputs = tokenizer(given.prompts, padding="max_length", max_length=77, return_tensors="pt")
    pixels = processor([Image.fromarray(i) for i in given.images], return_tensors="pt")
    with torch.no_grad():
        whole = model(**inputs, **pixels)
    expected = (whole.image_embeds * whole.text_embeds).sum(-1).numpy()
    got = SCORERS.load("clip-score").build(weights=str(tmp_path))(*given)
    np.testing.assert_allclose([o.value for o in got if isinstance(o, Scored)], expected, atol=1e-5)


def test_a_scorer_without_weights_says_where_to_put_them(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="RECAST_WEIGHTS"):
        SCORERS.load("pickscore").build(weights=str(tmp_path))


@pytest.mark.parametrize("lost", ["visual_projection.weight", "text_model.final_layer_norm.bias"])
def test_a_model_s_file_that_lacks_tensors_is_refused(lost: str, tmp_path: Path) -> None:
    """The library would make up random ones and go on."""
    from safetensors.torch import load_file, save_file

    tiny_scorers.clip(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    del tensors[lost]
    save_file(tensors, file, metadata={"format": "pt"})
    for name in ("clip-score", "pickscore"):
        with pytest.raises(MissingError, match=f"lacks 1 tensors of the model .{lost}"):
            SCORERS.load(name).build(weights=str(tmp_path))


def test_tensors_of_another_size_are_named(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    tiny_scorers.hpsv2(tmp_path)
    file = tmp_path / "hpsv2.safetensors"
    tensors = load_file(file)
    tensors["visual.proj"] = torch.zeros(32, 8)
    save_file(tensors, file)
    with pytest.raises(MissingError, match=r"visual_projection\.weight: file \(8, 32\)"):
        SCORERS.load("hpsv2").build(weights=str(tmp_path))


@pytest.fixture(scope="module")
def with_llava(tmp_path_factory: pytest.TempPathFactory) -> Scorer:
    folder = tmp_path_factory.mktemp("llava")
    tiny_scorers.llava(folder)
    return SCORERS.load("vqa-score").build(weights=str(folder))


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
def test_vqa_score_with_a_model_of_another_kind(
    with_llava: Scorer, check: Callable[[Scorer, Cases], None]
) -> None:
    check(with_llava, cases(PROMPTS))


def test_vqa_score_runs_the_kind_of_model_that_its_card_names(tmp_path: Path) -> None:
    from PIL import Image
    from transformers import Qwen2_5_VLForConditionalGeneration as Model
    from transformers import Qwen2VLImageProcessorPil as Pictures

    from recast_eval.scorers.models.vqa_score import QUESTION, load_processor

    tiny_scorers.qwen(tmp_path)
    processor = load_processor(str(tmp_path))
    assert type(processor.image_processor) is Pictures  # an installed torchvision changes nothing
    scorer = SCORERS.load("vqa-score").build(weights=str(tmp_path))
    assert scorer.card.family == Model.config_class.model_type.replace("qwen2_5_vl", "qwen2.5-vl")
    picture = np.random.default_rng(0).integers(0, 256, (64, 96, 3), dtype=np.uint8)
    got = scorer([picture], ["a {dog}"])[0]

    model = Model.from_pretrained(tmp_path).eval()
    seen = Pictures.from_pretrained(tmp_path)([Image.fromarray(picture)], return_tensors="pt")
    patches = int(seen["image_grid_thw"].prod()) // 4
    text = (
        "<|im_start|>user\n<|vision_start|>" + patches * "<|image_pad|>" + "<|vision_end|>"
        f"{QUESTION.replace('{prompt}', 'a {dog}')}<|im_end|>\n<|im_start|>assistant\n"
    )
    asked = processor.tokenizer(text, return_tensors="pt")
    kinds = (asked["input_ids"] == model.config.image_token_id).int()
    with torch.no_grad():
        logits = model(**asked, **seen, mm_token_type_ids=kinds).logits[0, -1]
    yes, no = (processor.tokenizer.encode(w)[0] for w in ("Yes", "No"))
    assert isinstance(got, Scored)
    assert got.value == pytest.approx(float(logits[[yes, no]].softmax(0)[0]), abs=1e-6)


def test_vqa_score_of_a_strip_that_the_processor_refuses_has_a_reason(tmp_path: Path) -> None:
    tiny_scorers.qwen(tmp_path)
    scorer = SCORERS.load("vqa-score").build(weights=str(tmp_path))
    got = scorer([np.zeros((1, 400, 3), np.uint8)], ["a dog"])[0]
    assert isinstance(got, Failed)
    assert got.reason == "image_error"
    assert "aspect ratio" in got.detail
