"""Scorers: used in training as rewards, or held out as judges."""

from recast_eval.plugins import Registry
from recast_eval.scorers.base import Scorer, ScorerCard, ScorerFactory, ScorerSpec

SCORERS: Registry[ScorerSpec] = Registry("recast.scorers", "recast_eval.scorers.models", "SPEC")

__all__ = ["SCORERS", "Scorer", "ScorerCard", "ScorerFactory", "ScorerSpec"]
