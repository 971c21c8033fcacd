"""The environment variables that MindSpore, CANN and torch_npu read (``data/variables.json``), and what their documentation takes."""

from __future__ import annotations

from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from ms_tune.facts.query import load

if TYPE_CHECKING:
    from collections.abc import Mapping


class Variable(NamedTuple):
    """What is known of a variable.

    Attributes:
        whole: The least and the greatest whole number that it takes; None where its values are not all documented.
        items: The names in a value such as ``name:value,name:value``.
        mindspore: Whether it says that a file is about MindSpore.
        instead: Of a variable of torch_npu's MindSpore's counterpart, or an empty text; None of the others.
    """

    whole: tuple[int, int] | None
    items: tuple[str, ...]
    mindspore: bool
    instead: str | None


@cache
def variables() -> Mapping[str, Variable]:
    """Every documented variable by its name."""
    return MappingProxyType(
        {
            name: Variable(
                (one["whole"][0], one["whole"][1]) if "whole" in one else None,
                tuple(one.get("items", ())),
                one.get("mindspore", False),
                one.get("instead"),
            )
            for name, one in load("variables")["variables"].items()
        }
    )
