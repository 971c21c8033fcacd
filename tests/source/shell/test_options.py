"""Compare the final values of a program's arguments, and its parser's refusals, with ``argparse`` and the release's definitions."""

from __future__ import annotations

import argparse
from pathlib import Path
from random import Random
from typing import NoReturn

import pytest

from ms_tune.dialects.megatron.arguments import ParserFault, ProgramArguments, command_of, refused
from ms_tune.facts.megatron import UNREAD, Definition, definitions, names, names_by_dest, unregistered
from ms_tune.facts.models import UNKNOWN
from ms_tune.source.shell.read import read_launches

RELEASES = ("2.0", "2.1", "26.1")
_TYPES = {"int": int, "float": float, "str": str, "bool": bool}


class Refusing(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def command(arguments: str, release: str = "2.1") -> ProgramArguments:
    (launch,) = read_launches(Path("a.sh"), f"msrun pretrain_gpt.py {arguments}").launches
    found = command_of(launch, release)
    assert found is not None
    return found


def parser_of(release: str, *, judging: bool = False) -> tuple[argparse.ArgumentParser, dict[str, Definition]]:
    """Return an argparse parser of the supported arguments, with their defaults or as evaluated."""
    made = Refusing(allow_abbrev=False, add_help=False)
    known: dict[str, Definition] = {}
    for name in sorted(names(release) - (unregistered(release).keys() if judging else set())):
        one, *others = definitions(name, release)
        type_ = None if judging and one.type == "bool" else _TYPES.get(one.type)
        if others or not (type_ or (one.action and (judging or one.type in _TYPES))):
            continue
        if not judging and len(names_by_dest(release)[one.dest]) > 1:
            continue  # not its own destination alone
        known[name] = one
        more = {"choices": one.choices} if judging else {"default": None if one.default == UNREAD else one.default}
        if one.action:
            made.add_argument(name, dest=one.dest, action=one.action, default=more.get("default"))
        else:
            made.add_argument(name, dest=one.dest, type=type_ or str, nargs=one.nargs, **more)
    return made, known


@pytest.mark.slow
@pytest.mark.parametrize("release", RELEASES)
def test_values_are_those_of_argparse(release: str) -> None:
    random = Random(release)  # noqa: S311 - the same cases every time
    parser, known = parser_of(release)
    taken = compared = 0
    for _ in range(150):
        words: list[str] = []
        for name in random.sample(list(known), random.randrange(1, 8)):
            for _ in range(random.choice((1, 1, 1, 2))):
                value = random.choice(("8", "-1", "x", "1e-5", "-.5", "True", "a/b", "9" * 45))
                values = [random.choice(("8", "x", "-3")) for _ in range(random.randrange(3))]
                one = known[name]
                words += (
                    [name]
                    if one.action
                    else [name, *values]
                    if one.nargs
                    else [f"{name}={value}"]
                    if random.random() < 0.3
                    else [name, value]
                )
        try:
            expected = vars(parser.parse_args(words))
        except ValueError:
            continue
        taken += 1
        found = command(" ".join(words), release)
        for name, one in known.items():
            held = found.value(one.dest)
            if held is not UNKNOWN:
                compared += 1
                assert held == expected[one.dest], (name, words)
            else:  # a default that is no literal, no value where any number will do, or a number beyond all sense
                assert one.default == UNREAD or name in " ".join(words), (name, words)
    assert taken > 20
    assert compared > 100 * taken


@pytest.mark.parametrize(
    ("arguments", "dest", "value"),
    [
        ("--num-layers 3 --num-layers 4", "num_layers", 4),
        ("--num-layers four", "num_layers", UNKNOWN),
        ("--num-layers", "num_layers", UNKNOWN),
        ("--num-layers $N", "num_layers", UNKNOWN),
        ("$MORE", "num_layers", UNKNOWN),  # it may be in there
        ("--load $A --num-layers 3", "num_layers", 3),
        ("--data-path $MORE", "num_layers", UNKNOWN),  # any number of words, and others after them
        ("--seed -3", "seed", -3),
        ("--lr=1e-5", "lr", 1e-5),
        ("--lr 1e-5=", "lr", UNKNOWN),
        ("--data-path a b", "data_path", ["a", "b"]),
        ("--no-such-thing 3", "no_such_thing", UNKNOWN),
    ],
)
def test_what_holds_in_the_end(arguments: str, dest: str, value: object) -> None:
    assert command(arguments).value(dest) == value


def test_words_in_front_and_words_after_equals_have_their_places() -> None:
    found = command("stray --lr=1e-5 3 --num-layers 4 5")
    assert [one.text for one in found.strays] == ["stray"]
    assert [(one.name, one.joined, [value.text for value in one.values]) for one in found.items] == [
        ("--lr", True, ["1e-5", "3"]),
        ("--num-layers", False, ["4", "5"]),
    ]
    assert found.last("num_layers") == found.items[1]
    assert found.last("seed") is None


def test_another_program_is_none_of_its() -> None:
    (launch,) = read_launches(Path("a.sh"), "msrun train.py --num-layers 3").launches
    assert command_of(launch, "2.1") is None


@pytest.mark.slow
@pytest.mark.parametrize("release", RELEASES)
def test_what_argparse_refuses(release: str) -> None:
    random = Random(release)  # noqa: S311 - the same cases every time
    taker, known = parser_of(release, judging=True)
    chosen = [name for name in known if definitions(name, release)[0].choices]
    count = {True: 0, False: 0}
    for _ in range(400):
        words = ["stray"] if random.random() < 0.03 else []
        for name in random.sample(list(known), random.randrange(1, 3)) + random.sample(chosen, 1):
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
            continue  # the number of its values is not checked
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
