"""Test every figure of a step's line, in each of the four forms of MindFormers and Megatron, and plausible values."""

from __future__ import annotations

from typing import Any

import pytest

from ms_tune.readers.lines import split_rank
from ms_tune.readers.step_lines import LineKind, convert_rows, locate_steps, step_forms

MEGATRON = " iteration {step}/ {total} | elapsed time per iteration (ms): {time} |{more}"
STATIC = "{{ Epoch:[ {epoch}/ 9], step:[ {step}/ {total}], loss: 1.5, per_step_time: {time}ms, x: 1"
DYNAMIC = "{{ step:[ {step}/ {total}], loss: 1.5, per_step_time: {time}ms, x: 1"
OLD = "Epoch: {epoch}, Step: {step}, Loss: 1.5, x: 1, Time: {time} ms"


def parse_steps(line: str, *, whole: bool = True) -> list[dict[str, Any] | None]:
    """Return the form and the values of each step in a line; None for a damaged one."""
    found: list[dict[str, Any] | None] = []
    for form, spans in locate_steps(line, step_forms(), whole=whole):
        kind = LineKind(form, tuple(spans))
        columns, bad = (
            convert_rows(kind, [tuple(line[begin:end].encode() for begin, end in spans.values())])
            if spans
            else ({}, {0})
        )
        found.append(None if bad else {"form": form.name, **{name: column[0] for name, column in columns.items()}})
    return found


def one(line: str, /, **values: object) -> dict[str, Any] | None:
    (found,) = parse_steps(line.format(**{"epoch": 1, "step": 2, "total": 9, "time": 500, "more": "", **values}))
    return found


def known_values(step: dict[str, Any] | None) -> dict[str, Any]:
    """Return the values that a line contains."""
    assert step is not None
    return {name: value for name, value in step.items() if value == value}  # noqa: PLR0124 - not NaN


def test_each_figure_of_megatrons_line() -> None:
    keys = [
        "throughput per GPU (TFLOP/s/GPU)",
        "actual throughput per NPU (TFLOP/s/NPU)",
        "actual throughput per NPU with recompute (TFLOP/s/NPU)",
        "global batch size",
        "consumed tokens",
        "lm loss",
        "loss",
        "grad norm",
        "max_memory_allocated(GB)",
        "max_memory_reserved(GB)",
    ]
    more = "".join(f" {key}: {place} |" for place, key in enumerate(keys, 11))
    assert known_values(one(MEGATRON, more=more)) == {
        "form": "megatron",
        "number": 2,
        "total": 9,
        "seconds": 0.5,
        "tflops": 11,
        "counted": 12,
        "hardware": 13,
        "batch": 14,
        "tokens": 15,
        "loss": 16,
        "norm": 18,
        "allocated": 19,
        "reserved": 20,
    }
    assert known_values(one(MEGATRON, more=" grad norm: 5"))["norm"] == 5  # the last figure needs no bar after it
    assert known_values(one(MEGATRON, more=" lm loss: nan | TFLOPs: -1 |")).keys() == {
        *("form", "number", "total", "seconds")
    }
    assert known_values(one(MEGATRON, more=" lm loss: -2.5 |"))["loss"] == -2.5


def test_each_figure_of_mindformers_lines() -> None:
    static = (
        "{ Epoch:[  3/  9], step:[    2/   10], loss:[ 1.500/ 1.600], per_step_time: 250ms, lr: 1, overflow cond: False, "
        "global_norm: [2.5], train_throughput_per_npu: 12.5T"
    )
    common = {"number": 2, "total": 10, "seconds": 0.25, "loss": 1.5, "norm": 2.5, "tflops": 12.5}
    assert known_values(one(static.replace("{", "{{"))) == {"form": "mindformers", "epoch": 3, "overflow": 0, **common}
    dynamic = (
        "{ step:[    2/   10], consumed_samples: 16, global_batch_size: 8, loss:   1.500, per_step_time: 250ms, "
        "grad_norm:   2.5, throughput: 12.5T }"
    )
    assert known_values(one(dynamic.replace("{", "{{").replace("}", "}}"))) == {
        "form": "mindformers-pynative",
        "batch": 8,
        **common,
    }
    assert known_values(one(OLD, epoch=4)) == {
        "form": "mindspeed-ms",
        "number": 2,
        "epoch": 4,
        "seconds": 0.5,
        "loss": 1.5,
    }


