"""What one part of a layer is called in the families of models: ``attention.wo`` here, ``self_attention.linear_proj`` there.

The families are the legacy static models (``legacy``, and ``glm`` with names of its own), the static models with
``use_legacy: False`` (``core``), the dynamic graph of MindFormers (``dynamic``) and MindSpeed-Core-MS (``mindspeed``,
which names what it recomputes and nothing else). Where one family has several parts for one of another, they stand in
one row together. The tests look every name up in the module trees of its family.
"""

from __future__ import annotations

from functools import cache
from typing import TypeAlias

from ms_tune.facts.query import load

# What one family calls some parts, and what another one calls the same parts.
Row: TypeAlias = "tuple[tuple[str, ...], tuple[str, ...]]"


@cache
def rows(source: str, target: str) -> tuple[Row, ...]:
    """The rows in which both families have names, in order: the first that fits counts. A family has its own names."""
    both = [] if source == target else [row for row in load("names")["rows"] if source in row and target in row]
    return tuple((tuple(row[source]), tuple(row[target])) for row in both)


def models(family: str) -> tuple[str, ...]:
    """The models of a family whose layers are known."""
    return tuple(load("names")["families"][family])


def cells_of(family: str) -> tuple[str, ...]:
    """The cells that every layer of a family of the static graph has."""
    return tuple(load("names")["cells"][family])


def family_of(model: str) -> str:
    """The family of a model of the static graph; models that are not known have the names of ``core``."""
    families = load("names")["families"]
    return next((family for family in ("legacy", "glm") if model in families[family]), "core")


def counterpart(model: str, family: str) -> str:
    """The model of another family that has the same layers, or the ones most like them."""
    found = load("names")["counterparts"].get(model, {}).get(family)
    return str(found or models(family)[0])
