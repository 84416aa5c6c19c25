"""Reward heads as published: stacks of linear layers with dropouts, which do nothing here."""

import re
from collections.abc import Mapping

import torch
from torch import Tensor, nn


def mlp_head(tensors: Mapping[str, Tensor], prefix: str) -> nn.Sequential:
    """Rebuild a linear stack from its tensors, in the order of their numbers.

    Args:
        tensors: ``PREFIX.N.weight`` (out, in) and ``PREFIX.N.bias``; gaps in N are dropouts.
        prefix: What stands before the number.

    Raises:
        ValueError: There are no such tensors, or widths do not join.
    """
    numbers = sorted(
        int(m[1]) for k in tensors if (m := re.fullmatch(rf"{re.escape(prefix)}\.(\d+)\.weight", k))
    )
    if not numbers:
        raise ValueError(f"no tensors called {prefix}.N.weight among {sorted(tensors)[:4]}")
    layers, width = [], tensors[f"{prefix}.{numbers[0]}.weight"].shape[1]
    for number in numbers:
        weight, bias = tensors[f"{prefix}.{number}.weight"], tensors[f"{prefix}.{number}.bias"]
        if weight.shape[1] != width:
            raise ValueError(f"{prefix}.{number} takes {weight.shape[1]} numbers, not {width}")
        width = weight.shape[0]
        layer = nn.Linear(weight.shape[1], width)
        with torch.no_grad():
            layer.weight.copy_(weight)
            layer.bias.copy_(bias)
        layers.append(layer)
    return nn.Sequential(*layers).eval().requires_grad_(False)
