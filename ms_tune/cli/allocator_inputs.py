"""What the commands about the allocator share: reading one rank of a run, and a line that shows progress."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.errors import UsageError
from ms_tune.texts import msg
from ms_tune.units import MIB

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ms_tune.allocator.workload import Workload
    from ms_tune.render.console import Console
    from ms_tune.texts import Message
    from ms_tune.trace.folder import RankFiles
    from ms_tune.trace.table import Table

_EVERY = 0.1  # seconds between two looks of a progress line


@dataclass(frozen=True, slots=True)
class RankTrace:
    """One rank of a run.

    Attributes:
        files: Where it was read from.
        table: Its blocks.
        others: The numbers of the ranks that were not read.
        limit: Bytes that MindSpore could take of the device; None if no log tells.
    """

    files: RankFiles
    table: Table
    others: tuple[int, ...]
    limit: int | None


def read_rank(path: Path, rank: int | None) -> RankTrace:
    """Read one rank of a run.

    Args:
        path: A ``memory_block.csv``, its folder, or a folder above it.
        rank: Which rank; None: the first.

    Raises:
        TraceError: There is no trace, or it cannot be read.
        UsageError: There is no such rank.
    """
    from ms_tune.trace.block_table import read_block_table  # noqa: PLC0415 - imported late: start-up time
    from ms_tune.trace.folder import find_trace  # noqa: PLC0415
    from ms_tune.trace.runtime_log import read_runtime_log  # noqa: PLC0415

    ranks = find_trace(path).ranks
    chosen = next((files for files in ranks if rank is None or files.rank == rank), None)
    numbers = tuple(files.rank for files in ranks if files.rank is not None)
    if chosen is None:
        raise UsageError(msg("allocator.rank", rank=rank, ranks=", ".join(map(str, numbers)) or "-"))
    statistics = read_runtime_log(chosen.log).statistics if chosen.log else None
    return RankTrace(
        files=chosen,
        table=read_block_table(chosen.blocks),
        others=tuple(number for number in numbers if number != chosen.rank),
        limit=statistics.used_mib * MIB if statistics and statistics.used_mib else None,
    )


def largest_pool(table: Table) -> tuple[str, Workload, list[int]]:
    """The device's memory pool that was asked for most: its name, its workload, and the trace's row of every request.

    Raises:
        UsageError: The trace holds no blocks, as on the CPU.
    """
    # Imported late: start-up time.
    from ms_tune.allocator.workload import pools_of  # noqa: PLC0415
    from ms_tune.trace.table import HOST_POOL  # noqa: PLC0415

    pools = pools_of(table)
    if not pools:
        raise UsageError(msg("allocator.empty"))
    if len(pools) > 1:
        pools.pop(HOST_POOL, None)
    name = max(pools, key=lambda pool: sum(request.size for request in pools[pool][0].requests))
    return name, *pools[name]


class ProgressLine:
    """One line on standard error that is rewritten on a terminal; elsewhere nothing is shown."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = sys.stderr.isatty()
        self._shown = False
        self._next = 0.0

    def show(self, message: Message, share: float) -> None:
        """Show how much of something is done."""
        now = time.monotonic()
        if not self._live or now < self._next:
            return
        self._next = now + _EVERY
        filled = round(max(0.0, min(share, 1.0)) * 20)
        sys.stderr.write(f"\r\033[K{self._console.say(message)} [{'#' * filled}{'.' * (20 - filled)}] {share:4.0%}")
        sys.stderr.flush()
        self._shown = True

    def clear(self) -> None:
        """Leave the terminal clean."""
        if self._shown:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()


def elapsed(start: float) -> float:
    """Seconds since a moment of :func:`time.perf_counter`."""
    return time.perf_counter() - start


def names_of(table: Table, rows: list[int]) -> Iterator[str]:
    """What holds each row, in a few words: the parameter's name, or layer and operator."""
    from ms_tune.memory.places import is_named, layer_of_scope, operator_at  # noqa: PLC0415 - imported late

    for row in rows:
        node = table.node.at(row)
        if is_named(table, row):
            yield node
        else:
            yield " ".join(part for part in (layer_of_scope(node), operator_at(table, row)) if part) or "-"
