"""People as judges: a blind page to vote on, and the votes back into the evaluation.

The page shows pictures and prompts and holds no model name, file name or verdict; which model
was on which side stays in a key beside it. It is one file that works without any network.
"""

import base64
import hashlib
import json
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from recast_eval.content import content
from recast_eval.errors import ConfigError, DataError
from recast_eval.images import encode_for_judge, load_image
from recast_eval.judging.audit import VOTES, image_sets, read_votes
from recast_eval.judging.audit_records import Vote
from recast_eval.judging.pairs import Pair, Picture, make_pairs
from recast_eval.judging.review_records import Ballot, KeyedPair, ReviewKey
from recast_eval.records import digest, read_json, write_atomic, write_json

FOLDER: Final = "review"
SIDE: Final = 768
"""Longer side of a picture in the page, in pixels."""
BUDGET: Final = 40 * 2**20
"""Bytes of all pictures in a page, as base64 text."""
QUESTIONS: Final = {
    "overall": "All things considered, which picture is the better answer to the prompt?",
    "faithfulness": "Which picture shows what the prompt asks for?",
    "aesthetics": "Which picture looks better, whatever the prompt asks for?",
}


@dataclass(frozen=True, slots=True)
class Page:
    """A page that was written."""

    path: Path
    key: Path
    pairs: int
    left_out: int
    """Pairs chosen that did not fit into the budget or have a damaged picture."""


def write_page(
    folder: Path,
    *,
    models: Sequence[str] = (),
    count: int = 50,
    axis: str = "overall",
    seed: int = 0,
    budget: int = BUDGET,
    on_pair: Callable[[], None] = lambda: None,
) -> Page:
    """Write a page with a random sample of pairs, one a prompt as far as prompts go.

    Args:
        folder: The evaluation.
        models: Which to compare; all if fewer than two are given.
        count: Pairs on the page.
        axis: What is asked.
        seed: Draws pairs, sides and their sequence.
        budget: Most bytes of pictures.
        on_pair: Called for each pair.

    Raises:
        ConfigError: No such model or axis, or fewer than two models.
    """
    rng = np.random.default_rng(seed)
    chosen = _choose(_pairs(folder, models, axis), count, rng)
    shown: list[dict[str, str]] = []
    keyed: dict[str, KeyedPair] = {}
    spent = 0
    for pair in chosen:
        on_pair()
        left, right = (pair.a, pair.b) if rng.random() < 0.5 else (pair.b, pair.a)
        pictures = _pictures(left, right)
        size = sum(map(len, pictures))
        if not pictures or spent + size > budget:
            continue
        spent += size
        name = f"{len(shown) + 1:04d}"
        prompt = "".join(c for c in pair.prompt if c in "\n\t" or unicodedata.category(c) != "Cc")
        shown.append({"id": name, "prompt": prompt, "left": pictures[0], "right": pictures[1]})
        keyed[name] = KeyedPair(
            prompt_id=pair.prompt_id, sample=pair.sample, left=left.model, right=right.model
        )
    if not shown:
        raise ConfigError([f"{folder}: no pair has two whole pictures"])
    page = digest([axis, *([s["prompt"], s["left"], s["right"]] for s in shown)], length=12)
    out = folder / FOLDER
    out.mkdir(exist_ok=True)
    paths = out / f"{page}.html", out / f"{page}.key.json"
    write_json(paths[1], ReviewKey(page=page, axis=axis, pairs=keyed))
    write_atomic(paths[0], _render(page, axis, shown))
    return Page(*paths, len(shown), len(chosen) - len(shown))


def _pictures(*sides: Picture) -> list[str]:
    """Both pictures, or none if one of them is damaged."""
    try:
        return [_picture(side.path) for side in sides if side.path is not None]
    except DataError:
        return []


