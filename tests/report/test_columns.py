"""Test plain tables: aligned by display width, as wide as the terminal, without loss of text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ms_tune.report.console import pad, table_lines, text_width

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
