"""Read the records that a command's Python processes write (``child/hook/process.py``), and split their logs."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from ms_tune.dryrun.launcher import LOG
from ms_tune.estimate.megatron import MegatronModel
from ms_tune.facts.devices import NO_CAP_BYTES
from ms_tune.text import Message
from ms_tune.units import GIB, MIB, whole_number

_RECORD, _STUCK, _FORKED, _MARKS = "process.json", "stuck.txt", "forked.txt", "forks"
_FAILED = "forks_failed"  # a folder of such marks, each with the status of a failed process (cann_sim/watching.h)
_ALIVE = "alive"  # a folder of similar marks: processes that imported MindSpore, until they end
_OUTSIDE = "outside.txt"
_FIRST = "process_1"
_TRACE = (
    "memory_block.csv",
    "task.csv",
    "tracker_graph.ir",
    "execute_order",
    _RECORD,
    _STUCK,
    _FORKED,
    _MARKS,
    _FAILED,
)
_LARGEST = MIB  # bytes of a record
_MOST = 10_000  # maximum number of processes, and of places per process
_LINE = re.compile(rb"\[(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\] ?\w*\((\d{1,10})[,:]")
_WRITES = b"] memory block csv path : "
_LONGEST_LINE = 64 * 1024
_LONGEST_ERROR = 300
_LONGEST_STATUS = 3


@dataclass(frozen=True, slots=True)
class SourceOperation:
    """A line of the user's program, and its operation: ``item()``, or the name of an operator."""

    file: str
    line: int
    how: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.how}".rstrip()


@dataclass(frozen=True, slots=True)
class ProgramProcess:
    """One process that imported MindSpore."""

    folder: Path  # where its trace is
    pid: int  # its process ID
    arguments: tuple[str, ...]  # its program and arguments
    log: Path | None  # the file of its error output; None for the command's own log
    ended: bool  # whether it ended normally, with its trace written if it used the device
    reads: tuple[SourceOperation, ...]  # places that read values from the device, which are all zero in simulation
    # Operators whose result size depends on values, so that it has its maximum size here.
    bounds: tuple[SourceOperation, ...]
    places: int  # number of such places; only the first ones are listed
    endless: SourceOperation | None  # a loop that waits for a value and was stopped
    skipped: SourceOperation | None  # a loop that was not entered because a value was zero
    support: tuple[Message, ...] = ()  # differences of its frameworks from a run on a device
    model: MegatronModel | None = None  # its model and optimizer, if it is a Megatron program
    # Its peak of allocated bytes, if it was forked from a process that had used the device: not in any trace.
    forked_bytes: int = 0
    failed: str = ""  # the exception that ended it, or its exit code if not 0; empty if neither is known
    log_from: int = 0  # size of that file when the process began; an earlier program may have had the same process ID
    allocated: int = 0  # bytes that MindSpore reports as allocated; 0 if unknown
    requested_bytes: int | None = None  # its `max_device_memory`; None if not set or unknown


def processes_of(folder: Path) -> tuple[ProgramProcess, ...]:
    """Return the processes of a command, each with its own folder and log.

    The first one uses the command's own folder while it runs. If there are more, its files are moved to a folder like those of
    the others, so that every reader finds each trace next to its log.
    """
    further = folder.glob(f"process_*/{_RECORD}")
    records = [folder / _RECORD, *sorted(further, key=lambda one: whole_number(one.parent.name[8:]) or 0)]
    statuses = {name: text for record in records[:_MOST] for name, text in _process_states(record.parent / _FAILED)}
    found = [process for record in records[:_MOST] if (process := _read_process(record, statuses)) is not None]
    if len(found) > 1:
        found = [_relocate_process(process) if process.folder == folder else process for process in found]
        _write_logs(folder / LOG, found)
    return tuple(found)


def unhooked_in(folder: Path, processes: Sequence[ProgramProcess]) -> tuple[int, ...]:
    """Return the IDs of processes that wrote a trace, or were killed, but have no record.

    They run without the hook (``python -I``, ``-E``), and write to the folder of their parent process, as it does itself.
    """
    known = {process.pid for process in processes}
    places = {folder, *(process.folder for process in processes)}
    found: dict[int, None] = {}
    with contextlib.suppress(OSError, ValueError):
        for file in (place / _FORKED for place in places):
            known |= set(map(int, file.read_text("ascii").split())) if file.is_file() else set()
        with (folder / LOG).open("rb") as log:
            for line in _read_lines(log):
                if _WRITES in line and (match := _LINE.match(line)) and int(match[1]) not in known:
                    found[int(match[1])] = None
    return tuple(found | dict.fromkeys(number for number in _read_marks(folder / _ALIVE) if number not in known))


def killed_forks(processes: Sequence[ProgramProcess]) -> tuple[tuple[ProgramProcess, int], ...]:
    """Return forked processes that ended before recording their allocations, each after its parent's record."""
    known = {process.pid for process in processes}
    return tuple(
        (process, number)
        for process in processes
        for number in _read_marks(process.folder / _MARKS)
        if number not in known
    )


