"""Record the results of each release's code for some lists of arguments: ``tests/data/megatron_layers.json``.

``MS_TUNE_MEGATRON_SOURCES=FOLDER python -m tests.oracle.make_megatron_layers``
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from random import Random

from ms_tune.dialects.megatron.read import SERVED
from tests.oracle.make_megatron import SOURCES
from tests.oracle.megatron_cases import ALWAYS, random_arguments
from tests.oracle.megatron_layers import answers

FILE = Path(__file__).parents[1] / "data" / "megatron_layers.json"
_CASES = 45  # of each release
_SEED = 20261122


def main() -> None:
    """Write the file."""
    rows = []
    for release in SERVED:
        random = Random(f"{_SEED} {release}")  # noqa: S311 - cases, no secrets
        cases = [random_arguments(random) for _ in range(_CASES)]
        for case, answer in zip(cases, answers(Path(os.environ[SOURCES], release), cases), strict=True):
            rows.append({"release": release, "arguments": case[len(ALWAYS) :], "layers": shortened(answer)})
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(f"[\n{lines}\n]\n", "utf-8")


def shortened(lines: list[str]) -> list[str]:
    """Combine equal successive lines into one with their number."""
    found: list[list[object]] = []
    for line in lines:
        if found and found[-1][1] == line:
            found[-1][0] = int(str(found[-1][0])) + 1
        else:
            found.append([1, line])
    return [f"{count} x {line}" for count, line in found]


if __name__ == "__main__":
    main()
