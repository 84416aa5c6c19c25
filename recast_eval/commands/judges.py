"""``recast-eval judges``: list judge cards, or print one."""

from typing import Annotated

import typer


def judges(
    name: Annotated[str | None, typer.Argument(help="Print this card and its prompt.")] = None,
) -> None:
    """List the judge cards that ship, or print one whole."""
    from recast_eval.judging.cards import card_names, load_card

    if name is None:
        for key in card_names():
            card = load_card(key)
            typer.echo(f"{key:20s} {card.kind:9s} {card.digest}  {card.what}")
        return
    card = load_card(name)
    for key, value in card.model_dump(mode="json", exclude={"template_text"}).items():
        typer.echo(f"{key}: {value}")
    typer.echo(f"digest: {card.digest}")
    if card.template_text:
        typer.echo(f"\n{card.template_text}")
