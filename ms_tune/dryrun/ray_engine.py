"""Run tasks on a Ray cluster: each task is a Ray task, and Ray repeats it elsewhere if its worker is lost.

The machines share only Ray. A task contains the texts that its process needs, the executing machine finds or builds its own
CANN, and the process's output files are returned compressed. Only a user's own command needs more: its working folder, on a
file system that the machines share.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ms_tune.dryrun.cann_sim.environment import find_mindspore, prepare_cann
from ms_tune.dryrun.launcher import ProcessEnd, start_program, watch_programs
from ms_tune.dryrun.task import Task, TaskState, child_of, write_files
from ms_tune.errors import MsTuneError, RunError
from ms_tune.extras import need
from ms_tune.text import msg

_RETRIES = 3  # for a task whose worker was lost; a process that fails is not repeated
_POLL_SECONDS = 0.2
_CONNECT_SECONDS, _ANSWER_SECONDS = 5.0, 8.0
_LOOPBACK = "127.0.0.1"
# A local Ray listens only on loopback and has no dashboard.
_OWN: dict[str, Any] = {"include_dashboard": False, "_node_ip_address": _LOOPBACK}
_ADDRESSES = ("resolve_ip_for_localhost", "get_node_ip_address")
_SCRATCH = re.compile(r"ms-tune-ray-(\d{1,10})-.+")


@dataclass(frozen=True, slots=True)
class BroughtFiles:
    """The results returned by a worker."""

    ended: ProcessEnd | MsTuneError  # how the process ended, or why it could not be run
    files: dict[str, bytes]  # its output files, compressed, by relative path


def run_task(task: Task) -> BroughtFiles:
    """Run a task in a separate folder on this machine, as a Ray worker."""
    _remove_leftovers()
    with tempfile.TemporaryDirectory(prefix=f"ms-tune-ray-{os.getpid()}-") as scratch:
        folder = Path(scratch) / task.folder
        try:
            if task.command and not Path(task.working_folder).is_dir():
                where = {"folder": task.working_folder, "host": os.uname().nodename}
                raise RunError(msg("dryrun.ray.no-folder", **where), msg("dryrun.ray.no-folder.hint"))
            cann = prepare_cann(find_mindspore(), lambda _: None)
            write_files(task, folder)
            with watch_programs() as watch:
                running = start_program(child_of(task, folder, cann))
                watch.running.append(running)
                while (ended := running.end_if_over()) is None:
                    watch.wait_briefly()
        except MsTuneError as error:
            return BroughtFiles(error, {})
        files = {
            str(path.relative_to(folder)): zlib.compress(path.read_bytes(), 1)
            for path in sorted(folder.rglob("*"))
            if path.is_file() and str(path.relative_to(folder)) not in task.files
        }
        return BroughtFiles(ended, files)


def _remove_leftovers() -> None:
    for folder in Path(tempfile.gettempdir()).iterdir():
        match = _SCRATCH.fullmatch(folder.name)
        if match and not Path(f"/proc/{match[1]}").exists() and folder.lstat().st_uid == os.getuid():
            shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class RayEngine:
    """An engine that runs tasks on the cluster of ``RAY_ADDRESS``, or on a local Ray."""

    jobs: int | None  # tasks at once; None for as many as the cluster has resources for

    def run(
        self,
        tasks: Sequence[Task],
        folder: Path,
        on_state: Callable[[Task, TaskState], None],
        on_end: Callable[[Task, ProcessEnd], None],
    ) -> None:
        """Run all tasks; see :meth:`ms_tune.dryrun.local_engine.LocalEngine.run`."""
        ray = connect_ray()
        remote = ray.remote(max_retries=_RETRIES, retry_exceptions=False)(run_task)
        waiting, begin = list(tasks), time.monotonic()
        pending: dict[Any, Task] = {}
        try:
            while waiting or pending:
                while waiting and (self.jobs is None or len(pending) < self.jobs):
                    task = waiting.pop(0)
                    bound = remote.options(name=f"ms-tune {task.folder}", num_cpus=1, memory=task.host_bytes)
                    pending[bound.remote(task)] = task
                done, _ = ray.wait(list(pending), num_returns=1, timeout=_POLL_SECONDS)
                for task in pending.values():
                    on_state(task, TaskState("remote", 0, 0, None, time.monotonic() - begin))
                for reference in done:
                    task = pending.pop(reference)
                    try:
                        brought: BroughtFiles = ray.get(reference)
                    except ray.exceptions.RayError as error:
                        lost = msg("stages.ray.lost", task=task.folder, detail=type(error).__name__)
                        raise RunError(lost) from error
                    on_end(task, unpack_result(brought, task, folder / task.folder))
        finally:
            for reference in pending:
                ray.cancel(reference, force=False)


def connect_ray() -> Any:  # noqa: ANN401 - the module of an optional package
    """Return the module ``ray``, connected to a cluster."""
    need("ms-tune dryrun --engine ray", "dryrun,ray", "ray")
    import ray  # noqa: PLC0415 - an optional package that takes a second to import

    if ray.is_initialized():
        return ray
    address = os.environ.get("RAY_ADDRESS")
    own = address in {None, "", "local"}
    if not own and address not in {None, "auto"}:
        _check_address(str(address))
    try:
        with _loopback_only() if own else contextlib.nullcontext():
            ray.init(
                address="local" if own else address, log_to_driver=False, logging_level="ERROR", **_OWN if own else {}
            )
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise RunError(msg("stages.ray.unreachable", address=address or "local", detail=str(error))) from error
    return ray


@contextlib.contextmanager
def _loopback_only() -> Iterator[None]:
    # Keep Ray from listening on every interface: it uses this machine's public address even if given the loopback one.
    # ``ray.init`` passes ``_node_ip_address`` to ``services.resolve_ip_for_localhost`` (Ray 2.9 to 2.60, _private/worker.py).
    from ray._private import services  # noqa: PLC0415 - as in connect_ray()

    kept = {name: getattr(services, name) for name in _ADDRESSES if hasattr(services, name)}
    try:
        for name in kept:
            setattr(services, name, lambda *_, **__: _LOOPBACK)
        yield
    finally:
        for name, function in kept.items():
            setattr(services, name, function)


def _check_address(address: str) -> None:
    # Raise :class:`RunError` unless a cluster answers at an address; Ray itself retries for minutes.
    host, _, port = address.rpartition("://")[2].rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except (OSError, ValueError, OverflowError) as error:
        raise RunError(msg("stages.ray.unreachable", address=address, detail=str(error))) from error
    if "://" not in address and not _is_ray(address):
        raise RunError(msg("stages.ray.unreachable", address=address, detail=msg("stages.ray.silent")))


def _is_ray(address: str) -> bool:
    # Return whether the endpoint is a Ray cluster (True if it cannot be queried).
    try:
        from ray._raylet import GcsClient  # noqa: PLC0415 - as in connect_ray()
    except ImportError:
        return True
    answered = threading.Event()

    def query() -> None:
        with contextlib.suppress(Exception):
            GcsClient(address=address).internal_kv_exists(b"ms-tune", None, timeout=_ANSWER_SECONDS)
            answered.set()

    threading.Thread(target=query, daemon=True).start()  # the call cannot be cancelled
    return answered.wait(_ANSWER_SECONDS)


def unpack_result(brought: BroughtFiles, task: Task, folder: Path) -> ProcessEnd:
    """Write the files that a worker returned to the task's folder, and return how the process ended."""
    if isinstance(brought.ended, MsTuneError):
        raise brought.ended
    write_files(task, folder)
    for name, content in brought.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(zlib.decompress(content))
    return brought.ended
