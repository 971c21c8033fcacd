"""The keys of models' sections, over all releases and classes of models (:mod:`ms_tune.facts.models`)."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from ms_tune.facts.models import facts_of
from ms_tune.facts.query import all_at, at, ever, load, order

if TYPE_CHECKING:
    from collections.abc import Mapping


@cache
def keys_for(name: str, release: str) -> frozenset[str]:
    """Every key that some class of a release, or the general one, reads a field from."""
    data = load("models")
    rules = [data["aliases"], *(one["aliases"] for one in data["classes"].values() if not one["legacy"])]
    return frozenset((name, *(key for rule in rules for key, to in all_at(rule, release).items() if to[0] == name)))


@cache
def dynamic_kinds(release: str) -> tuple[str, ...]:
    """The models that a release's dynamic graph has a network for, by the ``model_type`` of each."""
    kinds = (name for name, one in load("models")["classes"].items() if not one["legacy"])
    return tuple(sorted(kind for kind in kinds if "dynamic" in facts_of(release, kind=kind).modes))


@cache
def known() -> Mapping[str, tuple[str, ...]]:
    """Every key of ``model.model_config`` that a class of models has a use for, with the releases in which one has."""
    data = load("models")
    releases = tuple(data["releases"])
    found = {key: set(having) for key, having in ever(data["latent"], releases).items()}
    for release in releases:
        for key in facts_of(release).keys_known():
            found.setdefault(key, set()).add(release)
    for one in data["classes"].values():
        there = ever({"": one["names"]}, releases).get("", frozenset())
        for histories in (one["defaults"], one["aliases"]):
            for key, having in ever(histories, releases).items():
                found.setdefault(key, set()).update(having & there)
        for release in there:
            for key in at(one["ignored"], release):
                found.setdefault(key, set()).add(release)
    return {key: tuple(filter(having.__contains__, releases)) for key, having in found.items() if having}


def known_since(key: str, release: str) -> str | None:
    """The release that brought a key of ``model.model_config`` that an earlier one does not know, if any did."""
    releases = known().get(key, ())
    return None if release in releases else next((one for one in releases if order(one) > order(release)), None)
