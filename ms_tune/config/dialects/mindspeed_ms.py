"""Reads MindSpeed-Core-MS r0.1.0 configs (dynamic graph) into the neutral model.

Sections, defaults and forced values follow ``mindspeed_ms/core/config.py`` of branch r0.1.0. Only what a single
pipeline stage needs is read here; what it does not say takes the framework's own default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ms_tune.config.model import (
    Batch,
    DType,
    ModelShape,
    Optimizer,
    Parallelism,
    Precision,
    Recompute,
    TrainingConfig,
)
from ms_tune.errors import ConfigError
from ms_tune.texts import msg

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_Value = TypeVar("_Value", int, str, bool)


class _Section:
    """One section of the config, read with types checked: the framework's own validators are as strict."""

    def __init__(self, data: Mapping[str, object], name: str, path: Path) -> None:
        section = data.get(name)
        self.name = name
        self.path = path
        self._values: Mapping[object, object] = {}
        if isinstance(section, dict):
            self._values = section
        elif section is not None:
            raise ConfigError(msg("model.section-not-a-mapping", key=name), path=path)

    def get(self, key: str, default: _Value | None) -> _Value:
        """The value of a key, of the default's type (an int if there is no default).

        Raises:
            ConfigError: The key has no default and is missing, or the value has another type.
        """
        value = self._values.get(key)
        if value is None:
            if default is None:
                raise ConfigError(msg("model.missing-key", key=f"{self.name}.{key}"), path=self.path)
            return default
        wanted = int if default is None else type(default)
        # bool is a subclass of int; the framework rejects it where an int is wanted, and so does this.
        if type(value) is not wanted:
            raise ConfigError(
                msg("model.wrong-type", key=f"{self.name}.{key}", wanted=wanted.__name__, value=repr(value)),
                path=self.path,
            )
        if wanted is int and isinstance(value, int) and value <= 0:
            raise ConfigError(msg("model.not-positive", key=f"{self.name}.{key}", value=value), path=self.path)
        return value  # type: ignore[return-value] # checked just above, in a way that mypy cannot follow

    def raw(self, key: str) -> object:
        """The value of a key as the parser gave it."""
        return self._values.get(key)


def read_mindspeed_ms(data: Mapping[str, object], path: Path) -> TrainingConfig:
    """The neutral model of a MindSpeed-Core-MS config.

    Raises:
        ConfigError: A required key is missing or a value cannot be.
    """
    model = _Section(data, "model_config", path)
    training = _Section(data, "training_config", path)
    parallel = _Section(data, "parallel_config", path)
    batch = _Section(data, "dataset_config", path)
    optimizer = _Section(data, "optimizer_config", path)
    parallelism = _read_parallelism(parallel)
    # core/config.py _check_arguments: fp16 and bf16 force params_dtype and compute_dtype.
    if training.get("bf16", default=False):
        parameters = DType.BFLOAT16
    elif training.get("fp16", default=False):
        parameters = DType.FLOAT16
    else:
        parameters = DType(_one_of(model, "params_dtype", [dtype.value for dtype in DType], "float32"))
    mixed = training.get("bf16", default=False) or training.get("fp16", default=False)
    ddp = training.get("wrap_with_ddp", default=False)
    # training/training.py: bf16 with DDP forces accumulation in float32.
    fp32_gradients = ddp and (training.get("accumulate_allreduce_grads_in_fp32", default=False) or mixed)
    return TrainingConfig(
        shape=_read_shape(model, path),
        parallelism=parallelism,
        batch=Batch(batch.get("batch_size", 1), batch.get("micro_batch_num", 1)),
        precision=Precision(parameters, mixed, DType.FLOAT32 if fp32_gradients else parameters),
        optimizer=Optimizer(
            optimizer.get("optimizer_type", "AdamWeightDecay"),
            gradient_buffers=ddp,
            # Forced to False without DDP (core/config.py, use_distributed_optimizer).
            distributed=ddp and training.get("use_distributed_optimizer", default=False),
        ),
        recompute=_read_recompute(parallel, path) if parallelism.pipeline == 1 else None,
    )


def _read_shape(model: _Section, path: Path) -> ModelShape:
    heads = model.get("num_attention_heads", None)
    hidden = model.get("hidden_size", None)
    if hidden % heads:
        raise ConfigError(
            msg("model.not-divisible", a="model_config.hidden_size", b="model_config.num_attention_heads"), path=path
        )
    groups = model.get("num_query_groups", 32) if model.get("group_query_attention", default=False) else heads
    if heads % groups:
        raise ConfigError(
            msg("model.not-divisible", a="model_config.num_attention_heads", b="model_config.num_query_groups"),
            path=path,
        )
    return ModelShape(
        vocab_size=model.get("vocab_size", None),
        hidden_size=hidden,
        ffn_hidden_size=model.get("ffn_hidden_size", None),
        num_layers=model.get("num_layers", None),
        num_attention_heads=heads,
        num_query_groups=groups,
        head_size=model.get("kv_channels", hidden // heads),
        seq_length=model.get("seq_length", None),
        activation=model.get("hidden_act", "gelu"),
        normalization=model.get("normalization", "LayerNorm"),
        rotary=model.get("position_embedding_type", "absolute") == "rope",
        tied_embeddings=not model.get("untie_embeddings_and_output_weights", default=False),
        qkv_bias=model.get("qkv_has_bias", default=True),
        output_bias=model.get("out_proj_has_bias", default=True),
        mlp_bias=model.get("mlp_has_bias", default=True),
        flash_attention=model.get("use_flash_attention", default=False),
    )


def _read_parallelism(parallel: _Section) -> Parallelism:
    virtual = parallel.raw("virtual_pipeline_model_parallel_size")
    return Parallelism(
        tensor=parallel.get("tensor_model_parallel_size", 1),
        pipeline=parallel.get("pipeline_model_parallel_size", 1),
        context=parallel.get("context_parallel_size", 1),
        expert=parallel.get("expert_model_parallel_size", 1),
        virtual_pipeline=None if virtual is None else parallel.get("virtual_pipeline_model_parallel_size", 1),
        sequence=parallel.get("sequence_parallel", default=False),
    )


def _read_recompute(parallel: _Section, path: Path) -> Recompute:
    """Counts of a pipeline of one stage: every list has the shape ``(1,)`` (legacy/model/transformer.py)."""
    config = parallel.raw("recompute_config")
    if config is None:
        return Recompute(0, 0, 0)
    known = ("recompute", "select_recompute", "select_comm_recompute")
    if not isinstance(config, dict):
        raise ConfigError(msg("model.section-not-a-mapping", key="parallel_config.recompute_config"), path=path)
    unknown = [str(key) for key in config if key not in known]
    if unknown:
        raise ConfigError(
            msg("model.unknown-key", key=f"parallel_config.recompute_config.{unknown[0]}", known=", ".join(known)),
            path=path,
        )
    counts = []
    for key in known:
        value = config.get(key) or [0]
        valid = isinstance(value, list) and len(value) == 1 and type(value[0]) is int and value[0] >= 0
        if not valid:
            raise ConfigError(
                msg("model.not-one-count", key=f"parallel_config.recompute_config.{key}", value=repr(value)), path=path
            )
        counts.append(value[0])
    return Recompute(*counts)


def _one_of(section: _Section, key: str, choices: list[str], default: str) -> str:
    value = section.get(key, default)
    if value not in choices:
        raise ConfigError(
            msg("model.not-one-of", key=f"{section.name}.{key}", value=repr(value), choices=", ".join(choices)),
            path=section.path,
        )
    return value
