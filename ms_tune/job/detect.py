"""Tells which framework a config is written for: by the keys that only one of them knows, and by how many keys it knows.

A key speaks for a dialect only if what it holds does, too: ``training:`` stands in the configs of many programs, but not
many have ``local_batch_size`` in it. A file most of whose keys a dialect does not know is none of that dialect's, and
files of other programs are told by fingerprints of their own (``facts/data/fingerprints.json``).

The keys stand in ``facts/data/releases.json``: ``alone`` are those that no other dialect has, ``also`` those that speak for it, of
``inside`` at least one is in a section, if it says anything of that section, and of ``whole`` a whole config has at least two.
MindFormers, static graph: ``tools/register/template.py`` (1.7 to 2.1); dynamic graph: ``pynative/config/config.py`` (2.0,
2.1); MindSpeed-Core-MS r0.1.0: the ``config_name`` of the classes in ``core/config.py``, and the form of its command line,
which ``init_configs_from_yaml`` does not read (``model_parallel``, ``language_model``).
"""

from __future__ import annotations

import os
from types import MappingProxyType

from ms_tune.enums import YAML_DIALECTS, Dialect
from ms_tune.facts.keys import by_section
from ms_tune.facts.query import load
from ms_tune.records import Record
from ms_tune.text import msg

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ms_tune.diagnostics import KeyPath
    from ms_tune.text import Message

_WHOLE = 2  # so many of the sections that make a whole config
_SURELY = 3  # so many strong keys in a file that is nearly all known are believed against a fingerprint
_NEARLY_ALL = 10  # but for one key in so many
# What tells a repository: a framework's package, in front of those that may be cloned or copied beside it.
PACKAGES: Mapping[str, str] = MappingProxyType(
    {
        "mindspeed_llm": "MindSpeed-LLM",
        "modellink": "MindSpeed-LLM",  # its name before 1.0, of which nothing is served
        "mindspeed_mm": "MindSpeed-MM",
        "mindspeed_ms": "MindSpeed-Core-MS",
        "mindformers": "MindFormers",
        "hyper_parallel": "HyperParallel",
    }
)
PARSER = "training/arguments.py"
_SIGNS = [(f"{package}/{file}", package) for package in PACKAGES for file in (PARSER, "__init__.py")]


def find_repository(path: Path) -> tuple[Path, str | None] | None:
    """The innermost repository of a framework around a file, with the framework's package; else the git repository, if any."""
    git = None
    for parent in path.absolute().parents:
        for sign, package in _SIGNS:
            if os.path.isfile(f"{parent}/{sign}"):  # noqa: PTH113 - asked a hundred times
                return parent, package
        if git is None and os.path.exists(f"{parent}/.git"):  # noqa: PTH110 - as above
            git = parent
    return (git, None) if git else None


class Recognition(Record):
    """What a config looks like."""

    dialect: Dialect | None  # the dialect, or None: no training config, or as much of one dialect as of another
    confident: bool  # whether keys that only this dialect has were found, and none of another
    evidence: tuple[KeyPath, ...]  # the key paths that speak for the dialect (for any, if there is no dialect)
    foreign: str | None = None  # whose file it is, if it is one of another program
    looks_like: Dialect | None = None  # the dialect whose keys it has, though most of its keys are of none

    @property
    def why_not(self) -> Message | None:
        """Why it is of no dialect, if more can be said than that; to end a sentence about the file."""
        if self.foreign is not None:
            return msg("config.is-foreign", what=msg(f"config.foreign.{self.foreign}"))
        if self.looks_like is not None:
            return msg("config.mostly-unknown", dialect=self.looks_like.value)
        return None


def recognise(data: object) -> Recognition:
    """The dialect of a config's values."""
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
            # At the top level only what holds what it holds in the dialect, and not only has its name.
            there = [name for name in load("releases")[dialect.value][kind] if name in written]
            fitting = [name for name in there if "." in name or _fits(data[name], dialect, name)]
            found[dialect] = [tuple(name.split(".")) for name in fitting]
        score[dialect] = len(strong[dialect]), len(weak[dialect])
    best, second, *_ = sorted(YAML_DIALECTS, key=score.__getitem__, reverse=True)
    program = _find_program(written)
    if program is not None and (len(strong[best]) < _SURELY or strong[second]):
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


def _find_program(written: set[str]) -> str | None:
    """The program whose file it is, if it is one that ms-tune does not check; the more special ones come first."""
    for program in load("fingerprints")["foreign"]:
        found = written.intersection(program["keys"])
        if len(found) >= program["least"] and found.issuperset(program.get("needs", ())):
            return str(program["id"])
    return None


def is_fragment(data: object, dialect: Dialect) -> bool:
    """Whether values are a part of a config, to which a program or another file brings the rest."""
    sections = load("releases")[dialect.value]["whole"]
    return isinstance(data, dict) and len(data.keys() & set(sections)) < min(_WHOLE, len(sections))


def count_keys(data: object, dialect: Dialect) -> tuple[int, int]:
    """How many of the keys of a config a dialect knows, of all releases, and how many it does not know.

    Keys of the top level and of the sections whose keys are known count, but not what sections hold that take any key.
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
    """Whether a top-level key holds what the dialect has there; an empty section tells nothing against it."""
    sections = by_section(dialect)
    key = sections[()].get(name)
    if key is not None and key.types == ("dict",) and value is not None and not isinstance(value, dict):
        return False
    if not isinstance(value, dict) or not value:
        return True
    inside = load("releases")[dialect.value]["inside"].get(name) or sections.get((name,), {})
    return not inside or not value.keys().isdisjoint(inside)


def _is_other_form(data: object, dialect: Dialect) -> bool:
    """Whether it is in the form of MindSpeed-Core-MS's command line, which has a check of its own."""
    return dialect is Dialect.MINDSPEED_MS and all(
        isinstance(data, dict) and isinstance(data.get(name), dict) for name in ("model_parallel", "language_model")
    )
