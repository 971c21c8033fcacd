"""The simulated training process."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from importlib import import_module
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def main(job_file: str) -> None:
    """Run the job that the file describes: ``{"kind": "reference" | "mindformers" | "mindspeed" | "pynative", ...}``."""
    # A training process must not outlive the ms-tune that started it, even if that is killed outright (prctl(2)).
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() == 1:
        # It was killed before the line above: there is nobody to tell us any more.
        sys.exit(1)
    job = json.loads(Path(job_file).read_text(encoding="utf-8"))
    kinds = {kind: f"ms_tune.dryrun.child.{kind}" for kind in ("mindformers", "mindspeed", "pynative")}
    kinds["reference"] = "ms_tune.reference_model.child"
    import_module(kinds[job["kind"]]).run(job)


if __name__ == "__main__":
    main(sys.argv[1])
