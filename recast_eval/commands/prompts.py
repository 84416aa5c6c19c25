"""``recast-eval prompts``: list prompt sets, print one, make the shipped ones again."""

import json
from pathlib import Path
from typing import Annotated

import typer


def prompts(
    name: Annotated[
        str | None, typer.Argument(help="Print the prompts of this set or file.")
    ] = None,
    split: Annotated[str, typer.Option(help="train, validation or test.")] = "test",
    make: Annotated[
        Path | None, typer.Option(help="Write the shipped sets, made from their seed, here.")
    ] = None,
) -> None:
    """List the prompt sets, or print one."""
    from recast_eval.content.prompts import SPLITS, load_prompt_set, prompt_sets
    from recast_eval.errors import ConfigError

    if make is not None:
        _make(make)
        return
    if name is None:
        for key, card in prompt_sets().items():
            counts = ", ".join(f"{s} {n}" for s, n in card.splits.items())
            typer.echo(f"{key:18s} {card.what} [{counts}; {card.licence}]")
        return
    if split not in SPLITS:
        raise ConfigError([f"--split {split!r}: must be one of {', '.join(SPLITS)}"])
    for prompt in load_prompt_set(name, split).prompts:
        typer.echo(f"{prompt.prompt_id}\t{prompt.category}\t{prompt.prompt}")


def _make(folder: Path) -> None:
    from recast_eval.records import write_atomic
    from recast_eval.scorers.photo_prompts import PHOTO_SETS
    from recast_eval.scorers.world.prompt_sets import STARTER_SETS

    for name, maker in {**STARTER_SETS, **PHOTO_SETS}.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for split, rows in maker().items():
            path = folder / name / f"{split}.jsonl"
            write_atomic(path, "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows))
            typer.echo(f"{path}: {len(rows)} prompts")