def _pairs(folder: Path, models: Sequence[str], axis: str) -> list[Pair]:
    sets = image_sets(folder)
    names = [s.model for s in sets]
    problems = [
        f"no images of model {m!r}; here are {', '.join(names)}" for m in models if m not in names
    ]
    if axis not in QUESTIONS:
        problems.append(f"no axis {axis!r}; there are {', '.join(QUESTIONS)}")
    if len(sets) < 2 or len(models) == 1:
        problems.append(f"{folder}: a review compares two models or more, got {models or names}")
    if problems:
        raise ConfigError(problems)
    kept = [s for s in sets if not models or s.model in models]
    return [p for p in make_pairs(kept) if p.a.path is not None and p.b.path is not None]


def _choose(pairs: list[Pair], count: int, rng: np.random.Generator) -> list[Pair]:
    """Draw pairs; every prompt once before any twice."""
    mixed = [pairs[i] for i in rng.permutation(len(pairs))]
    seen: dict[str, int] = {}
    turns = []
    for pair in mixed:
        turns.append(seen.get(pair.prompt_id, 0))
        seen[pair.prompt_id] = turns[-1] + 1
    return [mixed[i] for i in np.argsort(turns, kind="stable")[:count]]


def _picture(path: Path) -> str:
    """A ``data:`` address of the pixels; nothing of the file but its look."""
    pixels = load_image(path).pixels
    small = max(pixels.shape[:2]) <= 128
    data = encode_for_judge(pixels, max_side=SIDE, format="png" if small else "webp", quality=92)
    kind = "png" if small else "webp"
    return f"data:image/{kind};base64,{base64.b64encode(data).decode('ascii')}"


def _render(page: str, axis: str, shown: Sequence[dict[str, str]]) -> str:
    folder = content("reports") / FOLDER
    env = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = (folder / "review.js").read_text("utf-8").strip()
    style = (folder / "review.css").read_text("utf-8").strip()
    own = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    data = json.dumps({"page": page, "pairs": list(shown)}, allow_nan=False)
    for sign, code in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):
        data = data.replace(sign, code)
    return env.get_template("review.html.j2").render(
        question=QUESTIONS[axis],
        policy=f"default-src 'none'; script-src 'sha256-{own}'; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'",
        style=Markup(style),  # noqa: S704 - shipped with us
        script=Markup(script),  # noqa: S704 - shipped with us
        data=Markup(data),  # noqa: S704 - cannot close its script tag
    )


@dataclass(frozen=True, slots=True)
class Imported:
    """What came in."""

    new: int
    changed: int
    """Votes that replace an earlier one of the same person on the same pair."""
    total: int
    """Votes in the evaluation now."""


def import_votes(folder: Path, ballots: Sequence[Path]) -> Imported:
    """Read ballots of this evaluation's pages into ``votes.jsonl``.

    Raises:
        DataError: A ballot is no ballot, or belongs to a page that was not written here.
    """
    votes = {vote.key(): vote for vote in read_votes(folder / VOTES)}
    new = changed = 0
    for path in ballots:
        ballot = read_json(path, Ballot)
        key = _key_of(folder, ballot.page, path)
        for given in ballot.votes:
            shown = key.pairs.get(given.pair)
            if shown is None:
                raise DataError(f"page {key.page} has no pair {given.pair!r}", path=path)
            low, high = sorted((shown.left, shown.right))
            sides = {"left": shown.left, "right": shown.right, "tie": None}
            vote = Vote(
                voter=ballot.voter,
                prompt_id=shown.prompt_id,
                sample=shown.sample,
                model_a=low,
                model_b=high,
                axis=key.axis,
                winner=sides[given.choice],
                first=shown.left,
                page=key.page,
                seconds=given.seconds,
            )
            old = votes.get(vote.key())
            new += old is None
            changed += old is not None and old != vote
            votes[vote.key()] = vote
    write_atomic(folder / VOTES, "".join(v.model_dump_json() + "\n" for v in votes.values()))
    return Imported(new, changed, len(votes))


def _key_of(folder: Path, page: str, ballot: Path) -> ReviewKey:
    known = {
        path.name.removesuffix(".key.json"): path for path in (folder / FOLDER).glob("*.key.json")
    }
    if page not in known:
        raise DataError(
            f"page {page!r} was not written here; pages are {', '.join(sorted(known)) or 'none'}",
            path=ballot,
        )
    return read_json(known[page], ReviewKey)
