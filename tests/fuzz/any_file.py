"""Give any damaged file as any argument of any command: ``python -m tests.fuzz.any_file [--count N] [--seed S] [--only NUMBER]``.

A command that reads files may refuse them. It may not fail (exit code 3), nor use more than 20 seconds of processor time
or a gigabyte. Each runs in a process of its own. Failures are printed with their files, which are kept.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import signal
import sys
import tempfile
from functools import cache
from importlib import import_module
from pathlib import Path
from random import Random

from ms_tune.cli import COMMANDS
from ms_tune.cli.main import main
from ms_tune.facts.query import data_folder
from tests.fuzz.mutations import mutated
from tests.fuzz.seeds import runs

_SECONDS, _BYTES = 20, 10**9
_ROOT = Path(__file__).parents[2]
# FILE is replaced by the name of a file, FOLDER by that of all.
_LINES = [
    *("lint FILE", "lint FOLDER", "lint --format sarif FOLDER", "lint --json FILE", "lint --diff FILE", "lint --fix FILE"),
    *("lint --baseline FILE FILE", "lint --config FILE FILE", "lint --checklist FILE FILE", "lint --model-config FILE FILE"),
    *("check FILE", "check --json FOLDER", "check --base FILE FILE", "check --model-config FILE FILE", "migrate FILE"),
    *("normalize-recompute FILE", "normalize-recompute --json FILE", "normalize-recompute --diff FILE", "rule --checklist FILE --all"),
    *("memory FILE", "memory FOLDER", "memory --json FILE", "memory what-if FILE", "memory plan --time-limit 1 FILE"),
    *("memory diff FILE FILE", "memory import-memlog FILE", "memory plan --time-limit 1 --plan FILE FILE"),
    *("metrics FILE", "metrics FILE FILE", "metrics --json FOLDER", "metrics --baseline FILE FILE", "profile FILE", "profile FOLDER"),
    *("runs FOLDER", "fit --table FILE --devices 8 --device-memory 64GB"),
]  # fmt: skip
_JOBS = (".yaml", ".sh", ".py", ".toml")
_USUAL: dict[str, str | tuple[str, ...]] = {
    "metrics": "log",
    **dict.fromkeys(("lint", "check", "migrate", "normalize-recompute", "rule"), _JOBS),
}
_SETTINGS = 'ignore = ["MST5"]\nexclude = ["**/old/*.yaml"]\nbaseline = "old.json"\n[[per-path]]\npaths = ["a*"]\nselect = ["all"]\n'
_BASELINE = {"schema_version": 1, "files": {"a.yaml": [{"name": "x", "fingerprint": "0", "count": 1}]}}


@cache
def whole_files() -> tuple[tuple[str, bytes], ...]:
    """Return names and contents of good files of every kind."""
    places = [*data_folder("yaml_templates").rglob("*.yaml"), *(_ROOT / "examples").rglob("*.*")]
    places += [_ROOT / "tests" / "data" / "pretrain_sound.sh", _ROOT / "ms_tune" / "dryrun" / "rundir.py"]
    found = [(one.name, one.read_bytes()) for one in sorted(places) if one.stat().st_size < 200_000]
    found += [("ms-tune.toml", _SETTINGS.encode()), ("old.json", json.dumps(_BASELINE).encode())]
    scripts = json.loads((_ROOT / "tests" / "data" / "launch_scripts.json").read_text("utf-8"))
    found += [("run.sh", text.encode()) for text in _texts(scripts) if "\n" in text]
    return tuple(found + [(name, data) for run in runs() for name, data in run.items()])


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for item in items for text in _texts(item)]


def prepare(folder: Path, seed: int, number: int) -> list[str]:
    """Write the files of an input, and return its command line."""
    chance = Random(f"{seed}.{number}")  # noqa: S311 - reproducible, not secret
    words = chance.choice(_LINES).split()
    usual = [one for one in whole_files() if one[0].endswith(_USUAL.get(words[0], ""))]
    names: list[str] = []
    for place in range(chance.randint(1, 3)):
        name, data = chance.choice(usual if chance.random() < 0.7 else whole_files())
        other = [chance.choice(whole_files())[1] for _ in range(2)]
        names.append(name if chance.random() < 0.8 else f"{place}{chance.choice(whole_files())[0]}")
        (folder / names[-1]).write_bytes(mutated(data, chance, other) if chance.random() < 0.9 else data)
    return [{"FILE": chance.choice(names), "FOLDER": "."}.get(word, word) for word in words]


def fault(folder: Path, words: list[str]) -> str | None:
    """Run a command line in a folder; return what is wrong with how it ends."""
    output = folder.parent / "output"
    process = os.fork()
    if not process:
        with contextlib.suppress(BaseException):
            os.chdir(folder)
            handle = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(handle, 1)
            os.dup2(handle, 2)
            resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS + 1))
            signal.signal(signal.SIGXCPU, signal.SIG_DFL)
            sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115 - descriptors
            code = main(words)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        os._exit(99)
    _, status, used = os.wait4(process, 0)
    code = os.waitstatus_to_exitcode(status)
    if code in (0, 1, 2) and used.ru_maxrss * 1024 < _BYTES:
        return None
    tail = output.read_text("utf-8", "replace")[-600:]
    return f"code {code}, {used.ru_utime:.0f} s, {used.ru_maxrss // 1024} MiB: {tail}"


def failures(seed: int, numbers: range) -> list[str]:
    """Run inputs; return the command lines that failed, and where their files are."""
    for name in COMMANDS.values():  # once, and not in each process
        import_module(f"ms_tune.cli.{name}")
    found = []
    for number in numbers:
        place = Path(tempfile.mkdtemp(prefix="ms-tune-fuzz-"))
        (place / "files").mkdir()
        words = prepare(place / "files", seed, number)
        if wrong := fault(place / "files", words):
            found.append(f"{number}: ms-tune {' '.join(words)} in {place}: {wrong}")
            continue
        for path in (*(place / "files").rglob("*"), *place.glob("output")):
            path.unlink() if path.is_file() else None
        with contextlib.suppress(OSError):
            (place / "files").rmdir()
            place.rmdir()
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.any_file")
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int)
    given = parser.parse_args()
    wrong = failures(given.seed, range(given.count) if given.only is None else range(given.only, given.only + 1))
    sys.stdout.write("\n".join([*wrong, f"{len(wrong)} of {given.count} failed\n"]))
    sys.exit(bool(wrong))
