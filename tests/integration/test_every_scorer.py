"""Every registered scorer holds to the laws, each on what it runs on here.

Published models: random weights of their own architecture. Those that ask a server: a server on
the loopback. The rest as they ship; what needs a package that is not installed is skipped.
"""

import hashlib
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from recast_eval.errors import MissingError
from recast_eval.records import Scored
from recast_eval.scorers import SCORERS, Scorer
from recast_eval.scorers.conformance import CHECKS, Cases, cases
from tests.support import tiny_scorers
from tests.support.judge_server import JudgeServer, Question, Script

DOCS = Path(__file__).parents[2] / "docs" / "scorers.md"
WEIGHTS = {
    "clip-score": tiny_scorers.clip,
    "pickscore": tiny_scorers.clip,
    "hpsv2": tiny_scorers.hpsv2,
    "aesthetic": tiny_scorers.aesthetic,
    "image-reward": tiny_scorers.image_reward_folder,
    "geneval": tiny_scorers.geneval,
    "vqa-score": tiny_scorers.qwen,
}
PROMPTS = ["a photo of a dog", "a photo of a red dog and a {cat}", 'a sign that says "A"']
CAPTIONS = ["a red circle on a white card", "two blue stars", 'the word "NI" in orange']
GENEVAL = ["a photo of a dog", "a photo of a red dog and a cat"]


def grades(question: Question) -> str:
    parts = [round(1 + 4 * question.draw(axis), 3) for axis in "acs"]
    form = "Alignment Score (1-5): {}\nCoherence Score (1-5): {}\nStyle Score (1-5): {}"
    return form.format(*parts)


def score(question: Question) -> str:
    return json.dumps({"score": 1 + int(9 * question.draw("s"))})


REPLIES: dict[str, Callable[[Question], str]] = {"unified-reward": grades, "vlm-pointwise": score}

FAKE_HPSV3 = """
import hashlib
class HPSv3RewardInferencer:
    def __init__(self, device): pass
    def reward(self, image_paths, prompts):
        both = zip(image_paths, prompts)
        drawn = [hashlib.sha256(open(i, "rb").read() + p.encode()).digest() for i, p in both]
        return [[d[0] / 20, d[1] / 200] for d in drawn]
"""
"""Takes its arguments in the other order: only keywords get them right."""


@contextmanager
def documented_server(folder: Path) -> Iterator[str]:
    """The HPSv3 server of the documentation, word for word, with the model alone replaced."""
    found = re.search(r"```python\n(# hpsv3_server\.py.*?)```", DOCS.read_text("utf-8"), re.DOTALL)
    assert found, "docs/scorers.md no longer shows hpsv3_server.py"
    (folder / "hpsv3_server.py").write_text(found[1])
    (folder / "hpsv3.py").write_text(FAKE_HPSV3)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    command = [sys.executable, "hpsv3_server.py", str(port)]
    process = subprocess.Popen(command, cwd=folder, env={**os.environ, "PYTHONPATH": ""})
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(200):
            try:
                httpx.get(f"{url}/health", trust_env=False).raise_for_status()
                break
            except httpx.HTTPError:
                time.sleep(0.1)
        yield url
    finally:
        process.kill()
        process.wait()


@contextmanager
def built(name: str, folder: Path) -> Iterator[Scorer]:
    spec = SCORERS.load(name)
    if name in WEIGHTS:
        WEIGHTS[name](folder)
        yield spec.build(weights=str(folder))
    elif name in REPLIES:
        with JudgeServer(Script(replay=REPLIES[name])) as server:
            yield spec.build(weights=f"{server.url}#mock")
    elif name == "hpsv3":
        with documented_server(folder) as url:
            yield spec.build(weights=url)
    else:
        try:
            scorer = spec.build()
        except MissingError as error:
            pytest.skip(str(error))
        yield scorer


@pytest.fixture(scope="module", params=list(SCORERS))
def scorer(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scorer]:
    with built(request.param, tmp_path_factory.mktemp(request.param)) as found:
        yield found


def given(scorer: Scorer) -> Cases:
    served = scorer.card.name in {*WEIGHTS, *REPLIES, "hpsv3"} or "scene" in scorer.card.name
    prompts = PROMPTS if served else CAPTIONS
    return cases(GENEVAL if scorer.card.name == "geneval" else prompts)


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
def test_conformance(scorer: Scorer, check: Callable[[Scorer, Cases], None]) -> None:
    check(scorer, given(scorer))


def test_something_is_scored_and_what_is_scored_differs(scorer: Scorer) -> None:
    values = [o.value for o in scorer(*given(scorer)) if isinstance(o, Scored)]
    assert values
    # Rules may give noise and plain grounds the same; a random detector may find nothing.
    if scorer.card.name in {*WEIGHTS, *REPLIES, "hpsv3"} - {"geneval"}:
        assert len({round(v, 6) for v in values}) > 1


def test_the_card_is_complete(scorer: Scorer) -> None:
    card = SCORERS.load(scorer.card.name).card
    for field in ("name", "family", "what", "unit", "source", "licence", "preprocessing"):
        assert getattr(card, field), f"{card.name} has no {field}"
    assert card.family == scorer.card.family, "roles are given by the family before it is built"
    assert len(scorer.card.digest()) == 16


def test_a_family_is_not_a_name_of_two_lineages() -> None:
    """Two scorers of one family share weights or a rule; held-out judges rely on it."""
    families: dict[str, list[str]] = {}
    for name in SCORERS:
        families.setdefault(SCORERS.load(name).card.family, []).append(name)
    shared = {k: v for k, v in families.items() if len(v) > 1}
    assert shared == {
        "pp-ocr": ["ocr", "ocr-scene"],
        "tesseract": ["ocr-scene-tesseract", "ocr-tesseract"],
    }


def test_the_documented_server_computes_the_card_s_digest(tmp_path: Path) -> None:
    with documented_server(tmp_path) as url:
        health = httpx.get(f"{url}/health", trust_env=False).json()
    text = json.dumps(health["card"], sort_keys=True, separators=(",", ":"))
    assert health["digest"] == hashlib.sha256(text.encode()).hexdigest()[:16]
