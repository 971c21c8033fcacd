"""Look up training launchers (``data/launchers.json``) and environment variables of runs (``data/variables.json``)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from ms_tune.facts.query import load
from ms_tune.records import Record

_PYTHON = re.compile(r"python([23](\.\d+)?)?")


class Launcher(Record):
    """A program that starts training processes, and its options."""

    # Its name: `msrun`, `torchrun`, `torch.distributed.launch`, `python`, or one without known options.
    name: str
    # The options with a value, and their defaults (None without a default); names have `_` instead of `-`.
    values: Mapping[str, str | None]
    switches: frozenset[str]  # the options without a value
    known: bool  # whether its options are known
    whole: frozenset[str] = frozenset()  # the options whose value is a whole number, as far as known
    choices: Mapping[str, tuple[str, ...]] = MappingProxyType({})  # the choices of other options, as far as known

    @property
    def counts(self) -> tuple[str, ...]:
        """Return the options whose product is the number of processes on all machines (may be empty)."""
        if "worker_num" in self.values:
            return ("worker_num",)
        return ("nproc_per_node", "nnodes") if "nproc_per_node" in self.values else ()


def find_launcher(command: str) -> Launcher | None:
    """Return the launcher that a command names, with or without its folder: ``/usr/bin/python3.11``, ``msrun``."""
    name = command.rpartition("/")[2]
    if _PYTHON.fullmatch(name):
        return launcher("python")
    return launcher(name) if is_launcher(name) else None


def is_launcher(command: str) -> bool:
    """Return whether a command is a known launcher by its name alone; ``python`` is not."""
    facts = load("launchers")
    return command in facts["launchers"] or command in facts["others"]


def launcher_of_module(module: str) -> Launcher | None:
    """Return the launcher that ``python -m module`` starts."""
    facts = load("launchers")
    name = facts["modules"].get(module) or facts["other_modules"].get(module)
    return launcher(name) if name else None


def is_wrapper(command: str) -> bool:
    """Return whether a command runs the command given after it: ``nohup``, ``numactl``."""
    return command.rpartition("/")[2] in load("launchers")["wrappers"]


@cache
def launcher(name: str) -> Launcher:
    """Return a launcher of the data file by its name."""
    if name == "python":
        return Launcher(name, dict.fromkeys(load("launchers")["python"]["values"]), frozenset(), known=True)
    options = load("launchers")["launchers"].get(name, {}).get("options")
    rows = [(spelled.lstrip("-").replace("-", "_"), one) for one in options or () for spelled in one["names"]]
    return Launcher(
        name,
        {spelled: one.get("default") for spelled, one in rows if not one.get("flag")},
        frozenset(spelled for spelled, one in rows if one.get("flag")),
        options is not None,
        frozenset(spelled for spelled, one in rows if one.get("type") == "int"),
        {spelled: tuple(one["choices"]) for spelled, one in rows if "choices" in one},
    )


class Variable(Record):
    """An environment variable that is documented."""

    # The least and the greatest whole number allowed; None if not all allowed values are documented.
    whole: tuple[int, int] | None
    items: tuple[str, ...]  # the names in a value such as ``name:value,name:value``
    mindspore: bool  # whether it shows that a file is for MindSpore
    instead: str | None  # for a variable of torch_npu, MindSpore's counterpart or an empty text; None for others


@cache
def variables() -> Mapping[str, Variable]:
    """Return every documented variable by its name."""
    return MappingProxyType(
        {
            name: Variable(
                (one["whole"][0], one["whole"][1]) if "whole" in one else None,
                tuple(one.get("items", ())),
                one.get("mindspore", False),
                one.get("instead"),
            )
            for name, one in load("variables")["variables"].items()
        }
    )
