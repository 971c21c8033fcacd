"""A trace folder for each process, a record of what the process did, and a trace even if it ends by ``os._exit``.

MindSpore reads ``MS_ALLOC_CONF`` when it is imported, and writes its trace from a function that it leaves with ``atexit``
(MindSpore 2.7 to 2.10). So a folder is taken just before that import, and the function is remembered: processes that
``multiprocessing`` forks end with ``os._exit``, which calls no such functions.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import fcntl
import importlib
import importlib.util
import json
import os
import re
import shutil
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from . import forks, requested_memory, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType, TracebackType

FOLDER = "MS_TUNE_TRACES"  # the variable that names the folder of all processes of a program
_LOOK = "MS_TUNE_LOOK"  # the variable with which a program ends here: it is only asked whether it would come to this
RECORD = "process.json"
FORKED = "forked.txt"  # numbers of forked processes whose traces were dropped
_MINDSPORE = "mindspore"
_MOST = 10_000  # processes of one program
_SEPARATORS = re.compile(r"[,:]")  # between settings of MS_ALLOC_CONF, and so never in a path there
_TRACE = ("memory_block.csv", "task.csv", "tracker_graph.ir")
_NOTED = ("reads", "bounds", "places", "endless", "skipped", "failed")  # what a process notes as it runs
_LONGEST = 200  # characters of an argument that are kept
# Modules of this package that change MindSpore.
_PARTS = ("threads", "requested_memory", "finite_checks", "bounds", "reads", "graphs")


class HookedProcess:
    """This process, as it is told to ms-tune.

    Attributes:
        folder: Where its trace goes.
        facts: What it tells, in the form of :data:`RECORD`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.facts: dict[str, Any] = {
            "pid": os.getpid(),
            "parent": os.getppid(),
            "arguments": [argument[:_LONGEST] for argument in sys.orig_argv[:20]],
            "log": _own_log(),
            "log_from": _log_size(),
            "ended": False,
        }

    def write(self) -> None:
        """Tell what is known now; on a full disk nothing is told. A forked process has this object, too, and tells at its end."""
        if self.facts["pid"] != os.getpid():
            return
        fresh = self.folder / f".{RECORD}.{os.getpid()}"
        with contextlib.suppress(OSError):
            fresh.write_text(json.dumps(self.facts), encoding="utf-8")
            fresh.replace(self.folder / RECORD)


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


def begin() -> None:
    """Wait for MindSpore to be imported, and for the frameworks that need support in simulation."""
    if os.environ.get(FOLDER):
        sys.meta_path.insert(0, _ModuleFinder())
        importlib.import_module(f"{__package__}.support").begin(lambda: _ProcessState.process)


class _ModuleFinder:
    """Sees the import of MindSpore coming; finds nothing itself."""

    def find_spec(self, name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None) -> Any:  # noqa: ANN401 - a ModuleSpec or None
        """The module's own specification, with a loader that tells when the module is there."""
        if name != _MINDSPORE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            _watch(spec)
        return spec


def _watch(spec: ModuleSpec) -> None:
    loader: Any = spec.loader
    execute = loader.exec_module

    def execute_and_change(module: ModuleType) -> None:
        with contextlib.suppress(OSError):
            _begin_process()
        if os.environ.get(_LOOK):
            os._exit(0)
        library = importlib.import_module(f"{__package__}.threads").let_watch()
        if library is not None and _ProcessState.process is not None:
            _ProcessState.notices = forks.notice(library, _back_in_python)
        register = atexit.register
        atexit.register = _remembering(register)
        try:
            execute(module)
        finally:
            atexit.register = register
        register(_before_the_end)
        for part in _PARTS:
            # A release that lacks what a part changes is left as it is.
            with contextlib.suppress(Exception):
                importlib.import_module(f"{__package__}.{part}").install(module, _ProcessState.process)

    loader.exec_module = execute_and_change


def _remembering(register: Callable[..., Any]) -> Callable[..., Any]:
    def remember(function: Callable[..., Any], *arguments: object, **named: object) -> Any:  # noqa: ANN401 - as atexit's
        if type(getattr(function, "__self__", None)).__name__ == "PyCapsule":  # the only one made in C++
            _ProcessState.write_trace = function
        return register(function, *arguments, **named)

    return remember


