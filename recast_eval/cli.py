"""``recast-eval``: verbs and paths; every knob that changes a number is in a file."""

import recast_eval.commands
from recast_eval.console import build_app, run_app


def main() -> None:
    """Entry point of ``recast-eval``."""
    run_app(build_app(recast_eval.commands, "Score, judge, audit and report on image models."))
