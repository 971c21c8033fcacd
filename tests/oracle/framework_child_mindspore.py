"""Reimplement MindSpore's checks of a config for :mod:`tests.oracle.framework_child`, which runs without MindSpore.

They are the checks of single values (``mindspore/_checkparam.py``), and of the arguments of ``set_auto_parallel_context``,
``set_context`` and ``runtime.set_memory`` (MindSpore 2.9); :data:`current` stores the settings of a config.
"""

# ruff: noqa: ANN401, EM101, EM102, TRY003 - it takes anything, and raises in MindSpore's way

from __future__ import annotations

import math
import re
from typing import Any

CONTEXT = {
    "parallel_mode": "stand_alone",
    "full_batch": False,
    "dataset_strategy": "data_parallel",
    "search_mode": "recursive_programming",
    "sharding_propagation": False,
    "pipeline_stages": 1,
    "pipeline_interleave": False,
    "pipeline_scheduler": "1f1b",
    "devices": 1,
}
# The keys of `mindspore.set_auto_parallel_context` (mindspore/parallel/_auto_parallel_context.py, MindSpore 2.9).
PARALLEL_KEYS = {
    *("device_num", "global_rank", "gradients_mean", "gradient_fp32_sync", "loss_repeated_mean", "pipeline_stages"),
    *("auto_pipeline", "pipeline_result_broadcast", "pipeline_segments", "parallel_mode", "search_mode"),
    *("auto_parallel_search_mode", "parameter_broadcast", "strategy_ckpt_load_file", "strategy_ckpt_save_file"),
    *("group_ckpt_save_file", "full_batch", "dataset_strategy", "enable_parallel_optimizer"),
    *("force_fp32_communication", "parallel_optimizer_config", "pipeline_config", "grad_accumulation_step"),
    *("all_reduce_fusion_config", "communi_parallel_mode", "optimizer_weight_shard_size"),
    *("optimizer_weight_shard_aggregated_save", "sharding_propagation", "enable_alltoall", "strategy_ckpt_config"),
    *("comm_fusion", "dump_local_norm", "dump_local_norm_path", "dump_device_local_norm"),
    *("auto_parallel_new_interface", "init_param_in_compile"),
}
# Their required types; only the first four accept a null.
PARALLEL_TYPES = {
    **dict.fromkeys(("gradients_mean", "gradient_fp32_sync", "parameter_broadcast", "full_batch"), bool),
    **dict.fromkeys(("enable_parallel_optimizer", "enable_alltoall", "sharding_propagation"), bool),
    **dict.fromkeys(("optimizer_weight_shard_aggregated_save", "force_fp32_communication"), bool),
    **dict.fromkeys(("loss_repeated_mean", "pipeline_result_broadcast"), bool),
    **dict.fromkeys(("device_num", "global_rank", "grad_accumulation_step", "optimizer_weight_shard_size"), int),
    **dict.fromkeys(("parallel_mode", "search_mode", "auto_parallel_search_mode", "communi_parallel_mode"), str),
    **dict.fromkeys(("strategy_ckpt_load_file", "strategy_ckpt_save_file", "group_ckpt_save_file"), str),
    **dict.fromkeys(("comm_fusion", "strategy_ckpt_config", "parallel_optimizer_config"), dict),
    "all_reduce_fusion_config": list,
}
PARALLEL_NULLS = ("gradients_mean", "gradient_fp32_sync", "parameter_broadcast", "full_batch")
SEARCHES = ("recursive_programming", "dynamic_programming", "sharding_propagation")
SCHEDULERS = ("1f1b", "gpipe", "seqpipe", "seqvpp", "seqsmartvpp", "zero_bubble_v")
MEMORY = re.compile(r"[1-9][0-9]*(\.)?[0-9]*GB|0\.[0-9]*GB", re.ASCII)

current: dict[str, Any] = dict(CONTEXT)


def check_number(kind: type[int | float], least: float, *, above: bool) -> Any:
    """Check like ``mindspore._checkparam.check_positive_int`` and similar functions."""

    def check(value: Any, name: str = "input value", _prim: object = None) -> Any:
        if not isinstance(value, kind) or isinstance(value, bool):
            raise TypeError(f"The '{name}' must be {kind.__name__}, but got '{type(value).__name__}'")
        if math.isinf(value) or math.isnan(value) or value < least or (above and value == least):
            raise ValueError(f"The '{name}' must be {kind.__name__} and must be larger, but got '{value}'.")
        return value

    return check


