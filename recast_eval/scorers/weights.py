"""Where a scorer's weights come from, and one clear error where they do not."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import Tensor

from recast_eval.errors import MissingError
from recast_eval.scorers.base import ScorerCard
from recast_eval.scorers.needed import Needed, troubles

FOLDER_VARIABLE = "RECAST_WEIGHTS"
_WRAPPED = "module."


def weights_folder() -> Path | None:
    """The user's folder of weights (``$RECAST_WEIGHTS``), a sub-folder a scorer; None if unset."""
    value = os.environ.get(FOLDER_VARIABLE)
    return Path(value).expanduser() if value else None


def locate(card: ScorerCard, weights: str | None) -> str:
    """Folder or hub id: the argument, else ``$RECAST_WEIGHTS/NAME``, else the card's."""
    if weights:
        return weights
    folder = weights_folder()
    if folder and (folder / card.name).is_dir():
        return str(folder / card.name)
    return card.weights


def how_to_get(card: ScorerCard) -> str:
    """What to type, or where to put files, so that this scorer finds its weights."""
    return (
        f"`hf download {card.weights}` where there is a network, or put its files in a folder "
        f"{card.name}/ and set {FOLDER_VARIABLE} to the folder above it"
    )


def check_files(card: ScorerCard, weights: str | None, parts: Sequence[Needed]) -> None:
    """Look for all files of a local folder before any is loaded; of a hub id, the hub sees to it.

    Libraries make up what is not there: a tokenizer without words, a model of default size.

    Raises:
        MissingError: One is missing or cannot be read; says what mends it.
    """
    folder = Path(locate(card, weights))
    if not folder.is_dir():
        return
    found = troubles(parts, folder, local=True)
    if found:
        what = "; ".join(dict.fromkeys(t.what for t in found))
        remedies = "; ".join(dict.fromkeys(t.remedy for t in found))
        raise MissingError(
            f"scorer {card.name}: {what}; {remedies}; or set {FOLDER_VARIABLE} to a folder whose "
            f"{card.name}/ is whole"
        )


def load_pretrained(cls: Any, card: ScorerCard, weights: str | None, **options: Any) -> Any:
    """``cls.from_pretrained`` from where the card's weights are; safetensors only.

    Raises:
        MissingError: They are not here; says how to get them. Or a model's file lacks tensors or
            has others of that name, which the library would replace by random numbers.
    """
    source = locate(card, weights)
    if not Path(source).is_dir() and card.revision:
        options["revision"] = card.revision
    is_model = "use_safetensors" in options
    if is_model:
        options["output_loading_info"] = True
    try:
        found = cls.from_pretrained(source, **options)
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise MissingError(
            f"scorer {card.name}: no usable weights at {source} ({reason}); {how_to_get(card)}"
        ) from error
    if not is_model:
        return found
    model, info = found
    lacking = sorted(info["missing_keys"])
    if lacking:
        raise MissingError(
            f"scorer {card.name}: the file at {source} lacks {len(lacking)} tensors of the model "
            f"({', '.join(lacking[:3])}), which would be random; {how_to_get(card)}"
        )
    return model


def unwrapped(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Names without the ``module.`` that training in several processes puts before every one."""
    if tensors and all(name.startswith(_WRAPPED) for name in tensors):
        return {name.removeprefix(_WRAPPED): value for name, value in tensors.items()}
    return dict(tensors)


def read_tensors(card: ScorerCard, weights: str | None, file_name: str) -> dict[str, Tensor]:
    """All tensors of one safetensors file of the scorer's folder.

    Raises:
        MissingError: The folder or the file is not here. Pickled checkpoints are never read:
            ``docs/scorers.md`` has the three lines that turn one into safetensors.
    """
    folder = Path(locate(card, weights))
    path = folder / file_name
    if not path.is_file():
        raise MissingError(
            f"scorer {card.name}: {path} is missing; {how_to_get(card)}. Published as a pickled "
            f".pt file, which is not read here: docs/scorers.md shows how to make {file_name} of it"
        )
    with safe_open(path, framework="pt") as file:
        return unwrapped({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118


def sized_config(cls: Any, card: ScorerCard, weights: str | None, published: Any) -> Any:
    """The folder's own ``config.json`` if it has one (small test models do), else ``published``."""
    folder = Path(locate(card, weights))
    return cls.from_pretrained(folder) if (folder / "config.json").is_file() else published


def load_into(model: Any, tensors: Mapping[str, Tensor], card: ScorerCard) -> None:
    """Load all of a model's tensors, no more and no fewer.

    Raises:
        MissingError: Names or shapes differ; lists the first few.
    """
    own = {k: tuple(v.shape) for k, v in model.state_dict().items() if "position_ids" not in k}
    given = {k: tuple(v.shape) for k, v in tensors.items() if "position_ids" not in k}
    wrong = sorted(k for k in own.keys() | given.keys() if own.get(k) != given.get(k))
    if wrong:
        facts = ", ".join(f"{k}: file {given.get(k)}, model {own.get(k)}" for k in wrong[:3])
        raise MissingError(
            f"scorer {card.name}: the weights do not fit the model ({len(wrong)} tensors; {facts})"
        )
    model.load_state_dict(dict(tensors), strict=False)
