"""Reduce the layers of one stage of a MindFormers config; each remaining layer behaves as in the full model.

The simulated stage keeps layers of each of its kinds; every other stage chunk keeps its first layer, since the whole graph is
compiled before it is split into stages. The recomputation and swap settings of the remaining layers are written for their new
numbers, and then read back by the framework's own rules (:func:`ms_tune.dialects.mindformers.recompute.normalize`): settings
that would change the behaviour of a layer are not run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ms_tune.diagnostics import Severity
from ms_tune.dialects import MINDFORMERS, LayerPlan, LayerSpec
from ms_tune.dialects.convert_layers import convert_plan
from ms_tune.dialects.operators import expert_layers
from ms_tune.dialects.stage import Stage, StageLayer, StageLayerKind, resize_stage, stage_of
from ms_tune.dryrun.shrink.config_copy import ConfigCopy
from ms_tune.dryrun.shrink.mindformers_data import MODEL
from ms_tune.enums import RecomputeMode
from ms_tune.errors import ConfigError, MsTuneError, TooFewLayersError, UncutLayersError, UnsupportedError
from ms_tune.facts.models import LAYERS, ValueOrigin, is_legacy
from ms_tune.records import Any, Record
from ms_tune.source.yaml import SourceFile
from ms_tune.text import Message, msg

_SETTINGS = ("recompute_config.", "swap_config.")


class PreparedConfig(Record):
    """A config prepared for the run, before a stage is chosen."""

    source: SourceFile  # as it was read
    config: ConfigCopy  # with the changes that every stage needs; must not be modified
    pipeline: tuple[Stage, ...]  # its layers by stage; empty if unknown
    stages: int
    world_size: int  # ranks of the whole job
    layers_key: str  # the dotted key of the number of layers
    warnings: tuple[Message, ...]


class CutModel(Record):
    """A config in which the layers of one stage are reduced."""

    config: ConfigCopy  # the config to run
    layers: int  # layers of the stage in this config
    full_layers: int | None  # layers of the stage in the user's config; None if unknown
    # Layers of the stage by kind in this config; empty if the kinds are unknown.
    kinds: dict[StageLayerKind, int]
    stage: Stage | None  # the stage in this config, without the layer of multi-token prediction; None if unknown

    @property
    def shrunk(self) -> bool:
        """Return whether the stage has fewer layers than in the user's config, or that number is unknown."""
        return self.layers != self.full_layers


def layer_count_key(config: ConfigCopy) -> str:
    """Return the dotted key of the number of layers in the config."""
    model = config.job.model
    path = next((field.path for field in model.written_fields(LAYERS) if field.path), None)
    if path is not None:
        return ".".join(path)
    hint, own = msg("dryrun.no-layer-count.hint"), model.field(LAYERS)
    if own.origin is ValueOrigin.CLASS_DEFAULT:
        raise UnsupportedError(msg("plans.layers-of-class", layers=own.value), hint)
    raise ConfigError(msg("dryrun.no-layer-count"), hint, path=config.path)


def layer_plan(config: ConfigCopy) -> LayerPlan | None:
    """Return the placement of the config's layers, and their settings; None if ms-tune cannot determine them."""
    try:
        return config.job.plan
    except MsTuneError:
        return None


def pipeline_in(config: ConfigCopy) -> tuple[Stage, ...]:
    """Return the layers of each stage, without the layer of multi-token prediction; empty if unknown."""
    plan = layer_plan(config)
    if plan is None or plan.failure is not None or not plan.layers or plan.placement is None:
        return ()
    chunks, stages = len(plan.placement), len(plan.placement[0])
    experts = _expert_layers(config, len(plan.layers))
    layers = [(layer.chunk, layer.stage, _stage_layer(layer, experts[layer.layer])) for layer in plan.layers]
    return tuple(stage_of(layers, index, stages, chunks) for index in range(stages))


