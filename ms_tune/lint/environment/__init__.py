"""Checks of environment settings: ``.env`` files, exports of shell scripts, the variables of this process.

The three readers turn what they find into one form, an :class:`Environment`; nothing is ever executed, and a value that
only a shell could tell (``$HOME``, ``$(date)``) is unknown. The checks stand in ``checklists/code/environment.yaml`` and
see the variables as the keys of a config.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.enums import Dialect
from ms_tune.lint.checklist import built_in_code
from ms_tune.lint.engine import lint
from ms_tune.lint.environment.settings import Assignment, Environment
from ms_tune.lint.environment.shell import from_process, parse_env, parse_shell, read_env_file, read_shell

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ms_tune.diagnostics import Diagnostic
    from ms_tune.lint.checklist import Check

__all__ = [
    "Assignment",
    "Environment",
    "environment_checks",
    "from_process",
    "lint_environment",
    "parse_env",
    "parse_shell",
    "read_env_file",
    "read_shell",
]


def environment_checks() -> tuple[Check, ...]:
    """The built-in checks of environment settings."""
    return built_in_code()["environment"]


def lint_environment(
    environment: Environment, checks: Iterable[Check] | None = None, profile: str | None = None
) -> tuple[Diagnostic, ...]:
    """The findings in environment settings, in the order of their text.

    Args:
        environment: The settings.
        checks: The checks to make; by default all built-in ones.
        profile: What the run is for; checks of other profiles are left out. Without one, none is.
    """
    # The checks are about MindSpore itself and hold whatever is trained with it, so any dialect will do.
    chosen = environment_checks() if checks is None else checks
    return lint(environment.source(), Dialect.MINDFORMERS, chosen, profile=profile)
