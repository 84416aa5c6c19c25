"""Find what ships beside the code: cards, prompts, templates, recipes, the starter."""

from importlib.resources import files
from pathlib import Path
from typing import Literal

from recast_eval.errors import MissingError

Folder = Literal[
    "judges", "prompts", "reports", "train/recipes", "train/starter", "train/starter-masked"
]


def content(folder: Folder) -> Path:
    """Return a shipped folder: inside an installed wheel, else in the checkout.

    Raises:
        MissingError: Neither holds it.
    """
    shipped = Path(str(files("recast_eval"))).joinpath("_shipped", *folder.split("/"))
    if shipped.is_dir():
        return shipped
    checkout = Path(__file__).resolve().parents[2] / folder
    if checkout.is_dir():
        return checkout
    raise MissingError(f"{folder}/ is neither in {shipped} nor in {checkout}: install again")
