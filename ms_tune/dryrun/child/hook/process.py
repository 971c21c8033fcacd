"""Give each process a trace folder and a record, and write its trace even if it ends by ``os._exit``.

MindSpore reads ``MS_ALLOC_CONF`` when it is imported, and writes its trace from a function that it registers with ``atexit``
(MindSpore 2.7 to 2.10). So a folder is claimed just before that import, and the function is saved: processes that
``multiprocessing`` forks end with ``os._exit``, which does not call it.

A launcher that bypasses ms-tune's replacements in PATH, such as ``/usr/bin/python -m torch.distributed.launch``, is replaced
here (``exec``), before its first line.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import fcntl
import importlib
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, NoReturn

from . import forks, runtime, support
from .support import RECORD, HookedProcess

FOLDER = "MS_TUNE_TRACES"  # the variable with the folder of all processes of a program
PLAN = "MS_TUNE_LAUNCH"  # the variable with the plan for ``launchers/stand_in.py``, as JSON
INTERPRETER = "MS_TUNE_INTERPRETER"  # the Python that ran the launcher, which also runs its ranks
_TAKES_VALUE = ("-W", "-X", "--check-hash-based-pycs")
_LOOK = "MS_TUNE_LOOK"  # the variable that ends a program at MindSpore's import
FORKED = "forked.txt"  # numbers of forked processes whose traces were dropped
_MINDSPORE = "mindspore"
_MOST = 10_000  # processes of one program
_SEPARATORS = re.compile(r"[,:]")  # between settings of MS_ALLOC_CONF; a path there cannot contain them
_TRACE = ("memory_block.csv", "task.csv", "tracker_graph.ir")
_NOTED = ("reads", "bounds", "places", "endless", "skipped", "failed")  # recorded while the process runs
# Modules of this package that change MindSpore.
_PARTS = ("runtime", "finite_checks", "bounds", "reads", "graphs")
# Variables that control MindSpore's tracker and its statistics.
_ALLOCATOR = "MS_ALLOC_CONF"
_TRACKER = ("memory_tracker:", "memory_tracker_path:")
_WARNINGS = "2"  # level of GLOG_v: the statistics at exit are logged as a warning
_NEEDED: dict[str, Callable[[str], str]] = {
    "MS_MEMORY_STATISTIC": lambda _: "1",
    "GLOG_v": lambda value: value if value in {"0", "1", _WARNINGS} else _WARNINGS,
}


class _ProcessState:
    """The hook's state in this process."""

    process: HookedProcess | None = None
    write_trace: Callable[[], object] | None = None  # MindSpore's own function, saved to be called early
    forked_in_use = False  # forked from a process that had used the device: the trace would be that of the parent
    inherited = 0  # bytes that such a process had allocated at its start
    forked = False
    pid = 0  # of the process that this state belongs to
    notices: Any = None  # set if processes that use the device mark themselves; called in forked ones
    # A library forked this process in a separate thread: its own allocations are unknown, and it stays marked.
    untold = False
    forks = False  # whether this process has forked others
    called = False  # MindSpore's own function was called in a forked process
    done = False


def become_launcher() -> None:
    """Replace this process by ``launchers/stand_in.py`` if it is a launcher."""
    plan = json.loads(os.environ.get(PLAN) or "null")
    words = sys.orig_argv[1:]
    found = launcher_of(words, plan["modules"], plan["programs"]) if plan else None
    if found is None:
        return
    name, start = found
    os.environ[INTERPRETER] = sys.executable
    os.execv(plan["python"], [plan["python"], "-I", "-S", plan["stand_in"], name, *words[start:]])  # noqa: S606 - ours


