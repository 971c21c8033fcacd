"""Checks of environment variables by what their documentation says: names a slip away from one, values that none takes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ms_tune.dialects.check_context import Violation
from ms_tune.errors import closest
from ms_tune.facts.registries import variables
from ms_tune.lint.environment.settings import EnvironmentSource
from ms_tune.lint.environment.variables import items

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.dialects.check_context import CheckContext

_NEARLY = 0.93  # of two names: a letter is missing, doubled, wrong or at its neighbour's place
_SHORT = 10  # names of fewer letters are too alike
_ALSO_READ = "NCCL_"  # the names of HCCL's are made after those of another library, which has its own


def misspelt(context: CheckContext) -> Iterator[Violation]:
    """A name that is not documented, a letter or two away from one that is; or such an item in a value."""
    for name in context.source.data:
        if not isinstance(name, str):
            continue
        known = variables().get(name)
        if known is not None:
            yield from _misspelt_items(context, name, known.items)
        elif similar := _similar(context, name):
            yield Violation((name,), "default", {"similar": similar}, at_key=True)


def _similar(context: CheckContext, name: str) -> str:
    """The variable that was meant, or nothing: the script may use a name of its own."""
    if len(name) < _SHORT or name.startswith(_ALSO_READ) or name != name.upper():
        return ""
    similar = closest(name, (one for one in variables() if len(one) >= _SHORT), _NEARLY)
    own = similar and re.search(rf"\$\{{?[!#]?{name}\b", context.source.text)
    return "" if own else similar


def _misspelt_items(context: CheckContext, name: str, known: tuple[str, ...]) -> Iterator[Violation]:
    value = context.source.get((name,))
    for item in items(value) if known and isinstance(value, str) else ():
        similar = closest(item.key, known, _NEARLY) if item.key and item.key not in known else ""
        if similar:
            yield Violation((name,), "item", {"item": item.key, "similar": similar})


def out_of_range(context: CheckContext) -> Iterator[Violation]:
    """A value that is no whole number of those that the variable takes."""
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
