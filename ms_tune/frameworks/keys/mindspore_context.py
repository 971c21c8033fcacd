"""What MindSpore 2.9 says about the keys of ``set_context`` and ``set_auto_parallel_context``.

``_check_context_deprecated``, ``_check_key`` and ``set_context`` in ``mindspore/context.py``; the setters in
``mindspore/parallel/_auto_parallel_context.py``. A test compares these tables with that code.
"""

from __future__ import annotations

_MEMORY = "mindspore.runtime.set_memory"
_DEVICE = "mindspore.set_device"
_ASCEND = "mindspore.device_context.ascend"

# Keys on their way out and what takes their place; empty where nothing does.
DEPRECATED = {
    "save_graphs": "the variable MS_DEV_SAVE_GRAPHS",
    "save_graphs_path": "the variable MS_DEV_SAVE_GRAPHS_PATH",
    "precompile_only": "the variable MS_DEV_PRECOMPILE_ONLY",
    "check_bprop": "",
    "max_call_depth": "mindspore.set_recursion_limit(...)",
    "grad_for_scalar": "mindspore.ops.derivative",
    "enable_compile_cache": "the variable MS_COMPILER_CACHE_ENABLE",
    "enable_cache_path": "the variable MS_COMPILER_CACHE_PATH",
    "debug_level": "",
    "device_target": f"{_DEVICE}(...)",
    "device_id": f"{_DEVICE}(...)",
    "deterministic": "mindspore.set_deterministic(False)",  # only "OFF" is told as deprecated
    "inter_op_parallel_num": "mindspore.runtime.dispatch_threads_num(...)",
    "pynative_synchronize": "mindspore.runtime.launch_blocking()",
    "max_device_memory": f"{_MEMORY}(max_size=...)",
    "variable_memory_max_size": f"{_MEMORY}(max_size=...)",
    "mempool_block_size": f"{_MEMORY}(increase_size=...)",
    "memory_optimize_level": f"{_MEMORY}(optimize_level=...)",
    "ascend_config": f"{_ASCEND}.op_precision and .op_tuning",
    "aoe_tune_mode": f"{_ASCEND}.op_tuning.aoe_tune_mode(...)",
    "aoe_config": f"{_ASCEND}.op_tuning.aoe_job_type(...)",
    "op_timeout": f"{_ASCEND}.op_debug.execute_timeout(...)",
    "op_debug_option": f"{_ASCEND}.op_debug.debug_option(...)",
    "gpu_config": "mindspore.device_context.gpu.op_precision",
    "runtime_num_threads": "mindspore.device_context.cpu.op_tuning.threads_num(...)",
    "print_file_path": "",
    "reserve_class_name_in_scope": "",
    "env_config_path": "",
    "enable_graph_kernel": "jit_config={'jit_level': 'O1'}",
    "graph_kernel_flags": "the variable MS_DEV_GRAPH_KERNEL_FLAGS",
}
# Keys that are warned of and not read.
SKIPPED = ("enable_sparse", "auto_tune_mode", "enable_auto_mixed_precision")
# Keys that are refused unless they stand in ``ascend_config``, and those that are refused everywhere.
NESTED = (
    *("precision_mode", "jit_compile", "atomic_clean_policy", "matmul_allow_hf32", "conv_allow_hf32"),
    *("op_precision_mode", "host_scheduling_max_threshold", "ge_options", "op_debug_option"),
)
REMOVED = {"exception_dump": f"{_ASCEND}.op_debug.aclinit_config(...)"}
# Keys of ``set_auto_parallel_context`` that another has replaced.
PARALLEL_DEPRECATED = {
    "auto_parallel_search_mode": "search_mode",
    "sharding_propagation": "search_mode='sharding_propagation'",
}