def cut_stage(
    prepared: PreparedConfig, config: ConfigCopy, plan: LayerPlan | None, number: int, layers: int | None
) -> CutModel:
    """Reduce one stage to ``layers`` layers, which behave as in the whole model."""
    full = config.count(prepared.layers_key, 1)
    if plan is None or not prepared.pipeline:  # single layers are unknown: every stage gets the same number
        if layers is None:
            return CutModel(config, max(full // prepared.stages, 1), None, {}, None)
        return _cut_evenly(prepared, config, number, layers)
    stage = prepared.pipeline[number]
    if layers is None or layers == stage.layers:
        return CutModel(config, stage.layers, stage.layers, stage.kinds, stage)
    resized = resize_stage(stage, layers)
    if any(old.layers and not new.layers for new, old in zip(resized.chunks, stage.chunks, strict=True)):
        chunks = sum(bool(chunk.layers) for chunk in stage.chunks)
        raise TooFewLayersError(msg("dryrun.layers-chunks", layers=layers, chunks=chunks))
    kept = _layers_that_stay(plan, prepared.pipeline, resized)
    for candidate in _list_candidates(config, plan, prepared.layers_key, kept):
        result = layer_plan(candidate)
        if result is None or result.failure is not None:
            continue
        if list(map(_layer_actions, result.layers)) == list(map(_layer_actions, kept)):
            cut = pipeline_in(candidate)[stage.number]
            return CutModel(candidate, layers, stage.layers, cut.kinds, cut)
    made = _cut_evenly(prepared, config, stage.number, layers)
    if made.stage is None:
        raise UncutLayersError(msg("dryrun.cut"), msg("dryrun.cut.hint"))
    return made._replace(full_layers=stage.layers, kinds=made.stage.kinds)


def _stage_layer(layer: LayerSpec, experts: bool) -> StageLayer:  # noqa: FBT001 - a property of the layer
    excluded = [f"except {pattern}" for pattern in sorted((*layer.select_excludes, *layer.comm_excludes))]
    swapped = [f"swap {swap.target or 'all'} ({swap.prefetch})" for swap in layer.swap]
    return StageLayer(
        layer.layer,
        experts=experts,
        full=layer.recompute is RecomputeMode.FULL,
        select=tuple(sorted(layer.select_patterns)),
        communication=bool(layer.comm_patterns),
        remark=", ".join((*excluded, *swapped)),
    )


def _expert_layers(config: ConfigCopy, layers: int) -> list[bool]:
    # Return which layers contain a mixture of experts. Source: ``get_gpt_decoder_block_spec`` in
    # mindformers/parallel_core/training_graph/base_models/gpt/gpt_layer_specs.py; older models have experts in every layer
    # (mindformers/models/llama/llama_transformer.py).
    model = config.job.model
    name = "expert_num" if is_legacy(config.data) else "num_moe_experts"
    # `moe_config` may contain 1 although the model's own section has another value.
    counts = [field.value for field in model.written_fields(name)] or [model.value(name)]
    if not any(type(count) is int and count > 1 for count in counts):
        return [False] * layers
    every = 1 if is_legacy(config.data) else model.value("moe_layer_freq")
    every = every[:layers] if isinstance(every, list) else every  # only for the requested layers
    return list(expert_layers(layers, _first_dense(config), every) or (True,) * layers)


def _first_dense_key(config: ConfigCopy) -> str:
    legacy = "moe_config.first_k_dense_replace"
    return legacy if config.get(legacy) is not None else f"{MODEL}.first_k_dense_replace"


def _first_dense(config: ConfigCopy) -> int:
    return max(config.job.model.number("first_k_dense_replace") or 0, 0)


def _layers_that_stay(plan: LayerPlan, pipeline: Sequence[Stage], stage: Stage) -> list[LayerSpec]:
    numbers = [layer.number for chunk in stage.chunks for layer in chunk.layers]
    for other in pipeline:
        if other.number != stage.number:
            numbers += [chunk.layers[0].number for chunk in other.chunks if chunk.layers]
    return [plan.layers[number] for number in sorted(numbers)]


def _list_candidates(config: ConfigCopy, plan: LayerPlan, key: str, kept: list[LayerSpec]) -> Iterable[ConfigCopy]:
    # Yield the config with the remaining layers: first with its own layer settings, then with settings per layer.
    assert plan.placement is not None  # noqa: S101 - checked by the callers
    counts = [[0] * len(row) for row in plan.placement]
    for layer in kept:
        counts[layer.chunk][layer.stage] += 1
    base = len(kept) // (len(counts) * len(counts[0]))
    offset: list[Any] = [[count - base for count in row] for row in counts]
    prepared = config.copy()
    prepared.set(key, len(kept))
    if config.get(f"{MODEL}.offset") or any(map(any, offset)):
        level: Any = offset if len(offset) > 1 else offset[0]
        prepared.set(f"{MODEL}.offset", level if any(map(any, offset)) else 0)
    _cut_experts(prepared, config, [layer.layer for layer in kept])
    yield prepared
    renumbered = tuple(layer._replace(layer=number) for number, layer in enumerate(kept))
    made = convert_plan(
        plan._replace(placement=tuple(map(tuple, counts)), layers=renumbered, formative=None, problems=()), MINDFORMERS
    )
    if not any(problem.severity is Severity.ERROR for problem in made.problems):
        for path, value in made.values.items():
            if path.startswith(_SETTINGS) and (value or config.get(path)):
                prepared.set(path, value)
        yield prepared


def _cut_experts(made: ConfigCopy, config: ConfigCopy, kept: Sequence[int]) -> None:
    dense = _first_dense(config)
    if dense:
        made.set(_first_dense_key(config), sum(number < dense for number in kept))
    every = config.get(f"{MODEL}.moe_layer_freq")
    if isinstance(every, list) or (type(every) is int and every > 1):
        pattern = _expert_layers(config, max(kept) + 1)
        made.set(f"{MODEL}.moe_layer_freq", [int(pattern[number]) for number in kept])


def _layer_actions(layer: LayerSpec) -> tuple[object, ...]:
    # Return the placement and settings of a layer; the order of patterns does not matter.
    patterns = (layer.select_patterns, layer.comm_patterns, layer.select_excludes, layer.comm_excludes)
    return layer.stage, layer.chunk, layer.recompute, *map(frozenset, patterns), {repr(swap) for swap in layer.swap}


def _cut_evenly(prepared: PreparedConfig, config: ConfigCopy, number: int, layers: int) -> CutModel:
    made = config.copy()
    made.set(prepared.layers_key, layers * prepared.stages)
    interleaved = bool(config.get("parallel.pipeline_config.pipeline_interleave"))
    chunks = config.count(f"{MODEL}.pp_interleave_num", 1) if interleaved else 1
    if layers % chunks:
        raise TooFewLayersError(msg("dryrun.layers-chunks", layers=layers, chunks=chunks))
    if config.get("swap_config.swap") is True and is_legacy(config.data):
        raise UncutLayersError(msg("dryrun.cut"), msg("dryrun.cut.hint"))
    if config.get(f"{MODEL}.offset"):
        made.set(f"{MODEL}.offset", 0)
    for name in config.get("recompute_config", {}):
        path = f"recompute_config.{name}"
        made.set(path, _clamp_counts(config.get(path), layers, layers // chunks))
    if _first_dense(config):
        made.set(_first_dense_key(config), min(_first_dense(config), layers * prepared.stages))
    pipeline = pipeline_in(made)
    return CutModel(made, layers, None, {}, pipeline[number] if pipeline else None)


def _clamp_counts(value: object, stage: int, chunk: int) -> object:
    # Limit the counts of a recomputation setting to the layers of a stage or, in nested lists, of a chunk. MindFormers limits
    # most of them itself, but fails on nested lists that need it (training_graph/transformer/utils.py).
    if isinstance(value, dict):
        return {key: _clamp_counts(item, stage, chunk) for key, item in value.items()}
    if isinstance(value, list):
        return [_clamp_counts(item, chunk if isinstance(item, list) else stage, chunk) for item in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return min(value, stage)
    return value
