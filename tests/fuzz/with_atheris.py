"""Guided by coverage: ``python -m tests.fuzz.with_atheris TARGET [-runs=N] [FOLDER ...]``, options as of libFuzzer.

Atheris is no dependency: ``pip install atheris`` where it has a wheel. A target reads one file here, the first that it
names; real files to begin with are put into a folder of their own. What a target may do is as in :mod:`tests.fuzz.targets`.
"""

from __future__ import annotations

import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any


def main() -> None:
    """Fuzz until the number of runs is reached or something is found."""
    atheris: Any = import_module("atheris")
    with atheris.instrument_imports(include=["ms_tune"]):
        targets = import_module("tests.fuzz.targets")
    seeds = import_module("tests.fuzz.seeds")
    target = targets.TARGETS[sys.argv.pop(1)]
    name = target.files[0]
    scratch, corpus = (Path(tempfile.mkdtemp(prefix=f"ms-tune-atheris-{part}-")) for part in ("run", "corpus"))
    for number, files in enumerate(seeds.runs()):
        if name in files:
            (corpus / str(number)).write_bytes(files[name][:20_000])

    def one(data: bytes) -> None:
        (scratch / name).write_bytes(data)
        targets.survives(target, scratch)

    atheris.Setup([*sys.argv, str(corpus)], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
