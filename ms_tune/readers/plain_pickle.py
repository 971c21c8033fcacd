"""Unpickle untrusted files: only plain containers, without looking up any class, with limits on size and memory."""

from __future__ import annotations

import gc
import gzip
import pickle
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NoReturn, TypeVar, cast

from ms_tune.errors import TraceError
from ms_tune.readers.lines import GZIP, reading
from ms_tune.source.files import open_bytes
from ms_tune.text import msg
from ms_tune.units import GIB, MIB

try:
    import resource
except ModuleNotFoundError:  # not on every system
    resource = None  # type: ignore[assignment]

Result = TypeVar("Result")

MOST_BYTES = 2 * GIB  # limit of a file, unpacked
_MEMORY_PER_BYTE, _MEMORY_LEAST = 40, GIB  # memory limit for reading: containers need up to about 40 times the file
_MOST_TEXT = 1000
_SMALL, _MOST_RATIO = 4 * MIB, 100  # unpacked bytes of any file, and by packed byte: real snapshots have up to 20
_PICKLE = b"\x80"
_PACKED_PICKLES = (_PICKLE, b"(", b"}", b"]")  # first bytes of pickles, also of protocols 0 and 1, but not of logs
_RANK_IN_NAME = re.compile(r"rank[_-]?(\d{1,6})|[_-](\d{1,6})\.(?:pickle|pkl)(?:\.gz)?$", re.IGNORECASE)
_SUFFIXES = (".pickle", ".pkl", ".pickle.gz", ".pkl.gz")


def is_snapshot(path: Path) -> bool:
    """Return whether a path names a file that is, or seems to be, a snapshot of PyTorch's allocator."""
    if not path.is_file():
        return False
    if path.name.lower().endswith(_SUFFIXES):
        return True
    try:
        with open_bytes(path) as file:
            head = file.read(2)
            if head == GZIP:
                file.seek(0)
                return gzip.GzipFile(fileobj=file).read(1) in _PACKED_PICKLES
    except (OSError, EOFError, zlib.error):
        return False
    return head[:1] == _PICKLE


def find_snapshots(folder: Path) -> dict[int, Path]:
    """Return the newest snapshot of each rank in a folder: the last by its name, which has the rank and mostly the time.

    HyperParallel's are ``snapshot_<time>_<rank>.pickle`` (``runtime/memory_profiler.py`` at 55b52225), torchtitan's
    ``rank<r>_memory_snapshot.pickle``.
    """
    named = ((path, _RANK_IN_NAME.search(path.name)) for path in sorted(folder.iterdir()) if is_snapshot(path))
    return {int(found[1] or found[2]): path for path, found in named if found is not None}


def read_plain(path: Path, read: Callable[[object, int], Result]) -> Result:
    """Return the result of a function that gets the content of a pickle of plain containers and its size in bytes.

    The file may be packed with gzip. The memory limit applies to the function, too.
    """
    try:
        with reading(path), open_bytes(path) as file:
            packed = file.read(2) == GZIP
            file.seek(0)
            size = path.stat().st_size
            if size > MOST_BYTES:
                raise refusal_of_pickle(text="snapshot.too-large", path=path, most=MOST_BYTES // MIB)
            source = _Unpacked(file, path, size) if packed else file
            with _bounded_memory(_MEMORY_LEAST + _MEMORY_PER_BYTE * size * (8 if packed else 1)), no_collection():
                content = [_load_plain(cast("BinaryIO", source), path)]
                # Pass the content without keeping a reference, so that the function can free parts that it has read.
                return read(content.pop(), source.count if isinstance(source, _Unpacked) else size)
    except MemoryError:
        raise refusal_of_pickle(text="snapshot.memory", path=path) from None


def refusal_of_pickle(*, text: str, path: Path, **params: object) -> TraceError:
    """Return the error for a file that is not a snapshot."""
    return TraceError(msg(text, **params), msg("snapshot.hint"), path=path)


class _Unpacked:
    """A packed file as the unpickler reads it, up to :data:`MOST_BYTES` and a multiple of the packed ``size``."""

    def __init__(self, file: BinaryIO, path: Path, size: int) -> None:
        self._file, self._path = gzip.GzipFile(fileobj=file), path
        self._most = min(MOST_BYTES, _SMALL + _MOST_RATIO * size)
        self.count = 0

    def read(self, size: int) -> bytes:
        return self._count_bytes(self._file.read(min(size, self._most - self.count + 1)))

    def peek(self, size: int) -> bytes:  # without it, the unpickler calls `read` for each byte of a code
        return self._file.peek(size)

    def readline(self) -> bytes:
        return self._count_bytes(self._file.readline(self._most - self.count + 1))

    def _count_bytes(self, data: bytes) -> bytes:
        self.count += len(data)
        if self.count > self._most:
            raise refusal_of_pickle(text="snapshot.unpacks", path=self._path, most=self._most // MIB)
        return data


class _Plain(pickle.Unpickler):
    """Unpickler of numbers, texts, lists, tuples and dictionaries; it rejects everything else."""

    def find_class(self, module: str, name: str, /) -> NoReturn:
        message = f"{module}.{name}"[:_MOST_TEXT]
        raise pickle.UnpicklingError(message)

    def persistent_load(self, pid: object, /) -> NoReturn:
        message = f"persistent id {type(pid).__name__}"
        raise pickle.UnpicklingError(message)


def _load_plain(file: BinaryIO, path: Path) -> object:
    try:
        with _silence_interpreter():
            return _Plain(file).load()
    except (OSError, MemoryError, TraceError):
        raise
    except Exception as error:  # noqa: BLE001 - a damaged pickle may raise anything
        detail = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise refusal_of_pickle(text="snapshot.not-plain", path=path, detail=detail) from None


@contextmanager
def _silence_interpreter() -> Iterator[None]:
    # Hide a message of the interpreter: if an array of bytes gets no memory, CPython (3.11,
    # `PyByteArray_FromStringAndSize`) frees one with an uninitialized count of exports, and may print a SystemError in
    # addition to the MemoryError that it raises.
    before = sys.excepthook
    sys.excepthook = lambda kind, error, trace: None if kind is SystemError else before(kind, error, trace)
    try:
        yield
    finally:
        sys.excepthook = before


@contextmanager
def _bounded_memory(most: int) -> Iterator[None]:
    # A pickle of ten bytes may request tens of gigabytes. Only Linux can limit the memory.
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - not a user's file
            now = int(file.read().split()[0]) * resource.getpagesize()
        before = resource.getrlimit(resource.RLIMIT_AS)
    except (AttributeError, OSError):
        yield
        return
    limit = now + most
    for present in before:
        limit = limit if present == resource.RLIM_INFINITY else min(limit, present)
    resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@contextmanager
def no_collection() -> Iterator[None]:
    """Disable garbage collection within: millions of containers are created, none in a cycle."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
