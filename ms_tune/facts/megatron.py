"""The arguments of MindSpeed-LLM's training programs (``data/megatron.json``), as the parsers of its releases define them.

Megatron-LM, MindSpeed and MindSpeed-LLM add to one parser; where several of them define an argument, which definition is in
force depends on the features that are switched on, so there may be several. The file is made by ``tests/oracle/make_megatron.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from ms_tune.facts.query import load

if TYPE_CHECKING:
    from collections.abc import Mapping

UNREAD = "**unread**"  # a default that is no literal


@dataclass(frozen=True, slots=True)
class Definition:
    """One ``add_argument``."""

    part: str  # the repository: `Megatron-LM`, `MindSpeed`, `MindSpeed-LLM`
    dest: str  # where the value goes: `tensor_model_parallel_size`
    action: str | None  # `store_true` or `store_false`; None for an argument that takes values
    type: str  # `int`, `float`, `str`, `bool`, or `other` for a function
    nargs: str | None  # `*` or `+`; None for one value
    choices: tuple[object, ...] | None  # the values that it takes; None if any
    default: object  # what holds where the argument is left out
    required: bool  # whether it must not be left out


def programs() -> tuple[str, ...]:
    """The programs with this parser, by the names of their files."""
    return tuple(load("megatron")["programs"])


def releases_on(core: str) -> tuple[str, ...]:
    """The releases that run with a release of Megatron-LM, the oldest first."""
    return tuple(release for release, parts in load("megatron")["releases"].items() if parts["Megatron-LM"] == core)


@cache
def definitions(name: str, release: str) -> tuple[Definition, ...]:
    """What a release knows of an argument; nothing if it does not know it."""
    rows = load("megatron")["arguments"].get(name, ())
    return tuple(
        Definition(
            row["part"],
            row["dest"],
            row.get("action"),
            row.get("type", "str"),
            row.get("nargs"),
            tuple(row["choices"]) if "choices" in row else None,
            row.get("default", {"store_true": False, "store_false": True}.get(row.get("action", ""))),
            row.get("required", False),
        )
        for row in rows
        if release in row["releases"]
    )


@cache
def names(release: str) -> frozenset[str]:
    """The arguments that a release knows."""
    rows = load("megatron")["arguments"].items()
    return frozenset(name for name, found in rows if any(release in row["releases"] for row in found))


def releases_of(name: str) -> tuple[str, ...]:
    """The releases that know an argument, the oldest first."""
    rows = load("megatron")["arguments"].get(name, ())
    return tuple(one for one in load("megatron")["releases"] if any(one in row["releases"] for row in rows))


@cache
def parts_of(name: str) -> frozenset[str]:
    """The repositories that define an argument in any release; nothing if none does."""
    return frozenset(row["part"] for row in load("megatron")["arguments"].get(name, ()))


@cache
def names_by_dest(release: str) -> Mapping[str, tuple[str, ...]]:
    """The arguments that write to each destination."""
    found: dict[str, list[str]] = {}
    for name in sorted(names(release)):
        for dest in {one.dest for one in definitions(name, release)}:
            found.setdefault(dest, []).append(name)
    return {dest: tuple(given) for dest, given in found.items()}


def releases_with(part: str, names: frozenset[str]) -> tuple[str, ...]:
    """The releases of a repository whose arguments are most like those that were found in its sources.

    Args:
        part: The repository: ``MindSpeed-LLM``.
        names: Arguments that the sources define; those that no release knows count for none of them.

    Returns:
        More than one where these arguments do not tell them apart; nothing if no release has any of them.
    """
    facts = load("megatron")
    known: dict[str, set[str]] = {release: set() for release in facts["releases"]}
    for name, rows in facts["arguments"].items():
        for row in rows:
            if row["part"] == part:
                for release in row["releases"]:
                    known[release].add(name)
    found = names & frozenset().union(*known.values())
    unlike = {release: len(found ^ arguments) for release, arguments in known.items()}
    least = min(unlike.values())
    return tuple(release for release, count in unlike.items() if count == least) if found else ()


@dataclass(frozen=True, slots=True)
class Pair:
    """Two options that a feature of MindSpeed checks against each other, by their destinations."""

    option: str  # the feature's own
    other: str  # the other one
    excludes: bool  # whether they exclude each other; else the first needs the second


@cache
def pairs(release: str) -> tuple[Pair, ...]:
    """The pairs that a release refuses: its own code was run with each of them."""
    rows = [row for row in load("megatron")["pairs"] if release in row["releases"]]
    return tuple(Pair(row["option"], row.get("excludes") or row["needs"], "excludes" in row) for row in rows)


@cache
def unregistered(release: str) -> Mapping[str, str]:
    """The arguments that stand in the sources of a release and that the parser of ``pretrain_gpt.py`` does not know.

    Returns:
        By name, the ``--ai-framework`` with which it does; an empty text for none.
    """
    rows = load("megatron")["unregistered"]
    return {row["name"]: row.get("unless", "") for row in rows if release in row["releases"]}


def tag(part: str, release: str) -> str:
    """What a repository calls the version that goes with a release of MindSpeed-LLM."""
    return str(load("megatron")["releases"][release][part])
