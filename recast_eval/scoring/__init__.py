"""Images of several models, drawn or given, and what scorers say of them."""

from recast_eval.scoring.collect import Collected, check_folders, collect_images
from recast_eval.scoring.drawing import Sampler
from recast_eval.scoring.folder import EvalFolder, open_folder
from recast_eval.scoring.plan import (
    EvalPlan,
    EvalResult,
    choose_samplers,
    load_prompts,
    run_evaluation,
)
from recast_eval.scoring.roles import STARTER_SCORERS, ChosenScorer, choose_scorers
from recast_eval.scoring.scores import ScoreResult, score_images
from recast_eval.scoring.sizes import note_sizes
from recast_eval.scoring.sources import ModelSource, find_sources, verify_checkpoint

__all__ = [
    "STARTER_SCORERS",
    "ChosenScorer",
    "Collected",
    "EvalFolder",
    "EvalPlan",
    "EvalResult",
    "ModelSource",
    "Sampler",
    "ScoreResult",
    "check_folders",
    "choose_samplers",
    "choose_scorers",
    "collect_images",
    "find_sources",
    "load_prompts",
    "note_sizes",
    "open_folder",
    "run_evaluation",
    "score_images",
    "verify_checkpoint",
]
