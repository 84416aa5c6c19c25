"""What ``recast-eval judge`` does, as functions for notebooks: models in, records out."""

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from recast_eval.chat import key_from
from recast_eval.errors import ConfigError
from recast_eval.judging.asking import Asker
from recast_eval.judging.blocking import run_blocking
from recast_eval.judging.cards import Endpoint as CardEndpoint
from recast_eval.judging.cards import JudgeCard, Juror, Price, amended, load_card
from recast_eval.judging.derive import Tally, write_verdicts
from recast_eval.judging.executor import Options, RunReport, run_judge
from recast_eval.judging.limits import Limiter
from recast_eval.judging.money import (
    Estimate,
    Ledger,
    call_tokens,
    cap_problem,
    ledger_of,
    most_cost,
    question_tokens,
)
from recast_eval.judging.offline import Scores, offline_records
from recast_eval.judging.pairs import ImageSet, check_prompts, make_pairs
from recast_eval.judging.pictures import Vault
from recast_eval.judging.planning import Planner, spec_of
from recast_eval.judging.secrets import checked_url, is_openai, origin
from recast_eval.judging.store import ReplyStore, Run, Spec
from recast_eval.judging.transport import OpenAITransport, Transport
from recast_eval.records import (
    Manifest,
    digest,
    hardware,
    package_versions,
    read_json,
    write_json,
)

VERDICTS: Final = "verdicts.jsonl"
STORE: Final = "replies.sqlite"
LEDGER: Final = "ledger.json"
OFFLINE: Final = "jury-offline-v1"
DEFAULT_MODEL_JUDGE: Final = "pairwise-v1"
KEY_VARIABLE: Final = CardEndpoint().api_key_env


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a model answers. The key stays in the environment until the transport asks for it."""

    base_url: str
    model: str
    api_key_env: str | None = None
    """None: the variable that the judge's card names. Empty: no key is sent."""

    def connect(self) -> OpenAITransport:
        """A transport with the key from the environment.

        Raises:
            ConfigError: No request can carry that key.
        """
        variable = KEY_VARIABLE if self.api_key_env is None else self.api_key_env
        return OpenAITransport(self.base_url, key_from(variable) if variable else None)


@dataclass(frozen=True, slots=True)
class Seat:
    """One model under one card."""

    card: JudgeCard
    endpoint: Endpoint

    @property
    def spec(self) -> Spec:
        """Its name in the store."""
        return spec_of(self.card, self.endpoint.model, self.endpoint.base_url)


@dataclass(frozen=True, slots=True)
class Bench:
    """Everything that will be judged, and by whom."""

    cards: tuple[JudgeCard, ...]
    endpoint: Endpoint | None
    sets: tuple[ImageSet, ...]

    def members(self, card: JudgeCard) -> list[Seat]:
        """Who is asked for a card: itself, or the members of a jury of models.

        Raises:
            ConfigError: The jury could never come to a verdict.
        """
        if card.offline or self.endpoint is None:
            return []
        run = self.endpoint
        if run.api_key_env is None:
            run = replace(run, api_key_env=card.endpoint.api_key_env)
        if card.kind != "jury":
            return [Seat(card, run)]
        seats = [_seat(juror, run) for juror in card.jury]
        if problems := _unfit(card, seats):
            raise ConfigError(problems)
        return seats

    def seats(self) -> list[Seat]:
        """Everyone who is asked, each once.

        Juries come first: the latest setting of a judge is its face in the records, and a judge
        that is named itself should show its own setting and not that of a member.
        """
        cards = sorted(self.cards, key=lambda card: card.kind != "jury")
        found = {seat.spec.spec: seat for card in cards for seat in self.members(card)}
        return list(found.values())

    def names(self) -> list[str]:
        """What the judges of this bench are called in records."""
        asked = [seat.spec.judge for seat in self.seats()]
        return [*asked, *(card.name for card in self.cards if card.kind == "jury")]

    def juries(self) -> list[Spec]:
        """Juries of models."""
        return [
            Spec(
                spec=digest([card.digest, *(seat.spec.spec for seat in self.members(card))]),
                judge=card.name,
                card=card,
                model="",
                base_url="",
                members=tuple(seat.spec.spec for seat in self.members(card)),
            )
            for card in self.cards
            if card.kind == "jury" and not card.offline
        ]


