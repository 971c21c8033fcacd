"""Check that lines and events that are read in bulk give the same result as one by one."""

from __future__ import annotations

import json
import random
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ms_tune.errors import TraceError
from ms_tune.readers import lines, profile_export, training_log
from ms_tune.readers.lines import find_lines
from ms_tune.readers.profile_export import read_events
from ms_tune.readers.training_log import read_training_log
from tests.metrics.profiles import host_bound
from tests.readers.training_logs import dynamic_line, megatron_line, static_line

if TYPE_CHECKING:
    from ms_tune.readers.logged_steps import TrainingLog

OLD = "Epoch: {}, Step: {}, Loss: [{:.3f}], x: 1, Time: {} ms\n"
NOISE = ["nothing\n", "......Saving ckpt......\n", "==> log/worker_3.log <==\n", "\x1b[32mcoloured\x1b[0m\n", "\n"]


def lines_of(form: int, draw: random.Random) -> list[str]:
    """Draw a log of one form, with the disorder of real logs."""
    found, noise = [], draw.choice((0.0, 0.2))
    for step in range(1, draw.randrange(3, 40)):
        time = draw.choice([100, draw.randrange(1, 10**6)])
        more: dict[str, Any] = {"total": draw.choice([100, 100, 100, 7]), "norm": draw.choice([1.0, step])}
        line = [
            lambda: static_line(step, time, epoch=1 + step // 9, loss=draw.uniform(0, 12), **more),  # noqa: B023
            lambda: dynamic_line(step, time, last=draw.random() < 0.8),  # noqa: B023
            lambda: megatron_line(step, time / 10, tflops=draw.uniform(1, 999), tokens=step * 4096, **more),  # noqa: B023
            lambda: OLD.format(step // 9, step % 9 + 1, draw.uniform(0, 9), time),  # noqa: B023
        ][form]()
        prefix = draw.choice(["", "", f"[rank{step % 3}]:"]) if form == 2 else ""
        found += [prefix + line] * draw.choice([1, 1, 1, 1, 2])
        if draw.random() < noise:
            found.append(draw.choice(NOISE))
    return found


def damaged(text: str, draw: random.Random) -> str:
    for _ in range(draw.choice([0, 0, 1, 4])):
        at = draw.randrange(len(text))
        text = (
            text[:at] + draw.choice(["", "nan", "-", "1e999", "9" * 18, "\n", "٣", "/2.5", " (avg 3)"]) + text[at + 1 :]
        )
    return text


def summarise(log: TrainingLog) -> object:
    return repr((log.runs, log.damaged, log.damaged_count, log.dropped, log.orphans, log.cut_off))


@pytest.mark.slow
@pytest.mark.parametrize("form", range(4))
def test_a_log_is_read_alike_in_any_portion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: int) -> None:
    """Read a log line by line, in small portions, by byte search and by NumPy."""
    draw, path = random.Random(form), tmp_path / "train.log"  # noqa: S311 - damage, no secrets
    read = 0
    for _ in range(40):
        path.write_text(damaged("".join(lines_of(form, draw)), draw), "utf-8")
        found = set()
        for layouts, waiting, block, many in ((0, 0, 2**20, 1), (9, 5, 900, 10**6), (10**4, 10**4, 2**20, 1024)):
            with monkeypatch.context() as patch:
                patch.setattr(training_log, "_MOST_LAYOUTS", layouts)
                patch.setattr(training_log, "_MOST_WAITING", waiting)
                patch.setattr(lines, "_BLOCK", block)
                patch.setattr(lines, "_MANY", many)
                if not layouts:
                    patch.setattr(training_log, "learn_line_layout", lambda _line, _forms: None)
                    patch.setattr(training_log._TrainingLogReader, "_may_matter", lambda _self, _line: True)
                try:
                    found.add(summarise(read_training_log(path)))
                except TraceError as error:
                    found.add(error.message.id)
        assert len(found) == 1
        read += "LoggedTraining" in str(found)
    assert read > 25


def test_words_are_found_around_themselves_or_in_all_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    words, draw = (b"per_step_time", b", Time: ", b"validation loss at"), random.Random(5)  # noqa: S311 - as above
    body = b""
    while len(body) < 2**16:
        body += draw.choice([b"x", b"validation ", b"time", b"\n", b"ep_t", *words])
    expected = [
        (number, line.decode(), True)
        for number, line in zip(count(7), (body + b"\n").split(b"\n")[:-1], strict=False)
        if any(word in line for word in words)
    ]
    for many in (1, 10**6):
        monkeypatch.setattr(lines, "_BLOCK", 1024)
        monkeypatch.setattr(lines, "_MANY", many)
        assert list(find_lines(body + b"\n", 7, words)) == expected


def test_events_are_read_alike_in_any_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = host_bound().write(tmp_path)
    path = output / "trace_view.json"
    events = json.loads(path.read_text("utf-8")) * 3
    events.append(
        {"ph": "X", "name": "a}, {b\\ é", "pid": "x", "ts": "1736408883700001.5", "dur": 99, "args": {"ts": "7"}}
    )
    events.append({"ph": "X", "name": "Free", "pid": 1, "ts": 1736408883700002, "dur": "7.25"})
    events += [event | {"ts": "1736408883800001.25"} for event in events if "ts" in event]
    found = set()
    for separators in ((", ", ": "), (",", ":"), (",\n", ": ")):
        path.write_text(json.dumps(events, separators=separators, ensure_ascii=False), "utf-8")
        found.add(repr(read_events(path)))
        with monkeypatch.context() as patch:
            patch.setattr(profile_export, "_taken_together", lambda *_: False)
            found.add(repr(read_events(path)))
    assert len(found) == 1
    assert "a}, {b" in found.pop()


def test_a_time_centuries_away_is_none(tmp_path: Path) -> None:
    path = tmp_path / "trace_view.json"
    free = [{"ph": "X", "name": "Free", "pid": 1, "ts": stamp, "dur": 1} for stamp in ("5.5", "9" * 19, "6", "9" * 18)]
    for most in (1, 10**6):
        path.write_text(json.dumps(free[:most] + free), "utf-8")
        assert set(read_events(path).overlap["free"].start) <= {0.5, 1}
