"""Write single-file HTML pages that work offline; their policies allow only their own styles and scripts, by hash."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Callable, Iterable, Iterator, Sequence

from ms_tune.report.console import Console
from ms_tune.text import Language
from ms_tune.version import __version__

LANGUAGES = {"en": "English", "zh": "中文"}  # each in its own language
_STYLE = """
body{font:15px/1.5 system-ui,"Noto Sans CJK SC",sans-serif;margin:0 auto;max-width:84rem;padding:1.5rem;color:#1d2127;background:#fff}
h1{font-size:1.35rem;margin:0 0 .25rem;overflow-wrap:anywhere}h2{font-size:1.05rem;margin:1.75rem 0 .5rem;overflow-wrap:anywhere}
.source{color:#5b626c;margin:0 0 1rem;overflow-wrap:anywhere}.languages{float:right}.languages label{cursor:pointer;margin-left:.6rem}
body [lang=zh],body:has(#zh:checked) [lang=en]{display:none}body:has(#zh:checked) [lang=zh]{display:revert}
.verdict{border-left:4px solid #b03a48;padding:.5rem 1rem;background:#f6f2f1}.verdict p{margin:.25rem 0}.good{border-left-color:#2f855a;background:#f0f6f2}.word{font-weight:600;font-size:1.1rem}
pre{overflow-x:auto}figure{margin:1rem 0}figcaption{font-size:.9rem}svg{display:block;width:100%;height:auto}.legend{display:flex;flex-wrap:wrap;gap:.25rem 1.25rem;list-style:none;padding:0;margin:.5rem 0}
.legend svg{display:inline-block;width:.8rem;height:.8rem;margin-right:.4rem;vertical-align:-.05rem}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.9rem;width:100%}th,td{padding:.25rem .6rem;text-align:left;border-bottom:1px solid #dfe2e6;vertical-align:top}
th{white-space:nowrap;color:#444b55}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}td:not(.n){overflow-wrap:anywhere;min-width:8em}
@media (prefers-color-scheme:dark){body{background:#15181c;color:#e3e6ea}.verdict{background:#231d1e}.good{background:#18221c}th,.source{color:#a9b0ba}th,td{border-color:#333941}}
"""


def write_page(
    title_id: str, sources: Iterable[object], parts: Callable[[Console], Iterable[str]], language: Language
) -> str:
    """Return an HTML page without scripts in both languages, starting in one."""
    about = html.escape(", ".join(map(str, sources)))
    choices = "".join(
        f'<label><input type="radio" name="language" id="{name}"{" checked" if name == language else ""}> {words}</label>'
        for name, words in LANGUAGES.items()
    )

    def below_title(console: Console) -> Iterator[str]:
        yield f'<h1>{html.escape(console.text(title_id))}</h1><p class="source">{about} · ms-tune {__version__}</p>'
        yield from parts(console)

    body = f'<div class="languages">{choices}</div>\n{in_both_languages(below_title)}'
    return write_document(Console(language).text(title_id), language, body, [_STYLE])


def in_both_languages(parts: Callable[[Console], Iterable[str]], tag: str = "div") -> str:
    """Return the same content in each language; the page shows one of them."""
    return "\n".join(
        f'<{tag} lang="{language.value}">\n{chr(10).join(parts(Console(language)))}\n</{tag}>' for language in Language
    )


def write_document(
    title: str, language: Language, body: str, styles: Sequence[str], scripts: Sequence[str] = ()
) -> str:
    """Return a complete HTML document; scripts come after the body."""
    allowed = f"script-src {_hashes_of(scripts)}; style-src {_hashes_of(styles)}"
    policy = f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"
    head = [
        f'<!doctype html><html lang="{language.value}"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">',
        '<meta name="viewport" content="width=device-width,initial-scale=1"><meta name="referrer" content="no-referrer">',
        f"<title>{html.escape(title)}</title>{''.join(f'<style>{style}</style>' for style in styles)}</head><body>",
    ]
    return "\n".join([*head, body, *(f"<script>{script}</script>" for script in scripts), "</body></html>"])


def _hashes_of(texts: Sequence[str]) -> str:
    digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts)
    return " ".join(f"'sha256-{digest}'" for digest in digests) or "'none'"


def table_html(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], right: int) -> Iterator[str]:
    """Yield a table with a title; nothing without rows.

    The first ``right`` columns are numbers; empty text columns are omitted.
    """
    if not rows:
        return
    kept = [column for column in range(len(heads)) if column < right or any(row[column] for row in rows)]

    def cells(tag: str, row: Sequence[str]) -> str:
        kinds = (' class="n"' if column < right else "" for column in kept)
        return "".join(
            f"<{tag}{kind}>{html.escape(row[column])}</{tag}>" for kind, column in zip(kinds, kept, strict=True)
        )

    yield f'<h2>{html.escape(title)}</h2><div class="wide"><table><thead><tr>{cells("th", heads)}</tr></thead><tbody>'
    yield from (f"<tr>{cells('td', row)}</tr>" for row in rows)
    yield "</tbody></table></div>"


def list_html(lines: Iterable[str], title: str = "") -> Iterator[str]:
    """Yield sentences as a list with a title; nothing without sentences."""
    items = "".join(f"<li>{html.escape(line)}</li>" for line in lines)
    if items:
        yield f"{f'<h2>{html.escape(title)}</h2>' if title else ''}<ul>{items}</ul>"


def verdict_html(lines: Iterable[str], *, good: bool = False) -> str:
    """Return the verdict as HTML: the first sentence emphasised, then the others."""
    first, *more = map(html.escape, lines)
    paragraphs = "".join(f"<p>{line}</p>" for line in more)
    return f'<div class="verdict{" good" if good else ""}"><p class="word">{first}</p>{paragraphs}</div>'
