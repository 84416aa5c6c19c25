"""All that the sections of a report draw on, computed once."""

from collections.abc import Sequence
from dataclasses import dataclass

from recast_eval.reporting.battles import BattleTable, battle_table
from recast_eval.reporting.inputs import Evaluation, Inputs, Run
from recast_eval.reporting.scores import Pair, ScoreTable, aggregate, all_pairs, score_table


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as the images' records or the verdicts give it."""

    text: str
    category: str | None


@dataclass(frozen=True, slots=True)
class EvaluationFacts:
    """An evaluation with its statistics."""

    evaluation: Evaluation
    models: tuple[str, ...]
    reference: str
    """The model that others are seen against: the base if there is one."""
    focus: Pair | None
    """The pair that the report is about; None with one model."""
    pairs: tuple[Pair, ...]
    prompts: dict[str, Prompt]
    categories: tuple[str, ...]
    scores: ScoreTable
    aggregate: ScoreTable
    """All training rewards of an image together, weighted by the runs' budgets."""
    battles: BattleTable

    @property
    def source(self) -> str:
        """The command that made it, as its manifest gives it."""
        return command_of(self.evaluation)


@dataclass(frozen=True, slots=True)
class Facts:
    """The whole report."""

    inputs: Inputs
    runs: tuple[Run, ...]
    evaluations: tuple[EvaluationFacts, ...]


def command_of(thing: Run | Evaluation) -> str:
    """The command in its manifest, as one line; empty if it has none."""
    return " ".join(thing.manifest.command) if thing.manifest else ""


def gather(inputs: Inputs) -> Facts:
    """Compute the statistics of every evaluation."""
    return Facts(
        inputs,
        inputs.runs,
        tuple(evaluation_facts(evaluation, inputs.runs) for evaluation in inputs.evaluations),
    )


def evaluation_facts(evaluation: Evaluation, runs: Sequence[Run] = ()) -> EvaluationFacts:
    """Choose what to compare, then compare it."""
    found = evaluation.models
    reference = find_reference(found)
    models = tuple(sorted(found, key=lambda name: name != reference))
    focus = find_focus(models, runs)
    pairs = all_pairs(models, focus)
    prompts = _prompts(evaluation)
    categories = tuple(sorted({p.category for p in prompts.values() if p.category is not None}))
    return EvaluationFacts(
        evaluation,
        models,
        reference,
        focus,
        pairs,
        prompts,
        categories,
        score_table(evaluation.scores, models, pairs),
        score_table(aggregate(evaluation.scores, _budgets(runs)), models, pairs),
        battle_table(evaluation.verdicts, pairs, focus, categories),
    )


def _budgets(runs: Sequence[Run]) -> dict[str, float]:
    """What the runs wanted, if they all wanted the same; else nothing: rewards weigh alike."""
    found = [run.budgets for run in runs if run.budgets]
    return found[0] if found and all(b == found[0] for b in found) else {}


def find_reference(models: Sequence[str]) -> str:
    """The model called base, else one with base in its name, else the first."""
    for test in (lambda n: n == "base", lambda n: "base" in n.lower()):
        for name in models:
            if test(name):
                return name
    return models[0] if models else ""


def find_focus(models: Sequence[str], runs: Sequence[Run] = ()) -> Pair | None:
    """The pair to lead with: ReCAST against static if both are there, else last against first."""
    if len(models) < 2:
        return None
    kinds = {run.name.rsplit("/", 1)[-1]: run.credit_kind for run in runs}

    def named(word: str) -> list[str]:
        return [m for m in models if word in m.lower() or word in kinds.get(m, "").lower()]

    static = [m for m in named("static") if m not in named("recast")]
    if named("recast") and static:
        return named("recast")[0], static[0]
    return models[-1], models[0]


def run_of(model: str, runs: Sequence[Run]) -> Run | None:
    """The run that made a model: equal names, or the model's name begins with the run's."""
    for run in runs:
        short = run.name.rsplit("/", 1)[-1]
        if model in (run.name, short) or model.startswith(
            (f"{short}@", f"{short}/", f"{short}-step")
        ):
            return run
    return None


def _prompts(evaluation: Evaluation) -> dict[str, Prompt]:
    found: dict[str, Prompt] = {}
    for records in evaluation.images.values():
        for image in records:
            found.setdefault(image.prompt_id, Prompt(image.prompt, image.category))
    for verdict in evaluation.verdicts:
        found.setdefault(verdict.prompt_id, Prompt(verdict.prompt, verdict.category))
    for score in evaluation.scores:
        found.setdefault(score.prompt_id, Prompt("", None))
    return found
