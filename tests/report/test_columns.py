"""Test plain tables and the screen: aligned by display width, as wide as the terminal, without loss of text."""

from __future__ import annotations

import fcntl
import io
import os
import struct
import sys
import termios
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_tune.errors import UsageError
from ms_tune.report.console import Console, fold, pad, table_lines, text_width, wrap
from ms_tune.text import Language, msg

TEXTS = st.text(st.sampled_from("ab层重 "), max_size=30).map(lambda text: " ".join(text.split()))
ROWS = st.lists(st.tuples(TEXTS, TEXTS, TEXTS), min_size=1, max_size=5)


def test_a_table_to_the_letter() -> None:
    rows = [("1", "full recompute", "", "x"), ("20", "重计算", "", "")]
    assert list(table_lines(["layer", "does", "empty", "more"], rows, right=range(1), width=80)) == [
        "layer  does            more",
        "───────────────────────────",
        "    1  full recompute  x",
        "   20  重计算",
    ]


def test_what_is_too_wide_is_wrapped_between_words() -> None:
    rows = [("1", "one two three four five", "short")]
    assert list(table_lines(["no", "text", "end"], rows, right=range(1), width=24)) == [
        "no  text           end",
        "────────────────────────",
        " 1  one two three  short",
        "    four five",
    ]


@given(ROWS, st.integers(20, 90))
def test_lines_keep_to_the_width_and_words_stay_whole(rows: list[tuple[str, str, str]], width: int) -> None:
    lines = list(table_lines(["a", "b", "c"], rows, right=range(1), width=width))
    longest = max(text_width(word) for row in rows for cell in row[1:] for word in (*cell.split(), ""))
    first = max(1, *(text_width(row[0]) for row in rows))
    if first + 2 * (2 + max(longest, 8)) <= width:
        assert all(text_width(line) <= width for line in lines)
    words = [word for row in rows for cell in row for word in cell.split()]
    found = [word for line in lines[2:] for word in line.split()]
    assert sorted("".join(found)) == sorted("".join(words))
    assert {word for word in words if word.isascii()} <= {*found}  # Chinese sentences are broken where they have to be


@given(TEXTS, st.integers(0, 40), st.booleans())
def test_padding_fills_up_to_a_width(text: str, width: int, right: bool) -> None:  # noqa: FBT001
    padded = pad(text, width, right=right)
    assert text_width(padded) == max(width, text_width(text))
    assert padded.strip() == text
    assert padded.endswith(text) if right else padded.startswith(text)


def test_identifiers_are_broken_last() -> None:
    names = ["aclnnInplaceCopy_TensorMoveAiCore_TensorMove", "/opt/site/packages/some_long_file_name.py:18"]
    lines = [
        *table_lines(
            ["at", "name", "host"],
            [["1", name, "AscendCL@aclrtSynchronizeStream"] for name in names],
            right={0},
            width=50,
        )
    ]
    assert max(map(len, lines)) <= 55
    cells = [line[4:].rstrip() for line in lines[2:]]
    assert "aclnnInplaceCopy_" in cells[0]
    assert not any("TensorMoveAiCore_TensorMove" in cell for cell in cells)
    # A file's name is not broken: people copy it.
    assert any("some_long_file_name.py:18" in cell for cell in cells)
    wide = [*table_lines(["at", "name"], [["1", names[0]]], right={0}, width=60)]
    assert names[0] in wide[2]


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
