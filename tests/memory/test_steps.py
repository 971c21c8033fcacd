"""Test ends of steps and phases of allocations, on traces with other operators than those of the training step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ms_tune.footprint.category import Contents
from ms_tune.footprint.curve import compute_curve
from ms_tune.footprint.phases import Phase, phase_code
from ms_tune.footprint.steps import StepEvidence, find_phase, find_phase_peaks, find_spans, find_steps
from ms_tune.readers.memory_block import Block, Frame
from ms_tune.readers.tracker_tables import read_tasks
from tests.readers.rows import table_from
from tests.readers.samples import block, folder, trace_of

ADAMW = Frame("/opt/venv/lib/python3.11/site-packages/mindspore/mint/optim/adamw.py", 189, "construct")


def graph_step(first: int) -> list[Block]:
    paths = ("Default/net-Net/Dense-op0", "Gradients/Default/net-Net/MatMul-op0", "Default/t-T/optimizer-Adam/Mul-op0")
    return [
        replace(
            block(first + at, first + at + 2, 1024, kind="Kernel", task_name=f"{at}_{path}", node_name=path),
            producer_task=first + at,
        )
        for at, path in enumerate(paths)
    ]


def barrier(start: int, *, useful: bool = True) -> Block:
    return block(start, start + 1, node_name="DistCommBarrier", stack=(Frame("/w/train.py", 3, "main"),) * useful)


@pytest.mark.parametrize("run", ["asc_gO0", "asc_dp8/rank_3"])
@pytest.mark.parametrize("many", [1, 7])
@pytest.mark.parametrize("useful", [True, False])
def test_a_static_graph_with_eager_rows_keeps_its_steps(run: str, many: int, *, useful: bool) -> None:
    blocks = trace_of(run).blocks
    tasks = read_tasks(folder(run) / "task.csv")
    plain = table_from(blocks)
    expected = find_steps(plain, Contents(plain, None), tasks)
    assert expected.evidence is StepEvidence.ACTOR
    last = max(row.start for row in blocks)
    # Barriers come before the first step, between steps and in the middle of one.
    table = table_from([*blocks, *(barrier(last * at // many + 1, useful=useful) for at in range(many))])
    contents = Contents(table, None)
    assert find_steps(table, contents, tasks) == expected
    without = find_steps(table, contents, None)
    assert without.evidence is not StepEvidence.UPDATE


def test_without_tasks_the_graph_still_decides() -> None:
    rows = [row for first in (10, 20, 30) for row in graph_step(first)]
    plain, mixed = table_from(rows), table_from([barrier(2), *rows, barrier(19)])
    expected = find_steps(plain, Contents(plain, None), None)
    assert (expected.evidence, expected.ends) == (StepEvidence.REPETITION, (12, 22, 32))
    assert find_steps(mixed, Contents(mixed, None), None) == expected


def test_a_compiled_part_of_an_eager_step_does_not_end_it(tmp_path: Path) -> None:
    rows: list[Block] = []
    lines = ["time_stamp,task_name,node_name,graph_name,file_name,line_num,"]
    for first in (10, 30):
        rows += graph_step(first)[:2]
        lines.append(f"{first + 2},kernel_graph0_OutputActor,kernel_graph0_OutputActor,kernel_graph0,,,")
        rows += [block(first + 5 + at, first + 7 + at, stack=(ADAMW,), node_name="Mul") for at in range(3)]
    (tmp_path / "task.csv").write_text("\n".join(lines) + "\n")
    table = table_from(rows)
    found = find_steps(table, Contents(table, None), read_tasks(tmp_path / "task.csv"))
    assert (found.evidence, found.ends) == (StepEvidence.UPDATE, (17, 37))


def eager(start: int, operator: str) -> Block:
    return block(start, start + 2, 1000 * start, node_name=operator)


def test_operators_show_the_phase_where_no_stack_does() -> None:
    names = [
        "MatMulExt",
        "LogSoftmaxGrad",
        "MatMulExt",
        "SiLUGrad",
        "SumExt",
        "FusedAdamW",
        "Add",
        "ApplyAdam",
        "MatMulExt",
    ]
    table = table_from([eager(at, name) for at, name in enumerate(names, start=1)])
    settled = Contents(table, None).phases.sure_codes
    backward, update = phase_code(Phase.BACKWARD), phase_code(Phase.UPDATE)
    # Between two phases, and before the first and after the last, the phase is unknown.
    assert settled.tolist() == [0, backward, backward, backward, 0, update, update, update, 0]
    assert find_phase(table, settled, 3) is Phase.BACKWARD
    assert find_phase(table, settled, 9) is None
    assert find_phase(table, settled, 0) is None
    peaks = find_phase_peaks(compute_curve(table), table, settled)
    assert peaks[Phase.BACKWARD] == (7000, 4)
    assert peaks[None][1] == 9


def test_the_phase_at_the_peak_is_not_that_of_a_merged_span() -> None:
    rows = []
    for at in range(1000):
        path = "Default/net-Net/Dense-op0" if at % 2 else "Gradients/Default/net-Net/MatMul-op0"
        size = 5000 if at == 501 else 10
        rows.append(block(at + 1, at + 2, size, kind="Kernel", task_name=f"0_{path}", node_name=path))
    table = table_from(rows)
    contents = Contents(table, None)
    spans = find_spans(table, contents, 10)
    assert len(spans) <= 10
    assert find_phase(table, contents.phases.sure_codes, 502) is Phase.FORWARD
    assert find_phase_peaks(compute_curve(table), table, contents.phases.sure_codes)[Phase.FORWARD] == (5000, 502)
