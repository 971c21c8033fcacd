"""Check environment settings; :mod:`ms_tune.lint.environment.settings` describes how MindSpore reads them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from ms_tune.diagnostics import Location
from ms_tune.dialects.check_context import CheckContext, Violation
from ms_tune.errors import closest
from ms_tune.facts.launchers import variables
from ms_tune.lint.environment.settings import FOREIGN, KEYS, MS_NAMES, EnvironmentSource, Item, items
from ms_tune.source.yaml_nodes import Document

_ALLOC = "MS_ALLOC_CONF"
_RUNTIME = "MS_DEV_RUNTIME_CONF"
_ALIGN = re.compile(r"(\d{1,4000})MB")  # Python parses no number of more than 4,300 digits
_ON = ("True", "true")
_BOOLEANS = (*_ON, "False", "false")


def dropped(context: CheckContext) -> Iterator[Violation]:
    """Report an item without a colon, which MindSpore ignores silently."""
    for name, item in _all_items(context):
        if item.key is None:
            fixed = re.sub(r"\s*=\s*", ":", item.text) if "=" in item.text else f"{item.text}:True"
            yield _violation(context, name, item, params={"item": item.text, "fixed": fixed})


def unknown(context: CheckContext) -> Iterator[Violation]:
    """Report a key that MindSpore stores but never reads."""
    for name, item in _all_items(context):
        if item.key is not None and item.key not in KEYS[name]:
            similar = closest(item.key, KEYS[name])
            params = {"item": item.key, "similar": similar, "variable": name}
            yield _violation(context, name, item, "similar" if similar else "default", params)


def bad_boolean(context: CheckContext) -> Iterator[Violation]:
    """Report a switch with a value that is neither on nor off; the default applies."""
    for name, item in _all_items(context):
        key = KEYS[name].get(item.key or "", {})
        if "switch" in key and item.value not in (*_BOOLEANS, *key.get("values", ())):
            yield _violation(context, name, item, params={"item": item.key, "given": item.value})


def other_release(context: CheckContext) -> Iterator[Violation]:
    """Report a key that MindSpore 2.9 does not read, but another release does."""
    for item in _items(context, _RUNTIME):
        key = KEYS[_RUNTIME].get(item.key or "", {})
        if not key.keys().isdisjoint(("since", "until")):
            yield _violation(context, _RUNTIME, item, "default" if "until" in key else "later", {"item": item.key})


def repeated(context: CheckContext) -> Iterator[Violation]:
    """Report a key that appears twice in one value: the last one wins."""
    seen: dict[tuple[str, str], Item] = {}
    for name, item in _all_items(context):
        if item.key is None:
            continue
        before = seen.get((name, item.key))
        if before is not None and before.value != item.value:
            first = _span(context, name, before)
            again = _violation(context, name, item, params={"item": item.key})
            yield again._replace(related_spans=((first, "first"),) if first else ())
        seen[name, item.key] = item


def align_size(context: CheckContext) -> Iterator[Violation]:
    """Report an alignment that is not an even number of MB, the only value of ``MS_ALLOC_CONF`` that stops a run."""
    for item in _items(context, _ALLOC):
        if item.key == "vmm_align_size":
            match = _ALIGN.fullmatch(item.value)
            if not match or int(match[1]) % 2 or int(match[1]) == 0:
                yield _violation(context, _ALLOC, item, params={"given": item.value})


def switched(context: CheckContext) -> Iterator[Violation]:
    """Report a switch of ``MS_ALLOC_CONF`` (option ``key``) that is on or off (option ``state``)."""
    wanted = bool(context.options["state"])
    for item in _items(context, _ALLOC):
        if item.key == context.options["key"] and item.value in _BOOLEANS and (item.value in _ON) is wanted:
            yield _violation(context, _ALLOC, item)


def tracked_by_path(context: CheckContext) -> Iterator[Violation]:
    """Report a path for the tracker's files that turns the tracker on, although ``memory_tracker`` is missing or off."""
    found = {item.key: item for item in _items(context, _ALLOC)}
    path, switch = found.get("memory_tracker_path"), found.get("memory_tracker")
    if path is not None and path.value and (switch is None or switch.value not in _ON):
        yield _violation(context, _ALLOC, path)


def simple_without_tracker(context: CheckContext) -> Iterator[Violation]:
    """Report ``simple_tracker`` while the memory tracker is off: it sets the amount of output, but does not turn it on."""
    found = {item.key: item for item in _items(context, _ALLOC)}
    if "simple_tracker" in found and found["simple_tracker"].value in _ON and not _is_tracked(found.values()):
        yield _violation(context, _ALLOC, found["simple_tracker"])


def foreign(context: CheckContext) -> Iterator[Violation]:
    """Report settings of torch_npu among those of MindSpore; without any of MindSpore's, the script is for something else."""
    if not any(isinstance(name, str) and name.startswith("MS_") and name in MS_NAMES for name in context.source.data):
        return
    for name, counterpart in FOREIGN.items():
        if context.source.get((name,)) is not None:
            message = "counterpart" if counterpart else "default"
            yield Violation((name,), message, {"counterpart": counterpart}, at_key=True)


