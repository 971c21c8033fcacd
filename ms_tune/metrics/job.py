"""Read the facts about a run that its log lacks from its config or launch script: FLOPs, sizes, devices, stages.

A backward pass counts as two forward passes. FLOPs are counted by three conventions:

* ``full``: attention scores count in full, as in the papers of Megatron-LM (Narayanan et al., 2021, appendix;
  Korthikanti et al., 2022, section 6.3) and in ``num_floating_point_operations`` of Megatron-LM and MindFormers;
* ``causal``: half of the scores, as causal attention needs;
* ``6n``: six operations per weight and token, none for scores (Kaplan et al., 2020; PaLM's MFU without attention).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from ms_tune.dialects import LayerPlan, LayerSpec
from ms_tune.dialects.megatron.read import ArgumentReader, NotEvaluableError, inputs_of, shape_of
from ms_tune.dialects.megatron.recompute import normalize_megatron
from ms_tune.dialects.sections import JobSplit
from ms_tune.enums import Dialect, LayerKind, RecomputeMode
from ms_tune.errors import ConfigError, UnsupportedError
from ms_tune.estimate.flops import (
    Widths,
    head_flops,
    layer_flops,
    missing_sizes,
    prediction_flops,
    score_flops,
    widths_of,
    widths_of_shape,
)
from ms_tune.estimate.static import list_expert_layers, public_shape_of
from ms_tune.facts.models import model_of
from ms_tune.facts.query import load, release_for
from ms_tune.job import Job, load_job, no_model_config
from ms_tune.job.script import ScriptJob
from ms_tune.metrics.result import Convention
from ms_tune.planning.schedule import MOST_PASSES, PassKey, Schedule, passes_in_turn, stage_passes, why_refused
from ms_tune.readers.logged_settings import LoggedSettings
from ms_tune.records import Record
from ms_tune.source import SCRIPTS
from ms_tune.source.shell.values import Argument
from ms_tune.source.yaml import load_source, source_of
from ms_tune.text import msg

# The schedule of stages with several chunks; other dialects use `INTERLEAVED_FULL_WARM_UP`.
_INTERLEAVED = {Dialect.MINDFORMERS: Schedule.INTERLEAVED, Dialect.MINDFORMERS_PYNATIVE: Schedule.INTERLEAVED_SPREAD}
SMALL_BUBBLE = 0.1  # of a step; for a larger one it is worth having more micro-batches
_DOUBLINGS = 5


def compute_bubble_share(schedule: Schedule, placement: Sequence[Sequence[int]], micro_batches: int) -> float | None:
    """Return the share of a step in which stages wait; None for sizes that no framework runs or with too many passes.

    The schedule is simulated with equal micro-batches: a backward pass takes as long as two forward passes, sending
    takes no time, and a chunk takes as long as its layers. The result is a lower bound for real runs.
    """
    chunks, stages = len(placement), len(placement[0])
    if chunks * stages * micro_batches > MOST_PASSES or why_refused(schedule, stages, chunks, micro_batches):
        return None
    orders = [stage_passes(schedule, stage, stages, chunks, micro_batches) for stage in range(stages)]
    ends: dict[PassKey, float] = {}
    clock = [0.0] * stages
    for stage, key, giver in passes_in_turn(orders, chunks):
        forward, cell, _ = key
        length = placement[cell // stages][stage] * (1 if forward else 2)
        clock[stage] = ends[key] = max(clock[stage], ends[giver] if giver is not None else 0.0) + length
    whole = max(clock)
    if not whole or len(ends) < sum(map(len, orders)):
        return None
    busy = 3 * micro_batches * sum(map(sum, placement))
    return 1 - busy / (stages * whole)


class JobFacts(Record):
    """The facts about a job from its config."""

    work: Work  # operations per token
    tokens: int  # tokens per sample
    batch: int | None  # samples per step; None if the config does not specify them
    cards: int | None  # devices; None if the config does not specify them
    # Minimum share of a step in which stages wait; None without stages, or if the schedule is unknown.
    bubble: float | None
    stages: tuple[int, int, int] | None  # pipeline stages, chunks per stage, and micro-batches per step
    # Setting of the micro-batches, its value, its smallest doubling with a small bubble, and that bubble; None if not
    # needed or not found.
    relief: tuple[str, int, int, float] | None = None


def read_job(
    path: Path, version: str | None = None, cards: int | None = None, model_config: Path | None = None
) -> JobFacts:
    """Read a config, or the launch script of Megatron or of a program with a config; ``cards`` sets the devices.

    The sizes of the model may be in ``model_config``, its ``config.json``.
    """
    if path.suffix in SCRIPTS:
        if model_config is not None:
            raise no_model_config(path)
        return _read_script(ScriptJob(path, version=version), cards)
    return _read_config(load_job(path, framework_version=version, model_config=model_config), cards)


def read_logged_job(settings: LoggedSettings, log: Path) -> JobFacts | None:
    """Return the facts from the ``config.json`` that HyperParallel logs; None without, or if it is of no public family."""
    if settings.model is None or settings.tokens is None:
        return None
    release = release_for(Dialect.MINDFORMERS).version
    model = model_of(source_of({"use_legacy": False}, log), Dialect.MINDFORMERS, release, settings.model)
    shape = public_shape_of(model)
    if shape is None or model.kind not in load("sizes")["parts"] or (shape.experts and not shape.experts.per_token):
        return None
    widths = widths_of_shape(shape._replace(seq_length=settings.tokens))
    again = RecomputeMode.FULL if settings.recompute == "full" else RecomputeMode.NONE
    layers = [LayerWork(experts, recompute=again) for experts in list_expert_layers(model, shape)]
    work = count_operations(widths, layers)
    if settings.recompute not in (
        "off",
        "full",
    ):  # unknown, or `selective`: every second product of matrices runs again
        work = work._replace(hardware={})
    return JobFacts(work, settings.tokens, None, None, None, None)


def _read_config(job: Job, cards: int | None) -> JobFacts:
    path, plan, model = job.original.path, job.plan, job.model
    _refuse_unusable(path, plan)
    widths = widths_of(model)
    if widths is None:
        raise ConfigError(msg("metrics.config.sizes", missing=", ".join(missing_sizes(model))), path=path)
    count = sum(map(sum, plan.placement)) if plan.placement else len(plan.layers)
    dense = model.number("first_k_dense_replace") or 0
    layers = list_layer_work(plan.layers[:count], dense, experts=bool(widths.experts))
    ahead = min(max(model.mtp_layers, 0), count)
    layers += (LayerWork(bool(widths.experts), prediction=True),) * ahead
    schedule = _INTERLEAVED.get(job.dialect, Schedule.INTERLEAVED_FULL_WARM_UP)
    split: JobSplit = job.part("read").split_job(job.source, cards)
    return _make_facts(widths, layers, split, plan.placement, schedule)


def _make_facts(
    widths: Widths,
    layers: tuple[LayerWork, ...],
    split: JobSplit,
    placement: Sequence[Sequence[int]] | None,
    interleaved: Schedule,
) -> JobFacts:
    waits, stages, relief = None, None, None
    if placement and len(placement[0]) > 1 and split.micro_batches:
        schedule = interleaved if len(placement) > 1 else Schedule.ONE_FORWARD_ONE_BACKWARD
        waits = compute_bubble_share(schedule, placement, split.micro_batches)
        stages = (len(placement[0]), len(placement), split.micro_batches)
        more = [2**times for times in range(1, _DOUBLINGS)] if waits and waits > SMALL_BUBBLE else []
        bubbles = ((times, compute_bubble_share(schedule, placement, split.micro_batches * times)) for times in more)
        found = next(((times, share) for times, share in bubbles if share is not None and share <= SMALL_BUBBLE), None)
        now = split.micro_batches if split.setting == "micro_batch_num" else split.batch
        relief = (split.setting, now, now * found[0], found[1]) if found and now else None
    return JobFacts(count_operations(widths, layers), widths.tokens, split.batch, split.cards, waits, stages, relief)


def _refuse_unusable(path: Path, plan: LayerPlan) -> None:
    if plan.failure is not None or not plan.layers:
        text = plan.failure.text if plan.failure else ""
        raise ConfigError(msg("metrics.config.refused", error=text), path=path)


def _read_script(script: ScriptJob, cards: int | None) -> JobFacts:
    if not script.commands:
        return _read_started_config(script, cards)
    command, path = script.commands[0], script.path
    try:
        inputs = inputs_of(command)
        plan = normalize_megatron(inputs)
        _refuse_unusable(path, plan)
        widths = widths_of_shape(shape_of(ArgumentReader(command), len(plan.layers)))
    except NotEvaluableError as error:
        names = {"argument": error.argument, "variable": error.variable}
        raise ConfigError(msg("check.script.unknown", **names), path=path) from error
    except UnsupportedError as error:
        raise ConfigError(error.message, error.hint, path=path) from error
    layers = list_layer_work(plan.layers, 0, experts=bool(widths.experts))
    batch = command.integer("global_batch_size")
    split = JobSplit(cards or command.launch.processes, batch, inputs.micro_batches, "--global-batch-size")
    return _make_facts(widths, layers, split, plan.placement, Schedule.INTERLEAVED_FULL_WARM_UP)


def _read_started_config(script: ScriptJob, cards: int | None) -> JobFacts:
    started = script.config_job()
    if started is None or started.path is None:
        raise UnsupportedError(msg("metrics.config.no-program"))
    source = load_source(started.path)
    if started.overrides:
        source = source_of(_with_overrides(source.data, started.overrides), started.path)
    return _read_config(Job(source, version=script.version), cards or started.processes)


def _with_overrides(
    data: dict[Any, Any], overrides: Mapping[tuple[str, ...], tuple[object, Argument]]
) -> dict[Any, Any]:
    whole = deepcopy(data)
    for path, (value, _) in overrides.items():
        section = whole
        for name in path[:-1]:
            inner = section.get(name)
            section[name] = section = inner if isinstance(inner, dict) else {}
        section[path[-1]] = value
    return whole


_FORWARD_AND_BACKWARD = 3
# Patterns of operators of the attention core: of the networks of MindFormers and MindSpeed, and of Megatron's module.
_CORE = ("core_attn", "core_attention", "flash_attention", "dotproductattention", "flashattention")


class LayerWork(Record):
    """The work of a layer."""

    experts: bool  # whether it has experts
    prediction: bool = False  # whether it predicts further tokens
    recompute: RecomputeMode = RecomputeMode.NONE  # its recomputed part
    core: bool = False  # whether the attention core is among the recomputed operators


class Work(Record):
    """Operations per token in a step."""

    model: dict[Convention, int]  # forward and backward pass, by convention
    # The same with recomputation, except for operators outside the attention core, whose FLOPs are negligible.
    hardware: Mapping[Convention, int]  # empty if unknown


def list_layer_work(plans: Sequence[LayerSpec], dense: int, *, experts: bool) -> tuple[LayerWork, ...]:
    """Return the layers of a plan; ``dense`` is the number of leading layers without experts, if the plan lacks it."""
    found = []
    for plan in plans:
        if plan.kind is LayerKind.NOOP:
            continue
        has = experts and (plan.kind is LayerKind.EXPERTS or (plan.kind is not LayerKind.DENSE and plan.layer >= dense))
        core = any(name in pattern.lower() for pattern in plan.select_patterns for name in _CORE)
        found.append(LayerWork(has, plan.kind is LayerKind.PREDICTION, plan.recompute, core))
    return tuple(found)


def count_operations(widths: Widths, layers: Sequence[LayerWork]) -> Work:
    """Return the FLOPs per token in a training step."""
    model: dict[Convention, int] = {}
    hardware: dict[Convention, int] = {}
    whole = score_flops(widths)
    counted = {Convention.FULL: whole, Convention.CAUSAL: whole // 2, Convention.SIX_N: 0}
    for convention, scores in counted.items():
        forward = again = 0
        for layer in layers:
            one = layer_flops(widths, experts=layer.experts) - whole + scores
            forward += one + (prediction_flops(widths) if layer.prediction else 0)
            if layer.recompute is RecomputeMode.FULL:
                again += one
            elif layer.core:
                again += scores
        forward += head_flops(widths)
        model[convention] = _FORWARD_AND_BACKWARD * forward
        hardware[convention] = model[convention] + again
    return Work(model, hardware)
