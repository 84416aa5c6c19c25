"""Training prompts: a shipped set, or a file of one's own; each text once."""

from recast_eval.content.prompts import load_prompt_set
from recast_train.recipe_types import PromptsConfig


def load_prompts(config: PromptsConfig) -> list[str]:
    """Read the prompts of the sets' split, in file order, set after set.

    Raises:
        DataError: A file or a line is broken; names it.
        MissingError: There is no such set.
    """
    sets = [load_prompt_set(name, config.split) for name in (config.set, *config.also)]
    return list(dict.fromkeys(p.prompt for found in sets for p in found.prompts))
