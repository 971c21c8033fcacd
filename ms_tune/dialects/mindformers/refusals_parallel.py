"""What MindFormers and MindSpore refuse of the parallel settings, and of data beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from ms_tune.dialects.check_context import Violation
from ms_tune.dialects.mindformers import startup
from ms_tune.facts.keys import mindspore_values
from ms_tune.facts.models import names_of
from ms_tune.source.yaml import find_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ms_tune.diagnostics import KeyPath
    from ms_tune.dialects.check_context import CheckContext

    Demand: TypeAlias = Callable[[object], str]

_PIPELINE = ("parallel", "pipeline_config")
_KEYS = ("pipeline_interleave", "pipeline_scheduler")


def pipeline_config(context: CheckContext) -> Iterator[Violation]:
    """What ``set_pipeline_config`` refuses."""
    value = context.source.get(_PIPELINE)
    if value is None:
        return
    if not isinstance(value, dict):
        yield Violation(_PIPELINE)
        return
    for key in value:
        if key not in _KEYS:
            yield Violation((*_PIPELINE, str(key)), "unknown", at_key=True)
    for key in _KEYS:
        if key not in value:
            yield Violation(_PIPELINE, "missing", {"missing": key}, at_key=True)
    interleave, scheduler = (value.get(key) for key in _KEYS)
    if _KEYS[0] in value and not isinstance(interleave, bool):
        yield Violation((*_PIPELINE, _KEYS[0]))
    if _KEYS[1] in value and scheduler not in mindspore_values("pipeline_scheduler"):
        yield Violation((*_PIPELINE, _KEYS[1]))
    elif interleave is False and scheduler not in ("1f1b", None):
        yield Violation((*_PIPELINE, _KEYS[1]), "interleave")


def interleave_without_number(context: CheckContext) -> Iterator[Violation]:
    """Interleave without the number of chunks, which ``LayerSetting`` multiplies with: legacy models have 1 of their own."""
    model = context.mapping("model.model_config")
    chunks = names_of("virtual_pipeline_model_parallel_size")
    counted = any(model.get(name) is not None for name in chunks)
    absent = startup.is_legacy(context) and chunks[1] not in model
    if startup.interleaves(context) and not counted and not absent:
        yield Violation((*_PIPELINE, "pipeline_interleave"))


def sequence_without_tensor(context: CheckContext) -> Iterator[Violation]:
    """Sequence parallelism with one tensor-parallel rank (``ModelParallelConfig.__post_init__``, 1.6 to 2.1).

    Where the network is not split, all sizes are set back to 1; since 1.8 the switch is turned off as well.
    """
    splits = startup.splits(context)
    tensor = context.integer("parallel_config.model_parallel", 1) if splits else 1
    kept = context.version in ("1.6", "1.7") or (splits and bool(context.get("use_parallel")))
    if kept and tensor == 1 and context.get("parallel_config.use_seq_parallel") is True:
        yield Violation(("parallel_config", "use_seq_parallel"))


def dataset_strategy(context: CheckContext) -> Iterator[Violation]:
    """Without ``full_batch`` the first number of the strategy has to be the data-parallel size."""
    # The template's defaults: parallel_mode 1, full_batch True (ParallelConfig of register/template.py).
    if context.source.get(("parallel", "full_batch"), default=True):  # a null written out is no default
        return
    if context.get("parallel.parallel_mode", 1) not in mindspore_values("splitting"):
        return
    strategy = context.get("parallel.dataset_strategy")
    ways = context.integer("parallel_config.data_parallel", 1)
    path = ("parallel", "dataset_strategy")
    if not isinstance(strategy, list) or not strategy or not isinstance(strategy[0], list) or not strategy[0]:
        where = path if strategy is not None else ("parallel", "full_batch")
        yield Violation(where, "form", {"wanted": ways})
    elif strategy[0][0] != ways:
        related = ((("parallel_config", "data_parallel"), "data"),)
        yield Violation((*path, 0, 0), params={"given": strategy[0][0], "wanted": ways}, related=related)


def interleave_of_whole_sequence(context: CheckContext) -> Iterator[Violation]:
    """``fine_grain_interleave`` with a sequence that is not split (``_check_config_campacity`` of ``check_rules``, 1.6 to 2.1)."""
    number = context.integer("model.model_config.fine_grain_interleave", 1) or 1
    ways = (context.integer("parallel_config.context_parallel", 1) or 1) if startup.splits(context) else 1
    if number > 1 and ways <= 1 and not startup.splits_sequence(context):
        yield Violation(("model", "model_config", "fine_grain_interleave"))


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


def no_longer(context: CheckContext) -> Iterator[Violation]:
    """``grad_accumulation_step``, which MindSpore has no code for any more: it refuses every number but 1."""
    value = context.get(f"{_SECTION}.grad_accumulation_step", 1)
    if isinstance(value, int) and value > 1:
        yield Violation((_SECTION, "grad_accumulation_step"))


def _is_replaced(context: CheckContext, name: str, value: object) -> bool:
    """Whether MindFormers puts a value of its own in the place of what is written."""
    if name == "full_batch":  # false where the network is not split
        return value is None or (bool(value) and not startup.splits(context))
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


def sequence_length(context: CheckContext) -> Iterator[Violation]:
    """Data of another length than the model's, where both are written.

    ``blended_megatron_dataloader.py`` and the handlers of ``hf_dataloader.py`` cut samples to the ``seq_length`` that they are
    given; the network is built for its own. The option ``paths`` says where lengths of data stand.
    """
    field = context.model.field("seq_length")
    wanted, place = field.value, field.path
    if place is None or not isinstance(wanted, int) or isinstance(wanted, bool):
        return
    listed = context.options["paths"]
    for dotted in listed if isinstance(listed, list) else ():
        for path, given in find_values(context.source.data, _parse_path(str(dotted))):
            if isinstance(given, int) and not isinstance(given, bool) and given != wanted:
                yield Violation(path, params={"given": given, "wanted": wanted}, related=((place, "model"),))


def columns(context: CheckContext) -> Iterator[Violation]:
    """``dataset_strategy`` with another number of entries than the data has columns.

    ``_get_columns_with_strategy`` of ``trainer/base_trainer.py`` takes both as they are written; MindSpore asks for one entry
    for each input (``VirtualDatasetInfo::CheckStrategy``).
    """
    strategy, names = context.get("parallel.dataset_strategy"), context.get("train_dataset.input_columns")
    if not isinstance(strategy, list) or not isinstance(names, list) or not strategy or not names:
        return
    if context.source.get(("parallel", "full_batch"), default=True) and startup.is_legacy(context):
        return  # the strategy is set back to "full_batch"
    splitting = context.get("parallel.parallel_mode", 1) in mindspore_values("splitting")
    if splitting and startup.is_parallel(context) and len(strategy) != len(names):
        params = {"entries": len(strategy), "columns": len(names)}
        yield Violation(
            ("parallel", "dataset_strategy"),
            params=params,
            related=((("train_dataset", "input_columns"), "columns"),),
        )


def prediction(context: CheckContext) -> Iterator[Violation]:
    """What ``check_rules._check_predict_with_train_model`` refuses: several data-parallel copies, and split batches."""
    path: KeyPath = ("parallel_config", "data_parallel")
    copies = context.integer("parallel_config.data_parallel", 1) or 1
    if copies > 1 and startup.splits(context):
        yield Violation(path, "copies", {"copies": copies})
    if startup.splits(context) and not context.source.get(("parallel", "full_batch"), default=True):
        yield Violation(("parallel", "full_batch"))


def _parse_path(dotted: str) -> KeyPath:
    return tuple(dotted.split("."))
