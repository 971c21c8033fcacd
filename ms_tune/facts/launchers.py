"""The programs that start training (``data/launchers.json``), and the environment variables that it runs with (``data/variables.json``)."""

from __future__ import annotations

import re
from functools import cache
from types import MappingProxyType

from ms_tune.facts.query import load
from ms_tune.records import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_PYTHON = re.compile(r"python([23](\.\d+)?)?")


class Launcher(Record):
    """A launcher."""

    # What it is called: `msrun`, `torchrun`, `torch.distributed.launch`, `python`, or one that is known by name alone.
    name: str
    # The options that take a value, with their defaults (None if there is none); names have `_` for `-`.
    values: Mapping[str, str | None]
    switches: frozenset[str]  # the options that take none
    known: bool  # whether its options are known
    whole: frozenset[str] = frozenset()  # the options that take whole numbers, as far as that is known
    choices: Mapping[str, tuple[str, ...]] = MappingProxyType({})  # what others take, likewise

    @property
    def counts(self) -> tuple[str, ...]:
        """The options whose product is the number of processes on all machines; nothing where that is not an option."""
        if "worker_num" in self.values:
            return ("worker_num",)
        return ("nproc_per_node", "nnodes") if "nproc_per_node" in self.values else ()


def launcher_named(command: str) -> Launcher | None:
    """The launcher that a command is, with or without its folder: ``/usr/bin/python3.11``, ``msrun``."""
    name = command.rpartition("/")[2]
    if _PYTHON.fullmatch(name):
        return launcher("python")
    return launcher(name) if is_launcher(name) else None


def is_launcher(command: str) -> bool:
    """Whether a command is a launcher by its name alone, with its stand-in or without; ``python`` is none."""
    facts = load("launchers")
    return command in facts["launchers"] or command in facts["others"]


def launcher_of_module(module: str) -> Launcher | None:
    """The launcher that ``python -m module`` is."""
    facts = load("launchers")
    name = facts["modules"].get(module) or facts["other_modules"].get(module)
    return launcher(name) if name else None


def is_wrapper(command: str) -> bool:
    """Whether a command starts the one that is behind it: ``nohup``, ``numactl``."""
    return command.rpartition("/")[2] in load("launchers")["wrappers"]


@cache
def launcher(name: str) -> Launcher:
    """A launcher of the data file by its name."""
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
    """What is known of a variable.

    Attributes:
        whole: The least and the greatest whole number that it takes; None where its values are not all documented.
        items: The names in a value such as ``name:value,name:value``.
        mindspore: Whether it says that a file is about MindSpore.
        instead: Of a variable of torch_npu's MindSpore's counterpart, or an empty text; None of the others.
    """

    whole: tuple[int, int] | None
    items: tuple[str, ...]
    mindspore: bool
    instead: str | None


@cache
def variables() -> Mapping[str, Variable]:
    """Every documented variable by its name."""
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
