"""What is asked of ``fit``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ms_tune.errors import ConfigError, UsageError
from ms_tune.planning.fit import time_of
from ms_tune.planning.plan import cells_of
from ms_tune.planning.sapp import SappPipeline, read_sapp
from ms_tune.planning.search import Effort
from ms_tune.planning.table import check_table
from ms_tune.planning.table_file import read_table
from ms_tune.planning.time_scale import Clock, can_swap, with_layers, with_swap_time, with_times
from ms_tune.text import msg

if TYPE_CHECKING:
    from ms_tune.planning.table import CostTable

_MS = 1e-3
_ROUNDS = 20  # until a present plan that swaps and its own link agree


@dataclass(frozen=True, slots=True)
class FitRequest:
    """How to plan.

    Args:
        effort: How long to search; nothing of it depends on the clock.
        seed: Where the random numbers begin: the same table, effort and seed give the same plan on any machine.
        limit_bytes: What a stage may hold, in place of what the table says.
        sapp: The file has SAPP's layers, and this is the pipeline that they run in.
        clock: What was measured.
        swap_bandwidth: Bytes a second that go to the host, and as many that come back.
    """

    effort: Effort = Effort.NORMAL
    seed: int = 1
    limit_bytes: int | None = None
    sapp: SappPipeline | None = None
    clock: Clock = field(default_factory=Clock)
    swap_bandwidth: int | None = None

    def table_of(self, text: str, source: str) -> tuple[CostTable, Clock]:
        """The table that a file's text makes, and what was measured of its layers.

        Raises:
            ConfigError: The text makes none, or says nothing of swap that a bandwidth could be for.
            UsageError: A bandwidth is given, and nothing that tells how long the table's unit of time is.
        """
        linked = self.swap_bandwidth is not None
        table = read_table(text, source, linked=linked) if self.sapp is None else read_sapp(text, source, self.sapp)
        clock = with_layers(self.clock, table)
        table = with_times(table, clock.times, source)
        if self.swap_bandwidth is not None:
            if not can_swap(table):
                raise ConfigError(msg("planning.link.none"), msg("planning.link.none.hint"), path=source)
            table = check_table(linked_by(table, self.swap_bandwidth, clock, None, source), source)
        if self.limit_bytes is not None:
            table = table._replace(limit_bytes=self.limit_bytes)
        return table, clock


def linked_by(table: CostTable, bandwidth: int, clock: Clock, shortest: float | None, source: str) -> CostTable:
    """The table with the time that swap takes over a link of so many bytes a second.

    Without a measurement the table's times are in no unit: a unit then takes at least ``shortest`` seconds, where that is known.
    """
    if clock.times:
        return with_swap_time(table, bandwidth * _MS, source)
    if clock.step_seconds is None or table.present is None:
        if shortest is None:
            raise UsageError(msg("planning.link.no-seconds"), msg("planning.link.no-seconds.hint"))
        return with_swap_time(table, bandwidth * shortest, source)
    # The measured step is the present plan's, which may swap itself.
    present = cells_of(table, table.present, source)
    unit = clock.step_seconds / time_of(table, present)
    for _ in range(_ROUNDS):
        table = with_swap_time(table, bandwidth * unit, source)
        before, unit = unit, clock.step_seconds / time_of(table, present)
        if unit == before:
            break
    return table
