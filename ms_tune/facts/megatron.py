"""Look up the arguments of MindSpeed-LLM's training programs (``data/megatron.json``), as defined by each release's parsers.

Megatron-LM, MindSpeed and MindSpeed-LLM add arguments to one parser. If several define the same argument, the enabled
features decide which definition applies, so there may be several. ``tests/oracle/make_megatron.py`` writes the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from ms_tune.facts.query import load

UNREAD = "**unread**"  # a default that is not a literal


@dataclass(frozen=True, slots=True)
class Definition:
    """One ``add_argument`` call."""

    part: str  # the repository: `Megatron-LM`, `MindSpeed`, `MindSpeed-LLM`
    dest: str  # the name of the value: `tensor_model_parallel_size`
    action: str | None  # `store_true` or `store_false`; None for an argument that takes values
    type: str  # `int`, `float`, `str`, `bool`, or `other` for a function
    nargs: str | None  # `*` or `+`; None for one value
    choices: tuple[object, ...] | None  # the allowed values; None if any
    default: object  # the value if the argument is omitted
    required: bool  # whether it must not be omitted


def programs() -> tuple[str, ...]:
    """Return the file names of the programs that use this parser."""
    return tuple(load("megatron")["programs"])


def releases_on(core: str) -> tuple[str, ...]:
    """Return the releases that run with a release of Megatron-LM, the oldest first."""
    return tuple(release for release, parts in load("megatron")["releases"].items() if parts["Megatron-LM"] == core)


@cache
def definitions(name: str, release: str) -> tuple[Definition, ...]:
    """Return a release's definitions of an argument; empty if it does not know it."""
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
    """Return the arguments that a release defines."""
    rows = load("megatron")["arguments"].items()
    return frozenset(name for name, found in rows if any(release in row["releases"] for row in found))


def releases_of(name: str) -> tuple[str, ...]:
    """Return the releases that know an argument, the oldest first."""
    rows = load("megatron")["arguments"].get(name, ())
    return tuple(one for one in load("megatron")["releases"] if any(one in row["releases"] for row in rows))


@cache
def parts_of(name: str) -> frozenset[str]:
    """Return the repositories that define an argument in any release."""
    return frozenset(row["part"] for row in load("megatron")["arguments"].get(name, ()))


@cache
def names_by_dest(release: str) -> Mapping[str, tuple[str, ...]]:
    """Return the arguments that write to each destination."""
    found: dict[str, list[str]] = {}
    for name in sorted(names(release)):
        for dest in {one.dest for one in definitions(name, release)}:
            found.setdefault(dest, []).append(name)
    return {dest: tuple(given) for dest, given in found.items()}


def releases_with(part: str, names: frozenset[str]) -> tuple[str, ...]:
    """Return the releases of a repository whose arguments are most like those found in its sources.

    Several if these arguments cannot distinguish them; empty if no release has any of them.
    """
    facts = load("megatron")
    known: dict[str, set[str]] = {release: set() for release in facts["releases"]}
    for name, rows in facts["arguments"].items():
        for row in rows:
            if row["part"] == part:
                for release in row["releases"]:
                    known[release].add(name)
    found = names & frozenset().union(*known.values())
    differences = {release: len(found ^ arguments) for release, arguments in known.items()}
    least = min(differences.values())
    return tuple(release for release, count in differences.items() if count == least) if found else ()


@cache
def unregistered(release: str) -> Mapping[str, str]:
    """Return the arguments that a release's sources define but the parser of ``pretrain_gpt.py`` does not know.

    Each has the ``--ai-framework`` with which the parser does know it; an empty text if none.
    """
    rows = load("megatron")["unregistered"]
    return {row["name"]: row.get("unless", "") for row in rows if release in row["releases"]}


def tag(part: str, release: str) -> str:
    """Return a repository's tag for the version that belongs to a release of MindSpeed-LLM."""
    return str(load("megatron")["releases"][release][part])
