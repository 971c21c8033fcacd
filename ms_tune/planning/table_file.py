"""Read and write a table as JSON (format: docs/fit-table.md), and read SAPP's layers for pipeline balance (``layers/NAME.json``).

SAPP's keys have the meaning of ``perftool/autoparallel/pipeline_balance/utils/layer.py`` (``compute_internal_time``) and
``utils/recompute.py`` in mindspore-toolkits since March 2025: a backward pass takes twice ``time``, a forward pass
``forward_time``, or ``time`` if that is absent. Earlier, in MindFormers, ``time`` was the sum of both, which divides every time
by three and changes no plan if ``forward_time`` is absent. A recompute mode without a positive memory figure is not available;
sizes are in MB (of 1024 x 1024 bytes, as MindSpore prints them).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import Any, NamedTuple, NoReturn, TypeVar

from ms_tune.encode import SCHEMA_VERSION
from ms_tune.enums import RecomputeMode
from ms_tune.errors import ConfigError, closest
from ms_tune.planning.schedule import MOST_PASSES, Schedule
from ms_tune.planning.table import (
    LISTS,
    MOST_BYTES,
    MOST_CHUNKS,
    MOST_LAYERS,
    MOST_STAGES,
    SWAP_LIST,
    CostTable,
    LayerCost,
    LayerGroup,
    PlanLists,
    RecomputeOverhead,
    StageEnd,
    UpdateCost,
    cells_of,
    check_table,
)
from ms_tune.text import Message, msg
from ms_tune.units import MIB

MOST_TEXT = 4_000_000  # characters of a file
MOST_KINDS = 100  # maximum number of layer groups
_LONGEST_NAME = 200
_MOST_TIME, _MOST_EXTRA = 1e15, 100.0
_LEAST_EXTRA = -0.99  # a measured backward pass can be shorter than two forward passes
_VERSION = 1
_FIELDS = {"count": "layer_count", "plan": "present"}  # fields with another name in the file
# The JSON result of ``ms-tune fit --json`` contains its table under this name, and is accepted as input.
WITHIN = "table"


Form = Callable[["Reader", Any, str], Any]  # reads the value at a place in the file
_RecordT = TypeVar("_RecordT")


class Reader:
    """Reader that checks and converts values of parsed JSON, and reports the place of an invalid one."""

    def __init__(self, source: str) -> None:
        self.source = source

    def fail(self, where: str, what: Message, hint: Message | None = None) -> NoReturn:
        """Raise :class:`ConfigError` for a place in the file."""
        raise ConfigError(msg("planning.file.at", where=where, what=what) if where else what, hint, path=self.source)

    def mapping(
        self, value: object, where: str, required: Collection[str], optional: Collection[str]
    ) -> dict[str, Any]:
        """Return an object with these keys."""
        if not isinstance(value, dict):
            self.fail(where, msg("planning.file.no-object"))
        known = [*required, *optional]
        for key in value:
            if key not in known:
                like = closest(key, known)
                hint = msg("planning.file.key.hint", key=like) if like else None
                self.fail(where, msg("planning.file.key", key=key), hint)
        for key in required:
            if key not in value:
                self.fail(where, msg("planning.file.missing", key=key))
        return value

    def read_integer(self, value: object, where: str, low: int, high: int) -> int:
        """Return an integer within bounds."""
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            self.fail(where, msg("planning.file.whole", value=_short_value(value), low=low, high=high))
        return value

    def number(self, value: object, where: str, high: float, low: float = 0.0) -> float:
        """Return a number within bounds."""
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or not low <= value <= high:  # type: ignore[arg-type,operator] # a number
            self.fail(where, msg("planning.file.number", value=_short_value(value), low=f"{low:g}", high=f"{high:g}"))
        return float(value)  # type: ignore[arg-type] # a number, as looked at

    def switch(self, value: object, where: str) -> bool:
        """Return a boolean."""
        if not isinstance(value, bool):
            self.fail(where, msg("planning.file.no-switch", value=_short_value(value)))
        return value

    def list(self, value: object, where: str, most: int) -> list[Any]:
        """Return a list that is neither empty nor too long."""
        if not isinstance(value, list) or not 0 < len(value) <= most:
            self.fail(where, msg("planning.file.no-list", most=most))
        return value

    def name(self, value: object, where: str) -> str:
        """Return a printable name."""
        if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_NAME or not value.isprintable():
            self.fail(where, msg("planning.file.no-name", most=_LONGEST_NAME))
        return value

    def record(
        self, kind: type[_RecordT], value: object, where: str, forms: Mapping[str, Form], **defaults: object
    ) -> _RecordT:
        """Return a record, using a reader for each field; fields without a default are required."""
        known: Any = kind
        needed = [name for name in forms if _FIELDS.get(name, name) not in {*known._field_defaults, *defaults}]
        row = self.mapping(value, where, needed, forms)
        at = f"{where}." if where else ""
        fields = {_FIELDS.get(name, name): forms[name](self, row[name], at + name) for name in forms if name in row}
        return kind(**{**defaults, **fields})


def _short_value(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False) if not isinstance(value, (dict, list)) else type(value).__name__
    return text if len(text) <= 40 else f"{text[:37]}..."  # noqa: PLR2004 - what a line has room for


def parse_json(text: str, source: str) -> object:
    """Parse a JSON text and refuse duplicate keys."""
    if len(text) > MOST_TEXT:
        raise ConfigError(msg("planning.file.too-long", limit=MOST_TEXT), path=source)

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            raise ConfigError(msg("planning.file.twice", key=next(n for n in names if names.count(n) > 1)), path=source)
        return found

    try:
        return json.loads(text, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        raise ConfigError(
            msg("planning.file.no-json", why=error.msg),
            msg("planning.file.no-json.hint"),
            path=source,
            line=error.lineno,
            column=error.colno,
        ) from None
    except (ValueError, RecursionError):  # a number with too many digits; nested too deep
        raise ConfigError(msg("planning.file.no-json.deep"), path=source) from None


def read_table(text: str, source: str, *, linked: bool = False) -> CostTable:
    """Read a table from its JSON, or from the output of ``ms-tune fit --json``.

    If ``linked``, a bandwidth determines the extra time of swap, and the text need not contain it.
    """
    reader, data = Reader(source), parse_json(text, source)
    where = ""
    if isinstance(data, dict) and isinstance(data.get(WITHIN), dict):
        data, where = data[WITHIN], WITHIN
    version = data.pop(SCHEMA_VERSION, _VERSION) if isinstance(data, dict) else _VERSION  # absent in 0.2.0
    if version != _VERSION:
        at = f"{where}.{SCHEMA_VERSION}".lstrip(".")
        reader.fail(at, msg("planning.file.version", version=_short_value(version)))
    rows = _list_of(lambda reader, value, where: _read_layer(reader, value, where, linked=linked), MOST_KINDS)
    table = reader.record(CostTable, data, where, {**_TABLE, "layers": rows}, chunks=1)
    again = table.again
    if again is not None:
        # Sizes given per stage apply to each of its cells.
        layers, transients = (
            sizes * table.chunks if len(sizes) == table.stages else sizes
            for sizes in (again.layer_bytes, again.transient_bytes)
        )
        table = table._replace(again=again._replace(layer_bytes=layers, transient_bytes=transients))
    check_table(table, source)
    if table.present is not None:
        cells_of(table, table.present, source)
    return table


def _read_layer(reader: Reader, value: object, where: str, *, linked: bool) -> LayerGroup:
    def recompute(reader: Reader, value: object, where: str) -> dict[RecomputeMode, LayerCost]:
        names = [kind.value for kind in RecomputeMode]
        kinds = reader.mapping(value, where, (), names)
        costs = ((name, kinds[name], f"{where}.{name}") for name in names if name in kinds)
        return {RecomputeMode(name): _read_cost(reader, name, cost, at, linked=linked) for name, cost, at in costs}

    return reader.record(LayerGroup, value, where, {**_LAYER, "recompute": recompute}, name=where)


def _read_cost(reader: Reader, name: str, value: object, where: str, *, linked: bool) -> LayerCost:
    if name != RecomputeMode.SWAP.value:
        return reader.record(LayerCost, value, where, _COST)
    swapped = reader.mapping(value, where, _SWAP_REQUIRED, _SWAP_COST)
    if not linked and not any(key in swapped for key in _OF_SWAP):
        reader.fail(where, msg("planning.link.unknown"), msg("planning.link.unknown.hint"))
    return reader.record(LayerCost, value, where, _SWAP_COST)


def _read_plan(reader: Reader, value: object, where: str) -> PlanLists:
    lists = reader.mapping(value, where, LISTS[:1], (*LISTS[1:], SWAP_LIST))
    offset = _ROWS(reader, lists[LISTS[0]], f"{where}.{LISTS[0]}")
    nothing = {name: [[0] * len(row) for row in offset] for name in LISTS[1:]}
    return reader.record(PlanLists, {**nothing, **lists}, where, dict.fromkeys((*LISTS, SWAP_LIST), _ROWS))


def _read_end(reader: Reader, value: object, where: str) -> StageEnd:
    # Earlier tables have `empty_bytes`, the little that a stage needs less without layers at this end; it is not counted now.
    known = {name: each for name, each in value.items() if name != "empty_bytes"} if isinstance(value, dict) else value
    return reader.record(StageEnd, known, where, _END)


def _read_order(reader: Reader, value: object, where: str) -> Schedule:
    try:
        return Schedule(value)
    except ValueError:
        known = ", ".join(schedule.value for schedule in Schedule)
        reader.fail(where, msg("planning.file.order", value=_short_value(value), known=known))


def _integer_form(low: int, high: int) -> Form:
    return lambda reader, value, where: reader.read_integer(value, where, low, high)


def _number(high: float, low: float = 0.0) -> Form:
    return lambda reader, value, where: reader.number(value, where, high, low)


def _list_of(form: Form, most: int) -> Form:
    def read(reader: Reader, value: object, where: str) -> tuple[Any, ...]:
        return tuple(form(reader, one, f"{where}[{at}]") for at, one in enumerate(reader.list(value, where, most)))

    return read


def _record_of(kind: type[Any], forms: Mapping[str, Form]) -> Form:
    return lambda reader, value, where: reader.record(kind, value, where, forms)


_TIME, _SIZE, _CHANGE = _number(_MOST_TIME), _integer_form(0, MOST_BYTES), _integer_form(-MOST_BYTES, MOST_BYTES)
_SIZES, _CHANGES = _list_of(_SIZE, MOST_STAGES), _list_of(_CHANGE, MOST_STAGES)
_ROWS = _list_of(_list_of(_integer_form(-MOST_LAYERS, MOST_LAYERS), MOST_STAGES), MOST_CHUNKS)
_END = {"forward": _TIME, "bytes": _CHANGE, "transient_bytes": _SIZE, "filled": Reader.switch}
_COST = {
    "activation_bytes": _SIZE,
    "backward_extra": _number(_MOST_EXTRA, _LEAST_EXTRA),
    "transient_bytes": _SIZE,
    "once_bytes": _CHANGE,
    "again_bytes": _SIZE,
}
_SWAP_COST = {**_COST, "swapped_bytes": _SIZE, "forward_extra": _number(_MOST_EXTRA)}
_SWAP_REQUIRED = ("activation_bytes", "swapped_bytes")
_OF_SWAP, _OF_SWAP_ONLY = ("forward_extra", "backward_extra"), ("forward_extra", "swapped_bytes")
_LAYER = {"name": Reader.name, "count": _integer_form(1, MOST_LAYERS), "forward": _TIME, "bytes": _SIZE}
_TABLE = {
    "stages": _integer_form(1, MOST_STAGES),
    "chunks": _integer_form(1, MOST_CHUNKS),
    "micro_batches": _integer_form(1, MOST_PASSES),
    "limit_bytes": _integer_form(1, MOST_BYTES),
    "order": _read_order,
    "head": _read_end,
    "tail": _read_end,
    "constant_bytes": _CHANGE,
    "stage_bytes": _CHANGES,
    "plan": _read_plan,
    "update": _record_of(UpdateCost, {"layer_bytes": _SIZES, "stage_bytes": _CHANGES}),
    "again": _record_of(
        RecomputeOverhead,
        {"first_bytes": _SIZES, "layer_bytes": _CHANGES, "transient_bytes": _SIZES, "lingers": Reader.switch},
    ),
}


def table_json(table: CostTable) -> dict[str, Any]:
    """Return the table as JSON, which :func:`read_table` accepts."""
    found = {SCHEMA_VERSION: _VERSION, **_plain_json(table)}
    for layer, row in zip(table.layers, found["layers"], strict=True):
        for kind in layer.recompute:
            for name in _OF_SWAP_ONLY if kind is not RecomputeMode.SWAP else ():
                del row["recompute"][kind.value][name]
    return found


def _plain_json(value: Any) -> Any:  # noqa: ANN401 - a record, and whatever it is made of
    """Convert a record to the names used in a file, without empty fields."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {_plain_json(key): _plain_json(each) for key, each in value.items()}
    if hasattr(value, "_asdict"):
        names = {field: name for name, field in _FIELDS.items()}
        fields = ((names.get(name, name), each) for name, each in value._asdict().items())
        return {name: _plain_json(each) for name, each in fields if each not in (None, ())}
    return list(map(_plain_json, value)) if isinstance(value, tuple) else value


