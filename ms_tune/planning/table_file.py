"""Reads and writes a table as JSON. docs/fit.md has the form."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, NoReturn

from ms_tune.encode import SCHEMA_VERSION
from ms_tune.enums import RecomputeMode
from ms_tune.errors import ConfigError, closest
from ms_tune.planning.plan import cells_of
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
    check_table,
)
from ms_tune.text import Message, msg

if TYPE_CHECKING:
    from collections.abc import Collection

MOST_TEXT = 4_000_000  # characters of a file
MOST_KINDS = 100  # runs of layers
_MOST_TIME, _MOST_EXTRA = 1e15, 100.0
_LEAST_EXTRA = -0.99  # a measured backward pass may take less than two forward passes
_REQUIRED = ("stages", "micro_batches", "limit_bytes", "order", "layers")
_OPTIONAL = ("chunks", "head", "tail", "constant_bytes", "stage_bytes", "update", "again", "plan", SCHEMA_VERSION)
_VERSION = 1
# A result of ``ms-tune fit --json`` has its table under this name, and can be read again as it is.
WITHIN = "table"


class Reader:
    """Takes values out of parsed JSON, and says where one is wrong."""

    def __init__(self, source: str) -> None:
        self.source = source

    def fail(self, where: str, what: Message, hint: Message | None = None) -> NoReturn:
        """Raise :class:`ConfigError` about a place."""
        raise ConfigError(msg("planning.file.at", where=where, what=what) if where else what, hint, path=self.source)

    def mapping(
        self, value: object, where: str, required: Collection[str], optional: Collection[str]
    ) -> dict[str, Any]:
        """An object with these keys."""
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

    def whole(self, value: object, where: str, low: int, high: int) -> int:
        """A whole number within bounds."""
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            self.fail(where, msg("planning.file.whole", value=_short_value(value), low=low, high=high))
        return value

    def number(self, value: object, where: str, high: float, low: float = 0.0) -> float:
        """A number within bounds."""
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or not low <= value <= high:  # type: ignore[arg-type,operator] # a number
            self.fail(where, msg("planning.file.number", value=_short_value(value), low=f"{low:g}", high=f"{high:g}"))
        return float(value)  # type: ignore[arg-type] # a number, as looked at

    def switch(self, value: object, where: str) -> bool:
        """True or false."""
        if not isinstance(value, bool):
            self.fail(where, msg("planning.file.no-switch", value=_short_value(value)))
        return value

    def list(self, value: object, where: str, most: int) -> list[Any]:
        """A list that is neither empty nor too long."""
        if not isinstance(value, list) or not 0 < len(value) <= most:
            self.fail(where, msg("planning.file.no-list", most=most))
        return value

    def name(self, value: object, where: str, most: int = 200) -> str:
        """A name that can be shown."""
        if not isinstance(value, str) or not 0 < len(value) <= most or not value.isprintable():
            self.fail(where, msg("planning.file.no-name", most=most))
        return value


def _short_value(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False) if not isinstance(value, (dict, list)) else type(value).__name__
    return text if len(text) <= 40 else f"{text[:37]}..."  # noqa: PLR2004 - what a line has room for


def parse_json(text: str, source: str) -> object:
    """What a JSON text says."""
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
    except (ValueError, RecursionError):  # a number of too many digits; too deep
        raise ConfigError(msg("planning.file.no-json.deep"), path=source) from None


def read_table(text: str, source: str, *, linked: bool = False) -> CostTable:
    """A table from its JSON, or from the JSON that ``ms-tune fit --json`` printed.

    Where it is ``linked`` a bandwidth tells what swap takes longer, and the text need not.
    """
    reader, data = Reader(source), parse_json(text, source)
    where = ""
    if isinstance(data, dict) and isinstance(data.get(WITHIN), dict):
        data, where = data[WITHIN], WITHIN + "."
    top = reader.mapping(data, where.rstrip("."), _REQUIRED, _OPTIONAL)
    if (version := top.get(SCHEMA_VERSION, _VERSION)) != _VERSION:  # the tables of 0.2.0 have none
        reader.fail(where + SCHEMA_VERSION, msg("planning.file.version", version=_short_value(version)))
    stages = reader.whole(top["stages"], where + "stages", 1, MOST_STAGES)
    rows = reader.list(top["layers"], where + "layers", MOST_KINDS)
    table = CostTable(
        stages=stages,
        chunks=reader.whole(top.get("chunks", 1), where + "chunks", 1, MOST_CHUNKS),
        micro_batches=reader.whole(top["micro_batches"], where + "micro_batches", 1, MOST_PASSES),
        limit_bytes=reader.whole(top["limit_bytes"], where + "limit_bytes", 1, MOST_BYTES),
        order=_read_order(reader, top["order"], where + "order"),
        layers=tuple(
            _read_layer(reader, row, f"{where}layers[{index}]", linked=linked) for index, row in enumerate(rows)
        ),
        head=_read_end(reader, top.get("head", {}), where + "head"),
        tail=_read_end(reader, top.get("tail", {}), where + "tail"),
        constant_bytes=reader.whole(top.get("constant_bytes", 0), where + "constant_bytes", 0, MOST_BYTES),
        stage_bytes=_stage_bytes(reader, top.get("stage_bytes"), where + "stage_bytes"),
        present=_read_plan(reader, top["plan"], where + "plan") if "plan" in top else None,
        update=_read_update(reader, top["update"], where + "update") if "update" in top else None,
        again=_read_overhead(reader, top["again"], where + "again") if "again" in top else None,
    )
    if table.again is not None:
        table = table._replace(again=_by_cell(table.again, stages, table.chunks))
    check_table(table, source)
    if table.present is not None:
        cells_of(table, table.present, source)
    return table


def _read_order(reader: Reader, value: object, where: str) -> Schedule:
    try:
        return Schedule(value)
    except ValueError:
        known = ", ".join(schedule.value for schedule in Schedule)
        reader.fail(where, msg("planning.file.order", value=_short_value(value), known=known))


def _read_layer(reader: Reader, value: object, where: str, *, linked: bool) -> LayerGroup:
    row = reader.mapping(value, where, ("count", "forward", "bytes", "recompute"), ("name",))
    names = [kind.value for kind in RecomputeMode]
    kinds = reader.mapping(row["recompute"], f"{where}.recompute", (), names)
    return LayerGroup(
        name=reader.name(row.get("name", where), f"{where}.name"),
        layer_count=reader.whole(row["count"], f"{where}.count", 1, MOST_LAYERS),
        forward=reader.number(row["forward"], f"{where}.forward", _MOST_TIME),
        bytes=reader.whole(row["bytes"], f"{where}.bytes", 0, MOST_BYTES),
        recompute={
            RecomputeMode(name): _read_layer_cost(
                reader, kinds[name], f"{where}.recompute.{name}", swap=name == RecomputeMode.SWAP.value, linked=linked
            )
            for name in names
            if name in kinds
        },
    )


_OF_SWAP, _OF_SWAP_ONLY = ("forward_extra", "backward_extra"), ("forward_extra", "swapped_bytes")


def _read_layer_cost(reader: Reader, value: object, where: str, *, swap: bool, linked: bool) -> LayerCost:
    optional = ("backward_extra", "transient_bytes", "once_bytes", "again_bytes", *(_OF_SWAP[:1] if swap else ()))
    required = ("activation_bytes", *(("swapped_bytes",) if swap else ()))
    row = reader.mapping(value, where, required, optional)
    if swap and not linked and not any(key in row for key in _OF_SWAP):
        reader.fail(where, msg("planning.link.unknown"), msg("planning.link.unknown.hint"))
    return LayerCost(
        activation_bytes=reader.whole(row["activation_bytes"], f"{where}.activation_bytes", 0, MOST_BYTES),
        backward_extra=reader.number(
            row.get("backward_extra", 0), f"{where}.backward_extra", _MOST_EXTRA, _LEAST_EXTRA
        ),
        transient_bytes=reader.whole(row.get("transient_bytes", 0), f"{where}.transient_bytes", 0, MOST_BYTES),
        once_bytes=reader.whole(row.get("once_bytes", 0), f"{where}.once_bytes", -MOST_BYTES, MOST_BYTES),
        again_bytes=reader.whole(row.get("again_bytes", 0), f"{where}.again_bytes", 0, MOST_BYTES),
        swapped_bytes=reader.whole(row.get("swapped_bytes", 0), f"{where}.swapped_bytes", 0, MOST_BYTES),
        forward_extra=reader.number(row.get("forward_extra", 0), f"{where}.forward_extra", _MOST_EXTRA),
    )


def _read_update(reader: Reader, value: object, where: str) -> UpdateCost:
    row = reader.mapping(value, where, ("layer_bytes", "stage_bytes"), ())
    return UpdateCost(
        _read_sizes(reader, row["layer_bytes"], f"{where}.layer_bytes", 0),
        _read_sizes(reader, row["stage_bytes"], f"{where}.stage_bytes", -MOST_BYTES),
    )


def _read_overhead(reader: Reader, value: object, where: str) -> RecomputeOverhead:
    least = {"first_bytes": 0, "layer_bytes": -MOST_BYTES, "transient_bytes": 0}
    row = reader.mapping(value, where, tuple(least), ("lingers",))
    first, layers, transients = (_read_sizes(reader, row[name], f"{where}.{name}", low) for name, low in least.items())
    return RecomputeOverhead(
        first, layers, transients, lingers=reader.switch(row.get("lingers", False), f"{where}.lingers")
    )


def _by_cell(again: RecomputeOverhead, stages: int, chunks: int) -> RecomputeOverhead:
    # Sizes of each stage, whichever of its chunks is computed once more, are those of each of its cells.
    layers, transients = (
        sizes * chunks if len(sizes) == stages else sizes for sizes in (again.layer_bytes, again.transient_bytes)
    )
    return again._replace(layer_bytes=layers, transient_bytes=transients)


def _read_sizes(reader: Reader, value: object, where: str, least: int) -> tuple[int, ...]:
    items = reader.list(value, where, MOST_STAGES)
    return tuple(reader.whole(item, f"{where}[{index}]", least, MOST_BYTES) for index, item in enumerate(items))


def _read_end(reader: Reader, value: object, where: str) -> StageEnd:
    row = reader.mapping(value, where, (), ("forward", "bytes", "transient_bytes", "empty_bytes", "filled"))
    return StageEnd(
        forward=reader.number(row.get("forward", 0), f"{where}.forward", _MOST_TIME),
        bytes=reader.whole(row.get("bytes", 0), f"{where}.bytes", 0, MOST_BYTES),
        transient_bytes=reader.whole(row.get("transient_bytes", 0), f"{where}.transient_bytes", 0, MOST_BYTES),
        empty_bytes=reader.whole(row.get("empty_bytes", 0), f"{where}.empty_bytes", 0, MOST_BYTES),
        filled=reader.switch(row.get("filled", False), f"{where}.filled"),
    )


def _stage_bytes(reader: Reader, value: object, where: str) -> tuple[int, ...]:
    return () if value is None else _read_sizes(reader, value, where, 0)


def _read_plan(reader: Reader, value: object, where: str) -> PlanLists:
    lists = reader.mapping(value, where, LISTS[:1], (*LISTS[1:], SWAP_LIST))
    nothing = [
        [0] * len(row) if isinstance(row, list) else [] for row in reader.list(lists["offset"], where, MOST_CHUNKS)
    ]

    def rows(name: str) -> tuple[tuple[int, ...], ...]:
        found = reader.list(lists.get(name, nothing), f"{where}.{name}", MOST_CHUNKS)
        return tuple(
            tuple(
                reader.whole(item, f"{where}.{name}[{chunk}][{stage}]", -MOST_LAYERS, MOST_LAYERS)
                for stage, item in enumerate(reader.list(row, f"{where}.{name}[{chunk}]", MOST_STAGES))
            )
            for chunk, row in enumerate(found)
        )

    plan = PlanLists(*map(rows, LISTS))
    return plan._replace(swap=rows(SWAP_LIST)) if SWAP_LIST in lists else plan


def table_json(table: CostTable) -> dict[str, object]:
    """The table as JSON has it; :func:`read_table` reads it back."""
    return {
        SCHEMA_VERSION: _VERSION,
        "stages": table.stages,
        "chunks": table.chunks,
        "micro_batches": table.micro_batches,
        "limit_bytes": table.limit_bytes,
        "order": table.order.value,
        "head": table.head._asdict(),
        "tail": table.tail._asdict(),
        "constant_bytes": table.constant_bytes,
        **({"stage_bytes": list(table.stage_bytes)} if table.stage_bytes else {}),
        "layers": [
            {
                "name": layer.name,
                "count": layer.layer_count,
                "forward": layer.forward,
                "bytes": layer.bytes,
                "recompute": {kind.value: _kept_json(kind, kept) for kind, kept in layer.recompute.items()},
            }
            for layer in table.layers
        ],
        **({"update": table.update._asdict()} if table.update is not None else {}),
        **({"again": table.again._asdict()} if table.again is not None else {}),
        **({"plan": table.present.to_json()} if table.present is not None else {}),
    }


def _kept_json(kind: RecomputeMode, kept: LayerCost) -> dict[str, object]:
    # A layer's row; what only swap has, only with swap.
    row = kept._asdict()
    return row if kind is RecomputeMode.SWAP else {key: size for key, size in row.items() if key not in _OF_SWAP_ONLY}
