"""Comparisons as counts, and the utilities of Davidson's model that go with them."""

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from scipy import sparse

from recast_eval.stats.checks import Ids, clusters, outcomes


@dataclass(frozen=True, slots=True)
class Battles:
    """Comparisons as counts: by prompt, by cell (who was first, who second), by outcome."""

    models: list[Hashable]
    cells: Int[np.ndarray, "cell 2"]
    counts: Float[np.ndarray, "prompt cell outcome"]
    features: Float[np.ndarray, "cell outcome parameter"]
    has_order: bool
    has_tie: bool
    component: Int[np.ndarray, " model"]

    @property
    def shares(self) -> Float[np.ndarray, "prompt cell outcome"]:
        """Counts with each prompt worth one comparison for an unordered pair of models."""
        ids = {frozenset(pair): n for n, pair in enumerate(map(tuple, self.cells.tolist()))}
        pair = np.array([ids[frozenset(p)] for p in map(tuple, self.cells.tolist())])
        shares = np.zeros_like(self.counts)
        for number in set(pair.tolist()):
            own = self.counts[:, pair == number]
            total = own.sum(axis=(1, 2), keepdims=True)
            shares[:, pair == number] = own / np.maximum(total, 1)
        return shares

    @property
    def levels(self) -> Float[np.ndarray, "component parameter"]:
        """A row for each group of linked models: all its ratings up by one changes no chance."""
        rows = np.arange(self.component.max() + 1)[:, None] == self.component
        padded = np.zeros((len(rows), self.features.shape[2]))
        padded[:, : len(self.models)] = rows
        return padded

    def carried_by_one(self) -> Float[np.ndarray, "parameter direction"]:
        """Directions that the comparisons of all prompts but some one say nothing about.

        Leave out the cells that only one prompt has: what the others then no longer fix was
        fixed by that prompt alone, and one prompt cannot say how far prompts differ.
        """
        seen = self.counts.sum(axis=2) > 0
        gains = self.features[:, 1:] - self.features[:, :1]  # an outcome over the first
        grams = np.einsum("cok,col->ckl", gains, gains)
        whole = grams.sum(axis=0) + self.levels.T @ self.levels
        only = seen.sum(axis=0) == 1
        groups = {
            seen[p, only].tobytes(): seen[p] & only for p in np.unique(seen[:, only].nonzero()[0])
        }
        found = [np.zeros((len(whole), 0))]
        for own in groups.values():
            values, vectors = np.linalg.eigh(whole - grams[own].sum(axis=0))
            found.append(vectors[:, values < 1e-9 * len(seen[0])])
        return np.concatenate(found, axis=1)


def tabulate(
    first: Ids,
    second: Ids,
    outcome: ArrayLike,
    prompts: Ids | None,
    order_effect: bool,
) -> Battles:
    """Count the comparisons; an order effect needs a pair that was seen in both orders.

    Raises:
        ValueError: As ``davidson``.
    """
    found = outcomes(outcome, "outcomes")
    one, two = _names(first, len(found)), _names(second, len(found))
    codes = clusters(range(len(found)) if prompts is None else prompts, len(found))
    number: dict[Hashable, int] = {}
    for name in (*one, *two):
        number.setdefault(name, len(number))
    slots = np.array([[number[a], number[b]] for a, b in zip(one, two, strict=True)])
    same = np.flatnonzero(slots[:, 0] == slots[:, 1])
    if same.size:
        raise ValueError(f"a model does not meet itself, got {one[same[0]]!r} twice")
    cells, cell = np.unique(slots, axis=0, return_inverse=True)
    counts = np.zeros((codes.max() + 1, len(cells), 3))
    np.add.at(counts, (codes, cell.ravel(), (2 - 2 * found).astype(int)), 1)
    counts = counts[:, :, [0, 2, 1]]  # first wins, second wins, tie
    has_tie = bool(counts[:, :, 2].any())
    seen = set(map(tuple, cells.tolist()))
    has_order = order_effect and any((b, a) in seen for a, b in seen)
    links = sparse.coo_array(
        (np.ones(len(cells)), (cells[:, 0], cells[:, 1])), shape=(len(number),) * 2
    )
    component = sparse.csgraph.connected_components(links, directed=False)[1]
    features = utilities(cells, len(number), has_order=has_order, has_tie=has_tie)
    kept = counts if has_tie else counts[:, :, :2]
    return Battles(list(number), cells, kept, features, has_order, has_tie, component)


def _names(models: Ids, length: int) -> list[Hashable]:
    names = models.tolist() if isinstance(models, np.ndarray) else list(models)
    if len(names) != length:
        raise ValueError(f"a comparison has two models, got {len(names)} for {length} outcomes")
    for name in names:
        if name is None or name != name:
            raise ValueError(f"a model id is a name or a number, got {name!r}")
    return names


def utilities(
    cells: Int[np.ndarray, "cell 2"], models: int, *, has_order: bool, has_tie: bool
) -> Float[np.ndarray, "cell outcome parameter"]:
    """Utilities: r_first + order, r_second, log nu + their mean."""
    features = np.zeros((len(cells), 2 + has_tie, models + has_order + has_tie))
    rows = np.arange(len(cells))
    features[rows, 0, cells[:, 0]] = 1
    features[rows, 1, cells[:, 1]] = 1
    if has_order:
        features[:, 0, models] = 1
    if has_tie:
        features[rows, 2, cells[:, 0]] = features[rows, 2, cells[:, 1]] = 0.5
        features[:, 2, -1] = 1
    return features
