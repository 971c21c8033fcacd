"""What the dynamic graph of MindFormers 2.0 and 2.1 refuses, in its order and its words.

The rules are those of ``_validate_recompute_config`` and ``_validate_swap_config`` in
``mindformers/pynative/distributed/activation_checkpoint.py``. They run inside ``parallelize_model`` only, that is with
more than one device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ms_tune.dialects.layer_plan import check_specs, stop

if TYPE_CHECKING:
    from ms_tune.dialects.mindformers_pynative.placement import PynativeInputs

_RECOMPUTE = "TrainConfig.recompute"
_COMM = "TrainConfig.recompute_comm"
_SWAP = "TrainConfig.swap_config"
_RANGES = "layer ids or ranges like ['5'], ['0-19']"


def check_recompute(inputs: PynativeInputs, total: int) -> None:
    """Check everything about recompute.

    Args:
        inputs: The settings; their lists are written into.
        total: Layers of the model, those of multi-token prediction included.

    Raises:
        FrameworkStop: The framework raises.
    """
    if inputs.mode != "None":
        _check_modules(inputs.select_module, _RECOMPUTE, "module path")
        if inputs.mode == "full" and not inputs.full_layers:
            stop("ValueError", f"{_RECOMPUTE}: mode is 'full' but full_recompute_layer is missing or empty")
        if inputs.mode == "select" and not inputs.select_module:
            stop("ValueError", f"{_RECOMPUTE}: mode is 'select' but select_module is missing or empty")
        prefix = "TrainConfig.recompute_config.recompute"
        if inputs.full_layers:
            check_specs(inputs.full_layers, f"{prefix}.full_recompute_layer", total)
        elif inputs.mode == "select":
            _check_ranges(inputs.select_module, f"{prefix}.select_module", total)
    if inputs.comm:
        _check_modules(inputs.comm_module, _COMM, "comm op path")
        if not inputs.comm_module:
            stop("ValueError", f"{_COMM}: enable is True but select_module is missing or empty")
        _check_ranges(inputs.comm_module, "TrainConfig.recompute_config.recompute_comm.select_module", total)
    if inputs.version == "2.0":
        _check_excluded_names(inputs.exclude_op)
    else:
        _check_excluded_modules(inputs.exclude_op, total)


def _check_modules(value: Any, prefix: str, what: str) -> None:  # noqa: ANN401 - as the config has it
    if value is None:
        return
    if not isinstance(value, dict):
        kind = type(value).__name__
        stop("TypeError", f"{prefix}.select_module must be a dict ({what} -> list of layer ranges), got {kind}")
    for key, ranges in value.items():
        _check_entry(key, ranges, f"{prefix}.select_module", what)


def _check_entry(key: object, ranges: object, label: str, what: str) -> None:
    if not isinstance(key, str) or not key.strip():
        stop("ValueError", f"{label}: invalid {what} key {key!r}")
    if not isinstance(ranges, (list, tuple)):
        kind = type(ranges).__name__
        stop("TypeError", f"{label}[{key!r}]: value must be a list or tuple of layer ranges, got {kind}")


def _check_ranges(value: Any, label: str, total: int) -> None:  # noqa: ANN401 - as the config has it
    for key, ranges in value.items():
        check_specs(ranges, f"{label}[{key!r}]", total)


def _check_excluded_names(value: object) -> None:
    """2.0: names of operators, for the whole model."""
    label = f"{_RECOMPUTE}.exclude_op"
    if value is None:
        return
    if not isinstance(value, (list, tuple)):
        stop("TypeError", f"{label} must be a list/tuple of op-name strings, got {type(value).__name__}")
    for index, name in enumerate(value):
        if not isinstance(name, str) or not name.strip():
            stop("ValueError", f"{label}[{index}]: must be a non-empty string, got {name!r}")


def _check_excluded_modules(value: object, total: int) -> None:
    """2.1: modules with their layers."""
    label = f"{_RECOMPUTE}.exclude_op"
    if value is None:
        return
    if not isinstance(value, dict):
        kind = type(value).__name__
        stop("TypeError", f"{label} must be a dict (module path -> list of layer ranges), got {kind}")
    for key, ranges in value.items():
        _check_entry(key, ranges, label, "module path")
        check_specs(ranges, f"{label}[{key!r}]", total)


def check_swap(inputs: PynativeInputs, total: int) -> None:
    """Check everything about swap.

    Args:
        inputs: The settings; their lists are written into.
        total: Layers of the model, those of multi-token prediction included.

    Raises:
        FrameworkStop: The framework raises.
    """
    prefetch = inputs.prefetch
    if not 1 <= prefetch < total:
        stop("ValueError", f"{_SWAP}.default_prefetch: value {prefetch} out of range [1, {total - 1}]")
    for key in ("layer_swap", "op_swap"):
        _check_swap_entries(getattr(inputs, key), f"{_SWAP}.{key}", named=key == "op_swap")
    for key in ("layer_swap", "op_swap"):
        for index, entry in enumerate(getattr(inputs, key) or ()):
            check_specs(entry["layers"], f"{_SWAP}.{key}[{index}].layers", total, prefetch)


def _check_swap_entries(value: object, label: str, *, named: bool) -> None:
    if value is None:
        return
    if not isinstance(value, list):
        stop("TypeError", f"{label} must be a list, got {type(value).__name__}")
    for index, entry in enumerate(value):
        here = f"{label}[{index}]"
        if not isinstance(entry, dict):
            stop("TypeError", f"{here} must be a dict, got {type(entry).__name__}")
        wanted = ("op_name", "layers") if named else ("layers",)
        if not all(key in entry for key in wanted):
            keys = " and ".join(f"'{key}'" for key in wanted)
            stop("ValueError", f"{here}: each entry must include {keys}, got {entry!r}")
        if named and (not isinstance(entry["op_name"], str) or not entry["op_name"].strip()):
            stop("ValueError", f"{here}.op_name must be a non-empty str, got {entry['op_name']!r}")
        layers = entry["layers"]
        if not isinstance(layers, (list, tuple)):
            kind = type(layers).__name__
            stop("TypeError", f"{here}.layers: expected list/tuple of {_RANGES}, got {kind}: {layers!r}")


def check_schedule(schedule: str, chunks: int) -> None:
    """Check the schedule (``_create_schedule`` in ``mindformers/pynative/distributed/pipeline_parallel.py``).

    Raises:
        FrameworkStop: The framework raises.
    """
    name = schedule.lower() or "1f1b"
    if name == "1f1b" and chunks > 1:
        name = "interleaved_1f1b"
    if name == "interleaved_1f1b" and chunks <= 1:
        stop(
            "ValueError",
            "pipeline_parallel_schedule='interleaved_1f1b' requires pipeline_parallel_interleave_num > 1, but got "
            f"{chunks}. Use '1f1b' schedule instead, or set interleave_num > 1.",
        )
    if name not in {"1f1b", "interleaved_1f1b", "gpipe"}:
        stop(
            "ValueError",
            f"Unsupported pipeline_parallel_schedule '{name}'. Supported values: 1f1b, gpipe, interleaved_1f1b",
        )
