"""Test facts about environment variables: they contain only what the documentation states."""

from __future__ import annotations

import pytest

from ms_tune.facts.launchers import Variable, variables
from ms_tune.facts.query import load


def test_every_variable_of_the_file_is_there_and_none_can_be_added() -> None:
    assert list(variables()) == list(load("variables")["variables"])
    with pytest.raises(TypeError):
        variables()["MADE_UP"] = Variable(None, (), mindspore=False, instead=None)  # type: ignore[index]


def test_bounds_are_in_order_and_what_is_in_place_of_a_variable_is_one_itself() -> None:
    assert all(one.whole[0] <= one.whole[1] for one in variables().values() if one.whole is not None)
    named = [one.instead.partition("=")[0].partition(" ")[0] for one in variables().values() if one.instead]
    assert named
    assert [name for name in named if name.isupper() and name not in variables()] == []