def _seat(juror: Juror, run: Endpoint) -> Seat:
    """A juror's seat. At another origin it gets a key that was named for it, never the run's."""
    card = load_card(juror.judge or "")
    url = checked_url(juror.base_url or run.base_url)
    named = card.endpoint.api_key_env
    variable = juror.api_key_env or (None if named == KEY_VARIABLE else named)
    if variable is None and origin(url) == origin(run.base_url):
        variable = run.api_key_env
    if variable is None and is_openai(url):
        variable = KEY_VARIABLE
    return Seat(card, Endpoint(url, juror.model or run.model, variable or ""))


def _unfit(jury: JudgeCard, seats: Sequence[Seat]) -> list[str]:
    """Why no pair of images could get a verdict, however the members answer."""
    nested = [seat.card.name for seat in seats if seat.card.kind == "jury"]
    if nested:
        said = f"its members {', '.join(nested)} are juries: name their members instead"
        return [f"{jury.name}: {said}"]
    problems = []
    for axis in jury.axes:
        can = {s.card.family or s.endpoint.model for s in seats if axis in s.card.axes}
        if len(can) < jury.quorum:
            problems.append(
                f"{jury.name}: quorum {jury.quorum} on {axis!r}, but members of only {len(can)} "
                f"families ({', '.join(sorted(can)) or 'none'}) are asked about it"
            )
    if len({seat.card.repeats for seat in seats}) > 1:
        problems.append(f"{jury.name}: its members must all be asked equally often (`repeats`)")
    return problems


@dataclass(slots=True)
class Judged:
    """What came of it."""

    tally: Tally
    ledger: Ledger
    reports: dict[str, RunReport] = field(default_factory=dict)
    """Judge -> what its run did."""


def choose_cards(
    names: Sequence[str], *, has_endpoint: bool, repeats: int | None
) -> list[JudgeCard]:
    """Load the judges named, or the default: a model if there is an endpoint, else the jury."""
    chosen = list(names) or [DEFAULT_MODEL_JUDGE if has_endpoint else OFFLINE]
    cards = [load_card(name) for name in chosen]
    if repeats is not None:
        cards = [c if c.kind == "jury" else amended(c, repeats=repeats) for c in cards]
    return cards


def find_endpoint(
    cards: Sequence[JudgeCard], base_url: str | None, model: str | None
) -> Endpoint | None:
    """The endpoint for the cards that need one, from flags or the cards' variables.

    The key's variable is each card's own business.

    Raises:
        ConfigError: A card needs one, and the URL or the model is missing or malformed; or cards
            name different ones.
    """
    needing = [c for c in cards if not c.offline]
    if not needing:
        return None
    problems = []
    found: dict[tuple[str, str], str] = {}
    for card in needing:
        names = card.endpoint
        url = base_url or os.environ.get(names.base_url_env)
        name = model or os.environ.get(names.model_env)
        if not url:
            problems.append(f"{card.name} asks a model: give --base-url or {names.base_url_env}")
        if not name:
            problems.append(f"{card.name} asks a model: give --model or {names.model_env}")
        if url and name:
            found.setdefault((checked_url(url), name), card.name)
    if len(found) > 1:
        where = "; ".join(f"{card} at {url} ({name})" for (url, name), card in found.items())
        problems.append(f"{where}: judge once for each (--out keeps both), or give --base-url")
    if problems:
        raise ConfigError(problems)
    return Endpoint(*next(iter(found)))


def estimate(
    bench: Bench, out: Path, price: Price | None, *, batched: bool = False
) -> list[Estimate]:
    """Plan without asking, for each judge.

    Args:
        bench: Who and what.
        out: Folder of the evaluation.
        price: US dollars for a million tokens, if not as on the card.
        batched: Whether to leave out what a submitted batch is to bring.
    """
    from recast_eval.judging.batching import submitted_keys

    found = []
    with _store_to_look_at(out) as store:
        for seat in bench.seats():
            spec, card = seat.spec, seat.card
            waiting = submitted_keys(spec, store, out) if batched else ()
            planner = Planner(spec, Vault(card.images, store), store, elsewhere=waiting)
            plan = planner.plan(make_pairs(bench.sets), Run("", []), write=False)
            texts = [planner.question(*item).text_tokens for item in plan.pending]
            rate = price or card.prices.get(spec.model)
            sent, made = _sums(question_tokens(card, text) for text in texts)
            once = most_cost(_sums(call_tokens(card, text) for text in texts), rate)
            found.append(Estimate(spec, plan, sent, made, most_cost((sent, made), rate), once))
    return found


