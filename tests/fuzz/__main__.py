"""Damage real files and read them: ``python -m tests.fuzz [TARGET ...] [--count N] [--seed S]``.

Every input follows from its number, so that ``--only NUMBER`` makes it again. The first input that leads to anything
but a result or one of ms-tune's own errors, or that takes more than ten seconds of processor time, is stored and ends
the run of its target.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from random import Random

from tests.fuzz.mutations import mutated
from tests.fuzz.seeds import runs, seed
from tests.fuzz.targets import TARGETS, Target, survives

_SLOW = 10.0  # seconds of processor time


def main() -> int:
    """Run the targets that were named; 1 if any of them failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--count", type=int, default=1000, help="inputs of each target")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="this input alone")
    arguments = parser.parse_args()
    signal.signal(signal.SIGPROF, _too_slow)
    names = arguments.targets or list(TARGETS)
    numbers = range(arguments.count) if arguments.only is None else [arguments.only]
    return max(fuzz(name, arguments.seed, numbers) for name in names)


def prepare(target: Target, folder: Path, seed_of_run: int, number: int) -> None:
    """Put the files of an input into a folder."""
    chance = Random(f"{seed_of_run}.{number}")  # noqa: S311 - reproducible, not secret
    files = seed(target.files, chance)
    damaged = chance.sample(sorted(files), chance.randint(1, len(files))) if chance.random() < 0.98 else []
    for path in folder.iterdir():
        path.unlink()
    for name, data in files.items():
        others = [run[name] for run in runs() if name in run]
        (folder / name).write_bytes(mutated(data, chance, others) if name in damaged else data)


def fuzz(name: str, seed_of_run: int, numbers: range | list[int]) -> int:
    """Run one target; 0 if nothing was found."""
    target, outcomes, slowest = TARGETS[name], Counter[str](), (0.0, 0)
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="ms-tune-fuzz-") as scratch:
        folder = Path(scratch)
        for number in numbers:
            prepare(target, folder, seed_of_run, number)
            started = time.process_time()
            signal.setitimer(signal.ITIMER_PROF, _SLOW)
            try:
                outcomes[survives(target, folder)] += 1
            except BaseException:  # noqa: BLE001 - whatever it is, it is what we look for
                traceback.print_exc()
                return _failed(name, folder, number)
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
            slowest = max(slowest, (time.process_time() - started, number))
    seconds = time.perf_counter() - begin
    sys.stdout.write(
        f"{name}: {len(numbers):,} inputs in {seconds:.0f} s, slowest {slowest[0]:.2f} s ({slowest[1]}), none failed\n"
    )
    for outcome, count in outcomes.most_common():
        sys.stdout.write(f"  {count:>9,} {outcome}\n")
    sys.stdout.flush()
    return 0


def _too_slow(_signal: int, _frame: object) -> None:
    message = f"more than {_SLOW} s of processor time"
    raise TimeoutError(message)


def _failed(name: str, folder: Path, number: int) -> int:
    kept = Path(tempfile.mkdtemp(prefix=f"ms-tune-fuzz-{name}-"))
    for path in folder.iterdir():
        path.rename(kept / path.name)
    sys.stdout.write(f"{name}: input {number} failed; its files are in {kept}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
