"""Test notes on a terminal and for programs."""

from __future__ import annotations

import fcntl
import io
import os
import struct
import sys
import termios
from contextlib import suppress

import pytest

from ms_tune.errors import UsageError
from ms_tune.report.console import Console, fold, text_width, wrap
from ms_tune.text import Language, msg

ERROR = UsageError(msg("lint.empty-glob", pattern="train.yaml " * 12), msg("cli.usage.hint", program="ms-tune " * 9))


@pytest.mark.parametrize("language", Language)
def test_errors_are_folded_on_a_terminal(language: Language, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.openpty()
    fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    monkeypatch.setenv("NO_COLOR", "1")
    with os.fdopen(writer, "w", encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        Console(language).fail(ERROR)
        monkeypatch.undo()
    shown = b""
    with suppress(OSError):  # how the end of a closed terminal is told
        while part := os.read(reader, 1 << 16):
            shown += part
    os.close(reader)
    lines = shown.decode().splitlines()
    assert len(lines) > 2
    assert max(map(text_width, lines)) <= 80


def test_programs_get_a_line_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("COLUMNS", "80")
    Console(Language.EN).fail(ERROR)
    assert len(stream.getvalue().splitlines()) == 2


def test_no_chinese_word_is_broken_where_its_phrase_fits_the_line() -> None:
    text = "MindFormers 会从 config.json 读取层数；请用 --layers 指定“层数”，这样流水线的每个阶段都知道自己的微批次数。"
    phrases = ("会从", "读取层数；", "请用", "指定", "“层数”，", "这样流水线的每个阶段都知道自己的微批次数。")
    for width in range(44, 120):
        lines = wrap(text, width, prose=True)
        assert max(map(text_width, lines)) <= width
        assert "".join(lines).replace(" ", "") == text.replace(" ", "")
        assert all(any(phrase in line for line in lines) for phrase in phrases), (width, lines)


def test_a_command_stays_whole_below_its_sentence() -> None:
    command = "ms-tune lint --fix=unsafe some/long/path/of/a/config.yaml"
    assert fold(f"suggestion: review the change first: {command}", 60) == [
        "suggestion: review the change first:",
        f"  {command}",
    ]
    assert fold(f"next: {command}", 40) == [f"next: {command}"]
