"""Return findings in Python code and in environment settings, by selected checks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ms_tune.enums import Dialect
from ms_tune.lint.checklist import Check, built_in_code
from ms_tune.lint.engine import lint
from ms_tune.lint.python_code.module import module_of

if TYPE_CHECKING:
    from ms_tune.diagnostics import Diagnostic
    from ms_tune.lint.environment.settings import Environment
    from ms_tune.source.yaml import SourceFile


def python_checks() -> tuple[Check, ...]:
    """Return the built-in checks of Python code."""
    return built_in_code()["python"]


def environment_checks() -> tuple[Check, ...]:
    """Return the built-in checks of environment settings."""
    return built_in_code()["environment"]


def lint_python(
    source: SourceFile, checks: Iterable[Check] | None = None, profile: str | None = None
) -> tuple[Diagnostic, ...]:
    """Return the findings in a Python file; none if it does not import MindSpore."""
    if not module_of(source).uses_mindspore:
        return ()
    return lint(source, Dialect.MINDFORMERS, python_checks() if checks is None else checks, profile=profile)


def lint_environment(
    environment: Environment, checks: Iterable[Check] | None = None, profile: str | None = None
) -> tuple[Diagnostic, ...]:
    """Return the findings in environment settings."""
    chosen = environment_checks() if checks is None else checks
    return lint(environment.source(), Dialect.MINDFORMERS, chosen, profile=profile)
