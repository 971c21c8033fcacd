"""Draws docs/assets/check.svg from a real run: ``python docs/pictures.py`` (in the repository's folder)."""

from __future__ import annotations

import os
import subprocess
import sys
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory

_COMMAND = ["check", "examples/out_of_memory.yaml", "--device-memory", "32GB", "--lang", "en"]
_ROW, _COLUMN, _EDGE = 18, 8.4, 16  # of the picture, in points
_COLOURS = {"will not fit": "#ff7b72", "what helps": "#7ee787", "next:": "#79c0ff"}


def picture(lines: list[str]) -> str:
    """A terminal with these lines, as SVG without anything from elsewhere.

    Args:
        lines: What stands in it.
    """
    width = round(max(map(len, lines)) * _COLUMN) + 2 * _EDGE
    rows = [
        f'<text x="{_EDGE}" y="{_EDGE + (number + 1) * _ROW}" xml:space="preserve" '
        f'fill="{next((colour for start, colour in _COLOURS.items() if line.startswith(start)), "#e6edf3")}">{escape(line)}</text>'
        for number, line in enumerate(lines)
    ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{len(lines) * _ROW + 3 * _EDGE}">'
    style = '<g font-family="DejaVu Sans Mono,Menlo,Consolas,monospace" font-size="14">'
    return "\n".join([head, '<rect width="100%" height="100%" rx="8" fill="#0d1117"/>', style, *rows, "</g></svg>", ""])


if __name__ == "__main__":
    with TemporaryDirectory() as cache:  # nothing that an earlier run measured
        shown = subprocess.run(
            [sys.executable, "-m", "ms_tune", *_COMMAND],
            env={**os.environ, "COLUMNS": "80", "MS_TUNE_CACHE": cache},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        ).stdout
    lines = [f"$ ms-tune {' '.join(_COMMAND[:4])}", *shown.rstrip().splitlines()]
    Path("docs/assets/check.svg").write_text(picture(lines), encoding="utf-8")
