"""Test the processes' own records of a command, valid or not, and the log lines of each process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ms_tune.dryrun.launcher import LOG
from ms_tune.dryrun.processes import SourceOperation, killed_forks, processes_of, unhooked_in

RECORD = {"pid": 11, "arguments": ["train.py"], "ended": True, "reads": [], "bounds": []}


def write_record(folder: Path, **facts: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "process.json").write_text(json.dumps({**RECORD, **facts}), encoding="utf-8")
    return folder


def test_of_several_each_has_a_folder_and_its_lines_of_the_log(tmp_path: Path) -> None:
    write_record(tmp_path)
    own = tmp_path / "worker.log"
    own.write_bytes(b"[ERROR] CORE(33,abc): one of its own\n")
    write_record(tmp_path / "process_10", pid=33, log=str(own))
    write_record(tmp_path / "process_2", pid=22, ended=False)
    (tmp_path / "memory_block.csv").write_text("trace of the first\n")
    (tmp_path / LOG).write_bytes(
        b"of nobody\n[WARNING] ME(11:140,MainProcess): one\nmore of one\n[ERROR] DEVICE(22,7f): two\n[INFO] (44,x): gone\n"
    )
    processes = processes_of(tmp_path)
    assert [(process.folder.name, process.pid) for process in processes] == [
        ("process_1", 11),
        ("process_2", 22),
        ("process_10", 33),
    ]
    assert (tmp_path / "process_1/memory_block.csv").read_text() == "trace of the first\n"
    assert not (tmp_path / "memory_block.csv").exists()
    logs = [(process.folder / LOG).read_bytes() for process in processes]
    assert logs[0] == b"[WARNING] ME(11:140,MainProcess): one\nmore of one\n"
    assert logs[1] == b"[ERROR] DEVICE(22,7f): two\n"
    assert logs[2] == own.read_bytes()


def test_a_loop_that_was_stopped(tmp_path: Path) -> None:
    loop = {"file": "train.py", "line": 9, "how": "while"}
    assert processes_of(write_record(tmp_path / "a", endless=loop))[0].endless == SourceOperation(
        "train.py", 9, "while"
    )
    graph = write_record(tmp_path / "b", graph_loops=[loop])
    assert processes_of(graph)[0].endless is None
    (graph / "stuck.txt").write_text("stuck")
    assert processes_of(graph)[0].endless == SourceOperation("train.py", 9, "while")


def test_what_a_process_shows_of_its_end(tmp_path: Path) -> None:
    (process,) = processes_of(write_record(tmp_path, failed="ValueError: " + "x" * 1000, forked_bytes=-5))
    assert (process.failed, process.forked_bytes) == ("ValueError: " + "x" * 288, 0)


def test_processes_that_reported_nothing_are_known_by_the_log(tmp_path: Path) -> None:
    write_record(tmp_path)
    line = (
        "[WARNING] PRE_ACT({},7f,python):2026 [mem_tracker.cc:551] DumpMemoryBlock] memory block csv path : {}/m.csv.\n"
    )
    (tmp_path / LOG).write_text("".join(line.format(pid, tmp_path) for pid in (11, 12, 13, 12)), encoding="utf-8")
    (tmp_path / "forked.txt").write_text("13\n", encoding="ascii")
    assert unhooked_in(tmp_path, processes_of(tmp_path)) == (12,)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1]",
        "{}",
        '{"pid": "x", "arguments": [], "ended": true}',
        '{"pid": 1, "arguments": 3, "ended": true}',
        '{"pid": 1, "arguments": [], "ended": true, "reads": [{"file": "a"}]}',
        '{"pid": 1, "arguments": [], "ended": true, "endless": {"file": "a", "line": "b"}}',
        " " * (1 << 20) + json.dumps(RECORD),
    ],
)
def test_a_record_that_a_program_spoilt_shows_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / "process.json").write_text(text, encoding="utf-8")
    assert processes_of(tmp_path) == ()


def test_marks_of_forked_processes_that_stay_are_found(tmp_path: Path) -> None:
    write_record(tmp_path, pid=1)
    (tmp_path / "forks").mkdir()
    (tmp_path / "forked.txt").touch()
    for name in ("31", "4", "not-a-number"):
        (tmp_path / "forks" / name).touch()
    write_record(tmp_path / "process_2", pid=2)
    found = processes_of(tmp_path)
    assert [(process.pid, pid) for process, pid in killed_forks(found)] == [(1, 31), (1, 4)]


def test_programs_one_after_the_other_in_one_process_have_their_own_lines(tmp_path: Path) -> None:
    first = "[WARNING] ME(7,0): of the first\nmore of it\n"
    (tmp_path / "log.txt").write_text(f"{first}[WARNING] ME(7,0): of the second\n", "utf-8")
    write_record(tmp_path, pid=7)
    write_record(tmp_path / "process_2", pid=7, log_from=len(first))
    logs = [(process.folder / "log.txt").read_text("utf-8") for process in processes_of(tmp_path)]
    assert logs == [first, "[WARNING] ME(7,0): of the second\n"]
