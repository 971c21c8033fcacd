"""What a plan has the framework log beside what one log has: the lines that part, those that are damaged, those nobody can foretell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from ms_tune.dialects.layer_plan import MINDFORMERS
from ms_tune.readers.recompute_log import LoggedRecompute

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ms_tune.dialects.layer_plan import LayerPlan
    from ms_tune.readers.recompute_log import RecomputeLog

ANY = object()  # what is logged, if anything, cannot be foretold: the model's modules are not known
COMM = "select comm recompute"
Wanted: TypeAlias = "dict[tuple[str, int], list[object]]"


@dataclass(frozen=True, slots=True)
class LogDifference:
    """One thing that the plan and a log do not agree on."""

    log: Path
    line: int | None  # the line, from 1; None if a line is missing
    what: str  # the line's name: `Formative select_recompute`, `full recompute`
    layer: int | None  # the layer, for what is set layer by layer
    # What the plan has the framework say; None for nothing, an empty text where only that it says it is known.
    planned: str | None
    logged: str | None  # what it said; None for nothing


class OneLog:
    """A plan beside one log.

    Args:
        plan: The plan.
        expected: What its framework logs.
        wanted: What has to be logged at each layer.
        log: The log.
    """

    def __init__(self, plan: LayerPlan, expected: LoggedRecompute, wanted: Wanted, log: RecomputeLog) -> None:
        self._plan, self._expected, self._wanted, self._log = plan, expected, wanted, log
        self._run = log.runs[-1] if log.runs else LoggedRecompute()
        self._whole = plan.dialect == MINDFORMERS  # every rank of the static graph sets up all layers
        self.layers = self._own()
        self.unreadable = [(log.path, number) for number in self._run.damaged]
        self.unknown: set[tuple[str, int]] = set()

    def _own(self) -> set[int]:
        """The layers that the rank of this log has, as far as it can be told."""
        every = {layer.layer for layer in self._plan.layers}
        if self._whole or not self._plan.placement or len(self._plan.placement[0]) == 1:
            return every if self._log.runs or not self._wanted else set()
        spoken = {layer for _, layer in self._run.layers}
        for stage in range(len(self._plan.placement[0])):
            own = {layer.layer for layer in self._plan.layers if layer.stage == stage}
            if spoken and spoken <= own:
                return own
        return spoken

    def differences(self) -> list[LogDifference]:
        """In the order in which the framework logs."""
        if not self._log.runs:
            return []
        found = [*self._lists(), *self._set_lines()]
        missing = [one for one in found if one.line is None]
        last = max((layer for _, layer in self._run.layers), default=-1)
        behind = [one for one in missing if last <= (-1 if one.layer is None else one.layer)]
        if self._log.cut_off and behind and behind == found[-len(behind) :]:
            # The file ends here, and up to its end it agrees: what would have followed is not known.
            self.unreadable.append((self._log.path, self._log.lines))
            found = found[: -len(behind)]
            self.layers -= {one.layer for one in behind if one.layer is not None}
        if missing and self._run.damaged and len(missing) == len(found):
            found = []  # a damaged line may be the one that is missing
        return found

    def _lists(self) -> Iterator[LogDifference]:
        path = self._log.path
        for name in dict.fromkeys((*self._expected.lists, *(self._run.lists if self._whole else ()))):
            planned, logged = self._expected.lists.get(name, ()), self._run.lists.get(name, ())
            values = [line.value for line in planned]
            wrong = next((line for line in logged if not line.damaged and line.value not in values), None)
            if wrong is not None or (planned and not logged):
                said = None if wrong is None else str(wrong.value)
                yield LogDifference(
                    path, wrong.number if wrong else None, name, None, str(values[0]) if values else None, said
                )
            elif planned and all(line.value not in values for line in logged):
                self.unreadable.append((path, logged[0].number))

    def _set_lines(self) -> Iterator[LogDifference]:
        last = max((key[1] for key in (*self._wanted, *self._run.layers)), default=-1)
        names = dict.fromkeys(key[0] for key in (*self._wanted, *self._run.layers))
        for layer in range(last + 1):
            for what in names:
                if layer in self.layers or (what, layer) in self._run.layers:
                    yield from self._set_line(what, layer)

    def _set_line(self, what: str, layer: int) -> Iterator[LogDifference]:
        planned, lines = self._wanted.get((what, layer), []), self._run.layers.get((what, layer), ())
        free = not self._whole and what == COMM  # nobody can foretell it
        if free or ANY in planned:
            self.unknown |= set() if free or lines else {(what, layer)}
            return
        others = [line for line in lines if line.value not in planned]
        wrong = next((line for line in others if not line.damaged), None)
        if wrong is None and others:
            self.unreadable.append((self._log.path, others[0].number))
        elif wrong is not None or any(value not in [line.value for line in lines] for value in planned):
            said = None if wrong is None else str(wrong.value)
            text = ", ".join(map(str, planned)) if planned else None
            yield LogDifference(self._log.path, wrong.number if wrong else None, what, layer, text, said)
