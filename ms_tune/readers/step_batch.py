"""Lines of a log that tell of steps, read many at a time: those that differ in digits alone tell the same in the same places."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from ms_tune.readers.step_lines import FLOATS, MOST_COUNTED, MOST_SECONDS, MOST_STEPS, NOT_LOGGED, Form, step_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ms_tune.readers.step_lines import StepLine, StepLineKind

# Of what RankSteps calls otherwise, or what only some forms print.
_COLUMNS = {
    "loss": "loss",
    "allocated": "peak",
    **{name: name for name in FLOATS if name not in {"allocated", "reserved"}},
}


class Rows(NamedTuple):
    """The steps of a batch in columns of one length."""

    form: Form  # who printed them
    ranks: Sequence[int]  # the number before each line; empty where there are none
    total: Sequence[int]  # steps of an epoch or of the job, as each line says
    number: Sequence[int]  # counters, with epochs added up
    # The other columns of `ms_tune.readers.logged_steps.RankSteps` that are logged.
    columns: Mapping[str, Sequence[float]]


class LineBatch:
    """Lines, one behind the other, that tell of steps by one form and tell the same of each."""

    def __init__(self, kind: StepLineKind) -> None:
        self.kind = kind
        self.told: list[tuple[bytes, ...]] = []
        self.lines: list[int] = []
        self._rates: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self.told)

    def rate(self, value: float) -> None:
        """Samples a second and card of the latest step."""
        self._rates[len(self.told) - 1] = value if value < math.inf else NOT_LOGGED

    def singles(self, begin: int, end: int) -> Iterator[tuple[int | None, StepLine | None, int, float]]:
        """Each step by itself: the rank before it, the step (None for a damaged one), its line and its rate."""
        for place in range(begin, end):
            told = {name: value.decode() for name, value in zip(self.kind.names, self.told[place], strict=True)}
            rank = int(told.pop("rank")) if "rank" in told else None
            step = step_of(self.kind.form, told) if self.kind.form else None
            yield rank, step, self.lines[place], self._rates.get(place, NOT_LOGGED)

    def rows(self, *, counted_only: bool = False) -> Rows | None:
        """All of them; None where they have to be looked at one by one: something is out of bounds, or epochs are counted.

        Args:
            counted_only: None of them is kept: without what decides nothing about that.
        """
        form = self.kind.form
        if form is None or form is Form.MINDSPEED:
            return None
        told = dict(zip(self.kind.names, zip(*self.told, strict=True), strict=True))
        total = _whole(told["total"])
        number = _whole(told["number"])
        epoch = max(_whole(told["epoch"])) if "epoch" in told else 0
        seconds = [float(one) / 1000 for one in told["time"]]
        kept = {} if counted_only else told
        counted = {name: _whole(kept[name]) for name in MOST_COUNTED if name in kept}
        floats = {column: [*map(float, kept[name])] for name, column in _COLUMNS.items() if name in kept}
        if (
            not 0 < min(seconds) <= max(seconds) < MOST_SECONDS
            or max(*number, *total, epoch * max(*total, 1)) > MOST_STEPS
            or any(max(column) > MOST_COUNTED[name] for name, column in counted.items())
            or any(max(column) == math.inf for column in floats.values())
        ):
            return None
        if epoch > 1:
            epochs = _whole(told["epoch"])
            number = [one + max(e - 1, 0) * of for one, e, of in zip(number, epochs, total, strict=True)]
        if self._rates:
            floats["rate"] = [self._rates.get(place, NOT_LOGGED) for place in range(len(self))]
        columns: dict[str, Sequence[float]] = {"line": self.lines, "seconds": seconds, **counted, **floats}
        return Rows(form, _whole(told["rank"]) if "rank" in told else (), total, number, columns)


def _whole(column: Sequence[bytes]) -> list[int]:
    """Whole numbers; most often they are all the same."""
    if column.count(column[0]) == len(column):
        return [int(column[0])] * len(column)
    return [*map(int, column)]
