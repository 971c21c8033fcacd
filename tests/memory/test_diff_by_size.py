from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from ms_tune.enums import BlockKind
from ms_tune.footprint.breakdown import break_down_memory
from ms_tune.footprint.category import Contents
from ms_tune.footprint.curve import compute_curve
from ms_tune.memory.diff import Surplus, find_surpluses
from tests.memory.reports import LLAMA, QWEN_TINY, rank_of
from tests.readers.rows import table_from
from tests.readers.samples import block

if TYPE_CHECKING:
    from ms_tune.footprint.result import RankReport
    from ms_tune.readers.memory_block import Block


def make_report(*blocks: Block) -> RankReport:
    """Return the parts of a report that the comparison uses."""
    table = table_from(blocks)
    contents, curve = Contents(table, None), compute_curve(table)
    peak = break_down_memory(table, contents, curve, curve.peak_tick)
    return cast("RankReport", SimpleNamespace(table=table, contents=contents, peak=peak, curve=curve))


def weight(name: str, size: int) -> Block:
    return block(1, 100, size, kind="Weight", node_name=name, task_name="kernel_graph_1")


def other(operator: str, size: int, cell: str = "Default/mlp-MLP") -> Block:
    return block(2, 90, size, kind="ConstantValue", node_name=f"{cell}/{operator}-op0", task_name="kernel_graph_1")


def test_blocks_of_one_kind_and_size_cancel_out_whoever_holds_them() -> None:
    old = make_report(weight("a.layers.0.w", 64), weight("adam_m.a.layers.0.w", 64), other("MatMul", 32))
    new = make_report(weight("main.w", 64), weight("moment.w", 64), weight("b.layers.3.w", 16), other("Dense", 32))
    assert find_surpluses(old, new) == (
        Surplus(BlockKind.KEPT, in_new=True, operator="b.layers.*.w", location="b.layers.*.w", bytes=16, count=1),
    )
    (back,) = find_surpluses(new, old)
    assert (back.in_new, back.signed_bytes) == (False, -16)


def test_a_block_of_another_kind_has_no_partner() -> None:
    found = find_surpluses(make_report(weight("w", 64)), make_report(other("MatMul", 64)))
    assert [(one.kind, one.signed_bytes) for one in found] == [(BlockKind.KEPT, -64), (BlockKind.OTHER, 64)]


def test_of_equal_blocks_those_of_the_same_operator_cancel_first() -> None:
    old = make_report(other("MatMul", 64), other("Add", 64))
    new = make_report(other("Mul", 64), other("Mul", 64), other("Add", 64), other("MatMul", 64))
    assert find_surpluses(old, new) == (
        Surplus(BlockKind.OTHER, in_new=True, operator="Mul", location="Default/mlp-MLP", bytes=128, count=2),
    )


def test_of_equal_parameters_those_of_the_same_name_cancel_first() -> None:
    """A narrow copy of a weight can have the size of another complete weight."""
    old = make_report(weight("decoder.layers.0.fc2.weight", 64), weight("adam_m.decoder.layers.0.fc2.weight", 64))
    new = make_report(
        weight("0.layers.0.fc1.weight", 64), weight("main.0.layers.0.fc2.weight", 64), weight("adam_m.x.fc2.weight", 64)
    )
    assert [(one.operator, one.count) for one in find_surpluses(old, new)] == [("0.layers.*.fc1.weight", 1)]


@pytest.mark.slow
def test_it_adds_up_to_the_difference_of_two_real_peaks() -> None:
    static, dynamic = rank_of(QWEN_TINY), rank_of(LLAMA)
    found = find_surpluses(static, dynamic)
    assert len(found) > 10
    assert sum(one.signed_bytes for one in found) == dynamic.curve.peak_bytes - static.curve.peak_bytes
    assert sorted(one.signed_bytes for one in found) == sorted(
        -one.signed_bytes for one in find_surpluses(dynamic, static)
    )
    assert find_surpluses(static, static) == ()
