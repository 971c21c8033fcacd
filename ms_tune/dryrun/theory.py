"""What a stage should hold for the whole run, beside what it was seen to hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.text import msg
from ms_tune.units import MIB

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ms_tune.enums import MemoryCategory
    from ms_tune.text import Message

_SHARE = 0.001
_PADDING = 1 * MIB  # the allocator rounds every tensor up


@dataclass(frozen=True, slots=True)
class BesideTheory:
    """One content of a rank's memory."""

    content: str  # its name, as `ms_tune.enums.MemoryCategory` has it
    measured: int  # bytes at the peak
    expected: int  # bytes by theory

    @property
    def difference(self) -> float | None:
        """How much more than by theory, as a part of theory; None where theory expects nothing."""
        return (self.measured - self.expected) / self.expected if self.expected else None

    @property
    def agrees(self) -> bool:
        """Whether the two differ by no more than the allocator's padding."""
        return abs(self.measured - self.expected) <= max(_SHARE * self.expected, _PADDING)


def beside_theory(theory: Mapping[str, int], contents: Mapping[MemoryCategory, int]) -> tuple[BesideTheory, ...]:
    """Theory and measurement side by side; empty where theory tells nothing.

    Args:
        theory: Bytes by content, as they should be.
        contents: Bytes by content at the peak.
    """
    measured = {content.value: size for content, size in contents.items()}
    return tuple(BesideTheory(content, measured.get(content, 0), expected) for content, expected in theory.items())


def unlike_theory(pairs: Iterable[BesideTheory]) -> Iterator[Message]:
    """What was measured otherwise than it should be: one of the two is wrong."""
    for pair in pairs:
        if not pair.agrees:
            yield msg(
                "reference.unlike-theory",
                content=msg(f"memory.content.{pair.content}"),
                measured=pair.measured,
                theory=pair.expected,
            )
