"""Drive MindSpore's own pool with traces (``ms.runtime.memory_replay``): ``python replay_program.py JOBS.json``.

A job is a trace, the arguments of ``set_memory`` or null, and further settings of ``MS_ALLOC_CONF``; each runs in a process of its
own, which prints the bytes used and reserved.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import mindspore as ms


def main(jobs: list[tuple[str, dict[str, str] | None, str]]) -> None:
    """Fork a process for every job: the pool reads its settings at its first use."""
    for trace, sizes, conf in jobs:
        if not os.fork():
            os.environ["MS_ALLOC_CONF"] = conf
            ms.set_device("Ascend")
            if sizes is not None:
                ms.runtime.set_memory(**sizes)
            ms.runtime.memory_replay(trace)
            print("peaks", ms.runtime.max_memory_allocated(), ms.runtime.max_memory_reserved(), flush=True)  # noqa: T201 - its result
            os._exit(0)
        os.wait()


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text("utf-8")))
