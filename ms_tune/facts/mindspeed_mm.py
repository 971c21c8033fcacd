"""Look up the settings of MindSpeed-MM's FSDP2 YAML (``data/mindspeed_mm.json``).

``BaseArguments`` (``mindspeed_mm/config/arguments/base_args.py``) accepts and keeps every key, known or not: a key that no
module reads has no effect and causes no warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from ms_tune.facts.query import all_at, load
from ms_tune.records import Record

SECTIONS = ("parallel", "features", "training", "tools")  # sections whose keys are all declared
OWN_TOOLS = "mindspeed_mm/tools/tools.json"  # part of a release, in the format that the release reads


class MultimodalSetting(Record):
    """One declared setting of a release."""

    types: tuple[str, ...]  # `int`, `float`, `str`, `bool`, `list`, `dict`, `null`; empty if unknown
    choices: tuple[Any, ...]  # the allowed values, if they are listed
    default: Any  # the value if it is omitted


@cache
def settings(release: str) -> Mapping[str, MultimodalSetting]:
    """Return the settings of a release, by their dotted paths."""
    found = all_at(load("mindspeed_mm")["fields"], release)
    return {
        path: MultimodalSetting(
            tuple(filter(None, one.get("type", "").split("|"))), tuple(one.get("choices", ())), one.get("default")
        )
        for path, one in found.items()
    }


@cache
def ever() -> frozenset[str]:
    """Return the paths of all settings of any release, including an unpublished one."""
    return frozenset(load("mindspeed_mm")["fields"])


@cache
def read(release: str) -> frozenset[str]:
    """Return the paths of settings that are read although they are not declared."""
    sections = load("mindspeed_mm")["read"][release]
    return frozenset(f"{section}.{name}" for section, names in sections.items() for name in names)


@cache
def unread(release: str) -> frozenset[str]:
    """Return the paths of settings that are declared but never read."""
    return frozenset(load("mindspeed_mm")["unread"][release])
