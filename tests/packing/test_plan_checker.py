"""The independent check of plans: it finds whatever is planted, and nothing where nothing is wrong."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ms_tune.packing.placement import Placed, find_faults

PLACED = st.builds(
    lambda low, life, size, address: Placed(low, low + life, size, 1, address),
    st.integers(0, 12),
    st.integers(0, 6),
    st.integers(0, 5),
    st.integers(0, 20),
)


def overlaps(a: Placed, b: Placed) -> bool:
    """Byte by byte and tick by tick."""
    ticks = set(range(a.lower, a.upper)) & set(range(b.lower, b.upper))
    return bool(ticks and set(range(a.address, a.address + a.size)) & set(range(b.address, b.address + b.size)))


@given(st.lists(PLACED, max_size=12))
def test_it_agrees_with_looking_at_every_pair(blocks: list[Placed]) -> None:
    pairs = {(i, j) for i in range(len(blocks)) for j in range(i) if overlaps(blocks[i], blocks[j])}
    found = {
        (max(fault.block, fault.other_block), min(fault.block, fault.other_block))
        for fault in find_faults(blocks)
        if fault.other_block is not None
    }
    assert bool(found) == bool(pairs)
    assert found <= pairs


def test_alignment_and_addresses_below_zero() -> None:
    faults = find_faults([Placed(0, 5, 8, 512, 8), Placed(0, 5, 8, 1, -8)])
    assert [fault.kind for fault in faults] == ["negative", "alignment"]


def test_only_so_many_are_listed() -> None:
    assert len(find_faults([Placed(0, 9, 8, 1, 0)] * 150)) == 100
