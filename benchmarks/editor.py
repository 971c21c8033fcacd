"""Measure how long ``ms-tune server`` takes for its answers, next to ``ms-tune lint`` as a new process.

``python benchmarks/editor.py CONFIG``, from the root of a checkout (it uses the client of the tests). A text is reported
without the pause that the server waits for further changes.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.lsp import Editor

RUNS = 30


def milliseconds(call: Callable[[], object]) -> float:
    """Return the wall-clock milliseconds of a call."""
    start = time.perf_counter()
    call()
    return 1000 * (time.perf_counter() - start)


def main() -> None:
    """Ask for each answer alternately after an edit, and print medians, the longest, and the first."""
    file = Path(sys.argv[1]).absolute()
    text, uri = file.read_text(encoding="utf-8"), file.with_name("unsaved.yaml").as_uri()
    lines = text.splitlines()
    line = next(number for number, one in enumerate(lines) if one.startswith("  ") and ":" in one)
    whole = {"start": {"line": 0, "character": 0}, "end": {"line": len(lines), "character": 0}}
    document = {"textDocument": {"uri": uri}}
    times: dict[str, list[float]] = {}
    with Editor(file.parent) as editor:
        calls: dict[str, Callable[[int], object]] = {
            "findings": lambda number: editor.show(uri, f"{text}# {number}\n", save=True),
            "hover": lambda _: editor.at("hover", uri, line, 3),
            "completion": lambda _: editor.at("completion", uri, line, 2),
            "quick fixes": lambda _: editor.ask(
                "textDocument/codeAction", **document, range=whole, context={"diagnostics": []}
            ),
            "estimate and layers": lambda _: editor.ask("textDocument/codeLens", **document),
        }
        for number in range(RUNS):
            for name, call in calls.items():
                times.setdefault(name, []).append(milliseconds(lambda call=call, number=number: call(number)))  # type: ignore[misc]
    command = [sys.executable, "-m", "ms_tune", "lint", str(file)]
    times["ms-tune lint, a new process"] = [
        milliseconds(lambda: subprocess.run(command, capture_output=True, check=False)) for _ in range(10)
    ]
    print(f"{len(lines)} lines")
    for name, (first, *later) in times.items():
        print(f"{name:<30}{statistics.median(later):7.0f} ms, at most {max(later):.0f}, the first {first:.0f}")


if __name__ == "__main__":
    main()
