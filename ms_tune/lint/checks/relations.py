"""Checks of numeric relations between settings, written in the language of :mod:`ms_tune.lint.expressions`.

Options: ``relation`` (what has to hold), ``given`` (only where this holds too), ``defaults`` (numbers for settings that
are not written), ``at`` (the setting to point at), ``related`` (the message for the other settings, which are not
pointed at without it). The last part of each key path is a parameter of the messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.dialects.check_context import Violation
from ms_tune.lint.expressions import parse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.diagnostics import KeyPath
    from ms_tune.dialects.check_context import CheckContext


def holds(context: CheckContext) -> Iterator[Violation]:
    """A relation that does not hold. Where a number is missing and has no default, nothing is said."""
    relation = parse(str(context.options["relation"]))
    given = parse(str(context.options["given"])) if "given" in context.options else None
    names = tuple(dict.fromkeys(relation.names + (given.names if given else ())))
    values = _numbers(context, names)
    if relation.holds(values) is not False or (given is not None and given.holds(values) is not True):
        return
    at = str(context.options.get("at", relation.names[0]))
    written = [name for name in names if context.get(name) is not None]
    if at not in written:
        at = written[0] if written else at
    others = [name for name in written if name != at and name in relation.names] if "related" in context.options else []
    yield Violation(
        _path(at),
        params={name.rpartition(".")[2]: values.get(name, "") for name in names},
        related=tuple((_path(name), str(context.options["related"])) for name in others),
    )


def _numbers(context: CheckContext, names: tuple[str, ...]) -> dict[str, int | float]:
    defaults = context.options.get("defaults", {})
    found: dict[str, int | float] = {}
    for name in names:
        value = context.get(name)
        if value is None and isinstance(defaults, dict):
            value = defaults.get(name)
        # True is no number here: where the framework wants one, the check of types says so.
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            found[name] = value
    return found


def _path(dotted: str) -> KeyPath:
    return tuple(dotted.split("."))
