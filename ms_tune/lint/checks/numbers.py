"""Checks of sizes and amounts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ms_tune.dialects.check_context import Violation
from ms_tune.units import GIB, parse_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.dialects.check_context import CheckContext

# `_MEMORY_PATTERN` of mindspore/runtime/memory.py (2.9), which is matched from the start and may be followed by more.
_MEMORY = re.compile(r"[1-9][0-9]*(\.)?[0-9]*GB|0\.[0-9]*GB", re.ASCII)


def memory_size(context: CheckContext) -> Iterator[Violation]:
    """A size that MindSpore refuses: it wants ``58GB``, in capitals, as a text."""
    for name in sorted(context.names("keys")):
        value = context.get(name)
        if value and not (isinstance(value, str) and _MEMORY.match(value) and value not in ("0GB", "0.0GB")):
            yield Violation(tuple(name.split(".")))


def memory_limit(context: CheckContext) -> Iterator[Violation]:
    """A limit on the memory pool that leaves nothing of the card for others."""
    name, most = context.options["key"], context.options["most"]
    value = context.get(str(name))
    if isinstance(value, str) and _MEMORY.fullmatch(value) and parse_size(value) >= parse_size(str(most)):
        yield Violation(tuple(str(name).split(".")), params={"most": parse_size(str(most)) // GIB})


def above(context: CheckContext) -> Iterator[Violation]:
    """A number above the most that works."""
    name, most = str(context.options["key"]), context.options["most"]
    value = context.integer(name)
    if value is not None and isinstance(most, int) and value > most:
        yield Violation(tuple(name.split(".")))


def dropout(context: CheckContext) -> Iterator[Violation]:
    """Mcore models want a float from 0 up and below 1 (``TransformerConfig.__post_init__``, 1.6 to 2.1)."""
    for name in ("hidden_dropout", "attention_dropout"):
        value = context.get(f"model.model_config.{name}")
        if value is not None and not (isinstance(value, float) and 0 <= value < 1):
            yield Violation(("model", "model_config", name))


def beyond(context: CheckContext) -> Iterator[Violation]:
    """A whole number above ``most`` or below ``least`` at any of the ``keys``; ``strict`` refuses all other values, too."""
    keys, least, most = (context.options.get(name) for name in ("keys", "least", "most"))
    for name in keys if isinstance(keys, list) else ():
        value = context.get(str(name))
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            wrong = context.options.get("strict") is True
        else:
            wrong = (isinstance(most, int) and value > most) or (isinstance(least, int) and value < least)
        if wrong and value not in _listed(context.options.get("except")):
            yield Violation(tuple(str(name).split(".")))


def negative(context: CheckContext) -> Iterator[Violation]:
    """A number below zero at any of the ``keys``, or one that is not above zero at those among ``positive``.

    The fused AdamW takes an eps of zero (MindFormers, ``optim/fused_adamw.py``).
    """
    positive = context.names("positive") if context.get("optimizer.use_fused") is not True else frozenset[str]()
    for name in sorted(context.names("keys") | context.names("positive")):
        value = context.get(name)
        if (
            isinstance(value, (int, float))
            and not isinstance(value, bool)
            and (value < 0 or (value == 0 and name in positive))
        ):
            yield Violation(tuple(name.split(".")), "positive" if name in positive else "default")


def floats(context: CheckContext) -> Iterator[Violation]:
    """A whole number or a switch at any of the ``keys``, where AdamW takes only what Python reads as a float.

    In the dynamic graph (``dynamic``) switches are refused before, and no check of its own tells numbers below zero.
    """
    dynamic = context.options.get("dynamic") is True
    for name in sorted(context.names("keys")):
        path, value = tuple(name.split(".")), context.get(name)
        if isinstance(value, bool):
            if not dynamic:
                yield Violation(path, "switch")
        elif isinstance(value, int):
            yield Violation(path)
        elif isinstance(value, float) and value < 0 and dynamic:
            yield Violation(path, "negative")


def betas(context: CheckContext) -> Iterator[Violation]:
    """Betas that AdamW refuses (MindFormers, ``optim/adamw.py``, ``optim/fused_adamw.py``, ``pynative/optimizer/adamw.py``).

    The fused one and the dynamic graph's (``dynamic``) take 0.0; the latter's config refuses what is no number before.
    """
    value, dynamic = context.get("optimizer.betas"), context.options.get("dynamic") is True
    zero = dynamic or context.get("optimizer.use_fused") is True
    items = value if isinstance(value, list) else []
    if value is None or (dynamic and not all(type(item) in (int, float) for item in items)):
        return
    if [isinstance(item, float) and 0 <= item < 1 and (zero or item > 0) for item in items] != [True, True]:
        yield Violation(("optimizer", "betas"))


def words(context: CheckContext) -> Iterator[Violation]:
    """A list, or a text that means no number, at any of the ``keys``; what only looks like a text to YAML (``1e-5``) is another check's."""
    keys = context.options.get("keys")
    for name in keys if isinstance(keys, list) else ():
        value = context.get(str(name))
        if isinstance(value, list) or (isinstance(value, str) and not is_number(value)):
            yield Violation(tuple(str(name).split(".")))


def is_number(text: str) -> bool:
    """Whether Python reads a text as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def jit_config(context: CheckContext) -> Iterator[Violation]:
    """What ``set_context(jit_config=...)`` refuses (MindSpore 2.9, ``mindspore/context.py``)."""
    value = context.get("context.jit_config")
    known = {"jit_level": ("O0", "O1", "O2"), "infer_boost": ("on", "off")}
    if value is not None and not isinstance(value, dict):
        yield Violation(("context", "jit_config"))
        return
    for key, item in context.mapping("context.jit_config").items():
        if str(key) not in known or item not in known[str(key)]:
            yield Violation(("context", "jit_config", str(key)))


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []
