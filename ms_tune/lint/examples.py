"""Tries the checks of a checklist on their own examples: the bad one has to be found, the good one has to be clean."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune.enums import YAML_DIALECTS
from ms_tune.errors import ConfigError
from ms_tune.facts.releases import served
from ms_tune.lint.engine import lint, matches
from ms_tune.source.yaml import parse_source
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ms_tune.enums import Dialect
    from ms_tune.lint.checklist import Check
    from ms_tune.text import Message


def wrong_examples(checks: Iterable[Check]) -> Iterator[Message]:
    """What is wrong with the examples of checks of configs, as each of their dialects reads them.

    Checks of other files have no examples that can be told apart from their surroundings, and are passed over.
    """
    for check in checks:
        for dialect in sorted(check.dialects.intersection(YAML_DIALECTS)):
            yield from _wrong(check, dialect)


def _wrong(check: Check, dialect: Dialect) -> Iterator[Message]:
    version = next((one for one in reversed(served(dialect)) if matches(one, check.versions)), None)
    if version is None:
        yield msg("rule.try.no-release", id=check.id, name=check.name, versions=check.versions)
        return
    profile = min(check.profiles, default=None)
    for kind, example in (("bad", check.bad), ("good", check.good)):
        try:
            found = lint(parse_source(example, Path(f"{check.id}.yaml")), dialect, [check], version, profile)
        except ConfigError as error:
            yield msg("rule.try.unreadable", id=check.id, name=check.name, kind=kind, reason=error.message)
            continue
        broken = next((one for one in found if one.trace), None)
        if broken is not None:
            reason = broken.trace.strip().rpartition("\n")[2]
            yield msg("rule.try.failed", id=check.id, name=check.name, kind=kind, reason=reason)
        elif bool(found) is not (kind == "bad"):
            yield msg(f"rule.try.{kind}", id=check.id, name=check.name, dialect=dialect.value)