def check_bool(value: Any, name: str = "input value", _prim: object = None) -> Any:
    if not isinstance(value, bool):
        raise TypeError(f"The '{name}' must be a bool, but got {type(value).__name__}.")
    return value


def check_string(value: Any, known: Any, name: str = "input value", _prim: object = None) -> Any:
    if not (isinstance(value, str) and value in known):
        raise ValueError(f"The '{name}' must be str and must be in '{known}', but got '{value}'.")
    return value


def set_auto_parallel_context(**values: Any) -> None:
    """Check the section ``parallel`` like MindSpore."""
    for key, value in values.items():
        if key not in PARALLEL_KEYS:
            raise ValueError(f"Set context keyword {key} is not recognized!")
        missing = value is None and key in PARALLEL_NULLS
        if not missing and not isinstance(value, PARALLEL_TYPES.get(key, object)):
            raise TypeError(f"The parameter '{key}' must be {PARALLEL_TYPES[key]}, but got {type(value)}")
        if key == "search_mode":
            check_string(value, SEARCHES, key)
        if key == "optimizer_weight_shard_size" and isinstance(value, bool):
            raise TypeError("The type of optimizer_weight_shard_size must be int")
        if key == "parallel_optimizer_config":
            set_optimizer_config(value)
        if key == "pipeline_config":
            set_pipeline_config(value)
        elif key in CONTEXT:
            current[key] = value
            if key == "full_batch" and value:
                current["dataset_strategy"] = "full_batch"


def set_optimizer_config(value: Any) -> None:
    for key, one in value.items():
        if key != "gradient_accumulation_shard":
            raise ValueError(f"Unknown config: {[key]}")
        check_bool(one, key)


def set_pipeline_config(value: Any) -> None:
    if not isinstance(value, dict):
        raise TypeError("For 'set_pipeline_config', the argument must be dict")
    for key in value:
        if key not in ("pipeline_interleave", "pipeline_scheduler"):
            raise ValueError(f"Unknown config: {[key]}")
    current["pipeline_interleave"] = check_bool(value["pipeline_interleave"], "pipeline_interleave")
    current["pipeline_scheduler"] = check_string(value["pipeline_scheduler"], SCHEDULERS)
    if not value["pipeline_interleave"] and value["pipeline_scheduler"] != "1f1b":
        raise TypeError("When pipeline_interleave is False, only '1f1b' is allowed.")


def set_context(**values: Any) -> None:
    """Check like ``mindspore.set_context``: memory sizes, the memory optimisation level, and ``jit_config``."""
    for key in ("max_device_memory", "mempool_block_size"):
        if key in values:
            check_memory(values[key])
    if values.get("memory_optimize_level", "O0") not in ("O0", "O1"):
        raise ValueError("the value of 'memory_optimize_level' must be one of ['O0', 'O1']")
    config = values.get("jit_config")
    if config is not None:
        known = {"jit_level": ("O0", "O1", "O2"), "infer_boost": ("on", "off")}
        for key, value in config.items():
            if key not in known or value not in known[key]:
                raise ValueError(f"For 'jit_config', {key} cannot be {value}")
        if config.get("infer_boost") == "on" and config.get("jit_level", "O0") != "O0":
            raise ValueError("Only jit_level O0 support infer_boost")


def set_memory(**values: Any) -> None:
    """Check like ``mindspore.runtime.set_memory``."""
    for key in ("max_size", "increase_size"):
        if key in values:
            check_memory(values[key])
    if values.get("optimize_level", "O0") not in ("O0", "O1"):
        raise ValueError("the value of 'optimize_level' must be one of ['O0', 'O1']")


def check_memory(value: Any) -> None:
    if not isinstance(value, str):
        raise TypeError("the memory size must be a str")
    if not MEMORY.match(value) or value in ("0GB", "0.0GB"):
        raise ValueError("the memory size must be written as 58GB")