_MOST_FIGURE = 1e12  # maximum of any figure
_MOST_ROWS = 100


class _SappKeys(NamedTuple):
    # SAPP's keys for one recompute mode, and its default extra time of a backward pass.
    memory: str
    time: str
    coefficient: str
    default: float


KINDS = {
    RecomputeMode.NONE: _SappKeys("memory_activation", "backward_time", "backward_coef", 0.0),
    RecomputeMode.SELECT: _SappKeys("memory_select_rec", "select_rec_time", "select_rec_coef", 0.04),
    RecomputeMode.COMM: _SappKeys("memory_select_comm", "select_comm_time", "select_comm_coef", 0.125),
    RecomputeMode.BOTH: _SappKeys("memory_both_comm_select", "both_comm_select_time", "both_comm_select_coef", 0.165),
    RecomputeMode.FULL: _SappKeys("memory_recompute", "recompute_time", "recompute_coef", 0.5),
}


class SappPipeline(NamedTuple):
    """Parameters that SAPP reads from its command line."""

    stages: int
    chunks: int
    micro_batches: int
    limit_bytes: int
    order: Schedule
    constant_bytes: int | None = None  # None: use the file's value


def is_sapp(text: str, source: str) -> bool:
    """Return whether a text is a file of SAPP's layers."""
    data = parse_json(text, source)
    return isinstance(data, dict) and "layers_description" in data


