"""The values that hold of a program's arguments, beside ``argparse`` with the definitions of the same release."""

from __future__ import annotations

import argparse
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NoReturn

import pytest

from ms_tune.dialects.megatron.arguments import ProgramArguments, command_of
from ms_tune.facts.megatron import UNREAD, definitions, names, names_by_dest
from ms_tune.facts.models import UNKNOWN
from ms_tune.source.shell.read import read_launches

if TYPE_CHECKING:
    from ms_tune.facts.megatron import Definition

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


def single(release: str) -> dict[str, Definition]:
    """The arguments with one definition that argparse can be given, and whose destination is theirs alone."""
    found = {}
    for name in sorted(names(release)):
        known = definitions(name, release)
        if len(known) == 1 and known[0].type in _TYPES and len(names_by_dest(release)[known[0].dest]) == 1:
            found[name] = known[0]
    return found


def parser_of(known: dict[str, Definition]) -> argparse.ArgumentParser:
    parser = Refusing(allow_abbrev=False, add_help=False)
    for name, one in known.items():
        default = None if one.default == UNREAD else one.default
        if one.action:
            parser.add_argument(name, dest=one.dest, action=one.action, default=default)
        else:
            parser.add_argument(name, dest=one.dest, type=_TYPES[one.type], nargs=one.nargs, default=default)
    return parser


@pytest.mark.slow
@pytest.mark.parametrize("release", RELEASES)
def test_values_are_those_of_argparse(release: str) -> None:
    random = Random(release)  # noqa: S311 - the same cases every time
    known = single(release)
    parser = parser_of(known)
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
        ("$MORE", "num_layers", UNKNOWN),  # it may hide in there
        ("--load $A --num-layers 3", "num_layers", 3),
        ("--data-path $MORE", "num_layers", UNKNOWN),  # any number of words, and others behind them
        ("--seed -3", "seed", -3),
        ("--lr=1e-5", "lr", 1e-5),
        ("--lr 1e-5=", "lr", UNKNOWN),
        ("--data-path a b", "data_path", ["a", "b"]),
        ("--no-such-thing 3", "no_such_thing", UNKNOWN),
    ],
)
def test_what_holds_in_the_end(arguments: str, dest: str, value: object) -> None:
    assert command(arguments).value(dest) == value


def test_switches_and_numbers_are_sure_or_not() -> None:
    found = command("--sequence-parallel --num-layers 8 --lr 0.5")
    assert found.surely("sequence_parallel")
    assert not found.surely_not("sequence_parallel")
    assert found.surely_not("nothing_like_it")
    assert found.integer("num_layers") == 8
    assert found.integer("lr") is None
    assert found.integer("sequence_parallel") is None
    assert not command("$MORE").surely_not("sequence_parallel")
    assert command("").surely_not("sequence_parallel")


def test_words_in_front_and_words_behind_equals_have_their_places() -> None:
    found = command("stray --lr=1e-5 3 --num-layers 4 5")
    assert [one.text for one in found.strays] == ["stray"]
    assert [(one.name, one.joined, [value.text for value in one.values]) for one in found.given] == [
        ("--lr", True, ["1e-5", "3"]),
        ("--num-layers", False, ["4", "5"]),
    ]
    assert found.last("num_layers") == found.given[1]
    assert found.last("seed") is None


def test_another_program_is_none_of_its() -> None:
    (launch,) = read_launches(Path("a.sh"), "msrun train.py --num-layers 3").launches
    assert command_of(launch, "2.1") is None
