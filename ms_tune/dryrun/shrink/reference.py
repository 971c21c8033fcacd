"""Dynamic-graph configs, run with ms-tune's reference transformer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ms_tune.config.dialects.mindspeed_ms import read_mindspeed_ms
from ms_tune.config.dialects.recognise import Dialect
from ms_tune.config.model import Recompute, TrainingConfig
from ms_tune.dryrun.job import ReferenceJob
from ms_tune.dryrun.request import STEPS, Change, DryrunRequest, PreparedRun
from ms_tune.errors import ConfigError, UnsupportedError, UsageError
from ms_tune.texts import msg

if TYPE_CHECKING:
    from ms_tune.config.source import SourceFile
    from ms_tune.texts import Message

_NORMS = ("RMSNorm", "FusedRMSNorm")
_OPTIMIZERS = ("mint.AdamW", "SpeedAdamW")


def prepare(source: SourceFile, name: str, request: DryrunRequest, devices: int | None) -> PreparedRun:
    """A run of the reference transformer in the shape of the config."""
    config = read_mindspeed_ms(source.data, source.path)
    _check_served(source, config)
    _check_recompute(source, config)
    world_size = devices or 1
    if request.stage:
        raise UsageError(msg("dryrun.stage", stage=request.stage, stages=1))
    config, changes = _shrink(config, request.layers)
    return PreparedRun(
        job=ReferenceJob(config, world_size, STEPS),
        dialect=Dialect.MINDSPEED_MS,
        config_name=name,
        packaged=request.config is None,
        config_text=source.text,
        files={},
        world_size=world_size,
        rank=0,
        stage=0,
        stages=1,
        layers=config.shape.num_layers,
        shrunk=bool(changes),
        model=msg("dryrun.model.reference"),
        max_device_memory=None,
        changes=changes,
        not_included=(),
        warnings=_without_effect(config),
    )


def _shrink(config: TrainingConfig, layers: int | None) -> tuple[TrainingConfig, tuple[Change, ...]]:
    """The config with so many layers, and what was changed for it."""
    full = config.shape.num_layers
    if layers is None or layers == full:
        return config, ()
    changes = [Change("model_config.num_layers", full, layers)]
    recompute = config.recompute
    if recompute is not None and recompute.full > layers:
        key = "parallel_config.recompute_config.recompute"
        changes.append(Change(key, [recompute.full], [layers]))
        recompute = Recompute(layers, recompute.select, recompute.communication)
    return replace(config, shape=replace(config.shape, num_layers=layers), recompute=recompute), tuple(changes)


def _check_recompute(source: SourceFile, config: TrainingConfig) -> None:
    """The framework's own sum rule (legacy/model/transformer.py): no layer may be named twice."""
    recompute, layers = config.recompute, config.shape.num_layers
    if recompute is None:
        return
    for key, count in (("select_recompute", recompute.select), ("select_comm_recompute", recompute.communication)):
        if recompute.full + count > layers:
            raise ConfigError(
                msg("model.recompute-sum", key=key, count=recompute.full + count, layers=layers), path=source.path
            )


def _without_effect(config: TrainingConfig) -> tuple[Message, ...]:
    """Kinds of recompute that MindSpeed-Core-MS accepts and does not do for the models that are served here.

    With FlashAttention ``select_recompute`` reaches the activation function if that is a Cell, which SwiGLU is not;
    ``select_comm_recompute`` repeats an all-gather that exists with sequence parallelism only (reference:
    legacy/model/transformer.py, core/tensor_parallel/layers.py, r0.1.0).
    """
    recompute = config.recompute
    counts = (
        {"select_recompute": recompute.select, "select_comm_recompute": recompute.communication} if recompute else {}
    )
    return tuple(msg("dryrun.warning.no-effect", key=key) for key, count in counts.items() if count)


def _check_served(source: SourceFile, config: TrainingConfig) -> None:
    """Refuse what the reference transformer does not do: a figure for another model would be a wrong figure."""
    parallel, shape = config.parallelism, config.shape
    experts = source.data.get("moe_config") or {}
    num_experts = experts.get("num_experts", 1) if isinstance(experts, dict) else 1
    model = source.data.get("model_config") or {}
    zero_level = (source.data.get("parallel_config") or {}).get("zero_level")
    lora = source.data.get("lora_config") or {}
    not_served = {
        "parallel_config.tensor_model_parallel_size": (parallel.tensor, parallel.tensor == 1),
        "parallel_config.pipeline_model_parallel_size": (parallel.pipeline, parallel.pipeline == 1),
        "parallel_config.context_parallel_size": (parallel.context, parallel.context == 1),
        "parallel_config.expert_model_parallel_size": (parallel.expert, parallel.expert == 1),
        "parallel_config.zero_level": (zero_level, zero_level is None),
        "moe_config.num_experts": (num_experts, num_experts in (None, 1)),
        "model_config.num_experts": (model.get("num_experts"), model.get("num_experts") in (None, 1)),
        "model_config.recompute_granularity": (
            model.get("recompute_granularity"),
            model.get("recompute_granularity") is None,
        ),
        "model_config.hidden_act": (shape.activation, shape.gated),
        "model_config.normalization": (shape.normalization, shape.normalization in _NORMS),
        "model_config.position_embedding_type": ("absolute", shape.rotary),
        "model_config.use_flash_attention": (shape.flash_attention, shape.flash_attention),
        "optimizer_config.optimizer_type": (config.optimizer.name, config.optimizer.name in _OPTIMIZERS),
        "lora_config.use_lora": (True, not (isinstance(lora, dict) and lora.get("use_lora"))),
    }
    for key, (value, served) in not_served.items():
        if not served:
            raise UnsupportedError(
                msg("dryrun.reference.not-served", key=key, value=value), msg("dryrun.reference.not-served.hint")
            )
