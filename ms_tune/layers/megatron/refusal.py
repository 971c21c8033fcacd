"""How a rule says that the framework stops: its own words, the file that has them, and why."""

from __future__ import annotations

from typing import NoReturn

from ms_tune.layers.result import stop
from ms_tune.texts import msg


def fail(file: str, exception: str, text: str, why: str) -> NoReturn:
    """The framework raises this exception.

    Args:
        file: Where in its sources.
        exception: The exception's class.
        text: The exception's text.
        why: What is to be done, the last part of a text ``megatron_layers.why.*``.
    """
    stop(exception, text, msg("megatron_layers.in-file", file=file, why=msg(f"megatron_layers.why.{why}")))


def require(holds: bool, file: str, text: str, why: str) -> None:  # noqa: FBT001 - an assertion
    """An assertion of the framework, which stops it if it does not hold."""
    if not holds:
        fail(file, "AssertionError", text, why)
