"""The simulated training process, or with ``--fork`` what several of them are forked from."""

from __future__ import annotations

import gc
import json
import sys
from importlib import import_module
from pathlib import Path

from ms_tune.dryrun.child.hook import threads
from ms_tune.dryrun.child.server import serve
from ms_tune.dryrun.parent import end_with_parent

_FORK = "--fork="


def main(module: str, job_file: str) -> None:
    """Run the job that the file describes, with the module that such jobs name."""
    end_with_parent()
    threads.let_watch()
    # What is imported stays. No collection of garbage looks at it while more is imported, nor does one later on, which would also
    # give each forked process a copy of the pages that it counts references in.
    gc.disable()
    run = import_module(module).run
    gc.freeze()
    gc.enable()
    mine: str | None = job_file
    if job_file.startswith(_FORK):
        mine = serve(int(job_file.removeprefix(_FORK)))
    if mine is not None:
        run(json.loads(Path(mine).read_text(encoding="utf-8")))


if __name__ == "__main__":
    main(*sys.argv[1:])
