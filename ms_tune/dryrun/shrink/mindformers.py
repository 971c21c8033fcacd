"""Prepare runs of MindFormers static-graph configs with the real MindFormers on a synthetic data set."""

from __future__ import annotations

import os

from ms_tune.dialects import LayerPlan
from ms_tune.dryrun.job import MindFormersJob
from ms_tune.dryrun.request import STEPS, DryrunRequest, Pipeline, PreparedRun, Split
from ms_tune.dryrun.shrink.config_copy import ConfigCopy
from ms_tune.dryrun.shrink.mindformers_data import (
    MODEL,
    batch_size,
    inline_model_config,
    replace_data_set,
    sample_length,
    splits_operators,
    synthetic_columns,
    take_out_the_surroundings,
    undo_split,
)
from ms_tune.dryrun.shrink.mindformers_layers import PreparedConfig, cut_stage, layer_count_key, layer_plan, pipeline_in
from ms_tune.dryrun.theory_mindformers import mindformers_theory
from ms_tune.enums import Dialect, LayerKind
from ms_tune.errors import ConfigError, UnsupportedError, UsageError
from ms_tune.facts.models import is_legacy
from ms_tune.facts.query import load
from ms_tune.job import Job
from ms_tune.planning.schedule import Schedule
from ms_tune.source.yaml import SourceFile
from ms_tune.text import Message, msg
from ms_tune.units import parse_size
from ms_tune.verdict.limit import Cap

_CONFIG_FILE = "config.yaml"
# With fewer threads MindSpore cannot build graphs that contain conditions ("Can not build a sub graph which contains
# ConditionSwitch"): by default it uses a share of the machine's cores, which is too small on a laptop.
_DISPATCH_THREADS = 8
_DEFAULT_LIMIT = "58GB"  # `ContextConfig` in mindformers/tools/register/template.py, 1.6 to 2.1


def prepare_config(job: Job, devices: int | None) -> PreparedConfig:
    """Return the common part of all stages of a job with one of MindFormers' own models."""
    config = ConfigCopy(
        job.original.data, job.original.path, load("simulation")[Dialect.MINDFORMERS.value]["sections"], job
    )
    mode = config.get("run_mode")
    if mode is None:
        config.set("run_mode", "train")  # as set by its launch script
    elif mode not in ("train", "finetune"):
        raise UnsupportedError(msg("dryrun.run-mode", mode=mode), msg("dryrun.run-mode.hint"))
    warnings = inline_model_config(config, job)
    stages, world_size = _job_sizes(config, devices)
    if not splits_operators(config):
        undo_split(config)
    key = layer_count_key(config)
    return PreparedConfig(job.original, config, pipeline_in(config), stages, world_size, key, warnings)


