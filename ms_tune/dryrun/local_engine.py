"""Choose the engine that runs a job's processes, and run them on this machine, several at once."""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import socket
import subprocess
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from ms_tune.dryrun import machine, ray_engine
from ms_tune.dryrun.cann_sim.environment import Cann
from ms_tune.dryrun.job import PARENT
from ms_tune.dryrun.launcher import (
    LOG,
    ChildProcess,
    ProcessEnd,
    ProcessWatch,
    RunningProcess,
    start_program,
    watch_programs,
)
from ms_tune.dryrun.task import Observer, Task, TaskState, child_of, state_of, write_files
from ms_tune.errors import RunError, reason_of
from ms_tune.text import msg

_REPORT_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """An engine that runs tasks on this machine."""

    cann: Cann  # the CANN to use
    jobs: int  # processes that run at once

    def run(
        self,
        tasks: Sequence[Task],
        folder: Path,
        on_state: Callable[[Task, TaskState], None],
        on_end: Callable[[Task, ProcessEnd], None],
    ) -> None:
        """Run all tasks, several at once; if interrupted, no process is left running.

        Each task has its own folder below the run folder, which contains all its output afterwards. ``on_state`` is called
        regularly with a task's state, ``on_end`` with the end of each; their exceptions end the run.
        """
        # The tasks that need most memory start first, so that the last one to end is a small one.
        waiting = deque(sorted(tasks, key=lambda task: -task.host_bytes))
        running: dict[str, tuple[Task, RunningProcess]] = {}
        reported = 0.0
        with contextlib.ExitStack() as last, watch_programs() as watch:
            children = {task.folder: child_of(task, folder / task.folder, self.cann) for task in tasks}
            processes = _TaskProcesses(children, folder, watch, last)
            while waiting or running:
                while waiting and len(running) < self.jobs:
                    task = waiting.popleft()
                    running[task.folder] = (task, processes.start(task))
                if time.monotonic() - reported >= _REPORT_SECONDS:
                    reported = time.monotonic()
                    for task, process in running.values():
                        on_state(task, state_of(folder / task.folder, process.elapsed))
                watch.wait_briefly()
                for task, process in list(running.values()):
                    ended = process.end_if_over()
                    if ended is not None:
                        watch.running.remove(process)
                        del running[task.folder]
                        on_end(task, ended)


@dataclass(slots=True)
class _TaskProcesses:
    """The processes of tasks; those with the same imports are forked from one server."""

    children: Mapping[str, ChildProcess]  # the process of each task, by its folder
    folder: Path  # the run folder
    watch: ProcessWatch  # ends all remaining processes
    last: contextlib.ExitStack  # called at the end
    servers: dict[tuple[str, ...], ForkServer] = field(default_factory=dict)  # by the imports of the server

    def start(self, task: Task) -> RunningProcess:
        child = self.children[task.folder]
        try:
            write_files(task, child.folder)
            running = self._fork_child(child) or start_program(child)
        except OSError as error:
            raise RunError(msg("dryrun.run.not-started", folder=child.folder, detail=reason_of(error))) from error
        self.watch.running.append(running)
        return running

    def _fork_child(self, child: ChildProcess) -> RunningProcess | None:
        # Return a process of the server for such children; None if it would be the only one.
        imports = shared_imports(child)
        if imports is None or Counter(map(shared_imports, self.children.values()))[imports] == 1:
            return None
        if imports not in self.servers:
            server = ForkServer.start(child, self.folder)
            self.servers[imports] = server
            self.last.callback(server.close)
            self.watch.running.append(RunningProcess(server.process, math.inf))
        return self.servers[imports].fork(child)


# Variables that differ between ranks; neither MindSpore nor MindFormers reads them before a job begins.
_OF_ONE_RANK = ("RANK_ID", "RANK_SIZE", "MS_ALLOC_CONF")
_MESSAGE = 1 << 16
_MOST_LOG = 1 << 20