def read_sapp(text: str, source: str, pipeline: SappPipeline) -> CostTable:
    """Read a table from SAPP's layers."""
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
    size = _read_sapp_number(data, "stage_const_mem", source, -_MOST_FIGURE) or 0.0
    constant = round(size * MIB) if pipeline.constant_bytes is None else pipeline.constant_bytes
    table = CostTable(
        **{**pipeline._asdict(), "constant_bytes": constant},
        layers=tuple(_read_sapp_layer(row, source) for row in by_type["BODY"]),
        head=_read_sapp_end(by_type["HEAD"], source),
        tail=_read_sapp_end(by_type["TAIL"], source),
    )
    return check_table(table, source)


def _located(index: int | None, what: Message) -> Message:
    return what if index is None else msg("planning.file.at", where=f"layers_description[{index}]", what=what)


def _read_sapp_number(row: dict[str, Any], key: str, source: str, low: float = 0.0) -> float | None:
    # Return a number of at least ``low``, or None if the key is missing. SAPP itself writes one key with a trailing space, and
    # the least squares of its ``mem.yaml`` give negative constants.
    value = row.get(key, row.get(f"{key} "))
    if value is None:
        return None
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not math.isfinite(value)
        or not low <= value <= _MOST_FIGURE
    ):
        raise ConfigError(
            _located(row.get(""), msg("planning.sapp.number", key=key, low=f"{low:g}", high=f"{_MOST_FIGURE:g}")),
            path=source,
        )
    return float(value)


