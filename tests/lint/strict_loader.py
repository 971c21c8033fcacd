"""A strict loader of configs, written from the description of HyperParallel's (a dataclass per section), to compare checks with.

It knows nothing of ms-tune's tables: the classes below are a second copy of the fields, with Python's own annotations. ``Any`` is a
field whose type is not stated in what was read of the repository.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin

_DTYPES = Literal["bfloat16", "float16", "float32"] | None
_TARGET = {"_target_": str}
Refusal = tuple[str, str]  # the path, and the kind: unknown, missing, type or choice


def _any(names: str) -> dict[str, Any]:
    return dict.fromkeys(names.split(), Any)


def _fields(generation: int) -> dict[str, Any]:
    """Return the root's fields of G3 or G4: an annotation, or a dict for a section; required ones are marked by a tuple."""
    sizes = dict.fromkeys(("tp_size", "cp_size", "ep_size", "pp_size"), int)
    flags = ("enable_offload", "reshard_after_forward", "reshard_after_backward", "requires_grad_sync")
    training = {
        "train_iters": int | None,
        "train_samples": int | None,
        "global_batch_size": int,
        "micro_batch_size": int,
        "backend": Literal["nccl", "hccl", "gloo"],
        "init_device": Literal["meta", "cpu", "cuda", "npu"],
        "loss_aggregation": Literal["token_weighted", "rank_average"],
        "eval_steps": int,
        "eval_epochs": int,
        **_any("lr_scheduler_iters eval_iters max_grad_norm seed enable_full_determinism gc_steps empty_cache_steps"),
        **_any("empty_cache_before_backward logging_steps"),
        "low_precision": _any("enabled format scaling"),
    }
    fsdp = {
        "dp_shard_size": int,
        "edp_shard_size": int,
        "forward_prefetch_depth": int,
        "backward_prefetch_depth": int,
        **dict.fromkeys(flags, bool),
        **_any("replicate_params comm_fusion comm_fusion_zero_copy"),
        "mix_precision": {
            "param_dtype": _DTYPES,
            "reduce_dtype": _DTYPES,
            "output_dtype": _DTYPES,
            **_any("cast_forward_inputs"),
        },
    }
    saved = (
        "save_ckpt checkpoint_dir save_steps save_epochs is_async is_peft save_optimizer save_train_state restore_from"
    )
    more = "save_extra_state_per_rank restore_optimizer restore_train_state restore_dataloader_state model_save_format"
    loader = "collate_fn get_batch batch_adapter data_rearrange_map data_sharding use_background_prefetcher"
    root: dict[str, Any] = {
        "model": (_TARGET,),
        "optimizer": (_TARGET,),
        "lr_scheduler": (_TARGET, None),
        "loss_fn": (_TARGET, None),
        "flops_estimator": (_TARGET, None),
        "dataset": (_TARGET, None),
        "model_init_dtype": _DTYPES,
        "training": training,
        "accelerator": {**sizes, "sequence_parallel": bool, "loss_parallel": bool},
        "fsdp_config": fsdp,
        "mixed_precision": _any("enabled"),
        "plan_overrides": list,
        "activation_checkpoint": {
            "mode": Literal["off", "full", "selective"] | None,
            "swap_inputs": bool,
            "selection": Any,
        },
        "activation_swap": Literal["none", "attention"],
        "compile": _any("enabled use_joint_graph mode fullgraph dynamic backend options dynamo_cache_size_limit"),
        "dataloader": ({**_TARGET, **_any(loader), "sampler_type": Literal["single", "cyclic"]}, None),
        "checkpoint": _any(f"{saved} {more} save_consolidated staging_dir best_metric_key"),
        "debug": {
            "check_dataset": Literal["debug", "info", "warn"] | None,
            **_any("check_nan_inf check_fsdp_runtime"),
        },
        "model_integration": {"mode": Literal["off", "build", "runtime"]},
        "wandb": _any("enabled project entity"),
        **_any("packed_sequence peft magi"),
    }
    steps = "enabled start_step with_stack"
    if generation == 3:
        old = "end_step trace_dir profile_memory rank record_shapes with_modules"
        return {**root, "profiling": _any(f"{steps} {old}")}
    new = "stop_step start_on_init memory rank_ids pipeline_stage_leaders output_path level data_simplification mstx"
    recorded = "enable start_step end_step save_path dump_ranks max_entries mem_info"
    memory = {**_any(recorded), "stacks": Any}
    return {**root, "profiler": _any(f"{steps} {new}"), "memory": memory, "codegen": Any}


FIELDS = {f"G{number}": _fields(number) for number in (3, 4)}
_REQUIRED = ("model", "optimizer")


def refusals(data: dict[str, Any], generation: str) -> set[Refusal]:
    """Return what the loader of a generation refuses in a config."""
    missing = {(name, "missing") for name in _REQUIRED if name not in data}
    return missing | set(_load(data, FIELDS[generation], ""))


def _load(values: dict[str, Any], fields: dict[str, Any], path: str) -> Iterator[Refusal]:
    for name, value in values.items():
        here = f"{path}.{name}".lstrip(".")
        if name not in fields:
            if "_target_" not in values and fields.get("_target_") is None:
                yield here, "unknown"
            continue
        wanted = fields[name]
        optional = isinstance(wanted, tuple) and wanted[-1] is None
        section = wanted[0] if isinstance(wanted, tuple) else wanted
        if not isinstance(section, dict):
            kind = _refuse(value, section)
            if kind:
                yield here, kind
        elif isinstance(value, dict):
            yield from _load(value, section, here)
        elif not (value is None and optional):
            yield here, "type"


def _refuse(value: Any, wanted: Any) -> str:  # noqa: ANN401 - any value, any annotation
    parts = get_args(wanted) if get_origin(wanted) in (UnionType, *_UNIONS) else (wanted,)
    kinds = [_refuse_one(value, one) for one in parts]
    return "" if "" in kinds else "choice" if "choice" in kinds else "type"


_UNIONS = (get_origin(_DTYPES),)


def _refuse_one(value: Any, wanted: Any) -> str:  # noqa: ANN401 - as above
    if wanted is Any:
        return ""
    if get_origin(wanted) is Literal:
        words = get_args(wanted)
        if isinstance(value, bool):  # what YAML made of off, on, no
            spelled = ("on", "yes", "true") if value else ("off", "no", "false")
            return "" if set(spelled) & set(words) else "type"
        return "type" if not isinstance(value, str) else "" if value in words else "choice"
    if wanted is NoneType or value is None:
        return "" if wanted is NoneType and value is None else "type"
    if isinstance(value, bool):
        return "" if wanted is bool else "type"
    return "" if isinstance(value, (int, float) if wanted is float else wanted) else "type"
