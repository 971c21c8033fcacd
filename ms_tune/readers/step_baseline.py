"""Reads the JSON files of expected figures that MindSpeed-LLM and MindSpeed-MM keep for their tests: lists of steps' figures.

``tests/pipeline/.../baseline/*.json`` has ``time info``, ``lm loss``, ``throughput``, ``memo info``; MindSpeed-MM's
``baseline_results`` have ``time``, ``loss``, ``memo info``. Times are milliseconds, memory MiB.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

from ms_tune.errors import TraceError
from ms_tune.readers.logged_steps import LoggedMemory, LoggedTraining, RankSteps
from ms_tune.readers.reading import reading
from ms_tune.readers.step_lines import NOT_LOGGED, Form, StepLine
from ms_tune.text import msg
from ms_tune.units import MIB

if TYPE_CHECKING:
    from pathlib import Path

_MAX_BYTES = 64 * MIB
_MOST_MS, _MOST_MIB = 1e10, 1e9


def read_baseline(path: Path) -> LoggedTraining:
    """Read such a file. Raises TraceError: it is no such file, or one of its times is none."""
    data = _load_json(path)
    name = "time info" if "time info" in data else "time"
    given = data.get(name)
    if not isinstance(given, list) or not given:
        raise TraceError(msg("trace.steps.baseline"), msg("trace.steps.none.hint"), path=path)
    times = [_parse_number(value) for value in given]
    for place, value in enumerate(times, start=1):
        if not 0 < value < _MOST_MS:
            raise TraceError(msg("trace.steps.baseline.time", list=name, place=place), path=path)
    losses = _read_list(data, len(times), "lm loss", "loss")
    rates = _read_list(data, len(times), "throughput")
    steps = RankSteps(Form.BASELINE, None)
    for number, value in enumerate(times, start=1):
        line = StepLine(Form.BASELINE, number, 0, 0, value / 1000, loss=losses[number - 1], tflops=rates[number - 1])
        steps.add(line, number, 0)
    return LoggedTraining([steps], memory=_read_memory(data.get("memo info")))


def _load_json(path: Path) -> dict[str, object]:
    with reading(path):
        if path.stat().st_size > _MAX_BYTES:
            raise TraceError(msg("trace.steps.baseline.long", limit=_MAX_BYTES // MIB), path=path)
        content = path.read_bytes()
    try:
        data = json.loads(content)
    except json.JSONDecodeError as error:
        raise TraceError(
            msg("trace.steps.json", detail=error.msg), path=path, line=error.lineno, column=error.colno
        ) from error
    except (ValueError, RecursionError) as error:
        raise TraceError(msg("trace.steps.json", detail=type(error).__name__), path=path) from error
    return data if isinstance(data, dict) else {}


def _read_list(data: dict[str, object], length: int, *names: str) -> list[float]:
    """One of the lists, as long as the times: some files have losses of fewer steps."""
    values = next((found for name in names if isinstance(found := data.get(name), list)), [])
    numbers = [_parse_number(value) for value in values[:length]]
    return [*numbers, *[NOT_LOGGED] * (length - len(numbers))]


def _read_memory(rows: object) -> dict[int, LoggedMemory]:
    found = {}
    for row in rows if isinstance(rows, list) else []:
        if not isinstance(row, dict) or not isinstance(row.get("rank"), int):
            continue
        sizes = [_parse_number(row.get(name)) for name in ("allocated memory", "max allocated memory")]
        if all(0 <= size < _MOST_MIB for size in sizes):
            allocated, most = (round(size * MIB) for size in sizes)
            found[row["rank"]] = LoggedMemory(row["rank"], allocated, most, 0, 0)
    return found


def _parse_number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return NOT_LOGGED
    try:
        number = float(value)
    except OverflowError:
        return NOT_LOGGED
    return number if math.isfinite(number) else NOT_LOGGED
