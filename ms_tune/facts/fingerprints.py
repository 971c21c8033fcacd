"""What the files of other programs look like (``data/fingerprints.json``), so that they are named and not checked."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ms_tune.facts.query import load

if TYPE_CHECKING:
    from collections.abc import Iterable

Path: TypeAlias = tuple[str, ...]


class Fingerprint(NamedTuple):
    """Key paths of which files of one program have several."""

    id: str  # Whose files they are: `verl`. The text `config.foreign.verl` says what such a file is called.
    least: int  # how many of the key paths have to be there
    keys: tuple[Path, ...]
    needs: tuple[Path, ...]  # those that have to be among them


@cache
def foreign() -> tuple[Fingerprint, ...]:
    """The fingerprints of what ms-tune does not check; the more special ones first."""
    return tuple(
        Fingerprint(one["id"], one["least"], _paths(one["keys"]), _paths(one.get("needs", ())))
        for one in load("fingerprints")["foreign"]
    )


def _paths(words: Iterable[str]) -> tuple[Path, ...]:
    return tuple(tuple(word.split(".")) for word in words)
