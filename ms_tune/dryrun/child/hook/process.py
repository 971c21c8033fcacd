"""A trace folder for each process, a record of what the process did, and a trace even if it ends by ``os._exit``.

MindSpore reads ``MS_ALLOC_CONF`` when it is imported, and writes its trace from a function that it leaves with ``atexit``
(MindSpore 2.7 to 2.10). So a folder is taken just before that import, and the function is remembered: processes that
``multiprocessing`` forks end with ``os._exit``, which calls no such functions.

A launcher that the stand-ins in PATH did not meet, such as ``/usr/bin/python -m torch.distributed.launch``, is met here, before its
first line: the stand-in takes its place (``exec``).
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
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from . import forks, runtime, support
from .support import RECORD, HookedProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType, TracebackType

FOLDER = "MS_TUNE_TRACES"  # the variable that names the folder of all processes of a program
PLAN = "MS_TUNE_LAUNCH"  # the variable with what a stand-in for a launcher needs to know, as JSON
INTERPRETER = "MS_TUNE_INTERPRETER"  # the Python that ran the launcher, which will run its ranks
_TAKES_VALUE = ("-W", "-X", "--check-hash-based-pycs")
_LOOK = "MS_TUNE_LOOK"  # the variable with which a program ends here: it is only asked whether it would come to this
FORKED = "forked.txt"  # numbers of forked processes whose traces were dropped
_MINDSPORE = "mindspore"
_MOST = 10_000  # processes of one program
_SEPARATORS = re.compile(r"[,:]")  # between settings of MS_ALLOC_CONF, and so never in a path there
_TRACE = ("memory_block.csv", "task.csv", "tracker_graph.ir")
_NOTED = ("reads", "bounds", "places", "endless", "skipped", "failed")  # what a process notes as it runs
# Modules of this package that change MindSpore.
_PARTS = ("runtime", "finite_checks", "bounds", "reads", "graphs")
# Variables that MindSpore's tracker and its statistics go by.
_ALLOCATOR = "MS_ALLOC_CONF"
_TRACKER = ("memory_tracker:", "memory_tracker_path:")
_WARNINGS = "2"  # of GLOG_v: the statistics at exit are one
_NEEDED: dict[str, Callable[[str], str]] = {
    "MS_MEMORY_STATISTIC": lambda _: "1",
    "GLOG_v": lambda value: value if value in {"0", "1", _WARNINGS} else _WARNINGS,
}


class _ProcessState:
    """What this process knows of itself."""

    process: HookedProcess | None = None
    write_trace: Callable[[], object] | None = None  # MindSpore's own function
    forked_in_use = False  # forked from a process that had used the device: its trace would be that process's
    inherited = 0  # bytes that such a process had at its start
    forked = False
    pid = 0  # of the process that knows this
    notices: Any = None  # processes that use the device mark themselves, and forked ones are told by this
    # Forked by a library in a thread of its own: what it allocated itself is not known, and its mark stays.
    untold = False
    forks = False  # this process has forked others
    called = False  # MindSpore's own function, in a forked process
    done = False


def become_launcher() -> None:
    """Become the stand-in if this process is a launcher."""
    plan = json.loads(os.environ.get(PLAN) or "null")
    words = sys.orig_argv[1:]
    found = launcher_of(words, plan["modules"], plan["programs"]) if plan else None
    if found is None:
        return
    name, start = found
    os.environ[INTERPRETER] = sys.executable
    os.execv(plan["python"], [plan["python"], "-I", "-S", plan["stand_in"], name, *words[start:]])  # noqa: S606 - ours


def launcher_of(words: Sequence[str], modules: Mapping[str, str], programs: Sequence[str]) -> tuple[str, int] | None:
    """The launcher that a Python process is, and how many words stand before the launcher's own.

    Words are the interpreter's arguments without its name; modules are by the name behind ``-m``, programs by that of their file.
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
    """Wait for MindSpore to be imported, and for the frameworks that need support in simulation."""
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
        if type(getattr(function, "__self__", None)).__name__ == "PyCapsule":  # the only one made in C++
            _ProcessState.write_trace = function
        return register(function, *arguments, **named)

    atexit.register = remember  # type: ignore[assignment]  # takes what atexit's does
    try:
        execute(module)
    finally:
        atexit.register = register
    register(_before_the_end)
    for part in _PARTS:
        # A release that lacks what a part changes is left as it is.
        with contextlib.suppress(Exception):
            importlib.import_module(f"{__package__}.{part}").install(module, _ProcessState.process)


