"""What a launched program is made of: MindSpore, MSAdapter, Megatron-LM, MindSpeed, MindSpeed-LLM; where, which release, what is missing.

Nothing is imported: releases are read from what lies in the folders that the program's own Python names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune.facts.megatron import releases_with, tag
from ms_tune.facts.query import load
from ms_tune.job.checkout import Checkout, read_git_head
from ms_tune.job.definitions import read_source_text
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ms_tune.text import Message

_VERSION = re.compile(r"^(MAJOR|MINOR|PATCH) *= *(\d+)", re.MULTILINE)
_NEEDS = re.compile(r"^Requires-Dist: mindspore *\(?(>=|==|<=|<|>|!=) *(\d+(?:\.\d+)*)", re.MULTILINE)
_COMPARED = {
    ">=": lambda one, other: one >= other,
    "<=": lambda one, other: one <= other,
    "==": lambda one, other: one == other,
    "!=": lambda one, other: one != other,
    "<": lambda one, other: one < other,
    ">": lambda one, other: one > other,
}
_MINDSPORE, _ADAPTER, _LLM = "MindSpore", "MSAdapter", "MindSpeed-LLM"


@dataclass(frozen=True, slots=True)
class StackPart:
    """A part of the stack."""

    name: str  # as its authors call it: `Megatron-LM`
    folder: Path | None  # where it was found; None where it was not
    release: str | None = None  # its release; None where nothing tells
    # What tells it: `package` (metadata, or a file of its own), `arguments` (it defines those of this release),
    # `branch` (the checkout's); None where nothing does.
    told_by: str | None = None
    releases: tuple[str, ...] = ()  # of MindSpeed-LLM, the releases that its arguments are those of


@dataclass(frozen=True, slots=True)
class Documented:
    """What a release of MindSpeed-Core-MS is documented to run with."""

    release: str  # `r0.4.0`
    script: str  # what is sourced in its folder to have the sources cloned and PYTHONPATH set
    parts: Mapping[str, str]  # the documented version of each part


def defect_in(error: str) -> Message | None:
    """The defect of a framework that an error is known to come from, on devices, too; None if it is of another kind."""
    return next((msg(f"stack.defect.{row['text']}") for row in load("stack")["defects"] if row["error"] in error), None)


def module_names() -> tuple[str, ...]:
    """The top-level modules to be looked for."""
    facts = load("stack")
    names = [part["module"] for part in facts["parts"].values()]
    older = [part["before"]["module"] for part in facts["parts"].values() if "before" in part]
    return tuple(dict.fromkeys([*names, *older, facts["hidden_by"]["module"]]))


def parts_of(folders: Mapping[str, Sequence[str]], *, thorough: bool = True) -> tuple[StackPart, ...]:
    """The parts.

    Args:
        folders: Where the program's Python finds each of :func:`module_names`.
        thorough: Read sources, too, to tell a release by its arguments.
    """
    return tuple(_read_part(name, facts, folders, thorough=thorough) for name, facts in load("stack")["parts"].items())


def _read_part(
    name: str, facts: Mapping[str, object], folders: Mapping[str, Sequence[str]], *, thorough: bool
) -> StackPart:
    places = [Path(place) for place in folders.get(str(facts["module"]), ())]
    before = facts.get("before")
    if not places and isinstance(before, dict):
        places = [Path(one) for one in folders.get(before["module"], ()) if Path(one).parent.name == before["under"]]
    if not places:
        return StackPart(name, None)
    folder = places[0]
    if thorough and facts.get("arguments"):
        package = folder.resolve()
        releases = releases_with(name, frozenset(Checkout(package.parent, package.name).own_arguments))
        if releases:
            told = ", ".join(dict.fromkeys(tag(name, one) for one in releases))
            return StackPart(name, folder, told, "arguments", releases if name == _LLM else ())
    release = _of_package(folder, str(facts["module"])) or _of_file(places, facts.get("version_file"))
    if release is not None:
        return StackPart(name, folder, release, "package")
    branch = _checked_out_branch(folder)
    return StackPart(name, folder, branch, "branch" if branch is not None else None)


def _of_package(folder: Path, package: str) -> str | None:
    found = _metadata_folder(folder, package)
    return None if found is None else found.name.split("-")[1].removesuffix(".dist").removesuffix(".egg")


def _metadata_folder(folder: Path, package: str) -> Path | None:
    for parent in dict.fromkeys((folder.parent, folder.resolve().parent)):
        for ending in ("dist-info", "egg-info"):
            found = next(iter(sorted(parent.glob(f"{package}-*.{ending}"))), None)
            if found is not None:
                return found
    return None


def _of_file(places: Sequence[Path], name: object) -> str | None:
    for place in places if isinstance(name, str) else ():
        numbers = dict(_VERSION.findall(read_source_text(place / str(name))))
        if numbers:
            return ".".join(numbers.get(part, "0") for part in ("MAJOR", "MINOR", "PATCH"))
    return None


def _checked_out_branch(folder: Path) -> str | None:
    here = folder.resolve()
    for parent in (here, *here.parents[:3]):
        if (parent / ".git" / "HEAD").is_file():
            head = read_git_head(parent)
            return head.branch or next(iter(head.tags), None)
    return None


def find_refusals(
    parts: Sequence[StackPart], folders: Mapping[str, Sequence[str]]
) -> Iterator[tuple[Message, Message | None]]:
    """Why the parts cannot run together, each with what to do about it."""
    found = {part.name: part for part in parts}
    adapter, mindspore = found[_ADAPTER], found[_MINDSPORE]
    metadata = _metadata_folder(adapter.folder, "msadapter") if adapter.folder is not None else None
    if metadata is not None and mindspore.release is not None:
        own = _release_numbers(mindspore.release)
        for sign, wanted in _NEEDS.findall(read_source_text(metadata / "METADATA")):
            if not _COMPARED[sign](own, _release_numbers(wanted)):
                params = {"adapter": adapter.release, "needs": f"{sign}{wanted}", "release": mindspore.release}
                yield msg("stack.refuses", **params), None
    hides = load("stack")["hidden_by"]
    for place in folders.get(hides["module"], ()):
        parent = Path(place).parent
        if parent.name != hides["meant"] and any(parent.glob(f"{hides['wheel']}-*.dist-info")):
            yield msg("stack.hidden", place=place), msg("stack.hidden.hint")


def missing_parts(parts: Sequence[StackPart]) -> tuple[str, ...]:
    """The parts that a program of MindSpeed-LLM needs and that were not found."""
    absent = {part.name for part in parts if part.folder is None}
    return tuple(name for name in load("stack")["needed"] if name in absent)


def documented_set(parts: Sequence[StackPart]) -> Documented:
    """The documented set of parts that goes with the MindSpeed-LLM that was found; the last one if none does."""
    own = next(part for part in parts if part.name == _LLM)
    rows = load("stack")["releases"]
    tags = {tag(_LLM, one).removeprefix("v") for one in own.releases} | {own.release}
    release = next((name for name, row in rows.items() if row[_LLM] in tags), list(rows)[-1])
    row = dict(rows[release])
    return Documented(release, row.pop("script"), row)


def differing_parts(parts: Sequence[StackPart], wanted: Documented) -> Iterator[tuple[StackPart, str]]:
    """The parts that are of another release than is documented, with that release."""
    for part in parts:
        told = wanted.parts.get(part.name)
        if told is None or part.release is None or not _NUMBER.search(told):
            continue
        if not any(_is_same_release(one, told) for one in part.release.split(", ")):
            yield part, told


_NUMBER = re.compile(r"\d+\.\d+(?:\.\d+)?")


def _is_same_release(release: str, told: str) -> bool:
    # Whether ``0.12.1`` is what ``core_v0.12.1`` names, or ``2.2.0_core_r0.12.1`` what ``v2.2.0_core_r0.12.1`` does.
    own, other = _NUMBER.findall(release), _NUMBER.findall(told)
    return bool(own) and own == other[: len(own)]


def _release_numbers(release: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", release.partition("rc")[0])[:3]))
