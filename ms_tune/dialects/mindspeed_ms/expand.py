"""Explicit lists of MindSpeed-Core-MS: whole numbers for True and False, and lists where a text stood for one.

Every list has a number for each cell already, or else the framework would not take it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.dialects.mindspeed_ms.literals import literal_list
from ms_tune.dialects.mindspeed_ms.plan import KINDS
from ms_tune.dialects.mindspeed_ms.read import plan_layers
from ms_tune.source.edit import same_data

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.diagnostics import KeyPath
    from ms_tune.dialects.job_parts import JobView
    from ms_tune.dialects.layer_plan import LayerPlan
    from ms_tune.source.yaml import SourceFile, Values

_SECTION = "parallel_config"


def read(job: JobView) -> tuple[LayerPlan, Values]:
    """What each layer does, and the lists that are not explicit yet."""
    source, plan = job.source, plan_layers(job)
    wanted = {} if plan.failure is not None else dict(_wanted(source))
    return plan, {path: value for path, value in wanted.items() if not same_data(source.get(path), value)}


def _wanted(source: SourceFile) -> Iterator[tuple[KeyPath, object]]:
    path: KeyPath = (_SECTION, "num_layer_list")
    placed = source.get(path)
    if placed:
        yield path, _whole(literal_list(placed) if isinstance(placed, str) else placed)
    for kind in KINDS:
        path = (_SECTION, kind)
        text = source.get(path)
        if isinstance(text, str):
            # Beside the section only a text will do: the framework hands it to ast.literal_eval.
            yield path, str(_whole(literal_list(text)))
        path = (_SECTION, "recompute_config", kind)
        if source.get(path):
            yield path, _whole(source.get(path))


def _whole(value: object) -> object:
    """A list with plain numbers in it."""
    if isinstance(value, (list, tuple)):
        return [_whole(item) for item in value]
    return int(value) if isinstance(value, bool) else value
