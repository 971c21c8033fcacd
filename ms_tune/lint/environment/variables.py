"""List the known environment variables, and parse their values as MindSpore does.

``mindspore/core/utils/ms_utils.cc`` (2.7; same in 2.9 and 2.10) reads ``MS_ALLOC_CONF``, whose keys are in ``mem_env.h``, and
``MS_DEV_RUNTIME_CONF``, whose keys are in ``runtime_env.h``.
"""

from __future__ import annotations

from typing import NamedTuple

from ms_tune.facts.launchers import variables

# Those that show that a file is for MindSpore; and those of torch_npu, which MindSpore 2.9 does not use, with MindSpore's
# counterpart, if any.
MS_NAMES = frozenset(name for name, one in variables().items() if one.mindspore)
FOREIGN = {name: one.instead for name, one in variables().items() if one.instead is not None}

ALLOC_BOOLEANS = frozenset(
    (
        *("enable_vmm", "memory_recycle", "memory_tracker", "acl_allocator", "somas_whole_block", "older_pool"),
        *("simple_tracker", "enable_small_pool", "enable_mem_huge_1g"),
    )
)
ALLOC_KEYS = ALLOC_BOOLEANS | {"vmm_align_size", "defrag_memory_step_freq", "memory_tracker_path"}

RUNTIME_KEYS = frozenset(
    (
        *("inline", "switch_inline", "new_ref_count", "control_flow_optimize", "multi_stream", "pipeline"),
        *("graph_pipeline", "kbk_sub_graph_mode", "communication_launch_group", "insert_tensormove", "all_finite"),
        *("parallel_assignadd_opt", "ge_kernel", "backend_compile_cache", "copy_async", "cluster_thread_num"),
        *("multi_thread_load_cache", "async_init_comm", "cpu_affinity_list", "cpu_affinity_module"),
        *("actor_thread_fix_bind", "input_optimize", "comm_init_lccl_only", "memory_track", "memory_statistics"),
        *("compile_statistics", "performance_statistics", "performance_statistics_top_num"),
        *("aclnn_cache_queue_length", "aclnn_cache", "pre_build_comm_kernel", "execution_order_check_iteration"),
        *("high_performance_mode", "mc2_event", "new_pipeline", "sync_copy_input", "async_mccl_init_comm"),
        *("graph_order", "sync_stream_on_demand", "graph_capture_max_number", "stream_priority"),
    )
)


# Keys that 2.9's ``runtime_env.h`` lacks: removed since 2.7, or added in 2.10.
RUNTIME_KEYS_OF_2_7 = frozenset(
    (
        *("control_flow_optimize", "parallel_assignadd_opt", "aclnn_cache"),
        *("performance_statistics", "performance_statistics_top_num"),
    )
)
RUNTIME_KEYS_OF_2_10 = frozenset(("stream_priority", "async_mccl_init_comm"))

# Read with ``IsEnableRuntimeConfig`` and ``IsDisableRuntimeConfig`` (``runtime_env.h``): True, true, False or false.
RUNTIME_BOOLEANS = frozenset(
    (
        *("switch_inline", "multi_stream", "mc2_event", "pipeline", "graph_pipeline", "kbk_sub_graph_mode"),
        *("insert_tensormove", "backend_compile_cache", "copy_async", "sync_copy_input", "sync_stream_on_demand"),
        *("input_optimize", "memory_statistics", "compile_statistics", "ge_kernel"),
    )
)
FURTHER_VALUES = {"multi_stream": ("group",)}


class Item(NamedTuple):
    """One item of a value such as ``enable_vmm:True,memory_tracker:False``."""

    text: str  # the item without surrounding spaces
    start: int  # its offset in the value
    key: str | None  # the text before the first colon; None without a colon (the item is dropped)
    value: str  # the text after the first colon


def items(value: str) -> list[Item]:
    """Split a value as MindSpore does: ``;`` equals ``,``, and the first ``:`` separates key and value."""
    found = []
    at = 0
    while len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        value, at = value[1:-1], at + 1
    for part in value.replace(";", ",").split(","):
        words = part.strip()
        if words:
            key, colon, rest = words.partition(":")
            start = at + len(part) - len(part.lstrip())
            found.append(Item(words, start, key.strip() if colon else None, rest.strip()))
        at += len(part) + 1
    return found
