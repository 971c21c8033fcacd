"""What is followed through a class stays behind what other classes say."""

from __future__ import annotations

from ms_tune.dryrun.child.hook.known import _follow, _forget


class Base:
    """Both kinds of tensors come from it."""

    def clone(self) -> str:
        return "base"

    def fill(self) -> str:
        return "base"


class Plain(Base):
    """The class that is followed."""


class Own(Base):
    """A parameter, with a way of its own."""

    def clone(self, how: str = "same") -> str:
        return f"own, {how}"

    def fill(self, how: str = "zeros") -> str:
        return f"own, {how}"


class Both(Plain, Own):
    """A parameter that is a tensor of a kind of its own."""


def test_a_class_that_is_followed_does_not_come_before_another_ones_own_methods() -> None:
    _follow(Plain, "clone", lambda _arguments, _result: None)
    _forget(Plain, "fill")
    assert Both().clone("zeros") == "own, zeros"
    assert Both().fill("ones") == "own, ones"
    assert Plain().clone() == Plain().fill() == "base"
