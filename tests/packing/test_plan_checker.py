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


@given(st.integers(2, 200), st.data())
def test_a_planted_overlap_is_found(count: int, data: st.DataObject) -> None:
    blocks = [Placed(0, 10, 8, 1, 8 * number) for number in range(count)]
    victim = data.draw(st.integers(1, count - 1))
    blocks[victim] = blocks[victim]._replace(address=blocks[victim].address - data.draw(st.integers(1, 8)))
    assert {"overlap"} == {fault.kind for fault in find_faults(blocks)}


def test_blocks_may_follow_each_other_at_one_tick() -> None:
    assert find_faults([Placed(0, 5, 8, 1, 0), Placed(5, 9, 8, 1, 0)]) == []


def test_alignment_and_addresses_below_zero() -> None:
    faults = find_faults([Placed(0, 5, 8, 512, 8), Placed(0, 5, 8, 1, -8)])
    assert [fault.kind for fault in faults] == ["negative", "alignment"]


def test_only_so_many_are_listed() -> None:
    assert len(find_faults([Placed(0, 9, 8, 1, 0)] * 150)) == 100
