"""Record the operators that cannot be simulated with a MindSpore: ``python -m tests.dryrun.operators [PYTHON]``.

Each call of ``operator_calls.py`` runs twice, forward and backward: in simulation, and on the CPU, which computes the
true shape of every result. A call that fails on the CPU is not compared. Takes some minutes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.dryrun.operator_calls import CALLS, DATA

ROOT = Path(__file__).parents[2]
_PROGRAM = str(Path(__file__).with_name("operators_program.py"))
_FAILURES = ("ended", "forward", "backward")


def data_file(release: str) -> Path:
    """Return the path of the file that lists the failures of a MindSpore release."""
    return DATA / f"{release}.json"


def release_of(python: str) -> str:
    """Return the MindSpore release of an environment."""
    code = "from importlib.metadata import version; print(version('mindspore'))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def failed(python: str) -> dict[str, str]:
    """Return the reason for each call that fails in simulation, or returns another shape than on the CPU."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "calls.json").write_text(json.dumps(CALLS), encoding="utf-8")
        dryrun = [python, "-m", "ms_tune", "dryrun", "--json", "--run-dir", str(folder / "run"), "--"]
        simulated = _results(folder, "Ascend", [*dryrun, python])
        computed = _results(folder, "CPU", [python])
    reasons = {call: reason_of(simulated[call], computed.get(call, {})) for call in CALLS}
    return {call: reason for call, reason in reasons.items() if reason}


def reason_of(simulated: dict[str, Any], computed: dict[str, Any]) -> str:
    """Return why a call cannot be simulated; empty if it can.

    Args:
        simulated: Its result in simulation, in the format of ``operators_program.py``.
        computed: Its result on the CPU.
    """
    for kind in _FAILURES:
        if kind in simulated:
            too = ", on the CPU too" if kind in computed else ""
            return f"{kind}{too}: {simulated[kind]}"
    shapes, true = ([shape for shape, _ in one.get("outputs", [])] for one in (simulated, computed))
    if true and shapes != true:
        return f"{'bound' if _is_bound(shapes, true) else 'shape'}: {shapes}, on the CPU {true}"
    if simulated.get("gradients") != simulated.get("inputs"):
        return f"gradient: {simulated['gradients']}"
    return ""


def _is_bound(shapes: list[list[int]], true: list[list[int]]) -> bool:
    """Return whether no result is smaller than the real one: if values decide the size, ms-tune returns the largest."""
    return [len(one) for one in shapes] == [len(one) for one in true] and all(
        size >= real for one, other in zip(shapes, true, strict=True) for size, real in zip(one, other, strict=True)
    )


def _results(folder: Path, device: str, command: list[str]) -> dict[str, dict[str, Any]]:
    out = folder / f"{device}.json"
    subprocess.run(
        [*command, _PROGRAM, device, str(folder / "calls.json"), str(out)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,  # the program itself uses no device, and so there is no verdict
    )
    read: dict[str, dict[str, Any]] = json.loads(out.read_text(encoding="utf-8"))
    return read


def main(python: str) -> None:
    """Write down what fails."""
    release = release_of(python)
    DATA.mkdir(exist_ok=True)
    known = {"mindspore": release, "calls": len(CALLS), "failed": failed(python)}
    data_file(release).write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:] or [sys.executable])
