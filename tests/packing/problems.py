"""Provide placement problems, an optimum by brute force, and problems whose optimum is known by construction."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import numpy as np
from hypothesis import strategies as st

from ms_tune.packing.placement import PackingFault, PackingPlan, PackingProblem, Placed, find_faults

Row = tuple[int, int, int, int]  # lower, upper, size, alignment


def problem(rows: Sequence[Row], capacity: int | None = None) -> PackingProblem:
    lower, upper, size, alignment = np.array(rows, np.int64).reshape(-1, 4).T
    return PackingProblem(lower, upper, size, alignment, capacity=capacity)


def rows_of(blocks: PackingProblem) -> list[Row]:
    columns = (blocks.lower, blocks.upper, blocks.size, blocks.alignment)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def faults(plan: PackingPlan) -> list[PackingFault]:
    rows = zip(rows_of(plan.problem), plan.address.tolist(), strict=True)
    return find_faults([Placed(*row, address) for row, address in rows])


def live_sum(rows: Sequence[Row]) -> int:
    """Return the largest live sum, tick by tick."""
    return max(
        (sum(size for low, high, size, _ in rows if low <= tick < high) for tick, _, _, _ in rows),
        default=0,
    )


def optimum(rows: Sequence[Row]) -> int:
    """Return the optimal height: for some order, placing each block as low as possible is optimal."""
    return min(_height(order) for order in permutations(rows))


def _height(order: Sequence[Row]) -> int:
    placed: list[tuple[Row, int]] = []
    for low, high, size, alignment in order:
        met = [(start, start + row[2]) for row, start in placed if row[0] < high and row[1] > low]
        tops = [0, *(-(-end // alignment) * alignment for _, end in met)]
        start = min(top for top in tops if all(top + size <= begin or top >= end for begin, end in met))
        placed.append(((low, high, size, alignment), start))
    return max(start + row[2] for row, start in placed)


@st.composite
def small_problems(draw: st.DrawFn, most: int = 6) -> list[Row]:
    """Draw up to ``most`` blocks that often overlap in time; some are equal, some aligned."""
    rows = []
    for _ in range(draw(st.integers(1, most))):
        low = draw(st.integers(0, 6))
        high = low + draw(st.integers(1, 6))
        rows.append((low, high, draw(st.integers(1, 9)), draw(st.sampled_from([1, 1, 1, 2, 3, 4]))))
    return rows


@st.composite
def problems(draw: st.DrawFn, most: int = 60) -> list[Row]:
    """Draw many blocks of all sizes and lifetimes."""
    count = draw(st.integers(1, most))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    low = random.integers(0, count, count)
    high = low + 1 + (random.pareto(1.0, count) * 2).astype(np.int64) % count
    size = 1 + (random.pareto(0.8, count) * 10).astype(np.int64) % 10_000
    alignment = random.choice([1, 1, 8, 512], count)
    return list(zip(low.tolist(), high.tolist(), size.tolist(), alignment.tolist(), strict=True))


def cut(count: int, width: int, height: int, seed: int) -> list[Row]:
    """Cut a rectangle of ticks and bytes into this many pieces: they fill ``height`` without a hole."""
    random = np.random.default_rng(seed)
    pieces = [(0, width, 0, height)]
    while len(pieces) < count:
        areas = np.array([(right - left) * (top - bottom) for left, right, bottom, top in pieces], np.float64)
        left, right, bottom, top = pieces.pop(int(random.choice(len(pieces), p=areas / areas.sum())))
        if (random.random() < 0.6 and right - left > 1) or top - bottom < 2:
            if right - left < 2:
                pieces.append((left, right, bottom, top))
                continue
            at = int(random.integers(left + 1, right))
            pieces += [(left, at, bottom, top), (at, right, bottom, top)]
        else:
            at = int(random.integers(bottom + 1, top))
            pieces += [(left, right, bottom, at), (left, right, at, top)]
    random.shuffle(pieces)
    return [(left, right, top - bottom, 1) for left, right, bottom, top in pieces]


def training(layers: int, steps: int, seed: int) -> tuple[list[Row], list[int]]:
    """Return blocks of a training run, with addresses up to the largest sum of live bytes only.

    Weights are permanent. Activations of the forward pass, of few repeated sizes, are freed in reverse order in the
    backward pass: a stack. Temporary blocks of an operator or two are above it. The logits at the turn are the largest of
    these, so that nothing is above the top of the stack and them: the optimal height is known.
    """
    random = np.random.default_rng(seed)
    kinds = 512 * np.unique(random.integers(1, 12_000, 24))
    sizes = random.choice(kinds, layers).tolist()
    end = steps * (2 * layers + 2) + 1
    rows: list[Row] = []
    addresses: list[int] = []

    def put(low: int, high: int, size: int, address: int) -> int:
        rows.append((low, high, size, 512))
        addresses.append(address)
        return address + size

    top = 0
    for size in sizes:
        top = put(0, end, size, top)
    logits = 4 * int(kinds.max())
    for step in range(steps):
        start = 1 + step * (2 * layers + 2)
        turn = start + layers
        stack = [top]
        for place, size in enumerate(sizes):
            put(start + place, start + place + 1, int(random.choice(kinds)), stack[-1] + size)  # workspace
            stack.append(put(start + place, turn + 1 + layers - place, size, stack[-1]))
        put(turn, turn + 1, logits, stack[-1])
        for back, place in enumerate(reversed(range(layers))):
            # The next operator reads a layer's gradient: two of them are live, alternately one above the other.
            put(turn + 1 + back, turn + 3 + back, sizes[place], stack[-1] + (back % 2) * int(kinds.max()))
    return rows, addresses
