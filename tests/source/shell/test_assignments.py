"""Test every assignment of a script: its value, its branches, and whether it uses its own old value."""

from __future__ import annotations

import pytest

from ms_tune.source.shell.read import Assignment, assignments


def written(script: str) -> list[tuple[str, str | None]]:
    return [(one.assignment.name, one.text) for one in assignments(script)]


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("A=1", [("A", "1")]),
        ("export A='1 2' B=\"3\"", [("A", "1 2"), ("B", "3")]),
        ("A=1 B= msrun train.py", [("A", "1"), ("B", "")]),
        ("A=$B; C=x${D}y; E=$(f); F=`g`; G=$((1))", [("A", None), ("C", None), ("E", None), ("F", None), ("G", None)]),
        ("A=(1 2)", [("A", None)]),
        ("env A=1 B='2' msrun C=3", [("A", "1"), ("B", "2")]),
        ("env -i A=1 msrun", []),
        ("env A=$B msrun", [("A", None)]),
        ("env", []),
        ("env 'A=1' msrun", []),  # a quoted word is not read as an assignment
        ("echo A=1; msrun B=2", []),
        ("declare -x A=1; local B=2; readonly C=3", [("A", "1"), ("B", "2"), ("C", "3")]),
        ("# A=1", []),
        ("f() { A=1; }; if x; then B=2; else C=3; fi; for i in 1; do D=4; done", [("A", "1"), ("B", "2"), ("C", "3"), ("D", "4")]),
    ],
)  # fmt: skip
def test_what_is_there(script: str, found: list[tuple[str, str | None]]) -> None:
    assert written(script) == found


@pytest.mark.parametrize(
    ("script", "extends"),
    [
        ("A=$A:x", True),
        ("A=x:${A:-y}", True),
        ("A=${B:-$A}", True),
        ("A=${B:-$C}", False),
        ("A+=x", True),
        ("A=($B $A)", True),
        ("A=$AB", False),
        ("env A=$A:x msrun", True),
    ],
)
def test_what_builds_upon_the_old_value(script: str, extends: bool) -> None:  # noqa: FBT001
    assert [one.extends for one in assignments(script)] == [extends]


def test_branches_are_distinguished_and_nested() -> None:
    script = "A=1\nif x; then B=2; { C=3; }; if y; then D=4; fi; else E=5; fi\ncase z in a) F=6;; b) G=7;; esac\nH=8"
    block = {one.assignment.name: one.block for one in assignments(script)}
    assert block["A"] == block["H"] == ()
    assert block["B"] == block["C"][:1] == block["D"][:1]
    assert len({block[name] for name in "BDEFG"}) == 5
    assert all(len(block[name]) == 1 for name in "BEFG")


def test_they_are_in_the_order_of_the_script_at_their_places() -> None:
    script = "env Z=1 Y=2 msrun\nX=3 W='4' f\n"
    found: list[Assignment] = assignments(script)
    assert [one.assignment.name for one in found] == ["Z", "Y", "X", "W"]
    assert [script[one.assignment.place.start : one.assignment.place.end] for one in found] == [
        "Z=1",
        "Y=2",
        "X=3",
        "W='4'",
    ]