@pytest.mark.parametrize("line", [MEGATRON, STATIC, DYNAMIC, OLD])
@pytest.mark.parametrize(
    ("time", "seconds"), [("0", None), ("0.001", 1e-6), ("9999999999", 9999999.999), ("1e10", None), ("2e10", None)]
)
def test_a_step_takes_some_time_and_less_than_a_third_of_a_year(line: str, time: str, seconds: float | None) -> None:
    if line == OLD or "e" not in time:
        found = one(line, time=time)
        assert (found["seconds"] if found else None) == (pytest.approx(seconds) if seconds else None)


@pytest.mark.parametrize(
    ("line", "values", "known"),
    [
        (MEGATRON, {"step": 10**12}, True),
        (MEGATRON, {"step": 10**12 + 1}, False),
        (MEGATRON, {"total": 10**12}, True),
        (MEGATRON, {"total": 10**12 + 1}, False),
        (STATIC, {"epoch": 10**6, "total": 10**6}, True),
        (STATIC, {"epoch": 10**6, "total": 10**6 + 1}, False),
        (STATIC, {"epoch": 10**11, "total": 0}, True),
        (OLD, {"epoch": 10**11}, True),
        (OLD, {"step": 10**13}, False),
    ],
)
def test_counters_that_no_job_reaches(line: str, values: dict[str, object], known: bool) -> None:  # noqa: FBT001 - a column
    assert (one(line, **values) is not None) is known


@pytest.mark.parametrize(
    ("key", "field", "most"), [("global batch size", "batch", 10**9), ("consumed tokens", "tokens", 10**17)]
)
def test_counts(key: str, field: str, most: int) -> None:
    for value, counted in (
        (most, most),
        (most + 1, 0),
        ("-1", 0),
        ("1.5", 0),
        ("0" * 18 + "7", 7),
        ("0" * 19 + "7", 0),
    ):
        assert known_values(one(MEGATRON, more=f" {key}: {value} |")).get(field, 0) == counted


def test_lines_without_what_makes_a_step_are_damaged() -> None:
    for line in (
        "iteration x | elapsed time per iteration (ms): 5 |",
        " iteration 1/ 2 | elapsed time per iteration (ms): |",
        "{ Epoch:[1/2], loss: 1, per_step_time: 5ms, ",
        "{ step:[1/2], per_step_time: none",
    ):
        assert list(parse_steps(line)) == [None]
    assert list(parse_steps(" iteration 1/ 2 | elapsed time per iteration (ms): 5", whole=False)) == [None]
    assert list(parse_steps("nothing of a step")) == []
    whole = MEGATRON.format(step=1, total=2, time=5, more="")
    assert [
        step and step["number"] for step in parse_steps(f"{whole} iteration 2/ 2 | {whole.replace('1/', '7/')}")
    ] == [
        1,
        None,
        7,
    ]


@pytest.mark.parametrize(
    ("line", "rank", "rest"),
    [
        ("[rank12]: x", 12, "x"),
        ("[default3]:x", 3, "x"),
        ("[4]:x", 4, "x"),
        ("  5: x", 5, "x"),
        ("[1,6]<stdout>:x", 6, "x"),
        ("a/b/worker_7.log:x", 7, "x"),
        ("worker_8.log|x", 8, "x"),
        ("[rank-9/16]x", 9, "x"),
        ("[20260101 10:00:00][rank-10/16]x", 10, "x"),
        ("[Rank 11 | Local Rank 3]x", 11, "x"),
        ("\x1b[31m[rank0]:\x1b[0mx", 0, "x"),
        ("[Rank 11] x", None, "[Rank 11] x"),
        ("x [rank12]: y", None, "x [rank12]: y"),
    ],
)
def test_the_rank_before_a_line(line: str, rank: int | None, rest: str) -> None:
    assert split_rank(line) == (rank, rest)