def prepare_mindformers(prepared: PreparedConfig, name: str, request: DryrunRequest) -> PreparedRun:
    """Prepare a run of one stage."""
    source, stages, world_size = prepared.source, prepared.stages, prepared.world_size
    if request.stage >= stages:
        raise UsageError(msg("dryrun.stage", stage=request.stage, stages=stages))
    config = prepared.config.copy()
    plan = layer_plan(config)
    warnings = prepared.warnings + _check_plan(plan, source, shrunk=request.layers is not None)
    model = cut_stage(prepared, config, plan, request.stage, request.layers)
    limit, limited_by = _memory_limit(config, source)
    split = _split_of(config, stages, world_size)
    if split.data * split.context == 1 and config.get("parallel.enable_parallel_optimizer", default=False):
        warnings += (msg("stages.devices.alone-static"),)
    job = MindFormersJob(
        config_file=_CONFIG_FILE,
        columns=synthetic_columns(config, sample_length(config)) if request.data else (),
        batches=STEPS,
        batch_size=batch_size(config),
        threads=max(_DISPATCH_THREADS, os.cpu_count() or 1),
    )
    if request.data:
        replace_data_set(model.config, job.columns, STEPS * job.batch_size * world_size)
    take_out_the_surroundings(model.config)
    # ``preprocess_with_dryrun`` in parallel_core/training_graph/transformer/moe/token_dispatcher.py
    uneven = not is_legacy(model.config.data) and any(kind.make is LayerKind.EXPERTS for kind in model.kinds)
    return PreparedRun(
        job=job,
        dialect=Dialect.MINDFORMERS,
        config_name=name,
        packaged=request.config is None,
        configs={_CONFIG_FILE: model.config.data},
        world_size=world_size,
        rank=request.stage * (world_size // stages),
        stage=request.stage,
        stages=stages,
        layers=model.layers,
        shrunk=request.layers is not None and model.shrunk,
        model=msg("dryrun.model.mindformers"),
        max_device_memory=limit,
        limited_by=limited_by,
        changes=model.config.changes,
        not_included=(msg("dryrun.not-included.uneven-experts"),) if uneven else (),
        warnings=warnings,
        kinds=model.kinds,
        theory=mindformers_theory(model.config, model.stage),
        split=split,
        pipeline=_pipeline_of(config, stages),
    )


def _pipeline_of(config: ConfigCopy, stages: int) -> Pipeline:
    # Return the flow of micro-batches through the stages. Schedules that split sequences or backward passes have no order here.
    # With whole sequences, `SeqpipeScheduler` of MindSpore (pipeline_transformer/seqpipe_scheduler.cc) spreads the remainder over
    # the rounds, as HyperParallel does.
    section = "parallel.pipeline_config."
    if stages == 1:
        return Pipeline()
    micro_batches = config.count("parallel_config.micro_batch_num", 1)
    if not config.get(section + "pipeline_interleave"):  # without it MindSpore ignores the scheduler
        return Pipeline(Schedule.ONE_FORWARD_ONE_BACKWARD, stages, 1, micro_batches)
    named = str(config.get(section + "pipeline_scheduler") or "1f1b")
    splits = config.count("parallel_config.seq_split_num", 1) if named == "seqpipe" else 1
    less = os.environ.get("ENABLE_LESS_MEM_VPP") == "1"  # also applies to the child process
    interleaved = Schedule.INTERLEAVED_LESS_MEMORY if less else Schedule.INTERLEAVED
    known = {"gpipe": Schedule.GPIPE, "1f1b": interleaved, "seqpipe": Schedule.INTERLEAVED_SPREAD}
    schedule = known.get(named) if splits == 1 else None
    return Pipeline(schedule, stages, config.count(f"{MODEL}.pp_interleave_num", 1), micro_batches, splits)


def _check_plan(plan: LayerPlan | None, source: SourceFile, *, shrunk: bool) -> tuple[Message, ...]:
    # Report an error that a shrunk run would hide: MindFormers rejects the layer settings of the original config.
    if plan is None or plan.failure is None:
        return ()
    error = f"{plan.failure.exception}: {plan.failure.text}"
    if shrunk:
        return (msg("dryrun.warning.refused", error=error),)
    raise ConfigError(msg("dryrun.refused", error=error), msg("dryrun.refused.hint"), path=source.path)


def _job_sizes(config: ConfigCopy, devices: int | None) -> tuple[int, int]:
    stages = config.count("parallel_config.pipeline_stage", 1)
    world_size = stages
    for key in ("data_parallel", "model_parallel", "context_parallel"):
        world_size *= config.count(f"parallel_config.{key}", 1)
    if not config.get("use_parallel", default=False):
        stages = world_size = 1
    elif not splits_operators(config):
        stages = 1
    if devices is not None and devices != world_size:
        raise UsageError(msg("dryrun.devices-fixed", devices=devices, size=world_size))
    return stages, world_size


def _split_of(config: ConfigCopy, stages: int, world_size: int) -> Split:
    # Return the parallel split; without operator splitting all ranks are data parallel.
    if world_size == 1 or not splits_operators(config):
        return Split(data=world_size)
    names = ("data_parallel", "model_parallel", "context_parallel", "expert_parallel")
    data, tensor, context, expert = (config.count(f"parallel_config.{name}", 1) for name in names)
    return Split(data, tensor, stages, context, expert)


def _memory_limit(config: ConfigCopy, source: SourceFile) -> tuple[int | None, Cap]:
    section = config.get("context", {})
    text = section.get("max_device_memory", _DEFAULT_LIMIT)
    if text is None:
        return None, Cap.CONFIG
    try:
        return parse_size(str(text)), Cap.CONFIG if "max_device_memory" in section else Cap.FRAMEWORK
    except ValueError:
        wrong = msg("dryrun.bad-size", key="context.max_device_memory", value=text)
        raise ConfigError(wrong, path=source.path) from None
