"""Fewer layers in a ``mindformers-pynative`` config: every list of layers in it, for the layers that are left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ms_tune.dialects.layer_plan import FrameworkStop, parse_specs, write_specs
from ms_tune.facts.models import names_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ms_tune.dialects.job_parts import SettingChange
    from ms_tune.dialects.stage import StageLayer
    from ms_tune.dryrun.shrink.config_copy import ConfigCopy

_COUNT = "model.num_hidden_layers"
_FREQUENCY = "model.moe_layer_freq"
_NAMED_DENSE = "model.mlp_only_layers"
_FIRST_DENSE = "model.first_k_dense_replace"
_WHAT_IS_RECOMPUTED = {"full": "recompute.full_recompute_layer", "select": "recompute.select_module"}


def write_layers(config: ConfigCopy, changes: Iterable[SettingChange], layers: Sequence[StageLayer] | None) -> None:
    """Write what is run of the model into its config.

    Args:
        config: The config; it is changed.
        changes: What :func:`ms_tune.dryrun.dynamic.prepare` changes: keys that the reference transformer reads.
        layers: The layers that are run, with their numbers in the full model; None where none was left out.
    """
    for change in changes:
        config.set(_own_key(config, change.key), change.after)
    if layers is None:
        return
    ordinary = [layer.experts for layer in layers if not layer.mtp]
    _write_experts(config, ordinary)
    _Renumbering(config, [layer.number for layer in layers]).write()
    mode = config.get("recompute.mode")
    what = _WHAT_IS_RECOMPUTED.get(mode) if isinstance(mode, str) else None
    if what and not config.get(what):
        # distributed/activation_checkpoint.py, ``_validate_recompute_structure``: with the mode there must be a layer.
        config.set("recompute.mode", "None")


def _own_key(config: ConfigCopy, key: str) -> str:
    """The name that the config has for it: MindFormers stops at two names for the number of layers."""
    if key != _COUNT:
        return key
    return next((f"model.{name}" for name in names_of("num_layers") if config.get(f"model.{name}") is not None), key)


def _write_experts(config: ConfigCopy, experts: Sequence[bool]) -> None:
    """Which layers have experts, where the config says more about it than how many are dense in front.

    parallel_core/transformer_config.py: a list has an entry for every layer, and agrees with ``first_k_dense_replace`` or
    stands alone.
    """
    frequency = config.get(_FREQUENCY)
    if not isinstance(frequency, list) and frequency in (None, 1) and not config.get(_NAMED_DENSE):
        return
    config.set(_FREQUENCY, [int(one) for one in experts])
    for key in (_FIRST_DENSE, _NAMED_DENSE):
        if config.get(key) is not None:
            config.remove(key)


class _Renumbering:
    """The lists of layers that only the framework reads: communication recompute, swap, exceptions from recompute.

    Args:
        config: The config.
        numbers: Of the layers that are left, in the full model.
    """

    def __init__(self, config: ConfigCopy, numbers: Sequence[int]) -> None:
        self._config = config
        self._numbers = numbers

    def write(self) -> None:
        """Write them for the layers that are left."""
        for key in ("recompute.exclude_op", "recompute_comm.select_module"):
            named = self._config.get(key)
            if isinstance(named, dict):
                self._config.set(key, {pattern: self._left(specs) for pattern, specs in named.items()})
        for key in ("swap.layer_swap", "swap.op_swap"):
            entries = self._config.get(key)
            if isinstance(entries, list):
                self._config.set(key, [self._entry(entry) for entry in entries])

    def _entry(self, entry: Any) -> Any:  # noqa: ANN401 - as the config has it
        if not isinstance(entry, dict) or "layers" not in entry:
            return entry
        return {**entry, "layers": self._left(entry["layers"])}

    def _left(self, specs: Any) -> Any:  # noqa: ANN401 - as the config has it
        try:
            named = set(parse_specs(specs))
        except (FrameworkStop, TypeError):
            return specs  # what is no list of layers is for the framework to refuse, or to pass over
        return write_specs([new for new, old in enumerate(self._numbers) if old in named])
