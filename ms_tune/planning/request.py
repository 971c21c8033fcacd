"""What is asked of ``fit``."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ms_tune.planning.clock import Clock, timed
from ms_tune.planning.sapp import Pipeline, read_sapp
from ms_tune.planning.search import Effort
from ms_tune.planning.table_file import read_table

if TYPE_CHECKING:
    from ms_tune.planning.table import Table


@dataclass(frozen=True, slots=True)
class FitRequest:
    """How to plan.

    Args:
        effort: How long to search; nothing of it depends on the clock.
        seed: Where the random numbers begin: the same table, effort and seed give the same plan on any machine.
        limit_bytes: What a stage may hold, in place of what the table says.
        sapp: The file has SAPP's layers, and this is the pipeline that they run in.
        clock: What was measured.
    """

    effort: Effort = Effort.NORMAL
    seed: int = 1
    limit_bytes: int | None = None
    sapp: Pipeline | None = None
    clock: Clock = field(default_factory=Clock)

    def table_of(self, text: str, source: str) -> Table:
        """The table that a file's text makes.

        Raises:
            ConfigError: The text makes none.
        """
        table = read_table(text, source) if self.sapp is None else read_sapp(text, source, self.sapp)
        table = timed(table, self.clock.times, source)
        return table if self.limit_bytes is None else replace(table, limit_bytes=self.limit_bytes)
