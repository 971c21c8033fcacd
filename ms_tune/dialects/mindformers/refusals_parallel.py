"""What MindFormers and MindSpore refuse of the parallel settings, and of data beside them."""

from __future__ import annotations

from ms_tune.dialects.check_context import Violation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import TypeAlias

    from ms_tune.dialects.check_context import CheckContext

    Demand: TypeAlias = Callable[[object], str]


_SECTION = "parallel"


def refuse_value(context: CheckContext) -> Iterator[Violation]:
    """A value that MindSpore refuses."""
    for name, value in context.mapping(_SECTION).items():
        demand = _DEMANDS.get(str(name))
        if demand is None or _is_replaced(context, str(name), value):
            continue
        wanted = demand(value)
        if wanted:
            yield Violation((_SECTION, str(name)), params={"wanted": wanted})


def _is_replaced(context: CheckContext, name: str, value: object) -> bool:
    """Whether MindFormers puts a value of its own in the place of what is written."""
    if name == "full_batch":  # false where the network is not split
        return value is None or (bool(value) and not context.job.startup.splits)
    if name == "pipeline_stages":
        stages = context.source.get(_STAGES, 1)
        return not isinstance(stages, int) or stages > 1
    return False


def _a(kind: type, name: str, *, nullable: bool = False) -> Demand:
    def demand(value: object) -> str:
        return "" if isinstance(value, kind) or (nullable and value is None) else name

    return demand


def _whole(least: int, most: int | None = None, *, switch: bool = False) -> Demand:
    """A whole number; ``switch`` tells that a bool is one, too."""

    def demand(value: object) -> str:
        is_number = isinstance(value, int) and (switch or not isinstance(value, bool))
        fits = is_number and isinstance(value, int) and least <= value and (most is None or value <= most)
        return "" if fits else f"int ({least}..{most if most is not None else ''})"

    return demand


def _one_of(*names: str) -> Demand:
    return lambda value: "" if isinstance(value, str) and value in names else " | ".join(names)


def _truth(value: object) -> str:
    """What goes straight to compiled code: numbers and nothing count as a bool."""
    return "bool" if isinstance(value, (str, list, dict)) else ""


def _indices(value: object) -> str:
    """Positions of parameters, each once and in order; compiled code holds them in 32 bits."""
    sound = isinstance(value, list) and not any(_POSITION(index) for index in value)
    return "" if sound and value and isinstance(value, list) and sorted({*value}) == value else "list[int]"


def _section(demands: Mapping[str, Demand]) -> Demand:
    """A section with no other keys than these."""

    def demand(value: object) -> str:
        sound = isinstance(value, dict) and all(key in demands and not demands[key](one) for key, one in value.items())
        return "" if sound else f"dict({', '.join(demands)})"

    return demand


def _of_optimizer(value: object) -> str:
    """Also, a level says itself whether accumulated gradients are sharded; level 2 is the one where they are."""
    wanted = _section(
        {
            "gradient_accumulation_shard": _BOOL,
            "parallel_optimizer_threshold": _whole(0),
            "optimizer_weight_shard_size": lambda size: "" if size == -1 else _whole(1)(size),
            "optimizer_level": _one_of("level1", "level2", "level3"),
        }
    )(value)
    if not wanted and isinstance(value, dict) and "gradient_accumulation_shard" in value:
        return "" if value.get("optimizer_level", "level2") == "level2" else "optimizer_level: level2"
    return wanted


def _fusion(*modes: str) -> Demand:
    """How one kind of communication is fused: ``config`` has to be there, and counts as its mode says."""
    words = f"dict(mode: {' | '.join(modes)}, config)"

    def demand(value: object) -> str:
        if not isinstance(value, dict) or "config" not in value or value.get("mode") not in modes:
            return words
        counts = _FUSION_CONFIGS[value["mode"]](value["config"])
        return counts and f"{value['mode']}: {counts}"

    return demand


def _of_fusion(value: object) -> str:
    """What is wrong first; MindSpore goes through the kinds as they are written."""
    if not isinstance(value, dict):
        return "dict"
    for kind, one in value.items():
        if kind not in _FUSED:
            return f"dict({', '.join(_FUSED)})"
        wanted = _FUSED[kind](one)
        if wanted:
            return f"{kind}: {wanted}"
    return ""


_STAGES = ("parallel_config", "pipeline_stage")
_SEARCH = _one_of("recursive_programming", "dynamic_programming", "sharding_propagation")
_POSITION = _whole(0, 2**32 - 1)
_BOOL, _TEXT = _a(bool, "bool"), _a(str, "str")
_FLAG = _a(bool, "bool", nullable=True)
# What `config` has to be; positions of parameters are those of `all_reduce_fusion_config`.
_FUSION_CONFIGS: Mapping[str, Demand] = {
    "auto": lambda _: "",
    "size": _whole(0, 2**63 - 1, switch=True),  # MiB
    "index": _indices,
}
_FUSED: Mapping[str, Demand] = {
    "openstate": _BOOL,
    "allreduce": _fusion("auto", "index", "size"),
    "allgather": _fusion("auto", "size"),
    "reducescatter": _fusion("auto", "size"),
}
_DEMANDS: Mapping[str, Demand] = {
    **dict.fromkeys(("gradients_mean", "gradient_fp32_sync", "parameter_broadcast", "full_batch"), _FLAG),
    **dict.fromkeys(("loss_repeated_mean", "enable_parallel_optimizer", "enable_alltoall"), _BOOL),
    **dict.fromkeys(("sharding_propagation", "force_fp32_communication", "pipeline_result_broadcast"), _BOOL),
    **dict.fromkeys(("dump_local_norm", "dump_device_local_norm", "auto_parallel_new_interface"), _truth),
    **dict.fromkeys(("strategy_ckpt_load_file", "strategy_ckpt_save_file", "group_ckpt_save_file"), _TEXT),
    **dict.fromkeys(("search_mode", "auto_parallel_search_mode"), _SEARCH),
    "optimizer_weight_shard_aggregated_save": _BOOL,
    "init_param_in_compile": _truth,
    "dump_local_norm_path": _TEXT,
    "auto_pipeline": lambda value: "" if value is False else "False",  # MindFormers refuses True, MindSpore all others
    "global_rank": _whole(0, 4095, switch=True),
    "pipeline_stages": _whole(1),
    "pipeline_segments": _whole(1),
    "optimizer_weight_shard_size": lambda value: _whole(-(10**9))(value) and "int",
    "grad_accumulation_step": _whole(1),
    "communi_parallel_mode": _one_of("all_group_parallel", "same_server_group_parallel", "no_group_parallel"),
    "all_reduce_fusion_config": _indices,
    "parallel_optimizer_config": _of_optimizer,
    "strategy_ckpt_config": _section({"load_file": _TEXT, "save_file": _TEXT, "only_trainable_params": _BOOL}),
    "comm_fusion": _of_fusion,
}
