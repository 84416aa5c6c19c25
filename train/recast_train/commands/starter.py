"""``recast-train starter``: the small real SD3 that ships with the package."""

from pathlib import Path
from typing import Annotated

import typer

starter = typer.Typer(no_args_is_help=True, help="The starter model.")


@starter.command()
def build(
    out: Annotated[Path, typer.Option(help="Where the diffusers folder goes.")] = Path("starter"),
    work: Annotated[Path, typer.Option(help="Resumable state.")] = Path("runs/starter-work"),
    vae_steps: Annotated[int, typer.Option(help="Autoencoder steps.")] = 1200,
    steps: Annotated[int, typer.Option(help="Transformer steps.")] = 5200,
    seed: Annotated[int, typer.Option(help="Of data, weights and noise.")] = 0,
) -> None:
    """Rebuild the starter from nothing; the same command resumes after any stop."""
    from recast_train.starter.build import build_starter

    build_starter(work, out, vae_steps=vae_steps, steps=steps, seed=seed)


@starter.command()
def where() -> None:
    """Print the folder of the shipped starter, a plain diffusers pipeline."""
    from recast_eval.content import content

    typer.echo(content("train/starter"))


@starter.command()
def towers(
    out: Annotated[Path, typer.Option(help="Gets the safetensors files.")] = Path("scorers"),
    work: Annotated[Path, typer.Option(help="Resumable state.")] = Path("runs/starter-towers"),
    steps: Annotated[
        int | None, typer.Option(help="Batches of 64 cards for each; default as shipped.")
    ] = None,
) -> None:
    """Train the two image-text scorers again: the reward and the held-out judge."""
    from recast_train.starter.towers import build_towers

    for name, facts in build_towers(work, out, steps=steps).items():
        typer.echo(f"{name}: " + ", ".join(f"{k} {v:.3f}" for k, v in facts.items()))