def _read_sapp_end(rows: list[dict[str, Any]], source: str) -> StageEnd:
    # SAPP adds up all parts at one end; its backward pass takes twice as long.
    times = [_read_sapp_number(row, "time", source) or 0.0 for row in rows]
    sizes = [_read_sapp_number(row, "memory_parameter", source, -_MOST_FIGURE) or 0.0 for row in rows]
    return StageEnd(math.fsum(times), round(math.fsum(sizes) * MIB))


def _read_sapp_layer(row: dict[str, Any], source: str) -> LayerGroup:
    name, count = row.get("name"), row.get("nb_layer")
    time, forward = _read_sapp_number(row, "time", source), _read_sapp_number(row, "forward_time", source)
    if not isinstance(name, str) or not name or isinstance(count, bool) or not isinstance(count, int):
        raise ConfigError(_located(row[""], msg("planning.sapp.name-count")), path=source)
    time = forward if time is None else time
    if not 1 <= count <= MOST_LAYERS or time is None:
        raise ConfigError(_located(row[""], msg("planning.sapp.name-count")), path=source)
    forward, backward = time if forward is None else forward, 2 * time
    recompute = {}
    for kind, names in KINDS.items():
        size = _read_sapp_number(row, names.memory, source)
        if size:
            whole = _read_sapp_number(row, names.time, source)
            coefficient = _read_sapp_number(row, names.coefficient, source)
            longer = backward * (1 + (names.default if coefficient is None else coefficient))
            extra = (whole or longer) / (2 * forward) - 1 if forward else 0.0
            recompute[kind] = LayerCost(round(size * MIB), round(extra, 9))
    return LayerGroup(
        name, count, forward, round((_read_sapp_number(row, "memory_parameter", source) or 0.0) * MIB), recompute
    )
