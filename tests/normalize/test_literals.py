"""Test lists that are written as text in a config: Python's result or exception, within limits."""

from __future__ import annotations

import ast
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_tune.dialects import FrameworkStop
from ms_tune.dialects.mindspeed_ms.read import MAX_DEPTH, MAX_TEXT, TextTooBigError, literal_list

LITERALS = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.tuples(inner), st.dictionaries(st.integers(), inner, max_size=2)),
    max_leaves=10,
)  # fmt: skip


def outcome(make: Callable[[], object]) -> object:
    """Return the result, or the name of the exception."""
    try:
        return make()
    except FrameworkStop as stop:
        return stop.exception
    except (ValueError, TypeError, SyntaxError) as error:
        return type(error).__name__


@given(st.one_of(LITERALS.map(repr), st.text("[]()1,-' a", max_size=12)))
def test_it_is_what_python_makes_of_it(text: str) -> None:
    assert outcome(lambda: literal_list(text)) == outcome(lambda: list(ast.literal_eval(text)))


@pytest.mark.parametrize(
    ("within", "beyond"),
    [
        ("[" * MAX_DEPTH + "]" * MAX_DEPTH, "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1)),
        ("[{1: ()}]" + " " * 100, "[{1: (" * 17 + ")}]" * 17),
        ("[[], " + "[], " * 100 + "]", "[" * 60),
        ("[1]" + " " * (MAX_TEXT - 3), "[1]" + " " * (MAX_TEXT - 2)),
    ],
    ids=["brackets", "of all kinds", "side by side", "length"],
)
def test_bounds(within: str, beyond: str) -> None:
    assert literal_list(within) == list(ast.literal_eval(within))
    with pytest.raises(TextTooBigError):
        literal_list(beyond)


def test_signs_nest_as_brackets_do() -> None:
    with pytest.raises(FrameworkStop):
        literal_list("[" + "- " * 49 + "1]")
    with pytest.raises(TextTooBigError):
        literal_list("[" + "- " * 50 + "1]")
