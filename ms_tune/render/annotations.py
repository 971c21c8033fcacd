"""Workflow commands of GitHub Actions, which it shows at lines of a change."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def annotation(level: str, places: Mapping[str, object], title: str, message: str) -> str:
    """One annotation.

    Args:
        level: ``error``, ``warning`` or ``notice``.
        places: Where: ``file``, ``line`` and the like.
        title: Its heading.
        message: What it says; lines are kept.
    """
    properties = ",".join(f"{name}={_property(str(value))}" for name, value in places.items())
    return f"::{level} {properties},title={_property(title)}::{_data(message)}"


def _data(text: str) -> str:
    """Escaped as ``@actions/core`` does it (toolkit, ``command.ts``)."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
