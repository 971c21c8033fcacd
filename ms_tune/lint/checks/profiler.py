"""Checks of the profiler's settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.lint.context import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.lint.context import Context


def misleading(context: Context) -> Iterator[Violation]:
    """``profiler_level`` is read by ``Trainer._build_profile_cb``, although the template calls it useless."""
    if context.get("profiler_level") is not None:
        name = "default" if context.get("profile") is True else "unread"
        yield Violation(("profiler_level",), name, at_key=True)
