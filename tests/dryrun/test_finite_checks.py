"""Test that values are tracked in one class only, without effect on other classes."""

from __future__ import annotations

from typing import Any

from ms_tune.dryrun.child.hook.finite_checks import NAME, _follow_method, _forget_after, _list_values
from ms_tune.dryrun.child.hook.support import put_around


class Base:
    """The common base class of both kinds of tensors."""

    def clone(self) -> str:
        return "base"

    def fill(self) -> str:
        return "base"


class Plain(Base):
    """The class whose methods are replaced."""


class Own(Base):
    """A parameter class that overrides a method."""

    def clone(self, how: str = "same") -> str:
        return f"own, {how}"

    def fill(self, how: str = "zeros") -> str:
        return f"own, {how}"


class Both(Plain, Own):
    """A parameter class that is also a subclass of a tensor class."""


def test_a_class_that_is_followed_does_not_come_before_another_ones_own_methods() -> None:
    _follow_method(Plain, "clone", lambda _arguments, _result: None)
    _forget_after(Plain, "fill")
    assert Both().clone("zeros") == "own, zeros"
    assert Both().fill("ones") == "own, ones"
    assert Plain().clone() == Plain().fill() == "base"


class Placed:
    """A tensor at an address invented by the simulation."""

    dtype, shape = "Int64", (2, 3)

    def __init__(self, **known: object) -> None:
        vars(self).update(known)

    def _tolist(self) -> Any:  # noqa: ANN401 - a number or lists of it
        return "read"


def test_lists_of_what_is_known_are_made_without_a_look_at_its_memory() -> None:
    class Unread(Placed):
        pass

    put_around(Unread, "_tolist", _list_values)
    assert Unread()._tolist() == "read"
    assert Unread(**{NAME: 5})._tolist() == [[5, 5, 5], [5, 5, 5]]
    assert Unread(**{NAME: True}, dtype="Bool", shape=())._tolist() is True
    number = Unread(**{NAME: 0}, dtype="Float32", shape=(1,))._tolist()
    assert (number, type(number[0])) == ([0.0], float)
