"""The settings of MindSpeed-MM's FSDP2 YAML (``data/mindspeed_mm.json``), and how its files are known.

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
_YAML = ("fsdp_plan", "fully_shard_parallel_size", "ulysses_parallel_size", "ring_attention_size")
_TOOLS = ("memory_profile", "sorafeature")


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


def is_config(data: object) -> bool:
    """Whether values are those of an FSDP2 YAML: MindSpeed-LLM writes such files, too, with sections of other names."""
    if not isinstance(data, dict):
        return False
    parallel = data.get("parallel")
    inside = isinstance(parallel, dict) and any(name in parallel for name in _YAML)
    return inside and any(isinstance(data.get(name), dict) for name in ("training", "features", "tools", "data"))


def is_tools(data: object) -> bool:
    """Whether values are those of a ``tools.json`` (``mindspeed_mm/tools/tools.json``)."""
    if not isinstance(data, dict) or any(name in data for name in ("parallel", "training", "model")):
        return False
    profile = data.get("profile")
    static = isinstance(profile, dict) and "profile_type" in profile
    return static or all(isinstance(data.get(name), dict) for name in ("profile", _TOOLS[0]))
