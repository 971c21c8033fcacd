from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ms_tune.enums import MemoryCategory
from ms_tune.footprint.breakdown import Theory, break_down_memory, compare_with_theory
from ms_tune.footprint.category import Contents
from ms_tune.footprint.curve import compute_curve
from ms_tune.footprint.savings import recompute_all_layers
from ms_tune.readers.tensors import TensorType
from tests.memory.reports import QWEN_8B, QWEN_TINY, rank_of
from tests.readers.rows import table_from
from tests.readers.samples import block

if TYPE_CHECKING:
    from ms_tune.readers.memory_block import Block

TASK = "kernel_graph_0_DataPrepareActor"


def parameter(start: int, name: str, size: int) -> Block:
    return block(start, None, size, kind="Weight", task_name=TASK, node_name=name)


def kernel(start: int, end: int, path: str, size: int) -> Block:
    return block(
        start, end, size, kind="Kernel", task_name=f"{start}_{path}", node_name=path, graph_name="kernel_graph0"
    )


def theory(blocks: list[Block], formats: dict[int, TensorType] | None = None) -> Theory:
    table = table_from(blocks)
    contents, curve = Contents(table, None), compute_curve(table)
    parts = break_down_memory(table, contents, curve, curve.peak_tick)
    return compare_with_theory(table, contents, parts, lambda row: (formats or {}).get(int(table.start[row])))


def test_shared_state_is_reported() -> None:
    shared = [parameter(1, "w", 65536), parameter(2, "adam_m.w", 16384), parameter(3, "adam_v.w", 16384)]
    assert [each.shards for each in theory(shared).states] == [None, 4]
    odd = [parameter(1, "w", 65536), parameter(2, "adam_m.w", 50000)]
    assert [each.shards for each in theory(odd).states] == [None, None]


def test_number_formats_count_where_they_are_known() -> None:
    held = [parameter(1, "w", 2048), parameter(2, "adam_m.w", 4096), parameter(3, "adam_v.w", 4096)]
    formats = {1: TensorType("BFloat16", (1024,), 2048), 2: TensorType("Float32", (1024,), 4096)}
    formats[3] = formats[2]
    found = theory(held, formats)
    assert (found.states[1].expected_bytes, found.optimizer_ratio) == (8192, 4.0)
    assert theory([block(1, kind="PyNativeInput")]).states == ()


@pytest.mark.slow
def test_the_peak_that_recompute_leaves() -> None:
    path = "Default/net-Net/layers-CellList/{}-Block/{}-op{}"
    layers = [kernel(10 + 2 * n, 60 - 2 * n, path.format(n, "Dense", n), 1000) for n in range(4)]
    layers += [kernel(11 + 2 * n, 59 - 2 * n, path.format(n, "Add", n), 10) for n in range(4)]
    backward = kernel(30, 33, "Gradients/Default/net-Net/layers-CellList/3-Block/Grad_Dense/MatMul-op9", 50)
    others = [parameter(1, "w", 100), kernel(12, 61, "Default/net-Net/head-Dense/Dense-op7", 200)]
    table = table_from([*layers, backward, *others])
    curve = compute_curve(table)
    assert curve.peak_bytes == 4390
    found = recompute_all_layers(table, Contents(table, None), curve)
    # Right before the last layer's backward pass its 1,000 bytes are recomputed, in addition to the outputs of each
    # layer.
    assert (found.saving, found.peak) == (4000, 100 + 200 + 1000 + 4 * 10)
    assert found.reordered
    tiny = rank_of(QWEN_TINY)  # two layers, two micro-batches in flight: the input of each layer stays
    assert tiny.recompute.saving == pytest.approx(0.918 * tiny.peak.contents[MemoryCategory.ACTIVATIONS], rel=0.01)
    rank = rank_of(QWEN_8B)
    assert rank.recompute.peak == 14373225472  # the update of the weights needs nearly as much
    assert rank.curve.peak_bytes - rank.recompute.saving < rank.recompute.peak < rank.curve.peak_bytes
