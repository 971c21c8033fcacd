"""Define defects to insert into real configs, launch scripts and programs, and the checks that must report each.

Each form in ``tests/data/planted.yaml`` makes one mistake that the framework refuses, or that changes the run, and
names the checks that explain it: the mistake is known independently of any check.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from random import Random

    Plant = Callable[[str, Random], str | None]


@dataclass(frozen=True, slots=True)
class Form:
    """One kind of defect.

    Args:
        name: The defect.
        ids: The checks that explain it; any of them is sufficient.
        plant: Returns the text with the defect; None if the file has no place for it.
    """

    name: str
    ids: tuple[str, ...]
    plant: Plant


def value(key: str, *texts: str, of: str = "[^\\s#].*?") -> Plant:
    """Replace the value of the first key with this name."""

    def plant(text: str, random: Random) -> str | None:
        found = re.search(rf"(?m)^(\s*(?:- )?{key}: +)({of})([ \t]*(?:#.*)?)$", text)
        new = random.choice(texts)
        return None if found is None or found[2] == new else text[: found.start(2)] + new + text[found.end(2) :]

    return plant


def misspelt(*keys: str) -> Plant:
    """Remove or repeat a letter of a key."""

    def plant(text: str, random: Random) -> str | None:
        there = [match for key in keys for match in re.finditer(rf"(?m)^ *({key}):", text)]
        if not there:
            return None
        place = random.choice(there)
        at = random.randrange(place.start(1) + 2, place.end(1) - 1)
        letter = random.choice(("", 2 * text[at])) if text[at] != text[at - 1] else 2 * text[at]
        return text[:at] + letter + text[at + 1 :]

    return plant


def twice(*keys: str) -> Plant:
    """Repeat a line of the file with another value."""

    def plant(text: str, random: Random) -> str | None:
        there = [match for key in keys for match in re.finditer(rf"(?m)^( *){key}: +[^\s#\[{{&*].*\n", text)]
        if not there:
            return None
        place = random.choice(there)
        return f"{text[: place.end()]}{place[0].partition(':')[0]}: 7\n{text[place.end() :]}"

    return plant


def both(*plants: Plant) -> Plant:
    """Combine several changes into one defect."""

    def plant(text: str, random: Random) -> str | None:
        new: str | None = text
        for one in plants:
            new = one(new, random) if new is not None else None
        return new

    return plant


def where(pattern: str, plant: Plant) -> Plant:
    """Apply a defect only to files that contain a pattern."""
    return lambda text, random: plant(text, random) if re.search(pattern, text) else None


def words(old: str, *new: str) -> Plant:
    """Replace the first match with other words."""

    def plant(text: str, random: Random) -> str | None:
        found = re.search(old, text)
        return None if found is None else text[: found.start()] + found.expand(random.choice(new)) + text[found.end() :]

    return plant


def end(*lines: str) -> Plant:
    """Append lines."""
    return lambda text, random: f"{text.rstrip()}\n{random.choice(lines)}\n"


_STEP = """import mindspore
from mindspore import nn, ops, value_and_grad
{0}
grad_fn = value_and_grad(forward)

def train_step(x):
    loss, grads = grad_fn(x)
    return loss

for step in range(10000):
    loss = train_step(step)
    """


def step(before: str, *lines: str) -> Plant:
    """Append a program's loop of steps, with a line before it and one inside."""
    return end(*(_STEP.format(before) + line for line in lines))


_PLANTS: dict[str, Callable[..., Plant]] = {
    one.__name__: one for one in (value, misspelt, twice, both, where, words, end, step)
}


def _planting(expected: Any) -> Any:  # noqa: ANN401 - an argument as it stands, or a plant among them
    if not isinstance(expected, dict):
        return expected
    (name, arguments), *named = expected.items()
    return _PLANTS[name](*map(_planting, arguments), **dict(named))


_FILE = Path(__file__).parents[1] / "data" / "planted.yaml"
STATIC, DYNAMIC, CORE, SCRIPTS, PROGRAMS = (
    tuple(Form(one["name"], tuple(one["ids"]), _planting(one["plant"])) for one in forms)
    for forms in yaml.safe_load(_FILE.read_text("utf-8")).values()
)
