"""Find the parts of a launched program: MindSpore, MSAdapter, Megatron-LM, MindSpeed, MindSpeed-LLM.

Reports where they are, their releases, and which are missing. Nothing is imported: releases are read from files in the folders
that the program's own Python reports. ``stand_in.py`` can use this with the standard library only.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ms_tune.facts.query import load
from ms_tune.source.files import read_source_text
from ms_tune.text import Message, msg

_VERSION = re.compile(r"^(MAJOR|MINOR|PATCH) *= *(\d+)", re.MULTILINE)
_NEEDS = re.compile(r"^Requires-Dist: mindspore *\(?(>=|==|<=|<|>|!=) *(\d+(?:\.\d+)*)", re.MULTILINE)
_COMPARED = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}
_MINDSPORE, _ADAPTER = "MindSpore", "MSAdapter"


@dataclass(frozen=True, slots=True)
class StackPart:
    """One framework of a launched program, and its release."""

    name: str  # its authors' name for it: `Megatron-LM`
    folder: Path | None  # where it was found; None if it was not found
    release: str | None = None  # its release; None if unknown
    # The source of the release: `package` (metadata, or a file of its own), `arguments` (those that it defines), `branch` (of
    # the checkout); None if unknown.
    told_by: str | None = None
    releases: tuple[str, ...] = ()  # for MindSpeed-LLM, the releases with the same arguments


def defect_in(error: str) -> Message | None:
    """Return the known framework defect that causes an error, also on devices; None for other errors."""
    return next((msg(f"stack.defect.{row['text']}") for row in load("stack")["defects"] if row["error"] in error), None)


def module_names() -> tuple[str, ...]:
    """Return the top-level modules to find."""
    facts = load("stack")
    names = [part["module"] for part in facts["parts"].values()]
    older = [part["before"]["module"] for part in facts["parts"].values() if "before" in part]
    return tuple(dict.fromkeys([*names, *older, facts["hidden_by"]["module"]]))


def parts_of(folders: Mapping[str, Sequence[str]]) -> tuple[StackPart, ...]:
    """Return the parts, with releases from their metadata or version files."""
    return tuple(_read_part(name, facts, folders) for name, facts in load("stack")["parts"].items())


def _read_part(name: str, facts: Mapping[str, object], folders: Mapping[str, Sequence[str]]) -> StackPart:
    places = [Path(place) for place in folders.get(str(facts["module"]), ())]
    before = facts.get("before")
    if not places and isinstance(before, dict):
        places = [Path(one) for one in folders.get(before["module"], ()) if Path(one).parent.name == before["under"]]
    if not places:
        return StackPart(name, None)
    found = _metadata_folder(places[0], str(facts["module"]))
    if found is not None:
        release: str | None = found.name.split("-")[1].removesuffix(".dist").removesuffix(".egg")
    else:
        release = _of_file(places, facts.get("version_file"))
    return StackPart(name, places[0], release, "package" if release is not None else None)


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


def find_refusals(
    parts: Sequence[StackPart], folders: Mapping[str, Sequence[str]]
) -> Iterator[tuple[Message, Message | None]]:
    """Yield why the parts cannot run together, each with a hint."""
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


def _release_numbers(release: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", release.partition("rc")[0])[:3]))
