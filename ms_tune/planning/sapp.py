"""Reads the layers that SAPP's pipeline balance plans with (``layers/NAME.json``).

The meaning of each key is that of ``perftool/autoparallel/pipeline_balance/utils/layer.py`` (``compute_internal_time``) and
``utils/recompute.py`` in mindspore-toolkits since March 2025: a backward pass takes twice ``time``, a forward pass ``forward_time``,
or ``time`` where that is absent. Before, in MindFormers, ``time`` was both together, which makes every time a third and changes no plan
where ``forward_time`` is absent. A kind of recompute without a memory figure above zero is not offered; sizes are in MB (of
1024 x 1024 bytes, as MindSpore prints them).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from ms_tune.enums import RecomputeMode
from ms_tune.errors import ConfigError
from ms_tune.planning.table import MOST_LAYERS, CostTable, LayerCost, LayerGroup, StageEnd, check_table
from ms_tune.planning.table_file import parse_json
from ms_tune.text import Message, msg
from ms_tune.units import MIB

if TYPE_CHECKING:
    from ms_tune.planning.schedule import Schedule

_MOST = 1e12  # of any figure
_MOST_ROWS = 100


class _Names(NamedTuple):
    """Keys of one kind of recompute, and by how much SAPP takes it to lengthen a backward pass where nothing says so."""

    memory: str
    time: str
    coefficient: str
    default: float


KINDS = {
    RecomputeMode.NONE: _Names("memory_activation", "backward_time", "backward_coef", 0.0),
    RecomputeMode.SELECT: _Names("memory_select_rec", "select_rec_time", "select_rec_coef", 0.04),
    RecomputeMode.COMM: _Names("memory_select_comm", "select_comm_time", "select_comm_coef", 0.125),
    RecomputeMode.BOTH: _Names("memory_both_comm_select", "both_comm_select_time", "both_comm_select_coef", 0.165),
    RecomputeMode.FULL: _Names("memory_recompute", "recompute_time", "recompute_coef", 0.5),
}


class SappPipeline(NamedTuple):
    """What SAPP takes from its command line."""

    stages: int
    chunks: int
    micro_batches: int
    limit_bytes: int
    order: Schedule
    constant_bytes: int | None = None  # None: what the file says


def is_sapp(text: str, source: str) -> bool:
    """Whether a text is a file of SAPP's layers."""
    data = parse_json(text, source)
    return isinstance(data, dict) and "layers_description" in data


def read_sapp(text: str, source: str, pipeline: SappPipeline) -> CostTable:
    """A table from SAPP's layers."""
    parsed = parse_json(text, source)
    data: dict[str, Any] = parsed if isinstance(parsed, dict) else {}
    rows = data.get("layers_description")
    if not isinstance(rows, list) or not 0 < len(rows) <= _MOST_ROWS or not all(isinstance(row, dict) for row in rows):
        raise ConfigError(msg("planning.sapp.no-layers", most=_MOST_ROWS), path=source)
    by_type: dict[str, list[dict[str, Any]]] = {"HEAD": [], "BODY": [], "TAIL": []}
    for index, row in enumerate(rows):
        kind = row.get("type")
        if not isinstance(kind, str) or kind not in by_type:
            raise ConfigError(_located(index, msg("planning.sapp.type")), path=source)
        by_type[kind].append({**row, "": index})
    if not by_type["BODY"]:
        raise ConfigError(msg("planning.sapp.no-body"), path=source)
    size = _read_number(data, "stage_const_mem", source) or 0.0
    constant = round(size * MIB) if pipeline.constant_bytes is None else pipeline.constant_bytes
    table = CostTable(
        **{**pipeline._asdict(), "constant_bytes": constant},
        layers=tuple(_read_layer(row, source) for row in by_type["BODY"]),
        head=_read_end(by_type["HEAD"], source),
        tail=_read_end(by_type["TAIL"], source),
    )
    return check_table(table, source)


def _located(index: int | None, what: Message) -> Message:
    return what if index is None else msg("planning.file.at", where=f"layers_description[{index}]", what=what)


def _read_number(row: dict[str, Any], key: str, source: str) -> float | None:
    # A figure of at least zero, or None for one that is not there. SAPP itself writes one key with a blank behind it.
    value = row.get(key, row.get(f"{key} "))
    if value is None:
        return None
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not math.isfinite(value)
        or not 0 <= value <= _MOST
    ):
        raise ConfigError(_located(row.get(""), msg("planning.sapp.number", key=key, high=f"{_MOST:g}")), path=source)
    return float(value)


def _read_end(rows: list[dict[str, Any]], source: str) -> StageEnd:
    # SAPP sums up what stands at one end; its backward pass takes twice as long.
    times = [_read_number(row, "time", source) or 0.0 for row in rows]
    sizes = [_read_number(row, "memory_parameter", source) or 0.0 for row in rows]
    return StageEnd(math.fsum(times), round(math.fsum(sizes) * MIB))


def _read_layer(row: dict[str, Any], source: str) -> LayerGroup:
    name, count = row.get("name"), row.get("nb_layer")
    time, forward = _read_number(row, "time", source), _read_number(row, "forward_time", source)
    if not isinstance(name, str) or not name or isinstance(count, bool) or not isinstance(count, int):
        raise ConfigError(_located(row[""], msg("planning.sapp.name-count")), path=source)
    time = forward if time is None else time
    if not 1 <= count <= MOST_LAYERS or time is None:
        raise ConfigError(_located(row[""], msg("planning.sapp.name-count")), path=source)
    forward, backward = time if forward is None else forward, 2 * time
    recompute = {}
    for kind, names in KINDS.items():
        size = _read_number(row, names.memory, source)
        if size:
            whole = _read_number(row, names.time, source)
            coefficient = _read_number(row, names.coefficient, source)
            longer = backward * (1 + (names.default if coefficient is None else coefficient))
            extra = (whole or longer) / (2 * forward) - 1 if forward else 0.0
            recompute[kind] = LayerCost(round(size * MIB), round(extra, 9))
    return LayerGroup(
        name, count, forward, round((_read_number(row, "memory_parameter", source) or 0.0) * MIB), recompute
    )
