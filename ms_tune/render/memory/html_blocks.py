"""The blocks of a rank in few bytes, for the report in the browser.

Columns of small numbers (differences, codes) in JSON, compressed and in base64; the page unpacks them with
``DecompressionStream``. Scope paths repeat their beginnings ten thousand times, so that they are stored as a tree.
"""

from __future__ import annotations

import base64
import gzip
import json
from typing import TYPE_CHECKING

import numpy as np

from ms_tune.trace.memory_block import NEVER_FREED
from ms_tune.trace.table import NONE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ms_tune.memory.result import RankReport

MOST_BLOCKS = 150_000
_LEVEL = 6


def packed_blocks(rank: RankReport) -> tuple[str, int]:
    """The blocks that take part in the curve, packed, and how many of them; of very many the most telling ones."""
    rows = _chosen(rank)
    text = json.dumps(_columns(rank, rows), ensure_ascii=False, separators=(",", ":"))
    packed = gzip.compress(text.encode("utf-8", errors="replace"), _LEVEL, mtime=0)
    return base64.b64encode(packed).decode("ascii"), len(rows)


def _chosen(rank: RankReport) -> NDArray[np.int64]:
    """All rows, or those with the largest size times life; and whatever is alive at the peak."""
    table, rows = rank.table, rank.curve.rows
    rows = rows[np.argsort(table.start[rows], kind="stable")]
    if len(rows) <= MOST_BLOCKS:
        return rows
    last = float(rank.curve.tick[-1])
    life = np.minimum(table.end[rows].astype(np.float64), last) - table.start[rows]
    weight = table.size[rows] * np.maximum(life, 1)
    weight[table.live(rank.curve.peak_tick)[rows]] = np.inf
    kept = np.sort(np.argsort(-weight, kind="stable")[:MOST_BLOCKS])
    return rows[kept]


def _columns(rank: RankReport, rows: NDArray[np.int64]) -> dict[str, object]:
    table = rank.table
    start, end = table.start[rows], table.end[rows]
    sizes, size = np.unique(table.size[rows], return_inverse=True)
    node, nodes = _recoded(table.node.codes[rows], table.node.values)
    stack, stacks = _recoded(table.stack.codes[rows], table.stack.values)
    kind, kinds = _recoded(table.kind.codes[rows], table.kind.values)
    frames = {frame: place for place, frame in enumerate(dict.fromkeys(frame for each in stacks for frame in each))}
    tree, leaves = _tree(list(nodes))
    address = table.address[rows]
    base = int(address.min()) if len(address) else 0
    offset = (address - np.uint64(base)).astype(np.int64)
    unit = int(np.gcd.reduce(offset)) or 1 if len(offset) else 1
    tensors = {text: place for place, text in enumerate(dict.fromkeys(rank.tensor_of(row) for row in rows.tolist()))}
    last = table.last_user[rows]
    return {
        "start": np.diff(start, prepend=0).tolist(),
        "life": np.where(end == NEVER_FREED, -1, end - start).tolist(),
        "last": np.where((last == NONE) | (last < start), -1, last - start).tolist(),
        "sizes": sizes.tolist(),
        "size": size.reshape(-1).tolist(),
        "content": rank.contents.codes[rows].tolist(),
        "node": node,
        "tree": tree,
        "leaf": leaves,
        "stack": stack,
        "stacks": [[frames[frame] for frame in each] for each in stacks],
        "frames": [[frame.file, frame.line, frame.function] for frame in frames],
        "kind": kind,
        "kinds": list(kinds),
        "tensor": [tensors[rank.tensor_of(row)] for row in rows.tolist()],
        "tensors": list(tensors),
        "names": {
            place: rank.contents.names[row] for place, row in enumerate(rows.tolist()) if row in rank.contents.names
        },
        "base": str(base),
        "unit": unit,
        "offset": (offset // unit).tolist(),
    }


def _recoded(codes: NDArray[np.int32], values: tuple[object, ...]) -> tuple[list[int], list]:  # type: ignore[type-arg]
    used, again = np.unique(codes, return_inverse=True)
    return again.reshape(-1).tolist(), [values[code] for code in used.tolist()]


def _tree(paths: list[str]) -> tuple[list[list[object]], list[int]]:
    """Parts of paths as [parent, name], where parents come first and the first ones have -1; and each path's last."""
    known: dict[tuple[int, str], int] = {}
    leaves = []
    for path in paths:
        at = -1
        for part in path.split("/"):
            at = known.setdefault((at, part), len(known))
        leaves.append(at)
    return [[parent, name] for parent, name in known], leaves
