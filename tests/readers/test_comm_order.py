from __future__ import annotations

from pathlib import Path

import pytest

from ms_tune.errors import TraceError
from ms_tune.readers.memory_block import MAX_DESCRIBED
from ms_tune.readers.runtime_log import CollectiveLaunch, read_communication_order

COMMUNICATION = (
    "index,group,comm_rank,primitive,src_rank,dest_rank,root_rank,input_shape,input_type,output_shape,output_type,"
    "input_size,output_size\n"
)
ROW = '"1","a\\"b\\\\c","0 1","AllReduce","","","","(256, 4)","Float32","(256, 4)","Float32","4096","8192"\n'


def test_backslash_escapes(tmp_path: Path) -> None:
    path = tmp_path / "comm_execute_order.csv"
    path.write_text(COMMUNICATION + ROW + '"2","cut\n' + ROW.replace('"4096"', '"many"'))
    order = read_communication_order(path)
    assert order.collectives == (CollectiveLaunch('a"b\\c', (0, 1)),)
    assert [row.line for row in order.dropped] == [3, 4]
    with pytest.raises(TraceError):
        read_communication_order(tmp_path / "absent")


def test_refused_rows_are_counted_and_the_first_are_named(tmp_path: Path) -> None:
    path = tmp_path / "comm_execute_order.csv"
    path.write_text(COMMUNICATION + "1,2\n" * 3 + ROW)
    order = read_communication_order(path)
    assert (order.dropped_count, [row.line for row in order.dropped], len(order.collectives)) == (3, [2, 3, 4], 1)
    path.write_text(COMMUNICATION + "1,2\n" * (MAX_DESCRIBED + 2))
    order = read_communication_order(path)
    assert (order.dropped_count, len(order.dropped)) == (MAX_DESCRIBED + 2, MAX_DESCRIBED)
    path.write_text("\n" + COMMUNICATION.replace("primitive", "other"))
    with pytest.raises(TraceError) as expected:
        read_communication_order(path)
    assert expected.value.line == 2


def test_as_many_digits_as_are_read(tmp_path: Path) -> None:
    path = tmp_path / "comm_execute_order.csv"
    path.write_text(COMMUNICATION + ROW.replace("0 1", f"{'1'.zfill(18)} 2") + ROW.replace("0 1", f"{'1'.zfill(19)} 2"))
    order = read_communication_order(path)
    assert ([one.ranks for one in order.collectives], [row.line for row in order.dropped]) == ([(1, 2)], [3])
