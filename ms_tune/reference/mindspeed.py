"""Convert ``mindspeed-ms`` configs to jobs for the reference transformer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ms_tune.dialects.draft import is_full
from ms_tune.dialects.job_parts import DType, SettingChange, TrainingConfig
from ms_tune.dialects.mindspeed_ms.read import recomputes_groups
from ms_tune.dialects.mindspeed_ms.training_config import read_mindspeed_ms
from ms_tune.dialects.sections import find_section
from ms_tune.dialects.stage import StageLayer
from ms_tune.errors import ConfigError
from ms_tune.facts.models import LAYERS
from ms_tune.facts.training import mindspeed_framework
from ms_tune.reference.read import DynamicJob, Names, Placed, fewest_devices, placed_layers, refuse_unserved
from ms_tune.source.yaml import SourceFile
from ms_tune.text import Message, msg

if TYPE_CHECKING:
    from ms_tune.dialects import JobView, LayerSpec

_NORMS = ("RMSNorm", "FusedRMSNorm", "LayerNorm", "FusedLayerNorm")
_ACTIVATIONS = ("swiglu", "fusedswiglu", "gelu", "fast_gelu", "silu", "relu")
_OPTIMIZERS = ("mint.AdamW", "SpeedAdamW")
_NAMES = Names(
    tensor="parallel_config.tensor_model_parallel_size",
    context="parallel_config.context_parallel_size",
    expert="parallel_config.expert_model_parallel_size",
    heads="model_config.num_attention_heads",
    groups="model_config.num_query_groups",
    width="model_config.ffn_hidden_size",
    words="model_config.vocab_size",
    tokens="model_config.seq_length",
    experts="moe_config.num_experts",
    micro_batches="dataset_config.micro_batch_num",
)
# The modules of selective recomputation, by the framework's name and by the reference transformer's.
_MODULES = {"mlp.act_func": "mlp.activation_func", "attention.core_attention": "self_attention.core_attention"}
_CELL_ACTIVATIONS = ("gelu", "fast_gelu")  # the others are functions, not reached by recomputation (transformer.py)


def read_mindspeed(job: JobView, devices: int | None) -> DynamicJob:
    """Return the job of a MindSpeed-Core-MS config."""
    source = job.original
    config = _as_installed(read_mindspeed_ms(source.data, source.path))
    shape, parallel = config.shape, config.parallelism
    if shape.experts and parallel.context > 1 and parallel.expert > 1:  # core/parallel_state.py
        raise ConfigError(msg("reference.experts-and-context"), path=source.path)
    if shape.experts and parallel.tensor > 1 and not parallel.sequence:  # legacy/model/moe/moe_layer.py
        raise ConfigError(msg("reference.experts-need-sequence"), path=source.path)
    layers, warnings = placed_layers(job.plan, partial(_make_layer, config), source.path)
    return DynamicJob(
        config=config,
        layers=layers,
        devices=devices or fewest_devices(config),
        names=_NAMES,
        batch_key=(_NAMES.micro_batches, 1),
        layer_changes=_layer_changes,
        not_included=tuple(_not_included(source, config)),
        warnings=warnings,
        validated=(msg("reference.standing.mindspeed"),),
    )


def _as_installed(config: TrainingConfig) -> TrainingConfig:
    # Return the config with the installed framework's number format of normalisations. MindSpeed-Core-MS r0.1.0 creates their
    # weights in ``params_dtype`` (legacy/model/norm.py, get_norm). MindFormers 1.6 creates those of FusedRMSNorm in
    # ``compute_dtype`` and all others in float32 (transformer/norm.py there).
    framework, precision = mindspeed_framework(), config.precision
    if framework is None or not framework.package.startswith("mindformers."):
        return config
    norm = precision.compute if config.shape.normalization == "FusedRMSNorm" else DType.FLOAT32
    return config._replace(precision=precision._replace(norm=norm))


def _make_layer(config: TrainingConfig, plan: LayerSpec) -> StageLayer:
    shape, parallel = config.shape, config.parallelism
    reaches = not shape.flash_attention or shape.activation in _CELL_ACTIVATIONS
    return StageLayer(
        number=plan.layer,
        experts=shape.experts is not None,
        full=is_full(plan),
        select=tuple(_MODULES[pattern] for pattern in plan.select_patterns) if reaches else (),
        communication=bool(plan.comm_patterns) and parallel.sequence and parallel.tensor > 1,
    )


def _layer_changes(before: Sequence[Placed], after: Sequence[Placed]) -> Iterator[SettingChange]:
    # Yield the changed lists of layer settings; only one stage differs.
    yield SettingChange(f"model_config.{LAYERS}", len(before), len(after))
    chunks = 1 + max(chunk for chunk, _, _ in before)
    stages = 1 + max(stage for _, stage, _ in before)

    def table(layers: Sequence[Placed], chosen: Callable[[StageLayer], bool]) -> list[Any]:
        counts = Counter((chunk, stage) for chunk, stage, layer in layers if chosen(layer))
        rows = [[counts[chunk, stage] for stage in range(stages)] for chunk in range(chunks)]
        return rows if chunks > 1 else rows[0]

    recompute = "parallel_config.recompute_config"
    lists: dict[str, Callable[[StageLayer], bool]] = {
        f"{recompute}.recompute": lambda layer: layer.full,
        f"{recompute}.select_recompute": lambda layer: bool(layer.select),
        f"{recompute}.select_comm_recompute": lambda layer: layer.communication,
    }
    if stages > 1:
        lists = {"parallel_config.num_layer_list": lambda _: True, **lists}
    for key, chosen in lists.items():
        old, new = table(before, chosen), table(after, chosen)
        if old != new:
            yield SettingChange(key, old, new)


def _not_included(source: SourceFile, config: TrainingConfig) -> Iterator[Message]:
    model, optimizer = find_section(source.data, "model_config"), find_section(source.data, "optimizer_config")
    if model.get("hidden_dropout") or model.get("attention_dropout"):
        yield msg("reference.not-included.dropout")
    if optimizer.get("clip_grad"):
        yield msg("reference.not-included.clipping")
    if recomputes_groups(source):
        yield msg("reference.not-included.uniform")
    if config.shape.experts:
        yield msg("reference.not-included.routing")


def check_mindspeed_served(source: SourceFile, config: TrainingConfig) -> None:
    """Raise :class:`UnsupportedError` if the reference transformer does not support a setting of the config."""
    parallel, shape = config.parallelism, config.shape
    sections = {name: find_section(source.data, name) for name in ("model_config", "parallel_config", "lora_config")}
    model, zero_level = sections["model_config"], sections["parallel_config"].get("zero_level")
    refuse_unserved(
        {
            "parallel_config.zero_level": (zero_level, zero_level is None),
            "model_config.num_experts": (model.get("num_experts"), model.get("num_experts") in (None, 1)),
            "model_config.hidden_act": (shape.activation, shape.activation in _ACTIVATIONS),
            "model_config.normalization": (shape.normalization, shape.normalization in _NORMS),
            "model_config.use_flash_attention": (False, shape.flash_attention or parallel.context == 1),
            "optimizer_config.optimizer_type": (config.optimizer.name, config.optimizer.name in _OPTIMIZERS),
            "lora_config.use_lora": (True, not sections["lora_config"].get("use_lora")),
        }
    )
