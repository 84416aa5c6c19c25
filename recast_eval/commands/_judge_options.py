"""The flags of ``recast-eval judge``: names and help, without what they do."""

from pathlib import Path
from typing import Annotated

import typer

Models = Annotated[
    list[str],
    typer.Argument(
        help="Two or more: image folders, checkpoints, or models of the evaluation in --out."
    ),
]
Pairwise = Annotated[
    bool, typer.Option("--pairwise", help="Compare every two of MODELS (the only way so far).")
]

# Who is asked
Judges = Annotated[
    list[str] | None,
    typer.Option("--judge", help="A judge card, by name or path; again for more."),
]
BaseUrl = Annotated[str | None, typer.Option(help="OpenAI-compatible endpoint, up to /v1.")]
Model = Annotated[str | None, typer.Option(help="Model id at the endpoint.")]
Repeats = Annotated[int | None, typer.Option(help="Ask each question so often.", min=1)]
Scorers = Annotated[
    str | None, typer.Option(help="Scorers of the offline jury, separated by commas.")
]

# What it may cost, and how it is asked
MaxCost = Annotated[
    float | None, typer.Option(help="Hard cap in US dollars; needs a price.", min=0)
]
PriceText = Annotated[
    str | None, typer.Option(help="IN,OUT: dollars for a million input and output tokens.")
]
DryRun = Annotated[bool, typer.Option(help="Count and estimate; ask nothing.")]
Batch = Annotated[
    str | None,
    typer.Option(help="OpenAI Batch API instead of calls: write, submit or collect."),
]
Concurrency = Annotated[int, typer.Option(help="Most calls at once.", min=1)]

# What is drawn where images are missing
Prompts = Annotated[
    str | None, typer.Option(help="Prompt sets, to draw from checkpoints; see score.")
]
Split = Annotated[str, typer.Option(help="Of the prompt sets.")]
Limit = Annotated[int | None, typer.Option(help="Use so many prompts of each set.")]
ImagesPerPrompt = Annotated[int, typer.Option(help="To draw.", min=1)]
Seed = Annotated[int, typer.Option(help="Of images that are drawn.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, ...: for drawing.")]
Out = Annotated[Path | None, typer.Option(help="Folder of the evaluation.")]