def _begin_process() -> None:
    folder = _claim_folder(Path(os.environ[FOLDER]))
    _ProcessState.process = process = HookedProcess(folder)
    _ProcessState.pid = os.getpid()
    process.write()
    tracker = str(folder)
    if _SEPARATORS.search(tracker):  # MindSpore would cut it; the process keeps the folder open
        tracker = f"/proc/self/fd/{os.open(folder, os.O_RDONLY | os.O_DIRECTORY)}"
    _hold_settings(tracker)
    os.environ[forks.USES] = str(folder / forks.MARKS)  # for processes that use the device to mark themselves
    with contextlib.suppress(Exception):
        if not faulthandler.is_enabled():
            faulthandler.enable()  # a crash in MindSpore is told with the program's line
    atexit.register(_note_end)  # before MindSpore's own function is registered, and so called after it
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
    with contextlib.suppress(ValueError):  # not the main thread
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
        with contextlib.suppress(Exception):  # an exception that cannot say what it is
            process.facts["failed"] = f"{kind.__name__}: {error}"[: support.LONGEST]
        process.write()
        show(kind, error, trace)

    sys.excepthook = show_and_note


def _hold_settings(tracker: str) -> None:
    # Set the variables that are needed, and keep them whatever the program sets, before its imports or after them. MindSpore
    # reads some of them when the device is used first (2.9), so that ``os.environ["MS_ALLOC_CONF"] = ...`` behind the import
    # would turn the tracker off. What the program sets counts as before, but for what ms-tune reads.

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

    support.put_around(os, "putenv", put_needed)  # what os.environ calls
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
    # Whether this process has used the device: before that MindSpore has nothing to write.
    hal = getattr(sys.modules.get(_MINDSPORE), "hal", None)  # not there while MindSpore is being imported
    return hal is not None and bool(hal.is_initialized("Ascend"))


def _note_allocated(process: HookedProcess) -> None:
    # How much MindSpore says that it allocated: a trace has to be there where that is anything; and how much it may.
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
    # At an end: Python calls nothing in a process that a library forked in a thread of its own (``cann_sim/watching.h``).
    if _ProcessState.pid != os.getpid():
        _ProcessState.pid = os.getpid()
        _ProcessState.forked = _ProcessState.done = _ProcessState.untold = True


def _before_the_end() -> None:
    # Before MindSpore's own function: a process that ``os.fork`` made does not write its trace over its parent's.
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
        if not _ProcessState.called:  # it has to be, or the process ends in a crash
            _write_forked(process, None, write)
    atexit.unregister(write)


def _end_by_signal(number: int, _frame: object) -> None:
    # Write the trace, then end by the signal: so pools end their workers when the work is done.
    if _ProcessState.done:
        return  # it is writing the trace already, and then ends: a pool's worker that was told so twice
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
        _note_end()  # there is no trace to write
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
        _write_forked(process, _own_record(process), write)
    else:
        _tell_forked(process)


def _own_record(parent: HookedProcess) -> HookedProcess:
    own = HookedProcess(_claim_folder(Path(os.environ[FOLDER])))
    own.facts |= {name: parent.facts[name] for name in _NOTED if name in parent.facts}
    if not _ProcessState.forked_in_use:
        _note_allocated(own)
    own.write()
    return own


def _tell_forked(parent: HookedProcess) -> None:
    # What a process allocated that was forked when the device was in use: its tracker goes on with its parent's blocks.
    allocated = sys.modules[_MINDSPORE].runtime.max_memory_allocated() - _ProcessState.inherited
    if allocated > 0:
        own = _own_record(parent)
        own.facts |= {"forked_bytes": allocated, "ended": True}
        own.write()


def _write_forked(parent: HookedProcess, own: HookedProcess | None, write: Callable[[], object]) -> None:
    # The trace of a forked process: MindSpore was told the parent's folder, so it is written there and moved.
    _lock_folder(parent.folder)
    aside = parent.folder / f".parents.{os.getpid()}"
    _move_trace(parent.folder, aside)
    _ProcessState.called = True
    write()
    dropped = parent.folder / f".dropped.{os.getpid()}"
    if own is None:
        with (parent.folder / FORKED).open("a", encoding="ascii") as file:
            file.write(f"{os.getpid()}\n")
    _move_trace(parent.folder, own.folder if own is not None else dropped)
    shutil.rmtree(dropped, ignore_errors=True)
    _move_trace(aside, parent.folder)
    shutil.rmtree(aside, ignore_errors=True)
    if own is not None:
        own.facts["ended"] = True
        own.write()


def _lock_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):
        fcntl.flock(os.open(folder, os.O_RDONLY | os.O_DIRECTORY), fcntl.LOCK_EX)


def _move_trace(source: Path, aim: Path) -> None:
    # Move the files of a trace, which lie in a folder or, with communication, in one of its rank.
    for folder in (source, *source.glob("rank_*")):
        for name in _TRACE:
            if (folder / name).is_file():
                place = aim if folder == source else aim / folder.name
                place.mkdir(parents=True, exist_ok=True)
                (folder / name).replace(place / name)
