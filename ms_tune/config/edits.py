"""A config's recompute lists in their explicit form: one count for every stage of every chunk, or the layers by number.

Only the values themselves are replaced, one number at a time where the form is explicit already. What comes out is
proved before it is written: it must read as the same config but for those values, give the same plan, and be its own
explicit form.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from ms_tune.config.dialects.mindformers import read_recompute
from ms_tune.config.source import parse_source
from ms_tune.config.spans import Change, ChangeKind, Edit, EditRefusedError, apply_edits, same_data, spell
from ms_tune.errors import ConfigError, UsageError
from ms_tune.layers import KEYS, normalize
from ms_tune.layers.recompute import is_patterns
from ms_tune.texts import msg

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ms_tune.config.source import KeyPath, Position, SourceFile
    from ms_tune.layers import Formative, RecomputeInputs, RecomputePlan
    from ms_tune.layers.result import LayerIds

_OFFSET: KeyPath = ("model", "model_config", "offset")
_SECTION = "recompute_config"
# Between a key and a value that starts on a later line: the colon, and lines that hold comments or nothing.
_TO_NEXT_LINE = re.compile(
    r"[ \t]*:(?=[ \t]*(?:#[^\r\n]*)?(?:\r\n|\r|\n))(?P<rest>(?:[ \t]*(?:#[^\r\n]*)?(?:\r\n|\r|\n))*)[ \t]*"
)
_ON_LINE = re.compile(r"[ \t]*:[ \t]+(?:&[^\s,\[\]{}]+[ \t]+)?")
_COMMENT = re.compile(r"(?:^|\s)#")
_END_OF_LINE = re.compile(r"[ \t]*(?:\r\n|\r|\n|\Z)")


@dataclass(frozen=True, slots=True)
class Explicit:
    """A config with its lists in explicit form.

    Args:
        text: The whole text.
        count: How many values were changed.
    """

    text: str
    count: int


def explicit(source: SourceFile, version: str | None = None, layers: int | None = None) -> Explicit:
    """The config with every recompute list, and a list for ``offset``, in its explicit form.

    Args:
        source: A config of the dialect ``mindformers``.
        version: As :func:`~ms_tune.config.dialects.mindformers.read_recompute` takes it.
        layers: Likewise.

    Raises:
        ConfigError: A value stands where it cannot be changed alone.
        UsageError: The framework does not get through the config, or the result would not mean the same.
    """
    inputs = read_recompute(source, version, layers)
    plan = normalize(inputs)
    wanted = dict(_wanted(source, inputs, plan))
    edits = [edit for path, value in wanted.items() for edit in _edits(source, path, source.get(path), value)]
    text = apply_edits(source.text, edits)
    if wanted:
        _prove(source, text, wanted, (inputs, plan), layers)
    return Explicit(text, len(wanted))


def _wanted(source: SourceFile, inputs: RecomputeInputs, plan: RecomputePlan) -> Iterator[tuple[KeyPath, object]]:
    """The values to change, and what to."""
    if plan.formative is None or plan.placement is None:
        raise UsageError(msg("normalize.not-written"))
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


def _edits(source: SourceFile, path: KeyPath, old: object, new: object) -> Iterator[Edit]:
    """The edits that turn one value into another; where both are lists of one form, only what differs is touched."""
    position = source.position(path)
    if position is None or position.uses or position.value != position.definition:
        _refuse(source, path, "shared")
    if isinstance(old, list) and isinstance(new, list) and _same_form(old, new):
        for index, (item, wanted) in enumerate(zip(old, new, strict=True)):
            if not same_data(item, wanted):
                yield from _edits(source, (*path, index), item, wanted)
        return
    span = position.value
    if span.line != span.end_line and _COMMENT.search(source.text, span.start, span.end):
        _refuse(source, path, "comment")
    text = spell_value(new)
    if position.key is None or _ON_LINE.fullmatch(source.text, position.key.end, span.start):
        yield Edit(span.start, span.end, text)
        return
    yield from _pull_up(source, path, position, text)


def _same_form(old: list[object], new: list[object]) -> bool:
    if len(old) != len(new):
        return False
    return all(
        _same_form(one, other)
        if isinstance(one, list) and isinstance(other, list)
        else isinstance(one, list) == isinstance(other, list)
        for one, other in zip(old, new, strict=True)
    )


def _pull_up(source: SourceFile, path: KeyPath, position: Position, text: str) -> Iterator[Edit]:
    """A value that starts below its key moves up beside it, and its own lines go."""
    assert position.key is not None  # noqa: S101 - the caller has looked
    span = position.value
    between = _TO_NEXT_LINE.fullmatch(source.text, position.key.end, span.start)
    rest = _END_OF_LINE.match(source.text, span.end)
    if between is None or rest is None:
        _refuse(source, path, "comment" if rest is None else "shared")
    yield Edit(between.start("rest"), between.start("rest"), f" {text}")
    yield Edit(between.end("rest"), rest.end(), "")


def spell_value(value: object) -> str:
    """A value of the explicit form on one line, patterns in single quotes."""
    if isinstance(value, list):
        return f"[{', '.join(map(spell_value, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{spell(str(key), chr(39))}: {spell_value(item)}" for key, item in value.items()) + "}"
    return spell(value)


def _refuse(source: SourceFile, path: KeyPath, reason: str) -> NoReturn:
    span = source.nearest(path).value
    name = ".".join(map(str, path))
    raise ConfigError(msg(f"normalize.write-{reason}", name=name), path=source.path, line=span.line, column=span.column)


def _prove(
    source: SourceFile,
    text: str,
    wanted: Mapping[KeyPath, object],
    before: tuple[RecomputeInputs, RecomputePlan],
    layers: int | None,
) -> None:
    """The text must hold the wanted values and nothing else that is new, and its plan must be the old one.

    Raises:
        ConfigError: A changed value shows elsewhere, too.
        UsageError: The result would not mean the same.
    """
    inputs, plan = before
    try:
        result = parse_source(text, source.path)
        expected: object = source.data
        for path, value in wanted.items():
            expected = Change(ChangeKind.SET_VALUE, path, value).applied(expected)
    except (ConfigError, EditRefusedError) as error:
        raise UsageError(msg("normalize.write-unproven")) from error
    if not same_data(result.data, expected):
        _refuse(source, next(iter(wanted)), "shared")
    fresh = read_recompute(result, inputs.version, layers)
    again = normalize(fresh)
    if (again.placement, again.layers) != (plan.placement, plan.layers) or _outcome(again) != _outcome(plan):
        raise UsageError(msg("normalize.write-unproven"))
    if dict(_wanted(result, fresh, again)):
        raise UsageError(msg("normalize.write-unproven"))


def _outcome(plan: RecomputePlan) -> object:
    """What must not change; with swap on, the lists themselves may lose what they said twice or about no layer."""
    formative = plan.formative
    return formative.as_lists() if formative is not None and formative.by_id is None else None
