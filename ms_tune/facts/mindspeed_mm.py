"""The settings of MindSpeed-MM's FSDP2 YAML (``data/mindspeed_mm.json``).

``BaseArguments`` (``mindspeed_mm/config/arguments/base_args.py``) takes every key, known or not, and keeps it: what no module
asks for is in force nowhere, and nothing says so.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from ms_tune.facts.query import all_at, load
from ms_tune.records import Record

if TYPE_CHECKING:
    from collections.abc import Mapping

SECTIONS = ("parallel", "features", "training", "tools")  # whose keys are all declared; models and data take their own
OWN_TOOLS = "mindspeed_mm/tools/tools.json"  # which a release brings along, in the form that it reads


class MultimodalSetting(Record):
    """One declared setting of a release."""

    types: tuple[str, ...]  # `int`, `float`, `str`, `bool`, `list`, `dict`, `null`; empty if that is not known
    choices: tuple[Any, ...]  # the values that it takes, if they are listed
    default: Any  # what holds where it is left out


@cache
def settings(release: str) -> Mapping[str, MultimodalSetting]:
    """The settings of a release, by their dotted paths."""
    found = all_at(load("mindspeed_mm")["fields"], release)
    return {
        path: MultimodalSetting(
            tuple(filter(None, one.get("type", "").split("|"))), tuple(one.get("choices", ())), one.get("default")
        )
        for path, one in found.items()
    }


@cache
def ever() -> frozenset[str]:
    """The paths of all settings that some release has, one that is not out yet among them."""
    return frozenset(load("mindspeed_mm")["fields"])


@cache
def read(release: str) -> frozenset[str]:
    """The paths of settings that are declared nowhere and read all the same."""
    sections = load("mindspeed_mm")["read"][release]
    return frozenset(f"{section}.{name}" for section, names in sections.items() for name in names)


@cache
def unread(release: str) -> frozenset[str]:
    """The paths of settings that are declared and read nowhere."""
    return frozenset(load("mindspeed_mm")["unread"][release])