def shared_imports(child: ChildProcess) -> tuple[str, ...] | None:
    """Return the command and environment that children must share to be forked by one server; None for other programs."""
    if not child.is_child:
        return None
    common = sorted(f"{name}={value}" for name, value in child.environment.items() if name not in _OF_ONE_RANK)
    return (*child.command[:-1], *common)


@dataclass(slots=True, eq=False)
class _ForkedProcess:
    # A forked process with the interface of `subprocess.Popen`.
    server: ForkServer
    folder: Path
    own_pid: int | None = None
    returncode: int | None = None

    @property
    def pid(self) -> int:
        return self.own_pid or self.server.process.pid  # until the process has reported its ID, that of its server

    def poll(self) -> int | None:
        self.server.read_messages()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        while self.poll() is None:
            ready, _, _ = select.select([self.server.socket], [], [], timeout)
            if not ready:
                raise subprocess.TimeoutExpired(str(self.folder), timeout or 0)
        return self.returncode or 0


@dataclass(slots=True)
class ForkServer:
    """A process that has run the imports of others, and is forked for each (``child/__main__.py``)."""

    process: subprocess.Popen[bytes]
    socket: socket.socket  # our end of the connection
    output: IO[bytes]  # its output
    # Its processes, in the order of the requests.
    forked: list[_ForkedProcess] = field(default_factory=list)

    @classmethod
    def start(cls, like: ChildProcess, folder: Path) -> ForkServer:
        """Start a server for processes like this one; OSError if it cannot be started."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        said = tempfile.TemporaryFile("w+b", dir=folder)  # noqa: SIM115 - open as long as the server
        ours.settimeout(0)
        environment = {name: value for name, value in like.environment.items() if name not in _OF_ONE_RANK}
        with theirs:
            process = subprocess.Popen(
                [*like.command[:-1], f"--fork={theirs.fileno()}"],
                env=environment | {PARENT: str(os.getpid())},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=(theirs.fileno(),),
            )
        return cls(process, ours, said)

    def fork(self, child: ChildProcess) -> RunningProcess:
        """Request another process."""
        forked = _ForkedProcess(self, child.folder)
        message = {
            "id": len(self.forked),
            "folder": str(child.folder),
            "log": LOG,
            "environment": {name: child.environment[name] for name in _OF_ONE_RANK},
            "job": child.command[-1],
        }
        self.forked.append(forked)
        try:
            self.socket.send(json.dumps(message).encode())
        except OSError:
            self._lost()
        return RunningProcess(forked, child.timeout)

    def read_messages(self) -> None:
        """Read its messages about its processes."""
        while True:
            try:
                message = self.socket.recv(_MESSAGE)
            except BlockingIOError:
                return
            except OSError:
                message = b""
            if not message:
                self._lost()
                return
            facts = json.loads(message)
            one = self.forked[facts["id"]]
            one.own_pid, one.returncode = facts.get("pid", one.own_pid), facts.get("code", one.returncode)

    def close(self) -> None:
        """Let the server end."""
        self.socket.close()
        self.output.close()

    def _lost(self) -> None:
        # The server has ended with its processes. Those that did not start get its log, which shows the reason.
        code = self.process.wait()
        for one in self.forked:
            if one.returncode is not None:
                continue
            one.returncode = code or 1
            if one.own_pid is None:
                self.output.seek(0)
                (one.folder / LOG).write_bytes(self.output.read(_MOST_LOG))


_RAY = "ray"


def connect_engine(engine: str, observer: Observer) -> None:
    """Check that the engine is reachable before the long work begins."""
    if engine == _RAY:
        observer.say(msg("stages.ray.connecting"))
        ray_engine.connect_ray()


def engine_for(engine: str, tasks: Sequence[Task], cann: Cann, jobs: int | None) -> LocalEngine | ray_engine.RayEngine:
    """Return the engine of this name, one of ``ENGINES``; it runs ``jobs`` processes at once, or the number that fits."""
    if engine == _RAY:
        return ray_engine.RayEngine(jobs)
    return LocalEngine(cann, machine.processes_at_once([task.host_bytes for task in tasks], jobs))
