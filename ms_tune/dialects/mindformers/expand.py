"""Explicit lists of the static graph: one count for every stage of every chunk, or with swap on the layers' numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.dialects.layer_plan import from_recompute_plan
from ms_tune.dialects.mindformers.inputs import KEYS
from ms_tune.dialects.mindformers.plan import normalize
from ms_tune.dialects.mindformers.read import read_inputs
from ms_tune.dialects.mindformers.recompute import is_patterns
from ms_tune.source.edit import same_data

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ms_tune.diagnostics import KeyPath
    from ms_tune.dialects.job_parts import JobView
    from ms_tune.dialects.layer_plan import LayerPlan
    from ms_tune.dialects.mindformers.inputs import RecomputeInputs
    from ms_tune.dialects.plan_result import Formative, LayerIds, RecomputePlan
    from ms_tune.source.yaml import SourceFile, Values

_OFFSET: KeyPath = ("model", "model_config", "offset")
_SECTION = "recompute_config"


def read(job: JobView) -> tuple[LayerPlan, Values]:
    """What each layer does, and the lists that are not explicit yet: those of recompute, and ``offset``."""
    inputs = read_inputs(job)
    plan = normalize(inputs)
    return from_recompute_plan(plan, inputs.version), dict(_wanted(job.source, inputs, plan))


def _wanted(source: SourceFile, inputs: RecomputeInputs, plan: RecomputePlan) -> Iterator[tuple[KeyPath, object]]:
    """The values to change, and what to."""
    if plan.formative is None or plan.placement is None:
        return
    offset = source.get(_OFFSET)
    slots_fit = plan.placement.slots == inputs.placed_layers
    if isinstance(offset, list) and slots_fit and len(plan.placement.offset) * len(plan.placement.offset[0]) > 1:
        yield from _changed(_OFFSET, offset, _shaped(plan.placement.offset))
    for key in KEYS:
        value = source.get((_SECTION, key))
        for path, old, new in _values(key, value, inputs, plan.formative):
            yield from _changed(path, old, new)


def _changed(path: KeyPath, old: object, new: object) -> Iterator[tuple[KeyPath, object]]:
    if not same_data(old, new):
        yield path, new


def _values(
    key: str, value: object, inputs: RecomputeInputs, formative: Formative
) -> Iterator[tuple[KeyPath, object, object]]:
    """The parts of one value with their explicit forms. False and empty lists are explicit already."""
    path: KeyPath = (_SECTION, key)
    if not value:
        return
    if key == "recompute":
        # A list takes no account of recompute_slice_activation, so True must stay True with it.
        if value is not True or not (inputs.legacy and inputs.slice_activation):
            yield from _single(path, value, _form(key, None, inputs, formative))
        return
    forms = {str(pattern): _form(key, pattern, inputs, formative) for pattern in _patterns(key, formative)}
    if isinstance(value, dict):
        for pattern, old in value.items():
            if str(pattern) in forms:  # an exclude list may have taken it out
                yield from _single((*path, str(pattern)), old, forms[str(pattern)])
    elif is_patterns(value):
        if forms.keys() == set(value if isinstance(value, (list, tuple)) else ()):
            yield path, value, forms
    elif forms:
        yield from _single(path, value, next(iter(forms.values())))


def _single(path: KeyPath, old: object, new: object) -> Iterator[tuple[KeyPath, object, object]]:
    if old is not False and new is not None:
        yield path, old, new


def _patterns(key: str, formative: Formative) -> Sequence[object]:
    by_id = formative.by_id
    if by_id is not None and not key.endswith("exclude"):
        return list(getattr(by_id, key))
    return list(getattr(formative, key))


def _form(key: str, pattern: object, inputs: RecomputeInputs, formative: Formative) -> object:
    """The explicit form: counts, or with swap on the numbers of layers; None if there is none."""
    by_id = formative.by_id
    if by_id is not None and not key.endswith("exclude"):
        ids: LayerIds = by_id.layer_recompute if pattern is None else getattr(by_id, key)[pattern]
        if isinstance(ids, bool):
            return None
        return sorted({int(layer) for layer in ids if 0 <= layer < inputs.placed_layers})
    rows = formative.layer_recompute if pattern is None else getattr(formative, key)[pattern]
    return _shaped(rows, backwards=inputs.zero_bubble)


def _shaped(rows: Sequence[Sequence[int]], *, backwards: bool = False) -> list[object]:
    """Rows for several chunks, one flat list for one. ``zero_bubble_v`` reads its second row from the last stage."""
    plain = [[int(item) for item in row] for row in rows]
    if backwards:
        plain[1].reverse()
    return list(plain) if len(plain) > 1 else list(plain[0])
