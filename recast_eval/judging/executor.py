"""Run a judge over pairs: plan, look at the endpoint, ask, write down. Survives being killed."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final, TypeVar

from recast_eval.errors import ConfigError, DataError
from recast_eval.judging.asking import Answered, Asker, not_asked, ours
from recast_eval.judging.cards import Price
from recast_eval.judging.limits import Budget, Limiter
from recast_eval.judging.money import Bound, cap_problem
from recast_eval.judging.pairs import Pair
from recast_eval.judging.pictures import Vault
from recast_eval.judging.planning import Facts, Plan, Planner, Question
from recast_eval.judging.preflight import Unreachable, look_at
from recast_eval.judging.retrying import RetryPolicy
from recast_eval.judging.store import CallRow, ReplyStore, Run, Spec
from recast_eval.judging.transport import Transport

log = logging.getLogger(__name__)
T = TypeVar("T")

GIVE_UP_AFTER: Final = 20
"""Questions in a row that the endpoint left unanswered: then nothing more is asked."""
_FLUSH_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Options:
    """How a judge is run; nothing here changes a verdict."""

    concurrency: int = 16
    max_cost: float | None = None
    price: Price | None = None
    policy: RetryPolicy = field(default_factory=RetryPolicy)
    facts: Facts | None = None
    cache_bytes: int = 64 * 2**20
    on_planned: Callable[[Plan], None] = lambda plan: None
    on_answer: Callable[[Answered], None] = lambda answer: None


@dataclass(slots=True)
class RunReport:
    """What one invocation did."""

    plan: Plan
    asked: int = 0
    lost: int = 0
    """Questions claimed and not answered when an earlier process died: at most so many were
    in flight."""
    stopped: str = ""
    """Why nothing more was asked, if that happened."""
    spent: float = 0.0
    peak: int = 0
    runs: tuple[str, ...] = ()


async def run_judge(
    spec: Spec,
    pairs: Iterable[Pair],
    store: ReplyStore,
    transport: Transport,
    options: Options,
) -> RunReport:
    """Ask what is not known yet, and leave every question in a final state.

    Raises:
        ConfigError: The endpoint cannot serve this judge, or a cost cap cannot be kept; nothing
            was asked.
    """
    problems = cap_problem(options.max_cost)
    if options.max_cost is not None and (options.price or spec.card.prices.get(spec.model)) is None:
        problems.append(f"a cost cap needs a price for {spec.model}")
    if problems:
        raise ConfigError(problems)
    store.register(spec)
    with store.running(spec.spec) as run:
        return await _run(spec, pairs, store, transport, options, run)


async def _run(
    spec: Spec,
    pairs: Iterable[Pair],
    store: ReplyStore,
    transport: Transport,
    options: Options,
    run: Run,
) -> RunReport:
    vault = Vault(spec.card.images, store, cache_bytes=options.cache_bytes)
    planner = Planner(spec, vault, store, options.facts)
    plan = await asyncio.to_thread(planner.plan, pairs, run)
    options.on_planned(plan)
    report = RunReport(plan, lost=run.lost, runs=(run.run, *run.trusted))
    report.spent = store.spent(report.runs).known
    if plan.pending:
        if waiting := store.open_batches(spec.spec):
            log.warning(
                "%s: %d batches are not collected; what they hold is asked and paid again: "
                "run --batch collect first",
                spec.judge,
                len(waiting),
            )
        session = _Session(spec, planner, vault, store, transport, options, run, report)
        try:
            await look_at(transport, spec.model)
        except Unreachable as error:
            report.stopped = str(error)
        await session.ask_all()
    return report


class _Session:
    """The moving parts of one run."""

    def __init__(
        self,
        spec: Spec,
        planner: Planner,
        vault: Vault,
        store: ReplyStore,
        transport: Transport,
        options: Options,
        run: Run,
        report: RunReport,
    ) -> None:
        self.spec, self.planner, self.store = spec, planner, store
        self.options, self.run, self.report = options, run, report
        self.price = options.price or spec.card.prices.get(spec.model)
        self.limiter = Limiter(options.concurrency)
        self.bound = Bound(spec.card, self.price)
        self.budget = Budget(options.max_cost, spent=self._spent_before())
        self.asker = Asker(
            spec.card, spec.model, transport, vault, self.limiter, options.policy, self.price
        )
        self.lease = spec.card.timeout_s * options.policy.attempts * 2 + 600
        self._rows: list[CallRow] = []
        self._closing = False
        self._unanswered = 0
        self._todo: asyncio.Queue[Question | None] = asyncio.Queue(options.concurrency)

    def _spent_before(self) -> float:
        """US dollars of the runs that this one goes on with; unknown as what may be set aside."""
        before, longest = self.store.spent(self.report.runs), self.report.plan.longest
        unknown = before.untold * self.bound.question(longest)
        return before.known + unknown + before.lost * self.bound.call(longest)

    async def ask_all(self) -> None:
        """Ask and write until every pending question has a final row.

        Raises:
            DataError: The store cannot be written: asking ends at once, nothing more is paid for.
        """
        writer = asyncio.create_task(self._write())
        asking = asyncio.create_task(self._ask())
        try:
            await asyncio.wait({writer, asking}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            self.report.spent, self.report.peak = self.budget.spent, self.limiter.peak
            self._closing = True
            await self._written(writer)
        await asking  # its own error, if it ended by one

    async def _ask(self) -> None:
        """Feed the workers, and wait for them."""
        workers: list[asyncio.Task[None]] = []
        try:
            deferred: list[tuple[Pair, int, int]] = []
            for chunk in _chunks(self.report.plan.pending, max(16, 2 * self.options.concurrency)):
                questions, busy = await asyncio.to_thread(self._claim, chunk)
                deferred += busy
                while questions and not workers:
                    # Steps down alone, before the crowd comes; under a cap, until it is known
                    # what the pictures take.
                    await self._one(questions.pop(0))
                    if self.budget.cap is None or self.bound.heard:
                        workers = self._crowd()
                for question in questions:
                    await self._todo.put(question)
            for _ in workers:
                await self._todo.put(None)
            for worker in workers:
                await worker
            await self._wait_for_others(deferred)
        except BaseException:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            raise

    def _crowd(self) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(self._work()) for _ in range(self.options.concurrency)]

    def _claim(
        self, chunk: list[tuple[Pair, int, int]]
    ) -> tuple[list[Question], list[tuple[Pair, int, int]]]:
        """Questions that are ours to ask, and those that another process is asking."""
        questions = [self.planner.question(*item) for item in chunk]
        got = self.store.claim([q.key for q in questions], self.run, self.lease)
        told = self.store.answered_by_others(sorted(got), self.run)
        turns = self.store.turns(sorted(got))
        mine, busy, done = [], [], []
        for item, question in zip(chunk, questions, strict=True):
            if question.key not in got:
                busy.append(item)
            elif question.key in told and self.planner.settled(question, self.run):
                done.append(question.key)  # another process finished it since we planned
            else:
                mine.append(replace(question, turn=turns.get(question.key, 0)))
        if done:
            self.store.release(done)
        return mine, busy

    async def _wait_for_others(self, deferred: list[tuple[Pair, int, int]]) -> None:
        """Questions that another live process was asking: see whether it did, else ask."""
        said = False
        while deferred:
            questions, deferred = await asyncio.to_thread(self._claim, deferred)
            for question in questions:
                await self._one(question)
            if deferred:
                if not said:
                    holders = self.store.holders([self.planner.question(*d).key for d in deferred])
                    log.warning("waiting for %s", "; ".join(holders) or "another process")
                    said = True
                await asyncio.sleep(0.5)

    async def _work(self) -> None:
        while (question := await self._todo.get()) is not None:
            await self._one(question)

    async def _one(self, question: Question) -> None:
        """One item, isolated: whatever happens to it, the run goes on."""
        words = question.text_tokens
        while True:
            most = self.bound.question(words)
            if self.report.stopped:
                self._rows.append(not_asked(question.key, "transport", self.report.stopped))
                return
            if self.budget.reserve(most):
                break
            if not await self.budget.freed():  # what the others leave over may be enough
                detail = f"the cost cap of {self.options.max_cost} USD is reached"
                self._rows.append(not_asked(question.key, "budget", detail))
                return
        self.report.asked += 1
        self.run.on_way.add(question.key)
        cost: float | None = None

        def emit(row: CallRow) -> None:
            if row.reply is not None:
                self.bound.learn(row.usage, words)
            self._rows.append(row)

        try:
            answer = await self.asker.ask(question, emit)
            cost = answer.cost
            self._mind(answer)
            self.options.on_answer(answer)
        except Exception as error:
            log.exception("question %s failed on our side", question.key)
            self._rows.append(ours(question.key, error))
        finally:
            self.budget.settle(most, cost)
        self.run.on_way.discard(question.key)  # not reached by an interrupt: it may be paid for

    def _mind(self, answer: Answered) -> None:
        """Give up on an endpoint that answers nothing more."""
        if answer.trouble is None or answer.trouble == "filtered":
            self._unanswered = 0
            return
        self._unanswered += 1
        if answer.trouble == "denied" or self._unanswered >= GIVE_UP_AFTER:
            if not self.report.stopped:
                log.error("nothing more is asked: %s", answer.detail)
            self.report.stopped = self.report.stopped or answer.detail

    async def _write(self) -> None:
        """The one writer: many rows, one transaction."""
        while not (self._closing and not self._rows):
            if self._rows:
                await self._flush()
            if not self._closing:
                await asyncio.sleep(_FLUSH_S)

    async def _flush(self) -> None:
        rows = list(self._rows)
        await asyncio.to_thread(self.store.write, self.run, rows)
        del self._rows[: len(rows)]  # only now: what could not be written is still there

    async def _written(self, writer: asyncio.Task[None]) -> None:
        try:
            await writer
        except DataError:
            with suppress(DataError):
                await self._flush()  # it was paid for, and there may be room again
            raise


def _chunks(items: list[T], size: int) -> Iterator[list[T]]:
    stream = iter(items)
    while chunk := list(islice(stream, size)):
        yield chunk
