"""Checks of Python training code, by its syntax tree: nothing is imported, nothing is run.

Only files that import MindSpore (or msadapter, its torch shim) are looked at: the spellings of PyTorch code are the
same. The checks stand in ``checklists/code/python.yaml``, their functions in ``ms_tune.lint.check_python_*``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.enums import Dialect
from ms_tune.lint.checklist import built_in_code
from ms_tune.lint.engine import lint
from ms_tune.lint.python_code.module import module_of
from ms_tune.lint.python_code.source import parse_python, read_python

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ms_tune.diagnostics import Diagnostic
    from ms_tune.lint.checklist import Check
    from ms_tune.source.yaml import SourceFile

__all__ = ["lint_python", "parse_python", "python_checks", "read_python", "uses_mindspore"]


def python_checks() -> tuple[Check, ...]:
    """The built-in checks of Python code."""
    return built_in_code()["python"]


def uses_mindspore(source: SourceFile) -> bool:
    """Whether a file imports MindSpore at all; the others are not checked."""
    return module_of(source).uses_mindspore


def lint_python(
    source: SourceFile, checks: Iterable[Check] | None = None, profile: str | None = None
) -> tuple[Diagnostic, ...]:
    """The findings in a Python file, in the order of its text; none if it does not import MindSpore.

    Args:
        source: The file, as :func:`read_python` gives it.
        checks: The checks to make; by default all built-in ones.
        profile: What the run is for; checks of other profiles are left out. Without one, none is.
    """
    if not uses_mindspore(source):
        return ()
    # The checks are about MindSpore itself and hold whatever is trained with it, so any dialect will do.
    return lint(source, Dialect.MINDFORMERS, python_checks() if checks is None else checks, profile=profile)
