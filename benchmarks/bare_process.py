"""Run one simulated process with the model only, without ms-tune's changes: ``python bare_process.py MODULE job.json``.

``benchmarks/dryrun.py`` starts it in the environment of a dryrun. Weights are initialised, stacks are formatted again
for every operator, threads that poll the simulated device use idle processors, and garbage is collected during imports:
MindSpore's default behaviour in simulation.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path

from ms_tune import training_process

_SHORT_CUTS = ("make_initialisation_cheap", "make_stacks_cheap", "make_clones_cheap", "report")


def main(module: str, job_file: str) -> None:
    """Run the job that the file describes, without the short cuts that modules of jobs take from ``training_process``."""
    for name in _SHORT_CUTS:
        setattr(training_process, name, lambda *_: None)
    import_module(module).run(json.loads(Path(job_file).read_text(encoding="utf-8")))


if __name__ == "__main__":
    main(*sys.argv[1:])