def _read_marks(folder: Path) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(name) for name in sorted(os.listdir(folder))[:_MOST] if name.isdecimal()]  # noqa: PTH208 - names are enough
    return []


def outside_in(folder: Path) -> tuple[tuple[int, str], ...]:
    """Return IDs and commands of processes that used MindSpore without the run's environment, as recorded by the supervisor."""
    try:
        with (folder / _OUTSIDE).open(encoding="utf-8", errors="replace") as file:
            words = [line.rstrip("\n").partition(" ") for line in itertools.islice(file, _MOST)]
    except OSError:
        return ()
    return tuple((int(number), command) for number, _, command in words if number.isdecimal())


def _process_states(folder: Path) -> Iterator[tuple[int, str]]:
    for number in _read_marks(folder):
        with contextlib.suppress(OSError), (folder / str(number)).open(encoding="ascii", errors="replace") as file:
            yield number, file.read(_LONGEST_STATUS)


def _read_process(record: Path, statuses: Mapping[int, str]) -> ProgramProcess | None:
    # Read a record; None if it is invalid. The program could have written it itself, so nothing is trusted.
    try:
        if record.stat().st_size > _LARGEST:
            return None
        facts = json.loads(record.read_bytes())
        log, status, gib = facts.get("log"), statuses.get(int(facts["pid"])), facts.get("asked_gib")
        reads, bounds = (tuple(map(_read_place, facts.get(name, [])[:_MOST])) for name in ("reads", "bounds"))
        return ProgramProcess(
            folder=record.parent,
            pid=int(facts["pid"]),
            arguments=tuple(str(one) for one in facts["arguments"][:20]),
            log=Path(log) if isinstance(log, str) else None,
            ended=facts["ended"] is True,
            reads=reads,
            bounds=bounds,
            places=int(facts.get("places", len(reads))),
            endless=_read_endless(record.parent, facts),
            skipped=_read_place(facts["skipped"]) if isinstance(facts.get("skipped"), dict) else None,
            support=tuple(map(_read_support, facts.get("support", [])[:_MOST])),
            model=MegatronModel.from_record(facts["model"]) if "model" in facts else None,
            failed=str(facts.get("failed") or (f"exit code {status}" if status else ""))[:_LONGEST_ERROR],
            forked_bytes=max(0, int(facts.get("forked_bytes", 0))),
            allocated=max(0, int(facts.get("allocated", 0))),
            log_from=max(0, int(facts.get("log_from", 0))),
            requested_bytes=int(gib * GIB) if isinstance(gib, float) and 0 < gib * GIB < NO_CAP_BYTES else None,
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _read_place(facts: Mapping[str, object]) -> SourceOperation:
    return SourceOperation(str(facts["file"]), int(str(facts["line"])), str(facts.get("how", "")))


def _read_support(facts: Mapping[str, Mapping[str, object]]) -> Message:
    # Only texts of ``support``; a program's own record could name any.
    name = str(facts["text"]).removeprefix("support.")
    message = Message(f"support.{name}", {**facts["params"]})
    str(message)  # raises a KeyError for an unknown text or other parameters
    return message


def _read_endless(folder: Path, facts: Mapping[str, object]) -> SourceOperation | None:
    if isinstance(facts.get("endless"), dict):
        return _read_place(facts["endless"])  # type: ignore[arg-type]  # checked in the line above
    loops = facts.get("graph_loops")
    stuck = folder / _STUCK
    if isinstance(loops, list) and loops and stuck.is_file() and stuck.stat().st_size:
        return _read_place(loops[0])
    return None


def _relocate_process(process: ProgramProcess) -> ProgramProcess:
    folder = process.folder / _FIRST
    folder.mkdir(exist_ok=True)
    for name in (*_TRACE, *(path.name for path in process.folder.glob("rank_*"))):
        if (process.folder / name).exists():
            (process.folder / name).replace(folder / name)
    return replace(process, folder=folder)


def _write_logs(common: Path, processes: Sequence[ProgramProcess]) -> None:
    # Write MindSpore's log lines to the log of their process; lines without an ID belong to the previous one.
    for source in {process.log or common for process in processes}:
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            theirs: dict[int, list[tuple[int, BinaryIO]]] = {}
            for process in sorted(processes, key=lambda one: one.log_from):
                if (process.log or common) == source:
                    file = stack.enter_context((process.folder / LOG).open("wb"))
                    theirs.setdefault(process.pid, []).append((process.log_from, file))
            current: BinaryIO | None = None
            position = 0
            for line in _read_lines(stack.enter_context(source.open("rb"))):
                if match := _LINE.match(line):
                    own = theirs.get(int(match[1]), [])
                    # if several programs ran in one process, the last one that had begun
                    current = next((file for begun, file in reversed(own) if begun <= position), None)
                position += len(line)
                if current is not None:
                    current.write(line)


def _read_lines(file: BinaryIO) -> Iterator[bytes]:
    while line := file.readline(_LONGEST_LINE):
        yield line
