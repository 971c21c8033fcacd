"""Test the lines of one run in a job's log, and the stored values."""

from __future__ import annotations

from pathlib import Path

import pytest

from ms_tune.errors import TraceError
from ms_tune.readers import lines, recompute_log
from ms_tune.readers.lines import find_logs
from ms_tune.readers.recompute_log import RecomputeLog, read_recompute_log, read_value

PREFIX = "2026-11-21 00:03:32,855 - mindformers/output/log[mindformers/models/utils.py:9] - INFO - "
START = "..........Init Config.........."
PLACED = "num_layers per stage: [[4]]"
FULL, OTHER = "Formative layer_recompute: [[2, 1]]", "Formative layer_recompute: [[1, 1]]"


def read(tmp_path: Path, *lines: str, end: str = "\n") -> RecomputeLog:
    path = tmp_path / "worker_3.log"
    path.write_text("\n".join(PREFIX + line for line in lines) + end, encoding="utf-8")
    return read_recompute_log(path)


def at(layer: int, value: str = "") -> str:
    return f"Set full recompute at layer {layer}{value}"


@pytest.mark.parametrize(
    ("lines", "runs"),
    [
        ([], 0),
        ([START], 0),
        ([FULL], 1),
        ([FULL, at(0), FULL, at(1)], 1),  # the same lists once more: the prediction layers, or another rank
        ([FULL, START, FULL], 2),
        ([START, FULL, START, FULL], 2),
        ([FULL, "num_layers per stage: [[4]]", OTHER], 1),
        (["num_layers per stage: [[4]]", FULL, "num_layers per stage: [[4]]", OTHER], 2),
        (["num_layers per stage: [[4]]", FULL, "num_layers per stage: [[4]]", FULL], 1),
        ([FULL, "initial swap_config from dict: {}", OTHER], 2),
        ([FULL, "initial swap_config from dict: {}", FULL], 1),
        ([FULL, START, PLACED, FULL, PLACED, FULL], 2),  # a start belongs to the next block only
        ([START, PLACED, PLACED, FULL], 1),
        ([PLACED, FULL, PLACED, OTHER, PLACED, FULL], 3),
    ],
)
def test_lists_that_are_the_same_are_one_run_unless_another_one_starts(
    lines: list[str], runs: int, tmp_path: Path
) -> None:
    assert len(read(tmp_path, *lines).runs) == runs


def test_what_is_kept_of_a_run(tmp_path: Path) -> None:
    log = read(
        tmp_path, "initial recompute_config from dict: {'recompute': True}", FULL, at(0), at(0), "loss: 3.1", at(1)
    )
    (run,) = log.runs
    assert (log.rank, log.lines, log.framework, log.ended, log.cut_off) == (3, 6, True, True, True)
    assert [(line.number, line.value) for line in run.lists["Formative layer_recompute"]] == [(2, [[2, 1]])]
    assert {key: [line.number for line in lines] for key, lines in run.layers.items()} == {
        ("full recompute", 0): [3],  # the second line has the same content
        ("full recompute", 1): [6],
    }
    assert sorted({*run.numbers}) == [2, 3, 6]
    assert not read(tmp_path, FULL, at(0), "loss: 3.1").cut_off
    assert read(tmp_path, FULL, at(0), "loss: 3.1", FULL).cut_off


def test_values_of_two_ranks_are_side_by_side(tmp_path: Path) -> None:
    (run,) = read(tmp_path, FULL, "Set op_swap at layer 1: .attention, value=20", FULL, at(0)).runs
    (line,) = run.layers["op_swap", 1]
    assert line.value == ".attention, value=20"
    (run,) = read(
        tmp_path, FULL, "Set layer swap at layer 1   and value is: 20", "Set layer swap at layer 1 and value is: 9"
    ).runs
    assert [line.value for line in run.layers["layer swap", 1]] == ["20", "9"]


