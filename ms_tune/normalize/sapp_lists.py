"""Parse the lists that the pipeline tool SAPP prints, and compute their layer plan.

SAPP counts every kind of recompute from the first layer of a cell (stage and chunk), as MindFormers does: ``recompute``
is the number of fully recomputed layers, which ``select_recompute`` and ``select_comm_recompute`` include
(``mindspore-toolkits/perftool/autoparallel/pipeline_balance/utils/recompute.py``, lines 113 to 120). Its lists always
have a row for each chunk. Lists of MindSpeed-Core-MS, which exclude the fully recomputed layers, are not supported
here; lists that cannot come from SAPP are refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from ms_tune.dialects import LayerPlan
from ms_tune.dialects.mindformers.placement import RecomputeInputs, RecomputeValues
from ms_tune.dialects.mindformers.recompute import normalize
from ms_tune.errors import UsageError
from ms_tune.records import Any, Record
from ms_tune.text import msg

KEYS = ("offset", "recompute", "select_recompute", "select_comm_recompute")

_LONGEST = 200_000  # characters of a pasted text
MOST = 10_000  # largest accepted number
_LINE = rf"(?m)^[^\S\n]*(?:-[^\S\n]*)?[\"']?({'|'.join(KEYS)})[\"']?[^\S\n]*[:=]"
_EVEN = "layer-to-stage assignment baseline is"
_MOST_KINDS = 8
_LIST = r"[\[\]\s,\d-]*"

Table = list[list[int]]


class SappLists(Record):
    """SAPP's lists as tables of numbers; None for a kind that is missing.

    SAPP prints them once per kind of body layer (dense, with experts), with offsets from an even split of that kind
    alone (``print_yaml_results`` of its pipeline balance). Here they are summed, as SAPP does for its own use.
    """

    offset: Table | None  # number of layers relative to an even split
    recompute: Table | None  # number of fully recomputed layers
    select_recompute: Table | None  # the same plus layers with selected operators
    select_comm_recompute: Table | None  # the same plus layers with communication
    # Layers of each cell that swap, after those that recompute; None if unspecified. SAPP itself has no such list.
    swap: Table | None = None
    kinds: int = 1  # number of layer kinds that were summed
    even: int = 0  # layers of each cell in the even splits that are named, all kinds together
    all_named: bool = False  # whether every kind's even split is named


def parse_sapp(text: str) -> SappLists:
    """Parse the lists in a pasted text; other lines are skipped, and a list may span several lines."""
    if len(text) > _LONGEST:
        raise UsageError(msg("plans.sapp.too-long", limit=_LONGEST))
    blocks: list[dict[str, Table | None]] = [{}]
    again = ""
    for match in re.finditer(_LINE, text):
        key = match[1]
        if key in blocks[-1]:
            again = again or key
            blocks.append({})
        blocks[-1][key] = _parse_value(key, text[match.end() :])
    if not blocks[0]:
        raise UsageError(msg("plans.sapp.nothing", keys=", ".join(KEYS)))
    named = re.finditer(_EVEN, text) if again else ()
    even = [_parse_value("offset", text[match.end() :].lstrip()) for match in named]
    if again and (not even or len(blocks) > _MOST_KINDS):
        raise UsageError(msg("plans.sapp.twice", key=again))
    offset, full, select, comm = (_add_tables(key, [block.get(key) for block in blocks]) for key in KEYS)
    each = sum(table[0][0] for table in even if table)
    return SappLists(offset, full, select, comm, None, len(blocks), each, len(even) == len(blocks))


def _add_tables(key: str, tables: Sequence[Table | None]) -> Table | None:
    given = [table for table in tables if table is not None]
    if len({tuple(map(len, table)) for table in given}) > 1:
        raise UsageError(msg("plans.sapp.twice", key=key))
    return [[sum(cell) for cell in zip(*rows, strict=True)] for rows in zip(*given, strict=True)] if given else None


def rebase_offsets(lists: SappLists, layers: int) -> SappLists:
    """Return the lists with offsets relative to an even split of all layers instead of one split per kind."""
    if lists.kinds == 1 or lists.offset is None:
        return lists
    cells, more = sum(map(len, lists.offset)), sum(map(sum, lists.offset))
    even, left = divmod(layers - more, cells)
    if left or lists.even > even or (lists.all_named and lists.even < even):
        raise UsageError(msg("plans.sapp.offset", layers=layers, placed=lists.even * cells + more))
    shift = even - layers // cells
    return lists._replace(offset=[[extra + shift for extra in row] for row in lists.offset], kinds=1)


def _parse_value(key: str, text: str) -> Table | None:
    text = text.lstrip(" \t")
    word = re.match(r"(?:False|false|None|null|0)[^\S\n]*(?:,|$)", text, re.MULTILINE)
    if word:
        return None
    end = _find_end(text)
    if not text.startswith("[") or end is None or not re.fullmatch(_LIST, text[:end]):
        raise UsageError(msg("plans.sapp.not-a-table", key=key))
    try:
        value = json.loads(re.sub(r",(\s*\])", r"\1", text[:end]))
    except ValueError:
        raise UsageError(msg("plans.sapp.not-a-table", key=key)) from None
    return _check_table(key, value)


def _find_end(text: str) -> int | None:
    depth = 0
    for position, character in enumerate(text):
        depth += (character == "[") - (character == "]")
        if depth > 2:  # noqa: PLR2004 - a list of rows, not deeper
            return None
        if depth == 0:
            return position + 1
    return None


def _check_table(key: str, value: Any) -> Table:  # noqa: ANN401 - the parsed value
    rows = value if value and all(isinstance(row, list) for row in value) else [value]
    if not all(row and all(type(item) is int and abs(item) <= MOST for item in row) for row in rows):
        raise UsageError(msg("plans.sapp.not-a-table", key=key))
    if len({len(row) for row in rows}) > 1:
        raise UsageError(msg("plans.sapp.not-a-table", key=key))
    return list(rows)


class Sizes(Record):
    """The sizes that the lists must match."""

    layers: int
    stages: int
    chunks: int = 1


def plan_sapp(lists: SappLists, sizes: Sizes, *, legacy: bool = True) -> LayerPlan:
    """Return the plan of SAPP's lists, as a plan of a ``mindformers`` config.

    Offsets are relative to ``layers // (stages * chunks)`` layers per cell.
    """
    layers, stages, chunks = sizes
    if not (1 <= layers <= MOST and 1 <= stages <= MOST and 1 <= chunks <= MOST // stages):
        raise UsageError(msg("plans.sapp.sizes", layers=layers, stages=stages, chunks=chunks, limit=MOST))
    lists = rebase_offsets(lists, layers)
    tables: dict[str, Table | None] = {key: getattr(lists, key) for key in KEYS}
    for key, table in tables.items():
        if table is not None and (len(table), len(table[0])) != (chunks, stages):
            size = f"{len(table)} x {len(table[0])}"
            raise UsageError(msg("plans.sapp.shape", key=key, size=size, wanted=f"{chunks} x {stages}"))
    base = layers // (stages * chunks)
    counts = [[base + extra for extra in row] for row in tables["offset"] or _make_zeros(stages, chunks)]
    if any(count < 0 for row in counts for count in row) or sum(map(sum, counts)) != layers:
        raise UsageError(msg("plans.sapp.offset", layers=layers, placed=sum(map(sum, counts))))
    full = tables["recompute"] or _make_zeros(stages, chunks)
    _check_counts(counts, {"recompute": full, **{key: table for key in KEYS[2:] if (table := tables[key])}})
    # A kind that was not requested has no list; one that covers only fully recomputed layers has no effect.
    values = RecomputeValues(full, *(False if tables[key] in (None, full) else tables[key] for key in KEYS[2:]))
    inputs = RecomputeInputs(
        layers=layers,
        stages=stages,
        offset=tables["offset"] or 0,
        interleave=True,
        interleave_num=chunks,
        values=values,
        legacy=legacy,
    )
    return normalize(inputs)


def _make_zeros(stages: int, chunks: int) -> Table:
    return [[0] * stages for _ in range(chunks)]


def _check_counts(counts: Table, tables: Mapping[str, Table]) -> None:
    full = tables["recompute"]
    for chunk, row in enumerate(counts):
        for stage, count in enumerate(row):
            for key, table in tables.items():
                number = table[chunk][stage]
                where = {"key": key, "chunk": chunk, "stage": stage, "number": number}
                if not 0 <= number <= count:
                    raise UsageError(msg("plans.sapp.too-many", **where, count=count))
                if number < full[chunk][stage]:
                    raise UsageError(
                        msg("plans.sapp.not-cumulative", **where, full=full[chunk][stage]),
                        msg("plans.sapp.not-cumulative.hint"),
                    )
