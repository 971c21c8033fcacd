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


def main(module: str, job_file: str) -> None:
    """Run the job that the file describes, with the module that such jobs name."""
    # A training process must not outlive the ms-tune that started it, even if that is killed outright (prctl(2)).
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() == 1:
        # It was killed before the line above: there is nobody to tell us any more.
        sys.exit(1)
    import_module(module).run(json.loads(Path(job_file).read_text(encoding="utf-8")))


if __name__ == "__main__":
    main(*sys.argv[1:])