def test_lines_that_ran_into_each_other_are_damaged(tmp_path: Path) -> None:
    (run,) = read(tmp_path, FULL, at(0) + PREFIX + at(1), "Formative lay").runs
    assert {key[1]: line.damaged for key, (line,) in run.layers.items()} == {0: True, 1: False}
    assert run.damaged == [3]
    log = read(tmp_path, FULL, at(1), end="")
    assert not log.ended
    assert log.runs[0].layers["full recompute", 1][0].damaged
    assert log.cut_off


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[[2, 1], [0, 1]]", [[2, 1], [0, 1]]),
        ("{'a\\\\.b': True}", {"a\\.b": True}),
        ("[array([1, 2]), np.int64(3)]", [[1, 2], 3]),
        ("array([1, 2], dtype=int32)", [1, 2]),
        ("no   value", "no value"),
        ("[1, 2", "[1, 2"),
    ],
)
def test_values(text: str, value: object) -> None:
    assert read_value(text) == value


def test_of_very_many_runs_the_last_are_kept(tmp_path: Path) -> None:
    lists = [f"Formative layer_recompute: [[{number}]]" for number in range(3 * recompute_log._MAX_RUNS)]
    runs = read(tmp_path, *(line for one in lists for line in (START, one))).runs
    kept = [run.lists["Formative layer_recompute"][0].value for run in runs]
    assert kept == [[[number]] for number in range(2 * recompute_log._MAX_RUNS, 3 * recompute_log._MAX_RUNS)]


def test_of_very_many_layers_some_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recompute_log, "_MAX_LINES", 3)
    (run,) = read(tmp_path, FULL, *map(at, range(5))).runs
    assert [layer for _, layer in run.layers] == [0, 1, 2]
    assert run.last == [6]


def test_sections_are_those_of_the_run_that_they_are_before(tmp_path: Path) -> None:
    first, second = (
        "initial recompute_config from dict: {'recompute': True}",
        "initial swap_config from dict: {'swap': 1}",
    )
    one, two = read(tmp_path, first, second, FULL, first.replace("True", "[1]"), OTHER).runs
    assert {name: line.value for name, line in one.sections.items()} == {
        "recompute_config": {"recompute": True},
        "swap_config": {"swap": 1},
    }
    assert [(line.number, line.value, line.damaged) for line in two.sections.values()] == [
        (4, {"recompute": [1]}, False)
    ]
    (run,) = read(tmp_path, first + PREFIX + second, FULL).runs
    assert [line.damaged for line in run.sections.values()] == [True, False]


@pytest.mark.parametrize("number", [0, 999_999])
def test_what_is_set_at_a_layer(number: int, tmp_path: Path) -> None:
    (run,) = read(
        tmp_path,
        FULL,
        f"Set select recompute on at layer {number}: a,  b",
        f"Set select comm recompute at layer {number}",
    ).runs
    assert {key: line.value for key, (line,) in run.layers.items()} == {
        ("select recompute", number): "a, b",
        ("select comm recompute", number): "",
    }
    (run,) = read(tmp_path, FULL, "Set select recompute at layer 1000000: a", "Set something else at layer 1").runs
    assert (dict(run.layers), run.damaged) == ({}, [2, 3])


def test_too_many_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_MAX_LOGS", 2)
    for rank in range(2):
        (tmp_path / f"worker_{rank}.log").touch()
    assert len(find_logs(tmp_path)) == 2
    (tmp_path / "worker_2.log").touch()
    with pytest.raises(TraceError) as refused:
        find_logs(tmp_path)
    assert refused.value.message.params == {"count": 3, "limit": 2}


def test_the_logs_of_a_folder(tmp_path: Path) -> None:
    with pytest.raises(TraceError):
        find_logs(tmp_path)
    (tmp_path / "train.log").touch()
    (tmp_path / "other.log.gz").touch()
    (tmp_path / "other.txt").touch()
    assert [file.name for file in find_logs(tmp_path)] == ["other.log.gz", "train.log"]
    for rank in (10, 2):
        (tmp_path / f"rank_{rank}").mkdir()
        (tmp_path / f"rank_{rank}" / "info.log").touch()
    assert [file.parent.name for file in find_logs(tmp_path)] == ["rank_2", "rank_10"]
    for rank in (10, 9):
        (tmp_path / f"worker_{rank}.log").touch()
    assert [file.name for file in find_logs(tmp_path)] == ["worker_9.log", "worker_10.log"]
    assert find_logs(tmp_path / "train.log") == [tmp_path / "train.log"]
    with pytest.raises(TraceError):
        read_recompute_log(tmp_path / "absent.log")
