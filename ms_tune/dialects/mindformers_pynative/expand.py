"""Explicit lists of the dynamic graph: the shortest list of ranges for the layers that there are.

A list that nothing reads, because its switch is off, is left as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ms_tune.dialects.layer_specs import parse_specs, write_specs
from ms_tune.dialects.mindformers_pynative.read import plan_layers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.diagnostics import KeyPath
    from ms_tune.dialects.job_parts import JobView
    from ms_tune.dialects.layer_plan import LayerPlan
    from ms_tune.source.yaml import SourceFile, Values

_STAGES: KeyPath = ("parallelism", "pipeline_parallel_layers_per_stage")


def read(job: JobView) -> tuple[LayerPlan, Values]:
    """What each layer does, and the lists that are not explicit yet."""
    plan = plan_layers(job)
    return plan, {} if plan.failure is not None else dict(_wanted(job.source, plan))


def _wanted(source: SourceFile, plan: LayerPlan) -> Iterator[tuple[KeyPath, object]]:
    stages = source.get(_STAGES)
    ranges = (plan.formative or {}).get("pipeline_parallel_layers_per_stage")
    if plan.placement is not None and len(plan.placement[0]) > 1 and stages not in (None, "auto", ranges):
        yield _STAGES, ranges
    there = {layer.layer for layer in plan.layers}
    for path in _lists(source, plan.framework_version):
        given: Any = source.get(path)
        wanted = write_specs(layer for layer in parse_specs(given) if layer in there)
        # A list must not become an empty one, which the framework may refuse.
        if wanted and wanted != [str(item) for item in given]:
            yield path, wanted


def _lists(source: SourceFile, version: str) -> Iterator[KeyPath]:
    """Every list of layers that is read."""
    mode = source.get(("recompute", "mode"), "None")
    if mode != "None":
        if source.get(("recompute", "full_recompute_layer")):
            yield "recompute", "full_recompute_layer"
        if version != "2.0":
            yield from _of_patterns(source, ("recompute", "exclude_op"))
    if mode == "select":
        yield from _of_patterns(source, ("recompute", "select_module"))
    if source.get(("recompute_comm", "enable")):
        yield from _of_patterns(source, ("recompute_comm", "select_module"))
    if source.get(("swap", "enable")):
        if source.get(("swap", "layer_swap")):
            yield "swap", "layer_swap", 0, "layers"  # the others are not read
        entries: Any = source.get(("swap", "op_swap")) or ()
        for index in range(len(entries)):
            yield "swap", "op_swap", index, "layers"


def _of_patterns(source: SourceFile, path: KeyPath) -> Iterator[KeyPath]:
    patterns: Any = source.get(path) or ()
    for pattern in patterns:
        yield (*path, pattern)
