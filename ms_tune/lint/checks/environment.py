"""Checks of environment settings; what MindSpore makes of them is in :mod:`ms_tune.lint.environment.variables`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ms_tune.config.yaml_nodes import Document
from ms_tune.lint.context import Violation
from ms_tune.lint.environment.variables import ALLOC_BOOLEANS, ALLOC_KEYS, RUNTIME_KEYS, Item, items

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.config.source import Span
    from ms_tune.lint.context import Context

_ALLOC = "MS_ALLOC_CONF"
_KEYS = {_ALLOC: ALLOC_KEYS, "MS_DEV_RUNTIME_CONF": RUNTIME_KEYS}
_ALIGN = re.compile(r"(\d+)MB")
_ON = ("True", "true")
_BOOLEANS = (*_ON, "False", "false")


def dropped(context: Context) -> Iterator[Violation]:
    """An item without a colon, which is dropped without a word."""
    for name in _KEYS:
        for item in _items(context, name):
            if item.key is None:
                mended = re.sub(r"\s*=\s*", ":", item.text) if "=" in item.text else f"{item.text}:True"
                yield Violation((name,), params={"item": item.text, "mended": mended}, span=_span(context, name, item))


def unknown(context: Context) -> Iterator[Violation]:
    """A key that MindSpore keeps and never looks up."""
    import difflib  # noqa: PLC0415 - most environments have no unknown key

    for name, known in _KEYS.items():
        for item in _items(context, name):
            if item.key is not None and item.key not in known:
                similar = next(iter(difflib.get_close_matches(item.key, sorted(known), 1)), "")
                message = "similar" if similar else "default"
                params = {"item": item.key, "similar": similar, "variable": name}
                yield Violation((name,), message, params, span=_span(context, name, item))


def bad_boolean(context: Context) -> Iterator[Violation]:
    """A switch that is neither on nor off: the default stays."""
    for item in _items(context, _ALLOC):
        if item.key in ALLOC_BOOLEANS and item.value not in _BOOLEANS:
            params = {"item": item.key, "given": item.value}
            yield Violation((_ALLOC,), params=params, span=_span(context, _ALLOC, item))


def repeated(context: Context) -> Iterator[Violation]:
    """A key that stands twice in one value: the last one wins."""
    for name in _KEYS:
        seen: dict[str, Item] = {}
        for item in _items(context, name):
            if item.key is not None and item.key in seen and seen[item.key].value != item.value:
                span = _span(context, name, item)
                first = _span(context, name, seen[item.key])
                related = ((first, "first"),) if first else ()
                yield Violation((name,), params={"item": item.key}, span=span, related_spans=related)
            if item.key is not None:
                seen[item.key] = item


def align_size(context: Context) -> Iterator[Violation]:
    """The only value of ``MS_ALLOC_CONF`` that stops a run: a number of MB that 2 divides."""
    for item in _items(context, _ALLOC):
        if item.key == "vmm_align_size":
            match = _ALIGN.fullmatch(item.value)
            if not match or int(match[1]) % 2 or int(match[1]) == 0:
                yield Violation((_ALLOC,), params={"given": item.value}, span=_span(context, _ALLOC, item))


def switched(context: Context) -> Iterator[Violation]:
    """A switch of ``MS_ALLOC_CONF`` (option ``key``) that is on, or off (option ``state``)."""
    wanted = bool(context.options["state"])
    for item in _items(context, _ALLOC):
        if item.key == context.options["key"] and item.value in _BOOLEANS and (item.value in _ON) is wanted:
            yield Violation((_ALLOC,), span=_span(context, _ALLOC, item))


def tracker_off(context: Context) -> Iterator[Violation]:
    """The memory tracker is not turned on; a path for its files alone turns it on, too."""
    on = any(
        item.value in _ON if item.key == "memory_tracker" else item.key == "memory_tracker_path" and item.value
        for item in _items(context, _ALLOC)
    )
    if not on:
        yield Violation((_ALLOC,))


def replaced(context: Context) -> Iterator[Violation]:
    """A variable with several settings in one, set again: the settings of the first time are lost."""
    for duplicate in context.source.duplicates:
        if duplicate.path[0] in _KEYS:
            yield Violation(duplicate.path, span=duplicate.again, related_spans=((duplicate.first, "lost"),))


def rankless_simulation(context: Context) -> Iterator[Violation]:
    """A simulated distributed run needs to know its rank and how many there are."""
    level = context.source.get(("MS_SIMULATION_LEVEL",))
    names = ("RANK_SIZE", "RANK_ID")
    absent = [name for name in names if context.source.get((name,)) is None]
    if level in ("0", "1", "2", "3") and len(absent) == 1:
        yield Violation(("MS_SIMULATION_LEVEL",), params={"absent": absent[0]}, at_key=True)


def tracker_without_blocking(context: Context) -> Iterator[Violation]:
    """Without synchronous launch, blocks are booked on other operators than those that asked for them."""
    blocking = context.source.get(("MS_DEV_LAUNCH_BLOCKING",)) == "1"
    simulated = context.source.get(("MS_SIMULATION_LEVEL",)) is not None
    if not blocking and not simulated:
        for item in _items(context, _ALLOC):
            if item.key == "memory_tracker" and item.value in _ON:
                yield Violation((_ALLOC,), span=_span(context, _ALLOC, item))


def _items(context: Context, name: str) -> list[Item]:
    value = context.source.get((name,))
    return items(value) if isinstance(value, str) else []


def _span(context: Context, name: str, item: Item) -> Span | None:
    """Where an item stands; the whole value if its quotes make that unclear."""
    position = context.source.position((name,))
    if position is None:
        return None
    text, span = context.source.text, position.value
    start = text.find(item.text, span.start, span.end)
    if start < 0 or text.count(item.text, span.start, span.end) > 1:
        start = span.start + item.start + (text[span.start : span.start + 1] in ("'", '"'))
        if text[start : start + len(item.text)] != item.text:
            return span
    return Document(text, context.source.path).span(start, start + len(item.text))
