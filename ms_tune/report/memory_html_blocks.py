"""The blocks of a rank in few bytes, for the report in the browser.

Columns of small numbers (differences, codes) in JSON, compressed and in base64; the page unpacks them with
``DecompressionStream``. Scope paths repeat their beginnings ten thousand times, so that they are stored as a tree.
"""

from __future__ import annotations

import base64
import gzip
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ms_tune.encode import json_text
from ms_tune.readers.memory_block import NEVER_FREED
from ms_tune.readers.table import NONE, Coded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from ms_tune.footprint.result import RankReport
    from ms_tune.readers.memory_block import Frame

MOST_BLOCKS = 150_000
_LEVEL = 6


@dataclass(frozen=True, slots=True, eq=False)
class PageBlocks:
    """Blocks for the page, ordered by when they are allocated."""

    start: NDArray[np.int64]  # when each is allocated
    end: NDArray[np.int64]  # when it is released, or `ms_tune.readers.memory_block.NEVER_FREED`
    last: NDArray[np.int64]  # when it is used last; `ms_tune.readers.table.NONE` if nobody knows
    size: NDArray[np.int64]  # bytes
    address: NDArray[np.uint64]
    content: NDArray[np.int64]  # what it holds, as a place in the page's contents
    node: Coded[str]  # the scope path of what allocated it, with `/` between its parts
    stack: Coded[tuple[Frame, ...]]  # the Python stack, outermost frame first
    kind: Coded[str]  # what allocated it where the path tells no operator
    tensor: Coded[str]  # what it is called
    names: Mapping[int, str]  # parameters by place of the block


def packed_blocks(rank: RankReport) -> tuple[str, int]:
    """The blocks that take part in the curve, packed, and how many of them; of very many the most telling ones."""
    table, rows = rank.table, rank.curve.rows
    rows = rows[np.argsort(table.start[rows], kind="stable")]
    rows = rows[most_telling(table.start[rows], table.end[rows], table.size[rows], rank.curve.peak_tick)]
    tensors = [rank.tensor_of(row) for row in rows.tolist()]
    known = {text: place for place, text in enumerate(dict.fromkeys(tensors))}
    names = rank.contents.names
    blocks = PageBlocks(
        start=table.start[rows],
        end=table.end[rows],
        last=table.last_user[rows],
        size=table.size[rows],
        address=table.address[rows],
        content=rank.contents.codes[rows].astype(np.int64),
        node=replace(table.node, codes=table.node.codes[rows]),
        stack=replace(table.stack, codes=table.stack.codes[rows]),
        kind=replace(table.kind, codes=table.kind.codes[rows]),
        tensor=Coded(np.array([known[text] for text in tensors], np.int32), tuple(known)),
        names={place: names[row] for place, row in enumerate(rows.tolist()) if row in names},
    )
    return packed(blocks), len(rows)


def packed(blocks: PageBlocks) -> str:
    """Blocks as the page unpacks them."""
    text = json_text(_columns(blocks))
    data = gzip.compress(text.encode("utf-8", errors="replace"), _LEVEL, mtime=0)
    return base64.b64encode(data).decode("ascii")


def most_telling(
    start: NDArray[np.int64], end: NDArray[np.int64], size: NDArray[np.int64], moment: int
) -> NDArray[np.int64]:
    """Places of all blocks, or of those with the largest size times life; and of whatever is alive at a moment."""
    if len(start) <= MOST_BLOCKS:
        return np.arange(len(start))
    last = float(max(start.max(), np.max(end, initial=0, where=end != NEVER_FREED)))
    weight = size * np.maximum(np.minimum(end.astype(np.float64), last) - start, 1)
    weight[(start <= moment) & (moment < end)] = np.inf
    return np.sort(np.argsort(-weight, kind="stable")[:MOST_BLOCKS])


def _columns(blocks: PageBlocks) -> dict[str, object]:
    start, end, last = blocks.start, blocks.end, blocks.last
    sizes, size = np.unique(blocks.size, return_inverse=True)
    node, nodes = _recoded(blocks.node.codes, blocks.node.values)
    stack, stacks = _recoded(blocks.stack.codes, blocks.stack.values)
    kind, kinds = _recoded(blocks.kind.codes, blocks.kind.values)
    frames = {frame: place for place, frame in enumerate(dict.fromkeys(frame for each in stacks for frame in each))}
    tree, leaves = _tree(list(nodes))
    base = int(blocks.address.min()) if len(blocks.address) else 0
    offset = (blocks.address - np.uint64(base)).astype(np.int64)
    unit = int(np.gcd.reduce(offset)) or 1 if len(offset) else 1
    return {
        "start": np.diff(start, prepend=0).tolist(),
        "life": np.where(end == NEVER_FREED, -1, end - start).tolist(),
        "last": np.where((last == NONE) | (last < start), -1, last - start).tolist(),
        "sizes": sizes.tolist(),
        "size": size.reshape(-1).tolist(),
        "content": blocks.content.tolist(),
        "node": node,
        "tree": tree,
        "leaf": leaves,
        "stack": stack,
        "stacks": [[frames[frame] for frame in each] for each in stacks],
        "frames": [[frame.file, frame.line, frame.function] for frame in frames],
        "kind": kind,
        "kinds": list(kinds),
        "tensor": blocks.tensor.codes.tolist(),
        "tensors": list(blocks.tensor.values),
        "names": dict(blocks.names),
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
