"""Fixes for what a framework refuses about layers: the changes that its own rules let through, as a whole."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from ms_tune.errors import MsTuneError
from ms_tune.lint.checks.asked import Asked
from ms_tune.lint.finding import Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ms_tune.config.source import KeyPath
    from ms_tune.config.spans import Change
    from ms_tune.lint.checklist import Check
    from ms_tune.lint.context import Context, Violation

_REFUSALS = {"plan.refused", "net.refused"}


def with_remedy(check: Check, context: Context, violations: Iterable[Violation]) -> Iterator[Violation]:
    """Violations of errors without a fix of their own, with the remedy if it changes the place that they are about.

    It is never a safe fix: which of several values its author wanted, nobody but the author knows.
    """
    refusal = f"{check.test.module}.{check.test.name}" in _REFUSALS  # type: ignore[union-attr]  # the caller has looked
    for violation in violations:
        if check.severity is Severity.ERROR and not check.fixes and not violation.changes:
            # What this place is about comes first: it names the fix.
            changes = sorted(_remedy(Asked(context)), key=lambda one: not _touches(one.path, violation.path))
            if changes and (refusal or _touches(changes[0].path, violation.path)):
                yield replace(violation, changes=tuple(changes), safe=False)
                continue
        yield violation


def _touches(one: KeyPath, other: KeyPath) -> bool:
    length = min(len(one), len(other))
    return length > 1 and one[:length] == other[:length]


# One config is asked about by many checks.
@lru_cache(maxsize=1)
def _remedy(asked: Asked) -> tuple[Change, ...]:
    from ms_tune.normalize.source import normalize_source, remedy_of  # noqa: PLC0415 - only for what is wrong

    context = asked.context
    try:
        plan = normalize_source(context.source, context.version or None, hints=False)
    except MsTuneError:
        return ()
    return remedy_of(context.source, plan) if plan.failure is not None else ()
