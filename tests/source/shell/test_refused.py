"""What the parser refuses, beside ``argparse`` with the definitions of the same release."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from ms_tune.dialects.megatron.arguments import ParserFault, refused
from ms_tune.facts.megatron import definitions, names, unregistered

from .test_options import RELEASES, Refusing, command

if TYPE_CHECKING:
    import argparse

_TYPES = {"int": int, "float": float, "str": str}


def parser(release: str) -> tuple[argparse.ArgumentParser, list[str]]:
    """A parser of the arguments that are defined once, and their names."""
    made = Refusing(allow_abbrev=False, add_help=False)
    known = []
    for name in sorted(names(release) - unregistered(release).keys()):
        found = definitions(name, release)
        if len(found) > 1 or not (found[0].action or found[0].type in _TYPES):
            continue
        (one,) = found
        known.append(name)
        if one.action:
            made.add_argument(name, dest=one.dest, action=one.action)
        else:
            made.add_argument(name, dest=one.dest, type=_TYPES[one.type], nargs=one.nargs, choices=one.choices)
    return made, known


@pytest.mark.slow
@pytest.mark.parametrize("release", RELEASES)
def test_what_argparse_refuses(release: str) -> None:
    random = Random(release)  # noqa: S311 - the same cases every time
    taker, known = parser(release)
    chosen = [name for name in known if definitions(name, release)[0].choices]
    count = {True: 0, False: 0}
    for _ in range(400):
        words = ["stray"] if random.random() < 0.03 else []
        for name in random.sample(known, random.randrange(1, 3)) + random.sample(chosen, 1):
            (one,) = definitions(name, release)
            shown = name if random.random() > 0.05 else f"{name}x"
            values = [random.choice(("8", "8", "-1", "x", "1e-5", "1.5"))]
            if one.choices and random.random() < 0.8:
                values = [str(random.choice(one.choices))]
            if one.action or random.random() < 0.1:
                values = []
            if random.random() < 0.05:
                values.append("more")
            words += [shown, *values]
        try:
            taker.parse_args(words)
            passes = True
        except ValueError:
            passes = False
        if any(
            definitions(word, release) and definitions(word, release)[0].nargs for word in words if word[:2] == "--"
        ):
            continue  # how many values it takes is not judged
        count[passes] += 1
        assert passes == (not list(refused(command(" ".join(words), release)))), words
    assert min(count.values()) > 60


@pytest.mark.parametrize(
    ("arguments", "faults"),
    [
        ("--recompute-granularity ful", [ParserFault.CHOICE]),
        ("--recompute-granularity full", []),
        ("--num-layers four --num-layrs 4", [ParserFault.NUMBER, ParserFault.UNKNOWN]),
        ("--num-layers", [ParserFault.MISSING]),
        ("--num-layers 4 5", [ParserFault.EXTRA]),
        ("stray --num-layers 4", [ParserFault.EXTRA]),
        ("--num-layers $N --recompute-granularity $(choose)", []),
        ("$MORE --num-layers 4", []),
        ("--num-layers 4 $MORE", []),
    ],
)
def test_what_is_known_only(arguments: str, faults: list[ParserFault]) -> None:
    assert [one.fault for one in refused(command(arguments))] == faults
