"""Builds learning-rate schedules with the installed MindFormers, in a process of its own: which of them can be built."""

import json
import sys

from mindformers.core.lr import build_lr


def built(settings: dict[str, object]) -> bool:
    try:
        build_lr(settings)
    except (TypeError, ValueError):
        return False
    return True


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps([built(settings) for settings in json.load(sys.stdin)]) + "\n")
