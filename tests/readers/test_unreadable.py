"""Test unreadable files: every reader names the file and the system's own error, once."""

from __future__ import annotations

import errno
import gzip
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from ms_tune.errors import TraceError
from ms_tune.memory.plan import read_placement_csv
from ms_tune.readers.folder import find_trace
from ms_tune.readers.memlog import read_memlog
from ms_tune.readers.plain_pickle import is_snapshot, read_plain
from ms_tune.readers.recompute_log import read_recompute_log
from ms_tune.readers.runtime_log import read_communication_order, read_runtime_log
from ms_tune.readers.tensors import read_tensor_list, read_tracker_graph
from ms_tune.readers.tracker_tables import read_block_table, read_tasks
from ms_tune.text import msg

READERS = (
    read_block_table,
    read_communication_order,
    read_memlog,
    read_placement_csv,
    read_recompute_log,
    read_runtime_log,
    read_tasks,
    read_tensor_list,
    read_tracker_graph,
)
DENIED = OSError(errno.EACCES, os.strerror(errno.EACCES), "/the/name/of/the/file")


def failing(error: OSError) -> Callable[..., object]:
    def fail(*_: object, **__: object) -> object:
        raise error

    return fail


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(("error", "detail"), [(DENIED, msg("cli.os.eacces")), (OSError("damaged"), "damaged")])
def test_a_file(
    reader: Callable[[Path], object], error: OSError, detail: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_text("x")
    monkeypatch.setattr("ms_tune.source.files.open", failing(error), raising=False)
    with pytest.raises(TraceError) as caught:
        reader(path)
    assert (caught.value.path, caught.value.message.params["detail"]) == (path, detail)


@pytest.mark.parametrize(("error", "detail"), [(DENIED, msg("cli.os.eacces")), (OSError("damaged"), "damaged")])
def test_a_folder(error: OSError, detail: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "iterdir", failing(error))
    with pytest.raises(TraceError) as caught:
        find_trace(tmp_path)
    assert (caught.value.path, caught.value.message.params["detail"]) == (tmp_path, detail)


def test_what_is_packed_is_reported_how_to_be_unpacked(tmp_path: Path) -> None:
    blocks = tmp_path / "packed" / "memory_block.csv"
    blocks.parent.mkdir()
    blocks.write_bytes(gzip.compress(b"start_time_stamp,end_time_stamp\n"))
    beside = tmp_path / "beside"
    beside.mkdir()
    (beside / "memory_block.csv.gz").write_bytes(blocks.read_bytes())
    readers: tuple[tuple[Callable[[Path], object], Path, Path], ...] = (
        (read_block_table, blocks, blocks),
        (find_trace, beside, beside / "memory_block.csv.gz"),
    )
    for read, path, named in readers:
        with pytest.raises(TraceError) as raised:
            read(path)
        assert raised.value.hint == msg("trace.packed.hint", path=named)


def test_a_packed_snapshot_is_one(tmp_path: Path) -> None:
    path = tmp_path / "dump.gz"
    whole = gzip.compress(pickle.dumps({"segments": []}))
    path.write_bytes(whole)
    assert is_snapshot(path)
    path.write_bytes(whole[:10])  # cut off before its first byte
    assert not is_snapshot(path)


@pytest.mark.slow
def test_a_packed_pickle_may_not_unpack_to_gigabytes(tmp_path: Path) -> None:
    """30 million empty mappings in 30 kB would take 2 GB; real snapshots unpack to at most 20 times their size."""
    path = tmp_path / "small.pickle.gz"
    path.write_bytes(gzip.compress(b"\x80\x04](" + b"}" * 30_000_000 + b"e."))
    with pytest.raises(TraceError) as caught:
        read_plain(path, lambda content, _size: content)
    assert caught.value.message.id == "snapshot.unpacks"