def _sums(tokens: Iterable[tuple[int, int]]) -> tuple[int, int]:
    sent = made = 0
    for one in tokens:
        sent, made = sent + one[0], made + one[1]
    return sent, made


@contextmanager
def _store_to_look_at(out: Path) -> Iterator[ReplyStore]:
    """The evaluation's store if there is one, else an empty one that is thrown away."""
    if (out / STORE).is_file():
        with ReplyStore(out / STORE) as store:
            yield store
        return
    with tempfile.TemporaryDirectory() as folder, ReplyStore(Path(folder) / STORE) as store:
        yield store


def judge(
    bench: Bench,
    out: Path,
    options: Options,
    *,
    scores: Scores | None = None,
    connect: Callable[[Endpoint], Transport] = Endpoint.connect,
    on_judge: Callable[[str], None] = lambda name: None,
) -> Judged:
    """Judge every pair with every judge, resume what is there, write ``verdicts.jsonl``.

    Works inside a running event loop too.

    Args:
        bench: What ``choose_cards``, ``find_endpoint`` and the image sets gave.
        out: Folder of the evaluation.
        options: How to run; ``max_cost`` covers all judges together.
        scores: Held-out scores, for an offline jury.
        connect: Makes the transport.
        on_judge: Told before each judge.

    Raises:
        ConfigError: A cost cap cannot be kept, or an endpoint cannot serve its judge.
    """
    if problems := cap_problems(bench, options.max_cost, options.price):
        raise ConfigError(problems)
    out.mkdir(parents=True, exist_ok=True)
    reports: dict[str, RunReport] = {}
    with ReplyStore(out / STORE) as store:
        spent = 0.0
        for seat in bench.seats():
            on_judge(seat.spec.judge)
            cap = None if options.max_cost is None else max(0.0, options.max_cost - spent)
            report = run_blocking(_run(seat, bench, store, connect, replace(options, max_cost=cap)))
            spent += report.spent
            reports[seat.spec.judge] = report
        for spec in bench.juries():
            store.register(spec)
        for card in bench.cards:
            if card.offline:
                on_judge(card.name)
                store.put_fixed(
                    card.name, offline_records(card, make_pairs(bench.sets), scores or {})
                )
        tally = write_verdicts(store, out / VERDICTS)
        ledger = ledger_of(store)
    write_json(out / LEDGER, ledger)
    _note_cards(out, bench)
    return Judged(tally, ledger, reports)


async def _run(
    seat: Seat,
    bench: Bench,
    store: ReplyStore,
    connect: Callable[[Endpoint], Transport],
    options: Options,
) -> RunReport:
    transport = connect(seat.endpoint)
    try:
        return await run_judge(seat.spec, make_pairs(bench.sets), store, transport, options)
    finally:
        await transport.aclose()


def batch(
    action: str,
    bench: Bench,
    out: Path,
    options: Options,
    connect: Callable[[Endpoint], OpenAITransport] = Endpoint.connect,
) -> tuple[list[str], Tally | None]:
    """Judge by the Batch API: ``write`` request files, ``submit`` them, ``collect`` the replies.

    Returns:
        Lines to show, and the tally once replies were collected.

    Raises:
        ConfigError: No such action, nothing to ask, or the requests may cost more than the cap.
    """
    if action not in ("write", "submit", "collect") or not bench.seats():
        raise ConfigError([f"--batch {action!r}: write, submit or collect, with a judge that asks"])
    _check_batch_cost(action, bench, out, options)
    out.mkdir(parents=True, exist_ok=True)
    with ReplyStore(out / STORE) as store:
        said = [
            line
            for seat in bench.seats()
            for line in run_blocking(_batch(action, seat, bench, out, store, options, connect))
        ]
        for spec in bench.juries():
            store.register(spec)
        if action != "collect":
            return said, None
        tally = write_verdicts(store, out / VERDICTS)
        write_json(out / LEDGER, ledger_of(store))
    return said, tally


