"""Read damaged and hostile snapshots and logs: a clear error or an answer, within a time limit.

``MS_TUNE_FUZZ=10000`` sets the number of each kind; the default is a few.
"""

from __future__ import annotations

import os
import pickle
import time
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ms_tune.errors import MsTuneError
from ms_tune.footprint.torch_report import analyse_snapshot
from ms_tune.memory.what_if import TorchWhatIfRequest, replay_snapshot
from ms_tune.readers.oom_log import Cause, read_memory_failures
from ms_tune.units import MIB
from tests.fuzz.mutations import mutated
from tests.memory.test_oom import CUDA, ENOUGH, STATISTICS, TRACEBACK
from tests.memory.test_oom import NPU as NPU_TEXT
from tests.pools.test_torch_replay import NPU, NPU_EXPANDABLE
from tests.pools.torch_recordings import Program

CASES = int(os.environ.get("MS_TUNE_FUZZ", "60"))
_SECONDS = 10.0  # for one small file, on a busy machine
VALUES: list[Any] = [
    *(0, 1, -1, 511, 512, 2 * MIB, 20 * MIB, 1 << 40, 1 << 62, 1 << 63, 1 << 70, 1.5, None, True, "", "alloc", b"x"),
    *("free_completed", "segment_map", "segment_unmap", "segment_free", "segment_alloc", "oom", [], {}, [{}], [[]]),
]


def small(seed: int) -> dict[str, Any]:
    return Program(NPU_EXPANDABLE if seed % 2 else NPU, seed=seed).run(1, emptied=seed % 3 == 0).snapshot()


def changed(random: Random, content: dict[str, Any]) -> dict[str, Any]:
    """Change some values; remove, duplicate or move some events."""
    events = [dict(event) for event in content["device_traces"][0]]
    segments = [{**segment, "blocks": [dict(b) for b in segment["blocks"]]} for segment in content["segments"]]
    for _ in range(random.choice([1, 1, 2, 5])):
        kind = random.randrange(6)
        if kind == 0 and events:
            del events[random.randrange(len(events))]
        elif kind == 1 and events:
            events.insert(random.randrange(len(events)), dict(random.choice(events)))
        elif kind == 2 and events:
            event = random.choice(events)
            event[random.choice(list(event))] = random.choice(VALUES)
        elif kind == 3 and segments:
            segment = random.choice(segments)
            segment[random.choice(list(segment))] = random.choice(VALUES)
        elif kind == 4 and (
            blocks := [each for each in segments if isinstance(each.get("blocks"), list) and each["blocks"]]
        ):
            block = random.choice(random.choice(blocks)["blocks"])
            if not isinstance(block, dict) or not block:
                continue
            block[random.choice(list(block))] = random.choice(VALUES)
        elif events:
            event, other = random.choice(events), random.choice(events)
            key = random.choice(["addr", "size", "stream", "action"])
            event[key] = other.get(key, 0)
    return {"segments": segments, "device_traces": [events]}


def look(path: Path) -> bool:
    """Return whether there was a result, and check its consistency."""
    began = time.monotonic()
    answered = False
    with suppress(MsTuneError):
        report = analyse_snapshot(path, None, None, lambda _what, _share: None)
        assert report.requested_peak_bytes == sum(place.bytes for place in report.contents) or report.replay.is_exact
        assert report.replay.is_exact == (report.replay.differences == 0)
        reported = report.replay.is_exact and len(report.device.events) > 0
        assert reported == (report.peak_bytes is not None) == (report.refused_because is None)
        replay_snapshot(path, TorchWhatIfRequest(expandable=True, limit=64 * MIB), lambda _what, _share: None)
        answered = True
    assert time.monotonic() - began < _SECONDS
    return answered


@pytest.mark.parametrize("part", range(4))
def test_snapshots(part: int, tmp_path: Path) -> None:
    random = Random(part)  # noqa: S311 - cases of a test
    path = tmp_path / "snapshot.pickle"
    whole = small(part)
    data = pickle.dumps(whole, protocol=4)
    answers = []
    for case in range(max(8, CASES // 4)):
        path.write_bytes(pickle.dumps(changed(random, whole)) if case % 2 else mutated(data, random))
        answers.append(look(path))
    assert (any(answers), all(answers)) == (True, False)


def test_an_array_of_bytes_that_is_not_there_is_refused_without_a_word_of_the_interpreter(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "snapshot.pickle"
    for size in (3, 300_000, 1 << 31, *[1 << 40] * 300):
        # Freed memory that contained a count of exports: CPython reads it where the array finds no memory.
        freed = [memoryview(bytearray(3)) for _ in range(50)]
        del freed
        path.write_bytes(b"\x80\x05\x96" + size.to_bytes(8, "little") + b"abc" * 1000)
        assert not look(path)
    assert capfd.readouterr() == ("", "")


SHORT = (  # 4 GiB wanted, 1 GiB free and 1 GiB cached
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of 23.65 GiB of "
    "which 1.00 GiB is free. Including non-PyTorch memory, this process has 22.00 GiB memory in use. Of the allocated "
    "memory 20.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated.\n"
)


def test_logs(tmp_path: Path) -> None:
    random = Random(7)  # noqa: S311 - cases of a test
    texts = [
        TRACEBACK,
        NPU_TEXT.format(used="58.1"),
        CUDA,
        STATISTICS.format(peak=5),
        ENOUGH,
        SHORT,
        "halMemAlloc failed: size=5\n",
    ]
    lines = [line for text in texts for line in text.splitlines(keepends=True)]
    path = tmp_path / "run.log"
    causes = set()
    for _ in range(CASES):
        chosen = "".join(random.choice(lines) for _ in range(random.randrange(1, 12))).encode()
        path.write_bytes(mutated(chosen, random) if random.random() < 0.7 else chosen)
        began = time.monotonic()
        with suppress(MsTuneError):
            for found in read_memory_failures([path]).failures:
                assert found.short_bytes is None or found.short_bytes >= 0
                assert found.outside_bytes is None or found.outside_bytes >= 0
                causes.add(found.cause)
        assert time.monotonic() - began < _SECONDS
    assert causes >= {Cause.FRAGMENTATION, Cause.SHORTAGE, Cause.UNKNOWN}