def _begin_process() -> None:
    """Take a folder and have the trace written there."""
    folder = _claim(Path(os.environ[FOLDER]))
    _ProcessState.process = process = HookedProcess(folder)
    _ProcessState.pid = os.getpid()
    process.write()
    settings.hold(tracker_path(folder))
    forks.prepare(folder)
    with contextlib.suppress(Exception):
        if not faulthandler.is_enabled():
            faulthandler.enable()  # a crash in MindSpore is told with the program's line
    atexit.register(_ended)  # before MindSpore's own function is registered, and so called after it
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
    with contextlib.suppress(ValueError):  # not the main thread
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _terminated)
    leave: Callable[[int], NoReturn] = os._exit

    def exit_with_trace(status: int) -> NoReturn:
        with contextlib.suppress(Exception):
            if status:
                process.facts.setdefault("failed", f"exit code {status}")
            _end_at_once()
        leave(status)

    os._exit = exit_with_trace
    forks.before_another_program(_end_at_once)
    show = sys.excepthook

    def show_and_note(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        process.facts["failed"] = kind.__name__
        with contextlib.suppress(Exception):  # an exception that cannot say what it is
            process.facts["failed"] = f"{kind.__name__}: {error}"[:_LONGEST]
        process.write()
        show(kind, error, trace)

    sys.excepthook = show_and_note


def tracker_path(folder: Path) -> str:
    """The folder's path in a form that MindSpore does not cut; the process keeps the folder open for it."""
    if not _SEPARATORS.search(str(folder)):
        return str(folder)
    return f"/proc/self/fd/{os.open(folder, os.O_RDONLY | os.O_DIRECTORY)}"


def _claim(folder: Path) -> Path:
    """A folder that no other process has: the program's own first, then further ones in it."""
    for number in range(1, _MOST):
        place = folder if number == 1 else folder / f"process_{number}"
        with contextlib.suppress(FileExistsError):
            if number > 1:
                place.mkdir()
            os.close(os.open(place / RECORD, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
            return place
    raise OSError


def _own_log() -> str | None:
    """The file that this process's standard error goes to; None if it is no file."""
    try:
        path = Path(f"/proc/self/fd/{sys.__stderr__.fileno()}").readlink()  # type: ignore[union-attr]
    except (OSError, AttributeError, ValueError):
        return None
    return str(path) if path.is_file() else None


def _log_size() -> int:
    """Bytes of the log before this program's own: a process that became another one by ``os.execv`` has its number from before."""
    with contextlib.suppress(OSError, AttributeError, ValueError):
        return os.fstat(sys.__stderr__.fileno()).st_size  # type: ignore[union-attr]
    return 0


def device_in_use() -> bool:
    """Whether this process has used the device: before that MindSpore has nothing to write."""
    hal = getattr(sys.modules.get(_MINDSPORE), "hal", None)  # not there while MindSpore is being imported
    return hal is not None and bool(hal.is_initialized("Ascend"))


def _note_allocated(process: HookedProcess) -> None:
    """How much MindSpore says that it allocated: a trace has to be there where that is anything; and how much it may."""
    if device_in_use():
        mindspore = sys.modules[_MINDSPORE]
        process.facts["allocated"] = max(mindspore.runtime.max_memory_allocated(), mindspore.runtime.memory_allocated())
        process.facts["asked_gib"] = requested_memory.asked_gib(mindspore)


def _before_fork() -> None:
    _ProcessState.forks = True
    with contextlib.suppress(Exception):
        _ProcessState.forked_in_use = device_in_use()


def _back_in_python() -> None:
    """In a process that a library forked, as soon as it is in Python."""
    _before_fork()
    _after_fork()


def _after_fork() -> None:
    _ProcessState.pid = os.getpid()
    _ProcessState.forked, _ProcessState.done, _ProcessState.forks = True, False, False
    if _ProcessState.process is not None and (_ProcessState.forked_in_use or _ProcessState.notices is None):
        forks.begin(_ProcessState.process.folder)
    if _ProcessState.forked_in_use:
        with contextlib.suppress(Exception):
            runtime = sys.modules[_MINDSPORE].runtime
            runtime.reset_peak_memory_stats()
            _ProcessState.inherited = runtime.memory_allocated()


def _look() -> None:
    """At an end: Python calls nothing in a process that a library forked in a thread of its own (``cann_sim/watching.h``)."""
    if _ProcessState.pid != os.getpid():
        _ProcessState.pid = os.getpid()
        _ProcessState.forked = _ProcessState.done = _ProcessState.untold = True


def _before_the_end() -> None:
    """Before MindSpore's own function: a process that ``os.fork`` made does not write its trace over its parent's."""
    _look()
    if not _ProcessState.forked:
        with contextlib.suppress(Exception):
            if _ProcessState.process is not None:
                _note_allocated(_ProcessState.process)
        if _ProcessState.forks and _ProcessState.process is not None:
            _lock(_ProcessState.process.folder)
        return
    write, process = _ProcessState.write_trace, _ProcessState.process
    if write is None or process is None:
        return
    with contextlib.suppress(Exception):
        _end_at_once()
        if not _ProcessState.called:  # it has to be, or the process ends in a crash
            _write_forked(process, None, write)
    atexit.unregister(write)


def _terminated(number: int, _frame: object) -> None:
    """Write the trace, then end by the signal: so pools end their workers when the work is done."""
    if _ProcessState.done:
        return  # it is writing the trace already, and then ends: a pool's worker that was told so twice
    signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(Exception):
        _end_at_once()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _ended() -> None:
    if _ProcessState.process is None:
        return
    if _ProcessState.process.facts["pid"] == os.getpid():
        _ProcessState.process.facts["ended"] = True
        _ProcessState.process.write()
    if not _ProcessState.untold:
        forks.end(_ProcessState.process.folder)


def _end_at_once() -> None:
    """Write the trace of a process that is about to end without calling what waits for its end."""
    _look()
    _write_at_once()
    if _ProcessState.forked and not _ProcessState.untold and _ProcessState.process is not None:
        forks.end(_ProcessState.process.folder)


def _write_at_once() -> None:
    write = _ProcessState.write_trace
    process = _ProcessState.process
    if not _ProcessState.forked and not device_in_use():
        _ended()  # there is no trace to write
    if _ProcessState.done or write is None or process is None or not device_in_use():
        return
    _ProcessState.done = True
    if not _ProcessState.forked:
        _note_allocated(process)
        if _ProcessState.forks:
            _lock(process.folder)
        write()
        _ended()
    elif not _ProcessState.forked_in_use:
        _write_forked(process, _own_record(process), write)
    else:
        _tell_forked(process)


def _own_record(parent: HookedProcess) -> HookedProcess:
    """A forked process's own record, with what it noted in its copy of its parent's."""
    own = HookedProcess(_claim(Path(os.environ[FOLDER])))
    own.facts |= {name: parent.facts[name] for name in _NOTED if name in parent.facts}
    if not _ProcessState.forked_in_use:
        _note_allocated(own)
    own.write()
    return own


def _tell_forked(parent: HookedProcess) -> None:
    """What a process allocated that was forked when the device was in use: its tracker goes on with its parent's blocks."""
    allocated = sys.modules[_MINDSPORE].runtime.max_memory_allocated() - _ProcessState.inherited
    if allocated > 0:
        own = _own_record(parent)
        own.facts |= {"forked_bytes": allocated, "ended": True}
        own.write()


def _write_forked(parent: HookedProcess, own: HookedProcess | None, write: Callable[[], object]) -> None:
    """The trace of a forked process: MindSpore was told the parent's folder, so it is written there and moved.

    Args:
        parent: Whose folder MindSpore writes to; what is there already stays.
        own: Where it is moved to; None to drop it.
        write: MindSpore's own function.
    """
    _lock(parent.folder)
    aside = parent.folder / f".parents.{os.getpid()}"
    _move(parent.folder, aside)
    _ProcessState.called = True
    write()
    dropped = parent.folder / f".dropped.{os.getpid()}"
    if own is None:
        with (parent.folder / FORKED).open("a", encoding="ascii") as file:
            file.write(f"{os.getpid()}\n")
    _move(parent.folder, own.folder if own is not None else dropped)
    shutil.rmtree(dropped, ignore_errors=True)
    _move(aside, parent.folder)
    shutil.rmtree(aside, ignore_errors=True)
    if own is not None:
        own.facts["ended"] = True
        own.write()


def _lock(folder: Path) -> None:
    """Let no other process of the folder write its trace until this one ends."""
    with contextlib.suppress(OSError):
        fcntl.flock(os.open(folder, os.O_RDONLY | os.O_DIRECTORY), fcntl.LOCK_EX)


def _move(source: Path, aim: Path) -> None:
    """Move the files of a trace, which lie in a folder or, with communication, in one of its rank."""
    for folder in (source, *source.glob("rank_*")):
        for name in _TRACE:
            if (folder / name).is_file():
                place = aim if folder == source else aim / folder.name
                place.mkdir(parents=True, exist_ok=True)
                (folder / name).replace(place / name)