def _check_batch_cost(action: str, bench: Bench, out: Path, options: Options) -> None:
    """A batch cannot be stopped half way: it fits under the cap as a whole, or nothing is sent."""
    from recast_eval.judging import batching

    if options.max_cost is None or action == "collect":
        return
    check_bench(bench, options.max_cost, options.price)
    if action == "write":
        most = sum(row.once for row in estimate(bench, out, options.price, batched=True))
    else:
        most = sum(
            most_cost(
                batching.written_tokens(seat.spec, out),
                options.price or seat.card.prices.get(seat.endpoint.model),
            )
            for seat in bench.seats()
        )
    if most > options.max_cost:
        raise ConfigError(
            [
                f"these requests may cost {most:.4f} USD, more than the cap of {options.max_cost} "
                "USD: raise --max-cost, judge fewer images, or use calls (no --batch), which stop "
                "at the cap"
            ]
        )


async def _batch(
    action: str,
    seat: Seat,
    bench: Bench,
    out: Path,
    store: ReplyStore,
    options: Options,
    connect: Callable[[Endpoint], OpenAITransport],
) -> list[str]:
    from recast_eval.judging import batching

    spec, transport = seat.spec, connect(seat.endpoint)
    vault = Vault(spec.card.images, store, cache_bytes=options.cache_bytes)
    price = options.price or spec.card.prices.get(spec.model)
    asker = Asker(spec.card, spec.model, transport, vault, Limiter(1), options.policy, price)
    try:
        if action == "write":
            plan, files = await batching.write_requests(spec, bench.sets, store, out, asker, vault)
            waiting = f", {plan.waiting} wait in submitted batches" if plan.waiting else ""
            return [f"{spec.judge}: {len(plan.pending)} requests in {len(files)} files{waiting}"]
        client = batching.OpenAIBatch(transport)
        if action == "submit":
            started = await batching.submit(spec, store, out, client)
            return [f"{spec.judge}: submitted {', '.join(started)}"]
        found = await batching.collect(spec, store, client, asker.reread(store, spec))
        return [
            f"{spec.judge}: {found.replies} replies of {found.done} batches",
            *(f"  not finished: {line}" for line in found.waiting),
        ]
    finally:
        await transport.aclose()


def _note_cards(out: Path, bench: Bench) -> None:
    """Add the judges' digests to the evaluation's manifest."""
    path = out / "manifest.json"
    digests = {f"judge/{card.name}": card.digest for card in bench.cards}
    if path.is_file():
        old = read_json(path, Manifest)
        write_json(path, old.model_copy(update={"digests": old.digests | digests}))
        return
    names = [s.model for s in bench.sets]
    write_json(
        path,
        Manifest(
            command=["recast-eval", "judge", "--pairwise", *names],
            versions=package_versions(),
            hardware=hardware(),
            digests=digests,
        ),
    )


def check_bench(bench: Bench, max_cost: float | None, price: Price | None) -> None:
    """All that can be wrong before a call, at once.

    Raises:
        ConfigError: Prompts do not match, a jury that cannot decide, a cap without a price, or
            one that is no number.
    """
    problems: list[str] = []
    try:
        check_prompts(bench.sets)
    except ConfigError as error:
        problems += error.problems
    try:
        bench.seats()
        problems += cap_problems(bench, max_cost, price)
    except ConfigError as error:
        problems += error.problems
    if problems:
        raise ConfigError(problems)


def cap_problems(bench: Bench, max_cost: float | None, price: Price | None) -> list[str]:
    """Why a cost cap cannot be kept, one line a reason."""
    problems = cap_problem(max_cost)
    if max_cost is not None and price is None:
        problems += [
            f"--max-cost needs a price for {seat.endpoint.model}: give --price IN,OUT (dollars a "
            f"million tokens) or `prices` in the card {seat.card.name}"
            for seat in bench.seats()
            if seat.endpoint.model not in seat.card.prices
        ]
    return problems
