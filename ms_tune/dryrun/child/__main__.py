"""The simulated training process, or with ``--fork`` what several of them are forked from."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import selectors
import signal
import socket
import sys
import warnings
from importlib import import_module
from pathlib import Path

from ms_tune.dryrun.child.hook import runtime
from ms_tune.dryrun.job import PARENT

_MESSAGE = 1 << 20
_PR_SET_PDEATHSIG = 1


def _end_with_parent(parent: int | None = None) -> None:
    # Ask the kernel to end this process with its parent (prctl(2)), even if that is killed outright; end it now if that is
    # gone. The parent may have number 1: it has in a container whose entry point it is.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    expected = str(parent) if parent is not None else os.environ.get(PARENT)
    if expected is not None and expected != str(os.getppid()):
        sys.exit(1)  # it was killed before the line above: there is nobody to tell us any more


def _serve_forks(descriptor: int) -> str | None:
    # Fork until nobody asks any more: what the processes of a job need is imported once, and each of them forked. Importing
    # MindSpore and MindFormers takes as long as a small run itself. Neither reads the rank or where the tracker writes before
    # the job begins, and no thread of theirs holds anything then: processes forked here leave the same blocks as those that
    # import for themselves (tests/dryrun/test_fork_server.py). One message a task comes in on a socket, as JSON: ``id``,
    # ``folder``, ``log``, ``environment`` (what differs from the server's own) and ``job`` (its file). Two go out: ``id`` and
    # ``pid`` when the process is there, ``id`` and ``code`` when it has ended. When the other end is closed, so is the server.
    # Each forked process is given the file of its job, the server None, when all is done.
    parent = socket.socket(fileno=descriptor)
    woken, wakes = socket.socketpair()
    for end in (woken, wakes):
        end.settimeout(0)
    signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    tasks: dict[int, int] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(parent, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while True:
            ready = [key.fileobj for key, _ in selector.select()]
            if woken in ready:
                woken.recv(_MESSAGE)
                _report_ends(parent, tasks)
            if parent in ready:
                message = parent.recv(_MESSAGE)
                if not message:
                    return None
                task = json.loads(message)
                pid = _fork_task()
                if not pid:
                    break
                tasks[pid] = task["id"]
                parent.send(json.dumps({"id": task["id"], "pid": pid}).encode())
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for end in (parent, woken, wakes):
        end.close()
    _become_task(task["folder"], task["log"], task["environment"])
    return str(task["job"])


def _fork_task() -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    server = os.getpid()
    with warnings.catch_warnings():
        # Python 3.12 warns of threads. Those that imports have left here are idle workers of OpenBLAS and Arrow, which
        # register handlers for a fork.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if not pid:
        _end_with_parent(server)
    return pid


def _report_ends(parent: socket.socket, tasks: dict[int, int]) -> None:
    for pid in list(tasks):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            parent.send(json.dumps({"id": tasks.pop(pid), "code": code}).encode())


def _become_task(folder: str, name: str, environment: dict[str, str]) -> None:
    # Be a process like one that was started for the task: group, folder, log and environment of its own. The log begins with what
    # the imports said, as it does in a process that makes them itself.
    os.setsid()
    os.chdir(folder)
    said = os.pread(1, os.fstat(1).st_size, 0)
    log = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o666)
    os.write(log, said)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.environ.update(environment)


_FORK = "--fork="


def main(module: str, job_file: str) -> None:
    """Run the job that the file describes, with the module that such jobs name."""
    _end_with_parent()
    runtime.let_watch()
    # What is imported stays. No collection of garbage looks at it while more is imported, nor does one later on, which would also
    # give each forked process a copy of the pages that it counts references in.
    gc.disable()
    run = import_module(module).run
    gc.freeze()
    gc.enable()
    mine: str | None = job_file
    if job_file.startswith(_FORK):
        mine = _serve_forks(int(job_file.removeprefix(_FORK)))
    if mine is not None:
        run(json.loads(Path(mine).read_text(encoding="utf-8")))


if __name__ == "__main__":
    main(*sys.argv[1:])
