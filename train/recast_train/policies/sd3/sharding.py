"""FSDP2 for what is frozen: each process keeps a share of every block and gathers it for use.

Adapters are left whole: they are small, and their gradients, optimiser and checkpoints then are
those of any other run. ``Accelerator.prepare`` would shard them too, and on a CPU it shards
nothing: hence ``fully_shard``, which is what it calls.
"""

from collections.abc import Iterable

from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import Module, Parameter

from recast_train import distributed


def shard_frozen(transformer: Module, keep: Iterable[Parameter], device: str) -> None:
    """Split a diffusers transformer over all processes, block by block, in place.

    From here on every process must make the same number of forwards.

    Args:
        transformer: Has ``transformer_blocks``; all of it on its device.
        keep: Parameters that stay whole everywhere.
        device: ``cpu`` or ``cuda``.
    """
    mesh = init_device_mesh(device, (distributed.world(),))
    whole = set(keep)
    blocks: Iterable[Module] = transformer.transformer_blocks  # type: ignore[assignment]
    for block in blocks:
        fully_shard(block, mesh=mesh, ignored_params=whole)
    fully_shard(transformer, mesh=mesh, ignored_params=whole)
