"""YAML that people write, read by one door: safe values, no key twice, one kind of error."""

from typing import Any

import yaml


class _UniqueLoader(yaml.SafeLoader):
    """A safe loader that does not let the second of two equal keys win in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [k.value for k, _ in node.value if isinstance(k, yaml.ScalarNode)]
        if twice := [k for k in dict.fromkeys(keys) if keys.count(k) > 1]:
            raise yaml.MarkedYAMLError(
                problem=f"key {twice[0]!r} is given twice", problem_mark=node.start_mark
            )
        return super().construct_mapping(node, deep=deep)


def parse_yaml(text: str) -> Any:
    """The value of a YAML text.

    Raises:
        ValueError: It has none; the message is one short line. YAML's own constructors let
            through what Python says of an impossible date, an empty or too long number, or a
            tag that does not fit.
    """
    try:
        return yaml.load(text, Loader=_UniqueLoader)  # noqa: S506 - a SafeLoader
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error
    except (yaml.YAMLError, ValueError, AttributeError) as error:
        said = " ".join(str(error).split())[:300]
        raise ValueError(f"the value is no YAML ({said})") from error