def launcher_of(words: Sequence[str], modules: Mapping[str, str], programs: Sequence[str]) -> tuple[str, int] | None:
    """Return the launcher that a Python process runs, and the index of its first argument; None if it is not a launcher.

    ``words`` exclude the interpreter's name; ``modules`` are by the name after ``-m``, ``programs`` by file name.
    """
    at = 0
    while at < len(words):
        word = words[at]
        if not word.startswith("-") or word == "-":
            name = Path(word).name
            return (name, at + 1) if name in programs else None
        if word.startswith("--"):
            at += 2 if word in _TAKES_VALUE else 1
            continue
        letter = next((letter for letter in word[1:] if letter in "cmWX"), "")
        value = word[word.index(letter) + 1 :] if letter else ""
        at += 1
        if letter and not value:
            value, at = (words[at] if at < len(words) else ""), at + 1
        if letter in ("c", "m"):
            return (modules[value], at) if letter == "m" and value in modules else None
    return None


def begin() -> None:
    """Wait for the import of MindSpore, and of frameworks that need support in simulation."""
    if os.environ.get(FOLDER):
        simulated = os.environ.get("MS_SIMULATION_LEVEL")
        frameworks = support.framework_loads(lambda: _ProcessState.process) if simulated else {}
        sys.meta_path.insert(0, support.ImportWatch({_MINDSPORE: _load_mindspore, **frameworks}))


def _load_mindspore(execute: Callable[[ModuleType], None], module: ModuleType) -> None:
    with contextlib.suppress(OSError):
        _begin_process()
    if os.environ.get(_LOOK):
        os._exit(0)
    library = runtime.let_watch()
    if library is not None and _ProcessState.process is not None:
        _ProcessState.notices = forks.notice_forks(library, _back_in_python)
    register = atexit.register

    def remember(function: Callable[..., Any], *arguments: object, **named: object) -> Any:  # noqa: ANN401 - as atexit's
        if type(getattr(function, "__self__", None)).__name__ == "PyCapsule":  # the only one from C++
            _ProcessState.write_trace = function
        return register(function, *arguments, **named)

    atexit.register = remember  # type: ignore[assignment]  # same parameters as atexit's
    try:
        execute(module)
    finally:
        atexit.register = register
    register(_before_the_end)
    for part in _PARTS:
        # A release without the code that a part changes stays unchanged.
        with contextlib.suppress(Exception):
            importlib.import_module(f"{__package__}.{part}").install(module, _ProcessState.process)


