"""Run the simulated training process, or with ``--fork`` the server from which several are forked."""

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
    # Ask the kernel to end this process with its parent (prctl(2)), even if that is killed by SIGKILL; end it now if
    # the parent is gone. The parent may have number 1, as the entry point of a container has.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    expected = str(parent) if parent is not None else os.environ.get(PARENT)
    if expected is not None and expected != str(os.getppid()):
        sys.exit(1)  # the parent was killed before the line above, so the kernel will not signal us


def _serve_forks(descriptor: int) -> str | None:
    # Fork processes until the socket is closed: the modules that a job's processes need are imported once, and each
    # process is forked. Importing MindSpore and MindFormers takes as long as a small run. Neither reads the rank or the
    # tracker's path before the job begins, and none of their threads has a lock then: forked processes leave the same
    # blocks as those that import for themselves (tests/dryrun/test_fork_server.py). Each task comes as one JSON message
    # on a socket: ``id``, ``folder``, ``log``, ``environment`` (the differences from the server's own) and ``job`` (its
    # file). Two messages answer it: ``id`` and ``pid`` once the process exists, ``id`` and ``code`` once it has ended.
    # The server ends when the other end is closed. Returns the job file in each forked process, None in the server.
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
        # Python 3.12 warns about threads. Those left by the imports are idle workers of OpenBLAS and Arrow, which
        # register fork handlers.
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
    # Make this process like one that was started for the task: its own process group, folder, log and environment. The
    # log begins with the output of the imports, as in a process with its own imports.
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
    """Run the job that a file describes, with the module for its kind of job."""
    _end_with_parent()
    runtime.let_watch()
    # Imported objects stay alive. Garbage collection skips them during the imports and later: it would also give each
    # forked process its own copy of the pages with their reference counts.
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
