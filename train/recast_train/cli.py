"""``recast-train``: verbs and paths; every knob that changes a number is in a recipe."""

import recast_train.commands
from recast_eval.console import build_app, run_app


def main() -> None:
    """Entry point of ``recast-train``."""
    run_app(build_app(recast_train.commands, "Train one diffusion model on several rewards."))
