"""Select a few built-in checks, so that tests of the linter do not change with every new check."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from ms_tune.lint import checklist, code_files, runner
from ms_tune.lint.fix import Fixed, apply_fixes
from ms_tune.lint.settings import settings_for
from ms_tune.text import Language, render

if TYPE_CHECKING:
    import pytest

    from ms_tune.diagnostics import Diagnostic
    from ms_tune.enums import Dialect
    from ms_tune.lint.checklist import Check
    from ms_tune.source.yaml import SourceFile

IDS = frozenset(f"MST{number}" for number in (101, 102, 202, 204, 401, 404, 501, 502, 503, 505, 508, 509, 605, 606))


def profile_for(check: Check) -> str | None:
    """Return the profile in which a check's examples are checked: a separate one if another check demands the opposite."""
    return min(check.profiles) if check.opposite else None


def few(dialect: Dialect | None = None) -> tuple[Check, ...]:
    """Return the few checks of a dialect, or all."""
    return tuple(check for check in checklist.built_in(dialect) if check.id in IDS)


def make_only_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``ms-tune lint`` use these checks only, and clear its caches of settings and checklists."""
    # Memories of their own, so that the next test does not remember these few.
    for name in ("choose_checks", "_all_checks", "_read_checklists", "_refuse_unknown"):
        monkeypatch.setattr(runner, name, lru_cache(getattr(runner, name).__wrapped__))
    settings_for.cache_clear()
    for module in (runner, code_files):
        monkeypatch.setattr(module, "built_in", few)


def check_the_example(check: Check, bad: SourceFile, again: Callable[[SourceFile], tuple[Diagnostic, ...]]) -> None:
    """Assert that the fix turns the check's bad example into the good one, once, and only on request if it is unsafe."""
    (finding,) = again(bad)
    assert finding.fix is not None
    assert all(render(finding.fix.title, language) for language in Language)
    after, done = apply_fixes(bad, again, unsafe=True)
    assert done._replace(titles=()) == Fixed(check.good, 1)
    assert apply_fixes(after, again, unsafe=True)[1].made == 0
    assert apply_fixes(bad, again)[1].made == int(finding.fix.safe)
