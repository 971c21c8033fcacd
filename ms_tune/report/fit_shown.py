"""What is shown of a plan, in the terminal and on a page alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ms_tune.planning.fit import FitReport
    from ms_tune.report.console import Console
    from ms_tune.text import Message

NUMBERS = 2  # columns of the table of stages that hold nothing but numbers


@dataclass(frozen=True, slots=True)
class Shown:
    """The parts of what is shown, in order."""

    report: FitReport  # the plan, or why there is none
    good: bool  # whether a plan is handed over
    assumptions: Sequence[Message]  # what is planned for
    verdict: Sequence[Message]  # what came out; the first sentence is the verdict
    heads: Sequence[str]  # the names of the columns of the stages
    rows: Sequence[Sequence[str]]  # the stages; none where there is no plan at all
    change: str  # what is to be written, as lines
    # Sentences under their titles, which are ids of texts; those without sentences are left out.
    sections: Sequence[tuple[str, Sequence[Message]]]


def show(shown: Shown, console: Console) -> None:
    """In the terminal."""
    colour = "green" if shown.good else "red"
    for line in shown.assumptions:
        console.write(console.say(line))
    if shown.assumptions:
        console.write("")
    for sentence in shown.verdict:
        console.write(console.paint(console.say(sentence), colour))
    if shown.rows:
        console.write("")
        console.write_table(shown.heads, shown.rows, right=range(NUMBERS))
    if shown.change:
        console.write(f"\n{shown.change}")
    for title, lines in shown.sections:
        if lines:
            console.write(f"\n{console.text(title)}")
            for sentence in lines:
                console.write(f"  - {console.say(sentence)}")
