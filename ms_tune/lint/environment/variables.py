"""List the known environment variables, and parse their values as MindSpore does.

``mindspore/core/utils/ms_utils.cc`` (2.7; same in 2.9 and 2.10) reads ``MS_ALLOC_CONF``, whose keys are in ``mem_env.h``, and
``MS_DEV_RUNTIME_CONF``, whose keys are in ``runtime_env.h``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ms_tune.facts.launchers import variables
from ms_tune.facts.query import load

# Those that show that a file is for MindSpore; and those of torch_npu, which MindSpore 2.9 does not use, with MindSpore's
# counterpart, if any.
MS_NAMES = frozenset(name for name, one in variables().items() if one.mindspore)
FOREIGN = {name: one.instead for name, one in variables().items() if one.instead is not None}

# By variable, the keys of its value: which are switches, their further values, and the releases that know a key if 2.9 does
# not. Switches are read with ``IsEnableRuntimeConfig`` and ``IsDisableRuntimeConfig`` (``runtime_env.h``): True, true, False or false.
KEYS: Mapping[str, Mapping[str, Mapping[str, Any]]] = load("variables")["keys"]


class Item(NamedTuple):
    """One item of a value such as ``enable_vmm:True,memory_tracker:False``."""

    text: str  # the item without surrounding spaces
    start: int  # its offset in the value
    key: str | None  # the text before the first colon; None without a colon (the item is dropped)
    value: str  # the text after the first colon


def items(value: str) -> list[Item]:
    """Split a value as MindSpore does: ``;`` equals ``,``, and the first ``:`` separates key and value."""
    found = []
    at = 0
    while len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        value, at = value[1:-1], at + 1
    for part in value.replace(";", ",").split(","):
        words = part.strip()
        if words:
            key, colon, rest = words.partition(":")
            start = at + len(part) - len(part.lstrip())
            found.append(Item(words, start, key.strip() if colon else None, rest.strip()))
        at += len(part) + 1
    return found
