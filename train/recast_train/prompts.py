"""Training prompts: a shipped set, or a file of one's own; each text once."""

from recast_eval.content.prompts import load_prompt_set
from recast_train.recipe_types import PromptsConfig


def load_prompts(config: PromptsConfig) -> list[str]:
    """Read the prompts of a set's split, in file order.

    Raises:
        DataError: A file or a line is broken; names it.
        MissingError: There is no such set.
    """
    found = load_prompt_set(config.set, config.split)
    return list(dict.fromkeys(p.prompt for p in found.prompts))
