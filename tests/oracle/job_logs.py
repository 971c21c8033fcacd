"""Write logs in the form of a MindFormers job: its own lines with the prefixes of its logger."""

from __future__ import annotations

import ast
import logging
from collections.abc import Iterable

from ms_tune.dialects import Warned
from tests.oracle import wheels

_PLACE = "mindformers/parallel_core/training_graph/transformer/utils.py"
_NOISE = (
    "[WARNING] DEVICE(12,7f5,python3.11):2026-11-21-00:03:28.797.000 [mindspore/ccsrc/x.cc:317] at layer of the pool",
    "",
    '  File "/opt/x.py", line 3, in construct',
)


def formats(version: str) -> tuple[str, str]:
    """Return the formats of standard output and of ``info.log`` in a release (``mindformers/tools/logger.py``)."""
    found: dict[str, str] = {}
    for node in ast.parse(wheels.source(version, "tools/logger.py")).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name in ("DEFAULT_STDOUT_FORMAT", "DEFAULT_FILEHANDLER_FORMAT"):
                found[name] = ast.literal_eval(node.value)
    return found["DEFAULT_STDOUT_FORMAT"], found["DEFAULT_FILEHANDLER_FORMAT"]


def job_log(lines: Iterable[str], style: str, *, start: bool = True) -> list[str]:
    """Return a log with these lines of the framework; ``style`` is one of :func:`formats`."""
    formatter = logging.Formatter(style)
    made = [*_NOISE]
    for text in [*(["..........Init Config.........."] if start else []), *lines, "Create loss wrapper"]:
        level = logging.WARNING if isinstance(text, Warned) else logging.INFO
        record = logging.LogRecord("mindformers./output/log", level, _PLACE, 172, text, None, None, "__init__")
        record.filepath = _PLACE
        made += [formatter.format(record), *_NOISE[:1]]
    return made
