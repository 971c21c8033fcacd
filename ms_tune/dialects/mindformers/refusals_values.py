"""Single values that MindFormers and MindSpore refuse: parallel settings, and position scaling and data types of legacy networks (1.6 to 2.1).

Sources: for ``extend_method`` and ``scaling_factor`` (Llama) ``FreqsMgr`` and the functions before it in
``mindformers/modules/layers.py``; for data types ``convert_mstype`` in ``mindformers/models/utils.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ms_tune.diagnostics import KeyPath
from ms_tune.dialects.check_context import CheckContext, Violation
from ms_tune.source.yaml import MISSING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    Demand: TypeAlias = Callable[[object], str]


_SECTION = "parallel"


def refuse_value(context: CheckContext) -> Iterator[Violation]:
    """Report a value that MindSpore refuses."""
    for name, value in context.mapping(_SECTION).items():
        demand = _DEMANDS.get(str(name))
        if demand is None or _is_replaced(context, str(name), value):
            continue
        wanted = demand(value)
        if wanted:
            yield Violation((_SECTION, str(name)), params={"wanted": wanted})


def _is_replaced(context: CheckContext, name: str, value: object) -> bool:
    if name == "full_batch":  # set to false if the network is not split
        return value is None or (bool(value) and not context.job.startup.splits)
    if name == "pipeline_stages":
        stages = context.source.get(_STAGES, 1)
        return not isinstance(stages, int) or stages > 1
    return False


def _a(kind: type, name: str, *, nullable: bool = False) -> Demand:
    def demand(value: object) -> str:
        return "" if isinstance(value, kind) or (nullable and value is None) else name

    return demand


def _require_integer(least: int, most: int | None = None, *, switch: bool = False) -> Demand:
    """Require a whole number; ``switch`` also allows a Boolean."""

    def demand(value: object) -> str:
        is_number = isinstance(value, int) and (switch or not isinstance(value, bool))
        fits = is_number and isinstance(value, int) and least <= value and (most is None or value <= most)
        return "" if fits else f"int ({least}..{most if most is not None else ''})"

    return demand


def _require_choice(*names: str) -> Demand:
    return lambda value: "" if isinstance(value, str) and value in names else " | ".join(names)


def _truth(value: object) -> str:
    """Require a number, null or Boolean, which compiled code converts to bool."""
    return "bool" if isinstance(value, (str, list, dict)) else ""


def _indices(value: object) -> str:
    """Require positions of parameters, unique and ascending, within 32 bits."""
    sound = isinstance(value, list) and not any(_POSITION(index) for index in value)
    return "" if sound and value and isinstance(value, list) and sorted({*value}) == value else "list[int]"


def _section(demands: Mapping[str, Demand]) -> Demand:
    """Require a section with only these keys and valid values."""

    def demand(value: object) -> str:
        sound = isinstance(value, dict) and all(key in demands and not demands[key](one) for key, one in value.items())
        return "" if sound else f"dict({', '.join(demands)})"

    return demand


def _of_optimizer(value: object) -> str:
    """Require a valid optimizer section; only level 2 allows ``gradient_accumulation_shard``, which it implies."""
    wanted = _section(
        {
            "gradient_accumulation_shard": _BOOL,
            "parallel_optimizer_threshold": _require_integer(0),
            "optimizer_weight_shard_size": lambda size: "" if size == -1 else _require_integer(1)(size),
            "optimizer_level": _require_choice("level1", "level2", "level3"),
        }
    )(value)
    if not wanted and isinstance(value, dict) and "gradient_accumulation_shard" in value:
        return "" if value.get("optimizer_level", "level2") == "level2" else "optimizer_level: level2"
    return wanted


def _fusion(*modes: str) -> Demand:
    """Require one kind of fused communication: ``config`` is mandatory and is checked according to the mode."""
    words = f"dict(mode: {' | '.join(modes)}, config)"

    def demand(value: object) -> str:
        if not isinstance(value, dict) or "config" not in value or value.get("mode") not in modes:
            return words
        counts = _FUSION_CONFIGS[value["mode"]](value["config"])
        return counts and f"{value['mode']}: {counts}"

    return demand


def _of_fusion(value: object) -> str:
    """Return the first error, in the order of the config, as MindSpore does."""
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
_SEARCH = _require_choice("recursive_programming", "dynamic_programming", "sharding_propagation")
_POSITION = _require_integer(0, 2**32 - 1)
_BOOL, _TEXT = _a(bool, "bool"), _a(str, "str")
_FLAG = _a(bool, "bool", nullable=True)
# The requirement for `config`; positions of parameters are as in `all_reduce_fusion_config`.
_FUSION_CONFIGS: Mapping[str, Demand] = {
    "auto": lambda _: "",
    "size": _require_integer(0, 2**63 - 1, switch=True),  # MiB
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
    "auto_pipeline": lambda value: "" if value is False else "False",  # MindFormers refuses True, MindSpore the rest
    "global_rank": _require_integer(0, 4095, switch=True),
    "pipeline_stages": _require_integer(1),
    "pipeline_segments": _require_integer(1),
    "optimizer_weight_shard_size": lambda value: _require_integer(-(10**9))(value) and "int",
    "grad_accumulation_step": _require_integer(1),
    "communi_parallel_mode": _require_choice("all_group_parallel", "same_server_group_parallel", "no_group_parallel"),
    "all_reduce_fusion_config": _indices,
    "parallel_optimizer_config": _of_optimizer,
    "strategy_ckpt_config": _section({"load_file": _TEXT, "save_file": _TEXT, "only_trainable_params": _BOOL}),
    "comm_fusion": _of_fusion,
}


_MODEL = ("model", "model_config")
_METHOD, _FACTOR = (*_MODEL, "extend_method"), (*_MODEL, "scaling_factor")
_ORIGINAL = "original_max_position_embeddings"
# The required keys of `scaling_factor`, and the two that must be in ascending order.
_KEYS = {
    "YARN": ("factor", _ORIGINAL, "beta_slow", "beta_fast", "mscale", "mscale_all_dim"),
    "LLAMA3": ("factor", _ORIGINAL, "low_freq_factor", "high_freq_factor"),
}
_ORDER = {"YARN": ("beta_slow", "beta_fast"), "LLAMA3": ("low_freq_factor", "high_freq_factor")}
_PLAIN = ("PI", "NTK")  # methods where `scaling_factor` is a number
_BROKEN = "linear"  # this method refuses every numeric factor and fails with any other


def find_bad_scaling(context: CheckContext) -> Iterator[Violation]:
    """Report a ``scaling_factor`` that does not match its method."""
    if not context.job.startup.is_llama:
        return
    method, factor = context.source.get(_METHOD, "None"), context.source.get(_FACTOR, 1.0)
    place = _FACTOR if context.source.get(_FACTOR, MISSING) is not MISSING else _METHOD
    if method == _BROKEN:
        yield Violation(_METHOD, "broken")
    elif method in _PLAIN:
        if not isinstance(factor, (int, float)) or (method == "PI" and not factor):
            yield Violation(place, "number", {"method": method})
    elif isinstance(method, str) and method in _KEYS:
        if isinstance(factor, dict):
            yield from _find_bad_mapping(context, method, factor)
        else:
            yield Violation(place, "mapping", {"method": method, "keys": ", ".join(_KEYS[method])})


def _find_bad_mapping(context: CheckContext, method: str, factor: Mapping[object, object]) -> Iterator[Violation]:
    missing = [key for key in _KEYS[method] if key not in factor]
    unknown = [str(key) for key in factor if key not in _KEYS[method]]
    if missing:
        yield Violation(_FACTOR, "missing", {"method": method, "missing": ", ".join(missing)})
        return
    for name in unknown:
        yield Violation((*_FACTOR, name), "unknown", {"method": method}, at_key=True)
    if not unknown:
        yield from _find_bad_entries(context, method, factor)


def _find_bad_entries(context: CheckContext, method: str, factor: Mapping[object, object]) -> Iterator[Violation]:
    for name in _KEYS[method]:
        wanted: tuple[type, ...] = (int,) if name == _ORIGINAL else (int, float)
        if not isinstance(factor[name], wanted):
            yield Violation((*_FACTOR, name), "entry", {"wanted": "/".join(kind.__name__ for kind in wanted)})
            return
    scale, original = factor["factor"], factor[_ORIGINAL]
    low, high = (factor[name] for name in _ORDER[method])
    # LLAMA3 checks its factor twice; the second check requires a float.
    whole = method == "LLAMA3" and not isinstance(scale, float)
    if whole or (isinstance(scale, (int, float)) and scale < 1):
        yield Violation((*_FACTOR, "factor"), "whole" if whole else "small")
    elif isinstance(low, (int, float)) and isinstance(high, (int, float)) and high < low:
        yield Violation((*_FACTOR, _ORDER[method][1]), "order", {"low": _ORDER[method][0]})
    elif isinstance(original, int) and original > _longest(context) - (method == "LLAMA3"):
        path: KeyPath = (*_FACTOR, _ORIGINAL)
        yield Violation(path, "length", {"longest": _longest(context)})


def _longest(context: CheckContext) -> int:
    """Return the number of positions: at least the sequence length (default 2048)."""
    length = context.integer("model.model_config.seq_length", 2048) or 2048
    return max(context.integer("model.model_config.max_position_embedding", length) or length, length)


_TYPES = ("float16", "float32", "bfloat16", "int8")
_OF_EXPERTS = "router_dense_type"  # belongs to another section


def find_unknown_types(context: CheckContext) -> Iterator[Violation]:
    """Report an unknown data type (case-insensitive). If the class has no default, null is allowed."""
    startup = context.job.startup
    if not (startup.is_llama or startup.is_glm):
        return
    for name, default in context.model.facts.defaults.items():
        typed = name.endswith(("_dtype", "_type")) and default in (None, *_TYPES) and name != _OF_EXPERTS
        value = context.source.get((*_MODEL, name), MISSING)
        if not typed or value is MISSING or (value is None and default is None):
            continue
        if str(value).lower() not in _TYPES:
            yield Violation((*_MODEL, name), params={"choices": ", ".join(_TYPES)})