def tracker_off(context: CheckContext) -> Iterator[Violation]:
    """Report that the memory tracker is off; a path for its files also turns it on."""
    if not _is_tracked(_items(context, _ALLOC)):
        yield Violation((_ALLOC,))


def _is_tracked(found: Iterable[Item]) -> bool:
    values = [(item.key, item.value) for item in found]
    return any(
        value in _ON if key == "memory_tracker" else key == "memory_tracker_path" and value for key, value in values
    )


def replaced(context: CheckContext) -> Iterator[Violation]:
    """Report a variable such as ``MS_ALLOC_CONF`` that is set again: the settings in its first value are lost."""
    for duplicate in context.source.duplicates:
        if duplicate.path[0] in KEYS:
            yield Violation(duplicate.path, span=duplicate.second, related_spans=((duplicate.first, "lost"),))


def rankless_simulation(context: CheckContext) -> Iterator[Violation]:
    """Report a simulated distributed run that sets only one of ``RANK_ID`` and ``RANK_SIZE``."""
    level = context.source.get(("MS_SIMULATION_LEVEL",))
    names = ("RANK_SIZE", "RANK_ID")
    absent = [name for name in names if context.source.get((name,)) is None]
    if level in ("0", "1", "2", "3") and len(absent) == 1:
        yield Violation(("MS_SIMULATION_LEVEL",), params={"absent": absent[0]}, at_key=True)


def tracker_without_blocking(context: CheckContext) -> Iterator[Violation]:
    """Report the tracker without synchronous launch: it attributes blocks to the wrong operators."""
    blocking = context.source.get(("MS_DEV_LAUNCH_BLOCKING",)) == "1"
    simulated = context.source.get(("MS_SIMULATION_LEVEL",)) is not None
    for item in () if blocking or simulated else _items(context, _ALLOC):
        if item.key == "memory_tracker" and item.value in _ON:
            yield _violation(context, _ALLOC, item)


def _items(context: CheckContext, name: str) -> list[Item]:
    value = context.source.get((name,))
    return items(value) if isinstance(value, str) else []


def _all_items(context: CheckContext) -> Iterator[tuple[str, Item]]:
    return ((name, item) for name in KEYS for item in _items(context, name))


def _violation(
    context: CheckContext, name: str, item: Item, message: str = "default", params: Mapping[str, object] | None = None
) -> Violation:
    return Violation((name,), message, params or {}, span=_span(context, name, item))


def _span(context: CheckContext, name: str, item: Item) -> Location | None:
    """Return the location of an item; the whole value if its quotes make the item's location unclear."""
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


_NEARLY = 0.93  # similarity of two names: a letter is missing, doubled, wrong or swapped
_ALIKE, _OWNED = 0.85, ("MS_", "HCCL_", "ASCEND_", "GLOG_")  # nobody else's names begin so
_SHORT = 10  # shorter names are too similar to each other
_ALSO_READ = "NCCL_"  # HCCL's variables are named after those of NCCL, which has its own


def misspelt(context: CheckContext) -> Iterator[Violation]:
    """Report a name, or an item in a value, that is unknown but differs from a documented one in a letter or two."""
    for name in context.source.data:
        known = variables().get(name) if isinstance(name, str) else None
        words = known.items if known is not None else ()
        for item in _items(context, name) if words else ():
            similar = closest(item.key, words, _NEARLY) if item.key and item.key not in words else ""
            if item.key is None and "=" in item.text and name not in KEYS:
                yield Violation((name,), "colon", {"item": item.text})
            elif similar:
                yield Violation((name,), "item", {"item": item.key, "similar": similar})
        if known is None and isinstance(name, str) and (similar := _similar(context, name)):
            yield Violation((name,), "default", {"similar": similar}, at_key=True)


def _similar(context: CheckContext, name: str) -> str:
    """Return the documented variable that was probably intended; empty if the script uses the name for its own purposes."""
    if len(name) < _SHORT or name.startswith(_ALSO_READ) or name != name.upper():
        return ""
    prefix = next((one for one in _OWNED if name.startswith(one)), "")
    known = (one for one in variables() if len(one) >= _SHORT and one.startswith(prefix))
    similar = closest(name, known, _ALIKE if prefix else _NEARLY)
    own = similar and re.search(rf"\$\{{?[!#]?{name}\b", context.source.text)
    return "" if own else similar


def out_of_range(context: CheckContext) -> Iterator[Violation]:
    """Report a value that is not a whole number in the documented range."""
    source = context.source
    if not isinstance(source, EnvironmentSource):
        return
    for one in source.environment.assignments:
        known = variables().get(one.name)
        text = (one.value or "").strip()
        if known is None or known.whole is None or not text or "$" in text or "`" in text:
            continue
        low, high = known.whole
        if not re.fullmatch(r"\d{1,20}", text, re.ASCII) or not low <= int(text) <= high:
            yield Violation((one.name,), "default", {"text": text, "low": low, "high": high}, span=one.span)
