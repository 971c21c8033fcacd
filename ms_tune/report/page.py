"""A page of one file without scripts, which works off line: its content security policy allows its own style and nothing else."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from ms_tune.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ms_tune.text import Language

_STYLE = """
body{font:15px/1.5 system-ui,"Noto Sans CJK SC",sans-serif;margin:0 auto;max-width:72rem;padding:1.5rem;color:#1d2127;background:#fff}
h1{font-size:1.35rem;margin:0 0 .25rem}h2{font-size:1.05rem;margin:1.75rem 0 .5rem;overflow-wrap:anywhere}.source{color:#5b626c;margin:0 0 1rem;overflow-wrap:anywhere}
.verdict{border-left:4px solid #b03a48;padding:.5rem 1rem;background:#f6f2f1}.verdict p{margin:.25rem 0}.good{border-left-color:#2f855a;background:#f0f6f2}.word{font-weight:600;font-size:1.1rem}
pre{overflow-x:auto}figure{margin:1rem 0}figcaption{font-size:.9rem}svg{display:block;width:100%;height:auto}.legend{display:flex;flex-wrap:wrap;gap:.25rem 1.25rem;list-style:none;padding:0;margin:.5rem 0}
.legend svg{display:inline-block;width:.8rem;height:.8rem;margin-right:.4rem;vertical-align:-.05rem}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.9rem;width:100%}th,td{padding:.25rem .6rem;text-align:left;border-bottom:1px solid #dfe2e6;vertical-align:top}
th{white-space:nowrap;color:#444b55}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}td:not(.n){overflow-wrap:anywhere;min-width:8em}
@media (prefers-color-scheme:dark){body{background:#15181c;color:#e3e6ea}.verdict{background:#231d1e}.good{background:#18221c}th,.source{color:#a9b0ba}th,td{border-color:#333941}}
"""


def write_page(title: str, sources: Iterable[object], parts: Iterable[str], language: Language) -> str:
    """The whole page."""
    import base64  # noqa: PLC0415 - start-up time of what shows no page
    import hashlib  # noqa: PLC0415

    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    about = ", ".join(map(str, sources))
    head = [
        f'<!doctype html><html lang="{language.value}"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head><body>",
        f'<h1>{html.escape(title)}</h1><p class="source">{html.escape(about)} · ms-tune {__version__}</p>',
    ]
    return "\n".join([*head, *parts, "</body></html>"])


def table_html(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], right: int) -> Iterator[str]:
    """A table under its title; nothing without rows.

    The first ``right`` columns are numbers; of the others those without any text are left out.
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
