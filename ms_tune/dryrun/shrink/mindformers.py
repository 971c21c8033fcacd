"""MindFormers static-graph configs, run with the real MindFormers on a synthetic data set."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ms_tune.config.dialects.recognise import Dialect
from ms_tune.dryrun.job import MindFormersJob
from ms_tune.dryrun.request import STEPS, DryrunRequest, PreparedRun
from ms_tune.dryrun.shrink.config_copy import ConfigCopy
from ms_tune.dryrun.shrink.mindformers_data import (
    batch_size,
    columns,
    inline_model_folder,
    sample_length,
    settle_data_strategy,
    take_out_the_surroundings,
)
from ms_tune.dryrun.shrink.mindformers_layers import Wish, cut, layer_count_key, layer_plan
from ms_tune.errors import ConfigError, UnsupportedError, UsageError
from ms_tune.texts import msg
from ms_tune.units import parse_size

if TYPE_CHECKING:
    from ms_tune.config.source import SourceFile
    from ms_tune.layers.plans import NormalizedPlan
    from ms_tune.texts import Message

_CONFIG_FILE = "config.yaml"
_SECTIONS = (
    *("model", "model.model_config", "parallel_config", "parallel", "parallel.pipeline_config", "context"),
    *("context.ascend_config", "runner_config", "recompute_config", "swap_config", "train_dataset", "moe_config"),
)
# With fewer threads MindSpore cannot build graphs that contain conditions ("Can not build a sub graph which contains
# ConditionSwitch"): by default it takes a share of the machine's cores, which is too small on a laptop.
_DISPATCH_THREADS = 8


def prepare(source: SourceFile, name: str, request: DryrunRequest, devices: int | None) -> PreparedRun:
    """A run of one stage of the config's own model in MindFormers."""
    config = ConfigCopy(source.data, source.path, _SECTIONS)
    if config.get("run_mode", "train") not in ("train", "finetune"):
        raise UnsupportedError(msg("dryrun.run-mode", mode=config.get("run_mode")), msg("dryrun.run-mode.hint"))
    inline_model_folder(config)
    stages, world_size = _sizes(config, devices)
    if request.stage >= stages:
        raise UsageError(msg("dryrun.stage", stage=request.stage, stages=stages))
    key = layer_count_key(config)
    if key is None:
        raise ConfigError(msg("dryrun.no-layer-count"), msg("dryrun.no-layer-count.hint"), path=source.path)
    plan = layer_plan(config)
    warnings = _check_plan(plan, source, shrunk=request.layers is not None)
    model = cut(config, plan, Wish(key, request.stage, stages, request.layers))
    limit = _memory_limit(config, source)
    made = columns(config, sample_length(config))
    job = MindFormersJob(
        config_file=_CONFIG_FILE,
        columns=made,
        batches=STEPS,
        batch_size=batch_size(config),
        threads=max(_DISPATCH_THREADS, os.cpu_count() or 1),
    )
    settle_data_strategy(model.config, made)
    take_out_the_surroundings(model.config)
    return PreparedRun(
        job=job,
        dialect=Dialect.MINDFORMERS,
        config_name=name,
        packaged=request.config is None,
        config_text=source.text,
        files={_CONFIG_FILE: model.config.text()},
        world_size=world_size,
        rank=request.stage * (world_size // stages),
        stage=request.stage,
        stages=stages,
        layers=model.layers,
        shrunk=request.layers is not None and model.shrunk,
        model=msg("dryrun.model.mindformers"),
        max_device_memory=limit,
        changes=model.config.changes,
        not_included=(msg("dryrun.not-included.other-stages"),) if stages > 1 else (),
        warnings=warnings,
        kinds=model.kinds,
    )


def _check_plan(plan: NormalizedPlan | None, source: SourceFile, *, shrunk: bool) -> tuple[Message, ...]:
    """What a shrunk run would hide: that MindFormers stops at the layer settings of the config as it is written."""
    if plan is None or plan.failure is None:
        return ()
    error = f"{plan.failure.exception}: {plan.failure.text}"
    if shrunk:
        return (msg("dryrun.warning.refused", error=error),)
    raise ConfigError(msg("dryrun.refused", error=error), msg("dryrun.refused.hint"), path=source.path)


def _sizes(config: ConfigCopy, devices: int | None) -> tuple[int, int]:
    """Pipeline stages, and ranks of the whole job."""
    stages = config.count("parallel_config.pipeline_stage", 1)
    world_size = stages
    for key in ("data_parallel", "model_parallel", "context_parallel"):
        world_size *= config.count(f"parallel_config.{key}", 1)
    if not config.get("use_parallel", default=False):
        stages = world_size = 1
    if devices is not None and devices != world_size:
        raise UsageError(msg("dryrun.devices-fixed", devices=devices, size=world_size))
    return stages, world_size


def _memory_limit(config: ConfigCopy, source: SourceFile) -> int | None:
    text = config.get("context.max_device_memory")
    if text is None:
        return None
    try:
        return parse_size(str(text))
    except ValueError:
        raise ConfigError(
            msg("dryrun.bad-size", key="context.max_device_memory", value=text), path=source.path
        ) from None
