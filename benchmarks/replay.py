"""Measure the replay of a trace in MindSpore's pool: processor time, compared with polars that only reads the file.

``python benchmarks/replay.py TRACE``: TRACE is a ``memory_block.csv``. The rows are checked first: a replay must be correct
before its speed matters. The programs run alternately, so that a disturbance affects both; the fastest of five runs counts.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from ms_tune.pools.pool import replay_workload
from ms_tune.pools.settings import infer_settings, make_pool
from ms_tune.pools.what_if import what_if
from ms_tune.pools.workload import split_by_pool
from ms_tune.readers.tracker_tables import read_block_table

RUNS = 5


def main(path: Path) -> None:
    """Print one line a measure."""
    import polars as pl  # noqa: PLC0415 - the peer; not needed to read this file's help

    table = read_block_table(path)
    ((name, (work, _)),) = split_by_pool(table).items()
    inferred = infer_settings(work, name)
    rows = len(work.requests)
    print(f"{rows:,} rows, mismatches {inferred.mismatches}")
    measures: dict[str, Callable[[], object]] = {
        "polars reads the file": lambda: pl.read_csv(
            path, infer_schema=False, truncate_ragged_lines=True, quote_char=None
        ),
        "ms-tune reads the file": lambda: read_block_table(path),
        "requests from the columns": lambda: split_by_pool(table),
        "replay, all columns": lambda: replay_workload(
            inferred.work, make_pool(inferred.settings, older=inferred.older)
        ),
        "settings inferred": lambda: infer_settings(work, name),
        "fourteen settings": lambda: what_if(name, inferred),
    }
    least = dict.fromkeys(measures, float("inf"))
    for _ in range(RUNS):
        for measure, run in measures.items():
            start = time.process_time()
            run()
            least[measure] = min(least[measure], time.process_time() - start)
    for measure, seconds in least.items():
        print(f"{measure:<28}{seconds:8.3f} s{seconds * 100_000 / rows:10.3f} s per 100,000 rows")
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
