"""Read a recipe: all problems at once, before anything is loaded."""

import reprlib
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from pydantic import TypeAdapter, ValidationError

from recast_eval.content.yaml_text import parse_yaml
from recast_eval.errors import ConfigError, PluginError
from recast_eval.plugins import Registry
from recast_eval.records import digest
from recast_eval.scorers import SCORERS, ScorerSpec
from recast_train.aggregators import AGGREGATORS
from recast_train.aggregators.base import AggregatorSpec
from recast_train.credit import CREDITS
from recast_train.credit.base import CreditSpec
from recast_train.methods import METHODS
from recast_train.methods.base import MethodSpec
from recast_train.policies import POLICIES
from recast_train.policies.base import PolicySpec
from recast_train.recipe_types import Recipe, truths_for_numbers

_SHORT = reprlib.Repr()
"""Values in messages: aliases can make a small file's value fill gigabytes."""
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother = 2, 200, 200


class ScorerBook(Protocol):
    """Where scorers are looked up: the registry, or a test's own."""

    def load(self, name: str) -> ScorerSpec:
        """The scorer called ``name``."""
        ...


@dataclass(frozen=True, slots=True)
class Plan:
    """A recipe whose every part was found and checked."""

    recipe: Recipe
    policy: PolicySpec
    policy_config: Any
    method: MethodSpec
    method_config: Any
    credit: CreditSpec
    credit_config: Any
    aggregator: AggregatorSpec
    aggregator_config: Any
    rewards: dict[str, ScorerSpec]

    @property
    def budgets(self) -> np.ndarray:
        """(K,) normalised to sum to 1, in the recipe's order."""
        raw = np.array([r.budget for r in self.recipe.rewards.values()], dtype=np.float64)
        shares: np.ndarray = raw / raw.sum()
        return shares

    @property
    def scales(self) -> np.ndarray:
        """(K,) factors on raw rewards, in the recipe's order."""
        return np.array([r.scale for r in self.recipe.rewards.values()], dtype=np.float64)

    @property
    def solver(self) -> str:
        """The rollout's solver, named."""
        return self.recipe.sampler.solver or self.policy.solvers[0]

    def values(self) -> dict[str, Any]:
        """The whole recipe as JSON values, defaults written out."""
        found = asdict(self.recipe)
        for key, spec, config in (
            ("model", self.policy, self.policy_config),
            ("method", self.method, self.method_config),
            ("credit", self.credit, self.credit_config),
            ("aggregator", self.aggregator, self.aggregator_config),
        ):
            found[key] = {"kind": spec.name, **asdict(config)}
        return typing.cast(dict[str, Any], _plain(found))

    def digest(self) -> str:
        """Name this run by its content: the same on every machine."""
        return digest(self.values())


def load_plan(path: Path, overrides: Sequence[str] = (), *, scorers: ScorerBook = SCORERS) -> Plan:
    """Read a recipe and find all that it names.

    Args:
        path: YAML file.
        overrides: ``a.b=value`` each, laid over the file; the value is YAML.
        scorers: Where rewards and held-out judges are looked up.

    Raises:
        ConfigError: With every problem: file, key path, value, and the nearest right name.
    """
    return make_plan(read_yaml(path), overrides, source=str(path), scorers=scorers)


