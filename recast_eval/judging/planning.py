"""From pairs to questions: pictures checked and messages rendered before anything is paid."""

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from recast_eval.errors import DataError
from recast_eval.judging.cards import JudgeCard
from recast_eval.judging.derive import best_reading
from recast_eval.judging.pairs import Pair, Picture
from recast_eval.judging.pictures import Checked, Vault
from recast_eval.judging.prompting import Message, render
from recast_eval.judging.store import PAID, AskRow, ReplyStore, Run, Spec
from recast_eval.records import digest

CHARACTERS_PER_TOKEN: Final = 3.0
"""Cautious for English."""
TOKENS_PER_SIGN: Final = 2.0
"""Cautious for what is not ASCII: Chinese, emoji."""

Facts = Callable[[Pair, Picture], str]
"""Describes a picture in words, for a judge that reads text only."""


@dataclass(frozen=True, slots=True)
class Question:
    """One call to make."""

    key: str
    message: Message
    images: tuple[Checked, ...]
    level: int
    prompt: str
    turn: int = 0
    """How often it was asked to an end before, in earlier runs."""

    @property
    def text_tokens(self) -> int:
        """Of the message without its pictures, by estimate."""
        return text_tokens(self.message.text(("", "")))


def text_tokens(text: str) -> int:
    """Tokens that a text takes at most, by estimate."""
    plain = len(text.encode("ascii", "ignore"))
    return round(plain / CHARACTERS_PER_TOKEN + (len(text) - plain) * TOKENS_PER_SIGN)


@dataclass(slots=True)
class Plan:
    """What there is to do."""

    pairs: int = 0
    questions: int = 0
    settled: int = 0
    """Questions whose reply is in the store already."""
    problems: list[str] = field(default_factory=list)
    """Pictures that cannot be shown: missing or damaged."""
    sizes: dict[str, set[tuple[int, int]]] = field(default_factory=dict)
    """Model -> sizes of its files."""
    waiting: int = 0
    """Questions whose reply is to come another way: they are in a submitted batch."""
    longest: int = 0
    """Tokens of text of the longest question, settled ones too."""
    pending: list[tuple[Pair, int, int]] = field(default_factory=list)
    """(pair, repeat, ordinal) of the questions to ask."""


def spec_of(card: JudgeCard, model: str, base_url: str) -> Spec:
    """Name a judge in one setting."""
    return Spec(
        spec=digest([card.digest, model, base_url]),
        judge=f"{card.name}@{model}",
        card=card,
        model=model,
        base_url=base_url,
    )


