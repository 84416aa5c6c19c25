"""Two LoRA adapters on one transformer: ``new`` is trained, ``old`` draws."""

import json
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from diffusers.loaders.lora_base import LORA_ADAPTER_METADATA_KEY, LORA_WEIGHT_NAME_SAFE
from peft import LoraConfig
from peft.tuners.lora.layer import Linear
from peft.tuners.tuners_utils import BaseTunerLayer
from safetensors.torch import load_file, save_file
from torch import Generator, Tensor
from torch.distributed.tensor import DTensor
from torch.nn import Module, Parameter

from recast_eval.errors import ConfigError
from recast_eval.records import write_atomic
from recast_train.policies.base import Who
from recast_train.policies.sd3.config import LoraBlock

WEIGHTS = "adapter_model.safetensors"
_PREFIX = "base_model.model."


class Adapters:
    """The adapters of a diffusers transformer, switched without touching ``requires_grad``.

    Args:
        transformer: A diffusers model with PEFT support; adapters are added to it.
        config: Rank, targets and where to start.
        generator: Draws the first A; B starts at 0, so that ``new`` starts as the base model.

    Raises:
        ConfigError: A target names no module, or ``continue_from`` does not fit.
    """

    def __init__(self, transformer: Module, config: LoraBlock, generator: Generator) -> None:
        self._transformer = transformer
        self.lora = LoraConfig(
            r=config.rank,
            lora_alpha=config.alpha,
            target_modules=list(config.targets),
            lora_dropout=0.0,
            bias="none",
        )
        transformer.requires_grad_(False)
        with warnings.catch_warnings():
            # PEFT warns of a second adapter, in case one forgot the first.
            warnings.filterwarnings("ignore", "Already found a `peft_config`", UserWarning)
            for name in ("new", "old"):
                try:
                    transformer.add_adapter(self.lora, adapter_name=name)  # type: ignore[operator]
                except ValueError as error:
                    raise ConfigError([f"model.lora.targets: {error}"]) from error
        self._layers = [m for m in transformer.modules() if isinstance(m, BaseTunerLayer)]
        self.new = self._named("new")
        self.old = self._named("old")
        for parameter in (*self.new.values(), *self.old.values()):
            # PEFT follows the base: in bfloat16 a small optimiser step would be rounded away.
            parameter.data = parameter.data.float()
        self._begin(config, generator)
        for parameter in self.old.values():
            parameter.requires_grad_(False)
        for parameter in self.new.values():
            parameter.requires_grad_(True)
        self._merged: Who | None = None
        self._compared: tuple[int, ...] = ()
        self._equal = False

    def _named(self, adapter: str) -> dict[str, Parameter]:
        ending = f".{adapter}.weight"
        return {
            name.replace(ending, ".weight"): parameter
            for name, parameter in self._transformer.named_parameters()
            if name.endswith(ending) and "lora_" in name
        }

    @torch.no_grad()
    def _begin(self, config: LoraBlock, generator: Generator) -> None:
        start = None if config.continue_from is None else _read(Path(config.continue_from), config)
        for name, parameter in self.new.items():
            if start is None:
                if "lora_A" in name:
                    draw = torch.randn(parameter.shape, generator=generator) / config.rank
                    parameter.copy_(draw)
                else:
                    parameter.zero_()
            elif name not in start or start[name].shape != parameter.shape:
                raise ConfigError(
                    [f"model.lora.continue_from: {config.continue_from} has no fitting {name}"]
                )
            else:
                parameter.copy_(start[name])
            self.old[name].copy_(parameter)

    @contextmanager
    def use(self, who: Who) -> Iterator[None]:
        """Compute with some weights inside the block, with ``new`` after it.

        PEFT's own ``set_adapter`` freezes all others, and a parameter that is frozen when the
        backward pass reaches it gets no gradient, in silence: hence the two attributes.
        """
        if self._merged not in (None, who):
            raise ValueError(f"{self._merged} is merged into the base, {who} cannot be used")
        off = who == "reference" or self._merged is not None
        self._switch("new" if who == "reference" else who, off=off)
        try:
            yield
        finally:
            self._switch("new", off=False)

    def _switch(self, name: str, *, off: bool) -> None:
        for layer in self._layers:
            layer._active_adapter = [name]
            layer._disable_adapters = off

    @contextmanager
    def merged(self, who: Who) -> Iterator[None]:
        """Hold an adapter inside the base weights: two small products fewer a layer.

        Inside the block only ``who`` can be used, without graph. Half-precision weights would
        round the change away, and a share of sharded ones fits no product: they are left.
        The base tensors are put aside and back, since subtracting the change again would not
        restore their last bits.
        """
        pairs = [
            (layer, layer.get_base_layer()) for layer in self._layers if isinstance(layer, Linear)
        ]
        exact = all(
            base.weight.dtype == torch.float32 and not isinstance(base.weight, DTensor)
            for _, base in pairs
        )
        if len(pairs) < len(self._layers) or not exact:
            yield
            return
        before = [base.weight.data for _, base in pairs]
        with torch.no_grad():
            for layer, base in pairs:
                base.weight.data = base.weight.data + layer.get_delta_weight(who)
        self._merged = who
        try:
            yield
        finally:
            self._merged = None
            for (_, base), weight in zip(pairs, before, strict=True):
                base.weight.data = weight

    @property
    def on_policy(self) -> bool:
        """Whether ``old`` holds the very numbers of ``new``."""
        versions = tuple(p._version for p in (*self.new.values(), *self.old.values()))
        if versions != self._compared:
            self._equal = all(torch.equal(p, self.old[n]) for n, p in self.new.items())
            self._compared = versions
        return self._equal

    @torch.no_grad()
    def update_old(self, decay: float) -> None:
        """Set old <- decay * old + (1 - decay) * new; a decay of 0 copies exactly."""
        for name, parameter in self.new.items():
            if decay == 0.0:
                self.old[name].copy_(parameter)
            else:
                self.old[name].mul_(decay).add_(parameter, alpha=1.0 - decay)

    def state(self) -> dict[str, Any]:
        """Both adapters' weights, by name."""
        return {"new": dict(self.new), "old": dict(self.old)}

    @torch.no_grad()
    def load_state(self, state: dict[str, Any]) -> None:
        """Put back what ``state`` gave."""
        for which, own in (("new", self.new), ("old", self.old)):
            for name, parameter in own.items():
                parameter.copy_(state[which][name])

    def save(self, folder: Path, weights: Sequence[Tensor] | None = None) -> None:
        """Write one adapter as PEFT and as diffusers know it.

        Args:
            folder: Gets ``adapter_config.json``, ``adapter_model.safetensors`` (PEFT) and
                ``pytorch_lora_weights.safetensors`` (``pipe.load_lora_weights(folder)``).
            weights: In the order of ``new``; None is ``new`` itself.
        """
        chosen = list(self.new.values()) if weights is None else weights
        plain = {n: w.detach().float().cpu() for n, w in zip(self.new, chosen, strict=True)}
        folder.mkdir(parents=True, exist_ok=True)
        facts = self._facts()
        write_atomic(folder / "adapter_config.json", json.dumps(facts, indent=1) + "\n")
        save_file({_PREFIX + n: w.contiguous() for n, w in plain.items()}, folder / WEIGHTS)
        # One metadata key: the order of several changes from call to call, and with it the bytes.
        named = {f"transformer.{key}": value for key, value in facts.items()}
        save_file(
            {f"transformer.{n}": w.contiguous() for n, w in plain.items()},
            folder / LORA_WEIGHT_NAME_SAFE,
            metadata={LORA_ADAPTER_METADATA_KEY: json.dumps(named)},
        )

    def _facts(self) -> dict[str, Any]:
        """PEFT's config as JSON values; its sets, whose order changes by process, sorted."""
        found = self.lora.to_dict()
        return {k: sorted(v) if isinstance(v, set) else v for k, v in sorted(found.items())}


def _read(folder: Path, config: LoraBlock) -> dict[str, Tensor]:
    path, facts = folder / WEIGHTS, folder / "adapter_config.json"
    if not path.is_file():
        raise ConfigError([f"model.lora.continue_from: {path} is missing"])
    before = json.loads(facts.read_text("utf-8")) if facts.is_file() else {}
    alpha = before.get("lora_alpha", config.alpha)
    if alpha != config.alpha:  # the same numbers would be another model
        raise ConfigError([f"model.lora.alpha: {config.alpha:g}, but {facts} says {alpha:g}"])
    return {name.removeprefix(_PREFIX): value for name, value in load_file(path).items()}