def make_plan(
    values: dict[str, Any],
    overrides: Sequence[str] = (),
    *,
    source: str = "recipe",
    scorers: ScorerBook = SCORERS,
) -> Plan:
    """Check a recipe's values; see ``load_plan``.

    Raises:
        ConfigError: With every problem.
    """
    problems: list[str] = []
    merged = _override(values, overrides, problems)
    recipe = _validate(Recipe, merged, "", problems)
    if recipe is None:
        raise ConfigError([f"{source}: {p}" for p in problems])
    problems += recipe.problems()
    blocks = {
        "policy": _block(POLICIES, "model", {"kind": "sd3", **recipe.model}, problems),
        "method": _block(METHODS, "method", recipe.method, problems),
        "credit": _block(CREDITS, "credit", {"kind": "static", **recipe.credit}, problems),
        "aggregator": _block(
            AGGREGATORS, "aggregator", {"kind": "weighted-sum", **recipe.aggregator}, problems
        ),
    }
    for key, (_, config) in blocks.items():
        if hasattr(config, "clashes"):
            block = "model" if key == "policy" else key
            problems += [f"{block}.{p}" for p in config.clashes(recipe)]
    rewards = _cards(recipe, scorers, problems)
    if all(spec is not None for spec, _ in blocks.values()):
        specs = {k: spec for k, (spec, _) in blocks.items()}
        problems += _mismatches(recipe, specs, blocks["method"][1])
    if problems:
        raise ConfigError([f"{source}: {p}" for p in problems])
    found = {key: spec for key, (spec, _) in blocks.items()}
    configs = {f"{key}_config": config for key, (_, config) in blocks.items()}
    return Plan(recipe=recipe, rewards=rewards, **found, **configs)


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a mapping; a key that is given twice is an error.

    Raises:
        ConfigError: The file is missing, no YAML, or no mapping.
    """
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError as error:
        raise ConfigError([f"{path}: no such file"]) from error
    except (UnicodeDecodeError, OSError) as error:
        raise ConfigError([f"{path}: {' '.join(str(error).split())}"]) from error
    found = _parse(text, str(path))
    if not isinstance(found, dict):
        raise ConfigError([f"{path}: must be a mapping of keys, got {type(found).__name__}"])
    return found


def _parse(text: str, where: str) -> Any:
    try:
        return parse_yaml(text)
    except ValueError as error:
        raise ConfigError([f"{where}: {error}"]) from error


def _override(values: dict[str, Any], sets: Sequence[str], problems: list[str]) -> dict[str, Any]:
    merged = deepcopy(values)
    for text in sets:
        key, equals, value = text.partition("=")
        parts = key.split(".")
        if not equals or not all(parts):
            problems.append(f"--set {text}: must be key.path=value")
            continue
        place = merged
        for part in parts[:-1]:
            inner = place.setdefault(part, {})
            if not isinstance(inner, dict):
                inner = place[part] = {"budget": inner} if parts[0] == "rewards" else {}
            place = inner
        try:
            place[parts[-1]] = _parse(value, f"--set {_SHORT.repr(text)}")
        except ConfigError as error:
            problems += error.problems
    return merged


def _block(
    registry: Registry[Any], key: str, block: Mapping[str, Any], problems: list[str]
) -> tuple[Any, Any]:
    """The plug-in that ``kind`` names and its validated config, or (None, None)."""
    if "kind" not in block:
        problems.append(f"{key}.kind: is missing; one of {', '.join(registry)}")
        return None, None
    try:
        spec = registry.load(str(block["kind"]))
    except PluginError as error:
        problems.append(f"{key}.kind: {error}")
        return None, None
    rest = {k: v for k, v in block.items() if k != "kind"}
    known = [f.name for f in fields(spec.config)]
    if strange := [k for k in rest if k not in known]:
        # here, as a plug-in's dataclass need not forbid them itself
        problems += [_unknown(f"{key}.{k}", str(k), known) for k in strange]
        return None, None
    config = _validate(spec.config, rest, key, problems)
    if config is not None and hasattr(config, "problems"):
        problems += [f"{key}.{p}" for p in config.problems()]
    return (None, None) if config is None else (spec, config)


def _validate(kind: type, values: Any, prefix: str, problems: list[str]) -> Any:
    if truths := list(truths_for_numbers(kind, values, prefix)):
        problems += truths
        return None
    try:
        return TypeAdapter(kind).validate_python(values)
    except ValidationError as error:
        problems += [_say(kind, prefix, dict(item)) for item in error.errors()]
        return None


def _say(kind: type, prefix: str, item: dict[str, Any]) -> str:
    where = [str(part) for part in item["loc"]]
    path = ".".join(filter(None, (prefix, *where)))
    if item["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        return _unknown(path, where[-1], _known_keys(kind, where[:-1]))
    if item["type"] in ("missing", "missing_argument", "missing_keyword_only_argument"):
        return f"{path}: is missing"
    return f"{path}: {item['msg']}, got {_SHORT.repr(item['input'])}"


def _unknown(path: str, key: str, known: Sequence[str]) -> str:
    if not known:
        return f"{path}: unknown key; there are none here"
    near = get_close_matches(key, known) or sorted(known)
    return f"{path}: unknown key; did you mean {', '.join(near)}?"


def _known_keys(kind: Any, where: Sequence[str]) -> list[str]:
    """Fields of the dataclass that a key path leads to."""
    for part in where:
        kind = typing.get_type_hints(kind).get(part, kind) if is_dataclass(kind) else kind
        inner = [a for a in typing.get_args(kind) if is_dataclass(a)]
        if typing.get_origin(kind) in (dict, typing.Union, types.UnionType) and inner:
            kind = inner[0]
    return [f.name for f in fields(kind)] if is_dataclass(kind) else []


def _cards(recipe: Recipe, scorers: ScorerBook, problems: list[str]) -> dict[str, ScorerSpec]:
    """The rewards' specs; notes unknown names and families on both sides of the fence."""
    found: dict[str, ScorerSpec] = {}
    families: dict[str, str] = {}
    for name in recipe.rewards:
        try:
            found[name] = scorers.load(name)
            families[found[name].card.family] = name
        except PluginError as error:
            problems.append(f"rewards.{name}: {error}")
    for judge in recipe.heldout:
        try:
            family = scorers.load(judge).card.family
        except PluginError as error:
            problems.append(f"heldout: {error}")
            continue
        if family in families and not recipe.allow_shared_family:
            problems.append(
                f"heldout: {judge} shares the model family {family!r} with the reward "
                f"{families[family]}, so it is not held out; choose another, or say why it may "
                "in allow_shared_family"
            )
    return found


def _mismatches(recipe: Recipe, specs: Mapping[str, Any], method_config: Any) -> Iterator[str]:
    """Pairs that make no sense together, by name."""
    policy, method, aggregator = specs["policy"], specs["method"], specs["aggregator"]
    if method.policy_kind != policy.policy_kind:
        yield (
            f"method.kind: {method.name} trains {method.policy_kind} policies, "
            f"but model.kind {policy.name} is {policy.policy_kind}"
        )
    if recipe.sampler.solver and recipe.sampler.solver not in policy.solvers:
        yield (
            f"sampler.solver: {policy.name} has {', '.join(policy.solvers)}, "
            f"got {recipe.sampler.solver!r}"
        )
    if specs["credit"].name == "fixed-columns" and method.policy_kind == "masked":
        yield f"credit.kind: fixed-columns, but {method.name} weights its steps itself"
    # A method that adds noise brings a stochastic step of its own; others use the policy's solvers.
    own = "" if hasattr(method_config, "noise_level") else getattr(method_config, "solver", "")
    if own and own not in policy.solvers:
        yield f"method.solver: {policy.name} has {', '.join(policy.solvers)}, got {own!r}"
    if recipe.mode == "pre" and aggregator.name != "weighted-sum":
        yield (
            "mode: pre mixes raw rewards before there are advantages, "
            f"so {aggregator.name} has nothing to balance; use mode advantage"
        )


def _plain(value: Any) -> Any:
    """Tuples as lists, mappings as dicts: what JSON and YAML can say."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value
