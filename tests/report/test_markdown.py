"""Test that Markdown shows texts of users as they are, as a parser of CommonMark with tables reads it."""

from __future__ import annotations

import pytest

from ms_tune.report.markdown import code_markdown, escape_markdown

markdown_it = pytest.importorskip("markdown_it")
HOSTILE = (
    "a | b",
    "`rm -rf` ``x``",
    "`",
    "<img src=x onerror=alert(1)> & <!-- x -->",
    "[click](https://example.com) ![x](y) www.example.com",
    "@team please merge, fixes #12, !3 %4 ~bug $x$",
    "**bold** _it_ ~~no~~ # h",
    "line\n\n# heading\n| t |",
    "back\\slash \\| end\\",
    "right\u202eleft \u200b zero\0",
    "键: 值😀",
)


@pytest.mark.parametrize("text", HOSTILE)
def test_a_text_is_shown_as_it_is_also_in_a_table(text: str) -> None:
    markdown = markdown_it.MarkdownIt("commonmark", {"html": True, "linkify": False}).enable(["table", "strikethrough"])
    shown = " ".join("".join(" " if one in "\u202e\u200b\0" else one for one in text).split())
    for write, kind in ((escape_markdown, "text"), (code_markdown, "code_inline")):
        for page in (f"- {write(text)}", f"| a |\n| --- |\n| {write(text)} |"):
            inline = next(one for one in reversed(markdown.parse(page)) if one.type == "inline")
            assert {one.type for one in inline.children or ()} <= {kind, "text"} | {"text_special"}
            words = "".join(one.content for one in inline.children or ()).replace("\u200b", "")
            bars = "\\|" if kind == "code_inline" and page.startswith("-") else "|"  # only a table takes the backslash
            assert words == shown.replace("|", bars)


def test_nobody_is_mentioned_and_nothing_is_referred_to() -> None:
    text = escape_markdown("@team fixes #12 !3 %4 ~bug https://x.org www.x.org a@b.c")
    for one in ("@team", "#12", "!3", "%4", "~bug", "://", "www.", "@b"):
        assert one not in text
