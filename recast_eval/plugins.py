"""One registry class for scorers, judges, methods, aggregators, credits and plots.

A file is a plug-in: each module of a package is one entry, named after the file
with dashes (``clip_score.py`` is ``clip-score``). Other distributions add theirs
with an entry point. Listing names imports nothing.
"""

import pkgutil
from collections.abc import Iterator
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Generic, TypeVar, cast

from recast_eval.errors import PluginError

T = TypeVar("T")


class Registry(Generic[T]):
    """Names to objects, loaded on first use.

    Args:
        group: Entry-point group, e.g. ``recast.scorers``. A name that is taken
            twice is an error: nothing is overridden in silence.
        package: Dotted name of the package whose modules are the built-ins.
        attribute: What each of these modules calls its plug-in.
    """

    def __init__(self, group: str, package: str, attribute: str) -> None:
        self._group, self._package, self._attribute = group, package, attribute

    def _targets(self) -> dict[str, str]:
        spec = find_spec(self._package)
        if spec is None or spec.submodule_search_locations is None:
            raise PluginError(f"{self._group}: {self._package} is no package")
        found = {
            module.name.replace("_", "-"): f"{self._package}.{module.name}:{self._attribute}"
            for module in pkgutil.iter_modules(spec.submodule_search_locations)
            if not module.name.startswith("_") and module.name != "base"
        }
        for point in entry_points(group=self._group):
            if found.setdefault(point.name, point.value) != point.value:
                raise PluginError(
                    f"{self._group} {point.name!r} is both {found[point.name]} and {point.value}"
                )
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._targets()))

    def __contains__(self, name: object) -> bool:
        return name in self._targets()

    def load(self, name: str) -> T:
        """Import and return the object called ``name``.

        Raises:
            PluginError: The name is unknown, or its module does not import.
        """
        targets = self._targets()
        if name not in targets:
            near = get_close_matches(name, targets) or sorted(targets)
            raise PluginError(f"no {self._group} {name!r}; did you mean {', '.join(near)}?")
        module, _, attribute = targets[name].partition(":")
        try:
            return cast(T, getattr(import_module(module), attribute))
        except (ImportError, AttributeError) as error:
            raise PluginError(f"{self._group} {name!r} ({targets[name]}): {error}") from error
