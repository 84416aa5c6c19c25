"""Which scorer may call itself held out: none whose family was trained on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from recast_eval.content.prompts import Prompt
from recast_eval.errors import ConfigError, MissingError, PluginError
from recast_eval.scorers import SCORERS, Scorer, ScorerSpec
from recast_eval.scorers.world import parse_caption
from recast_eval.scoring.sources import ModelSource, describe

Role = Literal["train", "heldout"]
STARTER_SCORERS: Final = (
    "composition",
    "ocr",
    "alignment",
    "finish",
    "ocr-tesseract",
    "alignment-heldout",
    "card-distance",
    "verifier",
)
"""Rewards and judges of the starter's world: the default where the prompts are its captions."""


@dataclass(frozen=True, slots=True)
class ChosenScorer:
    """A scorer, ready, and what its numbers may be used for."""

    name: str
    scorer: Scorer
    role: Role


Recorded = Mapping[str, Mapping[str, Any]]
"""Model -> what an evaluation's manifest says of it (``sources.describe``)."""


def trained_families(recorded: Recorded) -> frozenset[str]:
    """Families that any of the models was trained on: one role a scorer, whatever the model."""
    return frozenset(
        family for facts in recorded.values() for family in (facts.get("rewards") or {}).values()
    )


def family_of(scorer: str, cards: Recorded) -> str | None:
    """Family of a scorer on record: by its recorded card, else by the one here; None unknown."""
    recorded = cards.get(scorer, {}).get("family")
    if recorded is not None:
        return str(recorded)
    try:
        return SCORERS.load(scorer).card.family
    except PluginError:
        return None


def choose_scorers(
    sources: Sequence[ModelSource],
    prompts: Sequence[Prompt],
    *,
    names: Sequence[str] = (),
    heldout: Sequence[str] = (),
    device: str = "cpu",
    recorded: Recorded | None = None,
) -> tuple[list[ChosenScorer], list[str]]:
    """Load the scorers of an evaluation and give each its role.

    Args:
        sources: The models.
        prompts: Their prompts; they decide the default.
        names: Scorers asked for; empty is the default: those of the checkpoints' cards and,
            for captions of cards, all of the starter's.
        heldout: Scorers that must be held out; they are added to ``names``.
        device: Where models among them run.
        recorded: Models that the evaluation holds already: what they were trained on counts too.

    Returns:
        The scorers, and a sentence for each default one that cannot run here and each that a
        recipe called held out by its override: it is a training metric here.

    Raises:
        ConfigError: A name is unknown, or must be held out but shares a family with a reward.
        MissingError: A scorer that was asked for cannot run here.
    """
    asked = list(dict.fromkeys([*names, *heldout]))
    wanted = asked if names else list(dict.fromkeys([*_default(sources, prompts), *heldout]))
    if not wanted:
        raise ConfigError(["--judges: name some, the prompts are not the starter's captions"])
    specs = _load(wanted)
    models = {**(recorded or {}), **{s.name: describe(s) for s in sources}}
    families = trained_families(models)
    promised = _promised(models)
    problems = [
        f"{name}: cannot be held out, its family {specs[name].card.family!r} was trained on by "
        f"{_who(models, specs[name].card.family)}; take a judge of another family"
        for name in wanted
        if name in {*heldout, *promised} and specs[name].card.family in families
    ]
    if problems:
        raise ConfigError(problems)
    chosen, notes = [], _overridden(sources, specs, families)
    for name in wanted:
        try:
            scorer = specs[name].build(device=device)
        except MissingError as error:
            if name in asked:
                raise
            notes.append(f"{name} is left out: {error}")
            continue
        role: Role = "train" if specs[name].card.family in families else "heldout"
        chosen.append(ChosenScorer(name, scorer, role))
    return chosen, notes


def _promised(models: Recorded) -> set[str]:
    """Judges that recipes promised; not where an override is, or none could be on record."""
    return {
        name
        for facts in models.values()
        if facts.get("allow_shared_family") == ""
        for name in facts.get("heldout", ())
    }


def _overridden(
    sources: Sequence[ModelSource], specs: Mapping[str, ScorerSpec], families: frozenset[str]
) -> list[str]:
    """What the recipes' overrides let through, in words for the record."""
    return [
        f"{name} is no held-out judge: the recipe of {s.name} shares its family with a reward, "
        f"for this reason: {s.card.allow_shared_family}"
        for s in sources
        if s.card and s.card.allow_shared_family
        for name in s.card.heldout
        if name in specs and specs[name].card.family in families
    ]


def _default(sources: Sequence[ModelSource], prompts: Sequence[Prompt]) -> list[str]:
    named = [n for s in sources if s.card for n in (*s.card.rewards, *s.card.heldout)]
    if any(parse_caption(p.prompt) for p in prompts):
        named += STARTER_SCORERS
    return named


def _load(names: Sequence[str]) -> dict[str, ScorerSpec]:
    specs, problems = {}, []
    for name in names:
        try:
            specs[name] = SCORERS.load(name)
        except PluginError as error:
            problems.append(str(error))
    if problems:
        raise ConfigError(problems)
    return specs


def _who(models: Recorded, family: str) -> str:
    return ", ".join(
        f"{model} (reward {name})"
        for model, facts in models.items()
        for name, other in (facts.get("rewards") or {}).items()
        if other == family
    )
