"""Detect the framework of a config: by keys that only one framework defines, and by the number of keys that it defines.

A key is evidence for a dialect only if its content matches, too: many programs have ``training:``, but few have
``local_batch_size`` in it. A file is not of a dialect if that does not know most of its keys; files of other programs have
their own fingerprints (``facts/data/fingerprints.json``).

The keys are in ``facts/data/releases.json``: ``alone`` are unique to the dialect, ``also`` are weaker evidence for it, a
section must have at least one of its ``inside`` keys to count, and a whole config has at least two of ``whole``. MindFormers,
static graph: ``tools/register/template.py`` (1.7 to 2.1); dynamic graph: ``pynative/config/config.py`` (2.0, 2.1);
MindSpeed-Core-MS r0.1.0: the ``config_name`` of the classes in ``core/config.py``, and the form of its command line, which
``init_configs_from_yaml`` does not read (``model_parallel``, ``language_model``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from ms_tune.diagnostics import KeyPath
from ms_tune.enums import YAML_DIALECTS, Dialect
from ms_tune.facts.keys import by_section
from ms_tune.facts.query import load
from ms_tune.records import Record
from ms_tune.text import Message, msg

_SECTION_COUNT = 2  # the number of sections that make a whole config
_STRONG_KEY_COUNT = 3  # the number of strong keys that outweigh a fingerprint if nearly all keys are known
_NEARLY_ALL = 10  # at most one unknown key in this many
# Packages that identify a framework's repository, before those that may be cloned or copied into it.
PACKAGES: Mapping[str, str] = MappingProxyType(
    {
        "mindspeed_llm": "MindSpeed-LLM",
        "modellink": "MindSpeed-LLM",  # its names before 1.0, which is not supported
        "ascendspeed": "MindSpeed-LLM",
        "mindspeed_mm": "MindSpeed-MM",
        "mindspeed_ms": "MindSpeed-Core-MS",
        "mindformers": "MindFormers",
        "hyper_parallel": "HyperParallel",
        "mindspeed": "MindSpeed",
    }
)
PARSER = "training/arguments.py"
_SIGNS = [(f"{package}/{file}", package) for package in PACKAGES for file in (PARSER, "__init__.py")]


def find_repository(path: Path) -> tuple[Path, str | None] | None:
    """Return the innermost framework repository around a file, with its package; else the git repository, if any."""
    git = None
    for parent in path.absolute().parents:
        for sign, package in _SIGNS:
            if os.path.isfile(f"{parent}/{sign}"):  # noqa: PTH113 - called a hundred times
                return parent, package
        if git is None and os.path.exists(f"{parent}/.git"):  # noqa: PTH110 - as above
            git = parent
    return (git, None) if git else None


class Recognition(Record):
    """The result of recognising a config."""

    dialect: Dialect | None  # None if it is not a training config, or matches two dialects equally
    confident: bool  # whether keys unique to this dialect were found, and none of another
    evidence: tuple[KeyPath, ...]  # the key paths that are evidence for the dialect (for any, if `dialect` is None)
    foreign: str | None = None  # the program with a fingerprint that the file belongs to, if any
    looks_like: Dialect | None = None  # the dialect of its known keys, if most of its keys are unknown

    @property
    def why_not(self) -> Message | None:
        """Return why it has no dialect, if the reason is known; to end a sentence about the file."""
        if self.foreign is not None:
            return msg("config.is-foreign", what=msg(f"config.foreign.{self.foreign}"))
        if self.looks_like is not None:
            return msg("config.mostly-unknown", dialect=self.looks_like.value)
        return None


def recognise(data: object) -> Recognition:
    """Recognise the dialect of a config from its values."""
    data = data if isinstance(data, dict) else {}
    strong: dict[Dialect, list[KeyPath]] = {}
    weak: dict[Dialect, list[KeyPath]] = {}
    score: dict[Dialect, tuple[int, int]] = {}
    written = {"True"} if True in data else set[str]()  # as PyYAML reads the key `on`
    for key, value in data.items():
        if isinstance(key, str) and "." not in key:
            written.add(key)
            written.update([f"{key}.{inner}" for inner in value] if isinstance(value, dict) else ())
    for dialect in YAML_DIALECTS:
        for kind, found in (("alone", strong), ("also", weak)):
            # At the top level a name only counts if its content matches the dialect.
            there = [name for name in load("releases")[dialect.value][kind] if name in written]
            fitting = [name for name in there if "." in name or _fits(data[name], dialect, name)]
            found[dialect] = [tuple(name.split(".")) for name in fitting]
        score[dialect] = len(strong[dialect]), len(weak[dialect])
    best, second, *_ = sorted(YAML_DIALECTS, key=score.__getitem__, reverse=True)
    program = _find_program(written, data)
    if program == Dialect.HYPER_PARALLEL:
        return Recognition(Dialect.HYPER_PARALLEL, confident=True, evidence=(), foreign=program)
    if program is not None and (len(strong[best]) < _STRONG_KEY_COUNT or strong[second]):
        return Recognition(None, confident=False, evidence=(), foreign=program)
    if score[best] == score[second]:
        everything = tuple(path for dialect in YAML_DIALECTS for path in strong[dialect] + weak[dialect])
        return Recognition(None, confident=False, evidence=everything)
    known, unknown = count_keys(data, best)
    if program is not None and unknown * _NEARLY_ALL > known + unknown:
        return Recognition(None, confident=False, evidence=(), foreign=program)
    evidence = tuple(strong[best] + weak[best])
    if known < unknown and not _is_other_form(data, best):
        return Recognition(None, confident=False, evidence=evidence, looks_like=best)
    return Recognition(best, bool(strong[best]) and not strong[second], evidence)


def _find_program(written: set[str], data: Mapping[object, object]) -> str | None:
    """Return the program that a file belongs to, by its keys and the packages of its targets; more specific ones come first."""
    targets = [
        str(one["_target_"]).partition(".")[0] for one in data.values() if isinstance(one, dict) and "_target_" in one
    ]
    written = written.union(map("_target_:{}".format, targets)) if targets else written
    for program in load("fingerprints")["foreign"]:
        found = written.intersection(program["keys"])
        if len(found) >= program["least"] and found.issuperset(program.get("needs", ())):
            return str(program["id"])
    return None


def framework_of(foreign: str | None) -> str | None:
    """Return the framework of another program if that is one whose scripts are checked."""
    return next((one.get("framework") for one in load("fingerprints")["foreign"] if one["id"] == foreign), None)


def is_fragment(data: object, dialect: Dialect) -> bool:
    """Return whether values are only a part of a config, which a program or another file completes."""
    sections = load("releases")[dialect.value]["whole"]
    return isinstance(data, dict) and len(data.keys() & set(sections)) < min(_SECTION_COUNT, len(sections))


def count_keys(data: object, dialect: Dialect) -> tuple[int, int]:
    """Count the keys of a config that a dialect knows in any release, and those that it does not know.

    Keys of the top level and of sections with known keys count, but not unknown keys in sections that accept any key.
    """
    sections, open_sections = by_section(dialect), load(f"keys_{dialect.value}").get("open", ())
    left: list[tuple[KeyPath, object]] = [((), data)]
    known = unknown = 0
    while left:
        section, values = left.pop()
        table, takes_any = sections.get(section, {}), bool(section) and list(section) in open_sections
        for key, value in values.items() if table and isinstance(values, dict) else ():
            if key in table:
                fits = bool(section) or _fits(value, dialect, key)
                known, unknown = known + fits, unknown + (not fits)
                left.append(((*section, key), value))
            elif not (takes_any or str(key).startswith(("_", "x-"))):
                unknown += 1
    return known, unknown


def _fits(value: object, dialect: Dialect, name: str) -> bool:
    """Return whether the content of a top-level key matches the dialect; an empty section does."""
    sections = by_section(dialect)
    key = sections[()].get(name)
    if key is not None and key.types == ("dict",) and value is not None and not isinstance(value, dict):
        return False
    if not isinstance(value, dict) or not value:
        return True
    inside = load("releases")[dialect.value]["inside"].get(name) or sections.get((name,), {})
    return not inside or not value.keys().isdisjoint(inside)


def _is_other_form(data: object, dialect: Dialect) -> bool:
    """Return whether it has the form of MindSpeed-Core-MS's command line, which another check covers."""
    return dialect is Dialect.MINDSPEED_MS and all(
        isinstance(data, dict) and isinstance(data.get(name), dict) for name in ("model_parallel", "language_model")
    )
