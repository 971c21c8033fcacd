"""Check environment settings; :mod:`ms_tune.lint.environment.settings` describes how MindSpore reads them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ms_tune.dialects.check_context import CheckContext, Violation
from ms_tune.errors import closest
from ms_tune.facts.launchers import variables
from ms_tune.lint.environment.settings import FOREIGN, KEYS, MS_NAMES, EnvironmentSource, Item, items_of, span_of

_RUNTIME = "MS_DEV_RUNTIME_CONF"
_BOOLEANS = ("True", "true", "False", "false")


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
    for item in items_of(context.source, _RUNTIME):
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
            first = span_of(context.source, name, before)
            again = _violation(context, name, item, params={"item": item.key})
            yield again._replace(related_spans=((first, "first"),) if first else ())
        seen[name, item.key] = item


def foreign(context: CheckContext) -> Iterator[Violation]:
    """Report settings of torch_npu among those of MindSpore; without any of MindSpore's, the script is for something else."""
    if not any(isinstance(name, str) and name.startswith("MS_") and name in MS_NAMES for name in context.source.data):
        return
    for name, counterpart in FOREIGN.items():
        if context.source.get((name,)) is not None:
            message = "counterpart" if counterpart else "default"
            yield Violation((name,), message, {"counterpart": counterpart}, at_key=True)


def replaced(context: CheckContext) -> Iterator[Violation]:
    """Report a variable such as ``MS_ALLOC_CONF`` that is set again: the settings in its first value are lost."""
    for duplicate in context.source.duplicates:
        if duplicate.path[0] in KEYS:
            yield Violation(duplicate.path, span=duplicate.second, related_spans=((duplicate.first, "lost"),))


def _all_items(context: CheckContext) -> Iterator[tuple[str, Item]]:
    return ((name, item) for name in KEYS for item in items_of(context.source, name))


def _violation(
    context: CheckContext, name: str, item: Item, message: str = "default", params: Mapping[str, object] | None = None
) -> Violation:
    return Violation((name,), message, params or {}, span=span_of(context.source, name, item))


_NEARLY = 0.93  # similarity of two names: a letter is missing, doubled, wrong or swapped
_ALIKE, _OWNED = 0.85, ("MS_", "HCCL_", "ASCEND_", "GLOG_")  # nobody else's names begin so
_SHORT = 10  # shorter names are too similar to each other
_ALSO_READ = "NCCL_"  # HCCL's variables are named after those of NCCL, which has its own


def misspelt(context: CheckContext) -> Iterator[Violation]:
    """Report a name, or an item in a value, that is unknown but differs from a documented one in a letter or two."""
    for name in context.source.data:
        known = variables().get(name) if isinstance(name, str) else None
        words = known.items if known is not None else ()
        for item in items_of(context.source, name) if words else ():
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
