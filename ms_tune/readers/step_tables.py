"""Read steps from tables: CSV files, TensorBoard's event files, and Hugging Face's ``trainer_state.json``.

CSV files are those of TensorBoard, Weights & Biases, or one's own. Event files are read by the package ``tbparse`` or ``tensorboard``, whichever is installed.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ms_tune.errors import TraceError
from ms_tune.facts.query import load
from ms_tune.readers.lines import iterate_table_lines, read_json, reading
from ms_tune.readers.step_lines import WHOLE, LineKind, table_form
from ms_tune.source.files import open_text
from ms_tune.text import msg
from ms_tune.units import MIB

Part = tuple[LineKind, list[tuple[bytes, ...]], list[int]]

_EVENTS = "events.out.tfevents."
_MOST_BYTES = 64 * MIB
_MOST_FIELD = 1 << 20
_MOST_VALUE = 1e18
_READERS = ("tbparse", "tensorboard")
_CSV, _TENSORBOARD = table_form("csv"), table_form("tensorboard")


def is_event_folder(path: Path) -> bool:
    """Return whether a folder contains TensorBoard's event files."""
    return path.is_dir() and any(path.glob(f"{_EVENTS}*"))


def read_step_table(path: Path) -> Iterator[Part] | None:
    """Return the steps of a table, those with the same values together; None if the file is not a table."""
    if path.name.startswith(_EVENTS) or is_event_folder(path):
        return _group_rows(_TENSORBOARD, _read_events(path))
    if path.suffix.lower() == ".csv":
        return _group_rows(_CSV, _read_csv(path))
    return None


def read_trainer_state(path: Path) -> bytes | None:
    """Return Hugging Face's ``log_history`` as lines; None if the file has none."""
    limit = msg("trace.steps.baseline.long", limit=_MOST_BYTES // MIB)
    data = read_json(path, _MOST_BYTES, limit, "trace.steps.json")
    history = data.get("log_history") if isinstance(data, dict) else None
    if not isinstance(history, list):
        return None
    return "".join(json.dumps(one) + "\n" for one in history).encode()


def _group_rows(form: Any, rows: Iterable[tuple[int, Mapping[str, str]]]) -> Iterator[Part]:  # noqa: ANN401 - see Part
    names: tuple[str, ...] = ()
    kept: list[tuple[bytes, ...]] = []
    lines: list[int] = []
    for line, row in rows:
        own = tuple(sorted(row))
        if own != names and kept:
            yield LineKind(form, names), kept, lines
            kept, lines = [], []
        names = own
        kept.append(tuple(row[name].encode() for name in names))
        lines.append(line)
    if kept:
        yield LineKind(form, names), kept, lines


@cache
def _names_of_columns() -> Mapping[str, str]:
    return {title: name for name, titles in load("step_lines")["columns"].items() for title in titles}


def _name_column(title: str) -> str | None:
    # Weights & Biases puts the run before the name: `run - train/loss`.
    text = title.strip().strip('"').rpartition(" - ")[2].lower()
    return _names_of_columns().get(text)


def _read_csv(path: Path) -> Iterator[tuple[int, Mapping[str, str]]]:
    csv.field_size_limit(_MOST_FIELD)
    with reading(path), open_text(path, "utf-8-sig", newline="") as file:
        table = csv.reader(line.replace("\0", "") for line in iterate_table_lines(file))
        try:
            titles = next(table, [])
            names = [_name_column(title) for title in titles]
            if "number" not in names and [title.lower() for title in titles[:2]] == ["wall time", "step"]:
                names[1] = "number"
            if "value" in [title.lower() for title in titles]:  # TensorBoard's download of one curve
                names[[title.lower() for title in titles].index("value")] = (
                    "loss" if "loss" in path.name.lower() else None
                )
            if "number" not in names:
                raise TraceError(
                    msg("trace.steps.columns", found=", ".join(titles[:12])), msg("trace.steps.columns.hint"), path=path
                )
            for cells in table:
                pairs = ((name, _plain_value(name, cell)) for name, cell in zip(names, cells, strict=False) if name)
                row = {name: value for name, value in pairs if value}
                if "number" in row:
                    yield table.line_num, row
        except (csv.Error, OverflowError) as error:
            raise TraceError(msg("trace.steps.csv", detail=str(error)), path=path, line=table.line_num) from None


def _plain_value(name: str, cell: str) -> str:
    # Return a cell in the form of a line's value; nothing if it has no number.
    if name in ("stamp", "elapsed"):
        return cell.strip()
    try:
        value = float(cell)
    except ValueError:
        return ""
    if name != "loss" and not 0 <= value < _MOST_VALUE:
        return ""
    return str(int(value)) if name in WHOLE else repr(value)


def _read_events(path: Path) -> Iterator[tuple[int, Mapping[str, str]]]:
    package = next((one for one in _READERS if find_spec(one) is not None), None)
    if package is None:
        raise TraceError(msg("trace.steps.events"), msg("trace.steps.events.hint"), path=path)
    steps: dict[int, dict[str, str]] = {}
    for tag, step, value, wall in _read_scalars(package, path):
        name = _name_column(tag)
        row = steps.setdefault(step, {"number": str(step)})
        if name is not None and (plain := _plain_value(name, repr(value))):
            row[name] = plain
        row["stamp"] = repr(wall)
    yield from ((0, steps[step]) for step in sorted(steps) if step >= 0)


def _read_scalars(package: str, path: Path) -> Iterator[tuple[str, int, float, float]]:
    if package == "tbparse":
        table = import_module("tbparse").SummaryReader(str(path), extra_columns={"wall_time"}).scalars
        yield from zip(
            table["tag"], map(int, table["step"]), map(float, table["value"]), table["wall_time"], strict=True
        )
        return
    events = import_module("tensorboard.backend.event_processing.event_accumulator").EventAccumulator(
        str(path), size_guidance={"scalars": 0, "tensors": 0}
    )
    events.Reload()
    for tag in events.Tags()["scalars"]:
        for event in events.Scalars(tag):
            yield tag, int(event.step), float(event.value), float(event.wall_time)
    convert = import_module("tensorboard.util.tensor_util").make_ndarray
    for tag in events.Tags()["tensors"]:
        for event in events.Tensors(tag):
            value = convert(event.tensor_proto)
            if value.shape == () and value.dtype.kind == "f":
                yield tag, int(event.step), float(value), float(event.wall_time)