def _begin_process() -> None:
    folder = _claim_folder(Path(os.environ[FOLDER]))
    _ProcessState.process = process = HookedProcess(folder)
    _ProcessState.pid = os.getpid()
    process.write()
    tracker = str(folder)
    if _SEPARATORS.search(tracker):  # MindSpore would cut it; the descriptor stays open
        tracker = f"/proc/self/fd/{os.open(folder, os.O_RDONLY | os.O_DIRECTORY)}"
    _fix_settings(tracker)
    os.environ[forks.USES] = str(folder / forks.MARKS)  # so that processes that use the device mark themselves
    with contextlib.suppress(Exception):
        if not faulthandler.is_enabled():
            faulthandler.enable()  # a crash in MindSpore shows the program's line
    atexit.register(_note_end)  # registered before MindSpore's own function, so called after it
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
    with contextlib.suppress(ValueError):  # outside the main thread
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _end_by_signal)

    def exit_with_trace(leave: Callable[[int], NoReturn], status: int) -> NoReturn:
        with contextlib.suppress(Exception):
            if status:
                process.facts.setdefault("failed", f"exit code {status}")
            _end_at_once()
        leave(status)

    support.put_around(os, "_exit", exit_with_trace)
    forks.before_another_program(_end_at_once)
    show = sys.excepthook

    def show_and_note(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        process.facts["failed"] = kind.__name__
        with contextlib.suppress(Exception):  # an exception whose text cannot be made
            process.facts["failed"] = f"{kind.__name__}: {error}"[: support.LONGEST]
        process.write()
        show(kind, error, trace)

    sys.excepthook = show_and_note


def _fix_settings(tracker: str) -> None:
    # Set the required variables, and keep them set regardless of the program's changes, before or after its imports. MindSpore
    # reads some of them on first use of the device (2.9), so ``os.environ["MS_ALLOC_CONF"] = ...`` after the import would turn
    # the tracker off. The program's own settings apply otherwise, except those that ms-tune needs.

    def with_tracker(value: str) -> str:
        kept = [setting for setting in value.split(",") if setting and not setting.startswith(_TRACKER)]
        return ",".join([*kept, "memory_tracker:True", f"memory_tracker_path:{tracker}"])

    needed: dict[str, Callable[[str], str]] = {**_NEEDED, _ALLOCATOR: with_tracker}
    for name, of in needed.items():
        os.environ[name] = of(os.environ.get(name, ""))
    os.environ.pop("MS_SUBMODULE_LOG_v", None)  # a module's own level would hide the statistics

    def put_needed(put: Any, name: Any, value: Any) -> None:  # noqa: ANN401 - text or bytes
        of = needed.get(os.fsdecode(name))
        put(name, of(os.fsdecode(value)) if of is not None else value)

    def unset_unneeded(unset: Any, name: Any) -> None:  # noqa: ANN401 - as above
        if os.fsdecode(name) in needed:
            os.putenv(name, "")
        else:
            unset(name)

    support.put_around(os, "putenv", put_needed)  # called by os.environ
    support.put_around(os, "unsetenv", unset_unneeded)


def _claim_folder(folder: Path) -> Path:
    for number in range(1, _MOST):
        place = folder if number == 1 else folder / f"process_{number}"
        with contextlib.suppress(FileExistsError):
            if number > 1:
                place.mkdir()
            os.close(os.open(place / RECORD, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
            return place
    raise OSError


def _device_in_use() -> bool:
    # Return whether this process has used the device: before that MindSpore has no trace to write.
    hal = getattr(sys.modules.get(_MINDSPORE), "hal", None)  # missing while MindSpore is being imported
    return hal is not None and bool(hal.is_initialized("Ascend"))


def _note_allocated(process: HookedProcess) -> None:
    # Record the bytes that MindSpore reports as allocated (if any, there must be a trace) and the memory limit requested.
    if _device_in_use():
        mindspore = sys.modules[_MINDSPORE]
        process.facts["allocated"] = max(mindspore.runtime.max_memory_allocated(), mindspore.runtime.memory_allocated())
        process.facts["asked_gib"] = runtime.requested_gib(mindspore)


def _before_fork() -> None:
    _ProcessState.forks = True
    with contextlib.suppress(Exception):
        _ProcessState.forked_in_use = _device_in_use()


def _back_in_python() -> None:
    _before_fork()
    _after_fork()


def _after_fork() -> None:
    _ProcessState.pid = os.getpid()
    _ProcessState.forked, _ProcessState.done, _ProcessState.forks = True, False, False
    if _ProcessState.process is not None and (_ProcessState.forked_in_use or _ProcessState.notices is None):
        forks.mark_process(_ProcessState.process.folder)
    if _ProcessState.forked_in_use:
        with contextlib.suppress(Exception):
            runtime = sys.modules[_MINDSPORE].runtime
            runtime.reset_peak_memory_stats()
            _ProcessState.inherited = runtime.memory_allocated()


def _notice_fork() -> None:
    # At an end: Python runs no fork hooks in a process that a library forked in a separate thread (``cann_sim/watching.h``).
    if _ProcessState.pid != os.getpid():
        _ProcessState.pid = os.getpid()
        _ProcessState.forked = _ProcessState.done = _ProcessState.untold = True


def _before_the_end() -> None:
    # Runs before MindSpore's own function: a forked process must not overwrite its parent's trace.
    _notice_fork()
    runtime.let_threads_begin()
    if not _ProcessState.forked:
        with contextlib.suppress(Exception):
            if _ProcessState.process is not None:
                _note_allocated(_ProcessState.process)
        if _ProcessState.forks and _ProcessState.process is not None:
            _lock_folder(_ProcessState.process.folder)
        return
    write, process = _ProcessState.write_trace, _ProcessState.process
    if write is None or process is None:
        return
    with contextlib.suppress(Exception):
        _end_at_once()
        if not _ProcessState.called:  # it must be called, or the process crashes at exit
            _write_forked(process, None, write)
    atexit.unregister(write)


def _end_by_signal(number: int, _frame: object) -> None:
    # Write the trace, then end by the signal: worker pools end their processes in this way after their work.
    if _ProcessState.done:
        return  # it is already writing the trace, then ends: a pool's worker that was signalled twice
    signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(Exception):
        _end_at_once()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _note_end() -> None:
    if _ProcessState.process is None:
        return
    if _ProcessState.process.facts["pid"] == os.getpid():
        _ProcessState.process.facts["ended"] = True
        _ProcessState.process.write()
    if not _ProcessState.untold:
        forks.unmark_process(_ProcessState.process.folder)


def _end_at_once() -> None:
    _notice_fork()
    _write_at_once()
    if _ProcessState.forked and not _ProcessState.untold and _ProcessState.process is not None:
        forks.unmark_process(_ProcessState.process.folder)


def _write_at_once() -> None:
    write = _ProcessState.write_trace
    process = _ProcessState.process
    if not _ProcessState.forked and not _device_in_use():
        _note_end()  # without device use no trace is written
    if _ProcessState.done or write is None or process is None or not _device_in_use():
        return
    _ProcessState.done = True
    if not _ProcessState.forked:
        _note_allocated(process)
        if _ProcessState.forks:
            _lock_folder(process.folder)
        write()
        _note_end()
    elif not _ProcessState.forked_in_use:
        _write_forked(process, _make_record(process), write)
    else:
        _record_fork(process)


def _make_record(parent: HookedProcess) -> HookedProcess:
    own = HookedProcess(_claim_folder(Path(os.environ[FOLDER])))
    own.facts |= {name: parent.facts[name] for name in _NOTED if name in parent.facts}
    if not _ProcessState.forked_in_use:
        _note_allocated(own)
    own.write()
    return own


def _record_fork(parent: HookedProcess) -> None:
    # Record the allocations of a process forked while the device was in use: its tracker continues with its parent's blocks.
    allocated = sys.modules[_MINDSPORE].runtime.max_memory_allocated() - _ProcessState.inherited
    if allocated > 0:
        own = _make_record(parent)
        own.facts |= {"forked_bytes": allocated, "ended": True}
        own.write()


def _write_forked(parent: HookedProcess, own: HookedProcess | None, write: Callable[[], object]) -> None:
    # Write the trace of a forked process: MindSpore only knows the parent's folder, so it is written there and moved.
    _lock_folder(parent.folder)
    saved = parent.folder / f".parents.{os.getpid()}"
    _move_trace(parent.folder, saved)
    _ProcessState.called = True
    write()
    dropped = parent.folder / f".dropped.{os.getpid()}"
    if own is None:
        with (parent.folder / FORKED).open("a", encoding="ascii") as file:
            file.write(f"{os.getpid()}\n")
    _move_trace(parent.folder, own.folder if own is not None else dropped)
    shutil.rmtree(dropped, ignore_errors=True)
    _move_trace(saved, parent.folder)
    shutil.rmtree(saved, ignore_errors=True)
    if own is not None:
        own.facts["ended"] = True
        own.write()


def _lock_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):
        fcntl.flock(os.open(folder, os.O_RDONLY | os.O_DIRECTORY), fcntl.LOCK_EX)


def _move_trace(source: Path, aim: Path) -> None:
    # Move the trace files, which are in the folder or, with communication, in one per rank.
    for folder in (source, *source.glob("rank_*")):
        for name in _TRACE:
            if (folder / name).is_file():
                place = aim if folder == source else aim / folder.name
                place.mkdir(parents=True, exist_ok=True)
                (folder / name).replace(place / name)