class Planner:
    """Makes questions of pairs, and remembers what is wrong with pictures.

    Args:
        spec: The judge.
        vault: Pictures.
        store: Replies.
        facts: For a card with layout ``none``.
        elsewhere: Keys of questions that are being asked another way: not to be asked.
    """

    def __init__(
        self,
        spec: Spec,
        vault: Vault,
        store: ReplyStore,
        facts: Facts | None = None,
        elsewhere: Collection[str] = (),
    ) -> None:
        self._elsewhere = elsewhere
        self.spec, self._vault, self._store, self._facts = spec, vault, store, facts
        self._checked: dict[tuple[str, str], Checked | str] = {}

    def plan(
        self,
        pairs: Iterable[Pair],
        run: Run,
        *,
        write: bool = True,
        on_pair: Callable[[], None] = lambda: None,
    ) -> Plan:
        """Check pictures, write the questions down (unless told not to), find those to ask."""
        found = Plan()
        seen: set[str] = set()
        kept: set[tuple[Any, ...]] = set()
        fresh = not self._store.any_calls()
        with ThreadPoolExecutor(2) as threads:
            for chunk in _chunks(pairs, 256):
                pictures = {self._name(p): p for pair in chunk for p in (pair.a, pair.b)}
                list(threads.map(self._check, pictures.values()))
                rows: list[AskRow] = []
                for pair in chunk:
                    found.pairs += 1
                    self._note(pair, found)
                    for repeat in range(self.spec.card.repeats):
                        rows += self._rows(pair, repeat, found, seen, run, fresh)
                    on_pair()
                if write:
                    self._store.plan(self.spec.spec, rows)
                    kept.update(row.name for row in rows)
        if write:
            self._store.forget_others(self.spec.spec, kept)
        return found

    def question(self, pair: Pair, repeat: int, ordinal: int) -> Question:
        """One question, for asking."""
        sides = self._sides(pair, ordinal)
        images = tuple(self._image(side) for side in sides)
        level = max(self._image(pair.a).level, self._image(pair.b).level)
        if self.spec.card.kind == "pointwise":
            level = images[0].level
        sent = tuple(self._vault.sent_digest(image, level) for image in images)
        facts: tuple[str, ...] = ()
        if self.spec.card.images.layout == "none":
            facts = tuple(self._facts(pair, side) if self._facts else "" for side in sides)
        message = render(self.spec.card, pair.prompt, sent, repeat=repeat, facts=facts)
        key = digest(
            [
                self.spec.card.digest,
                self.spec.model,
                self.spec.base_url,
                self.spec.card.decoding.model_dump(mode="json"),
                message.text(sent),
                list(sent),
                repeat,
            ],
            32,
        )
        return Question(key, message, images, level, pair.prompt)

    def _sides(self, pair: Pair, ordinal: int) -> tuple[Picture, ...]:
        both = (pair.a, pair.b) if ordinal == 0 else (pair.b, pair.a)
        return both[:1] if self.spec.card.kind == "pointwise" else both

    def _rows(
        self, pair: Pair, repeat: int, found: Plan, seen: set[str], run: Run, fresh: bool
    ) -> Iterator[AskRow]:
        card = self.spec.card
        problem = self._problem(pair)
        info = json.dumps(self._info(pair, problem), ensure_ascii=False)
        for ordinal in range(2 if card.both_orders or card.kind == "pointwise" else 1):
            sides = self._sides(pair, ordinal)
            question = None if problem else self.question(pair, repeat, ordinal)
            yield AskRow(
                pair.prompt_id,
                pair.sample,
                pair.a.model,
                pair.b.model,
                repeat,
                ordinal,
                question.key if question else None,
                question.message.nonce if question else None,
                sides[0].model,
                sides[1].model if len(sides) > 1 else "",
                info,
            )
            if question is None:
                continue
            found.questions += 1
            found.longest = max(found.longest, question.text_tokens)
            if question.key in seen or (not fresh and self.settled(question, run)):
                found.settled += 1
            elif question.key in self._elsewhere:
                found.waiting += 1
            else:
                found.pending.append((pair, repeat, ordinal))
            seen.add(question.key)

    def settled(self, question: Question, run: Run) -> bool:
        """Whether the store holds a verdict, or a paid failure of an interrupted run."""
        calls = self._store.calls(question.key)
        if not calls:
            return False
        read, _ = best_reading(
            self.spec, [call for _, call in calls], question.prompt, question.message.nonce
        )
        if read.reason is None:
            return True
        name, last = calls[-1]
        return last.final and last.state in PAID and name in (run.run, *run.trusted)

    def _info(self, pair: Pair, problem: tuple[str, str] | None) -> dict[str, Any]:
        def sha(side: Picture) -> str | None:
            found = self._checked.get(self._name(side))
            return found.sha256 if isinstance(found, Checked) else None

        return {
            "prompt": pair.prompt,
            "category": pair.category,
            "image_a": sha(pair.a),
            "image_b": sha(pair.b),
            "reason": problem[0] if problem else None,
            "detail": problem[1] if problem else "",
        }

    def _problem(self, pair: Pair) -> tuple[str, str] | None:
        for side in (pair.a, pair.b):
            if side.path is None:
                return "missing_image", side.problem
            found = self._checked[self._name(side)]
            if isinstance(found, str):
                return "image_error", found
        return None

    def _name(self, side: Picture) -> tuple[str, str]:
        return (side.model, str(side.path))

    def _image(self, side: Picture) -> Checked:
        found = self._checked[self._name(side)]
        if isinstance(found, str):
            raise DataError(found, path=side.path or self._store.path)
        return found

    def _check(self, side: Picture) -> None:
        name = self._name(side)
        if side.path is None or name in self._checked:
            return
        try:
            self._checked[name] = self._vault.check(side.path, side.sha256)
        except DataError as error:
            self._checked[name] = str(error)

    def _note(self, pair: Pair, found: Plan) -> None:
        problem = self._problem(pair)
        if problem and len(found.problems) < 1000:
            found.problems.append(f"{pair.prompt_id} sample {pair.sample}: {problem[1]}")
        for side in (pair.a, pair.b):
            image = self._checked.get(self._name(side))
            if isinstance(image, Checked):
                found.sizes.setdefault(side.model, set()).add(image.size)


def _chunks(pairs: Iterable[Pair], size: int) -> Iterator[list[Pair]]:
    stream = iter(pairs)
    while chunk := list(islice(stream, size)):
        yield chunk
