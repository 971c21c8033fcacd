"""Measure ``ms-tune lint`` compared with check-jsonschema and cfn-lint, and on a thousand files compared with yamllint.

``python benchmarks/lint.py FOLDER [--program FILE] [--peers BIN] [--config FILE]``: FOLDER contains training configs
(such as the ``configs`` of an installed MindFormers), FILE is an installed ``ms-tune`` (default: this checkout, where
checklists are not pre-parsed), BIN has the programs ``check-jsonschema``, ``cfn-lint`` and ``yamllint`` (default:
PATH); missing programs are left out. The one file is copied, so that no settings of a checkout are read.

Every run is a complete process, start-up included. The programs run alternately, so that a disturbance affects all of
them, and all use compiled modules, as after ``pip install``. check-jsonschema gets the schema that ``ms-tune schema``
prints; cfn-lint gets a template with as many lines as the config.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

RUNS = 15
COPIES = 1000
LINT = [sys.executable, "-m", "ms_tune", "lint"]  # from this checkout, unless --program is given
FIRST = "ms-tune lint, nothing kept from earlier runs"


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a process: wall-clock seconds, and processor seconds including its children."""

    wall: float
    processor: float


def cost(command: list[str], environment: Mapping[str, str]) -> Cost:
    """Run a command; what it prints and its exit code do not matter here."""
    null = os.open(os.devnull, os.O_WRONLY)
    start = time.perf_counter()
    process = os.posix_spawn(
        command[0],
        command,
        environment,
        file_actions=[(os.POSIX_SPAWN_DUP2, null, stream) for stream in (1, 2)],
    )
    _, _, usage = os.wait4(process, 0)
    wall = time.perf_counter() - start
    os.close(null)
    return Cost(wall, usage.ru_utime + usage.ru_stime)


def template(lines: int) -> str:
    """Return a CloudFormation template of about this many lines, in which cfn-lint finds no fault."""
    head = ["AWSTemplateFormatVersion: '2010-09-09'", "Description: buckets", "Resources:"]
    bucket = """\
  Bucket{number}:
    Type: AWS::S3::Bucket
    DeletionPolicy: Retain
    UpdateReplacePolicy: Retain
    Properties:
      BucketEncryption:
        ServerSideEncryptionConfiguration:
          - ServerSideEncryptionByDefault:
              SSEAlgorithm: AES256
      VersioningConfiguration:
        Status: Enabled
      Tags:
        - Key: number
          Value: '{number}'"""
    each = bucket.count("\n") + 1
    return "\n".join([*head, *(bucket.format(number=number) for number in range((lines - len(head)) // each)), ""])


def peers(config: Path, folder: Path, programs: str | None, environment: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the installed commands to compare with."""
    schema, like = folder / "schema.json", folder / "template.yaml"
    cost([*LINT[:-1], "schema", "--dialect", "mindformers", "--output", str(schema)], environment)
    like.write_text(template(line_count(config)), encoding="utf-8")
    found = {}
    for name, arguments in (
        ("check-jsonschema", ["--schemafile", str(schema), str(config)]),
        ("cfn-lint", ["--regions", "us-east-1", "--", str(like)]),
    ):
        program = shutil.which(name, path=programs)
        if program is None:
            print(f"{name} is not installed, and left out")
        else:
            found[name] = [program, *arguments]
    return found


def one_file(config: Path, folder: Path, programs: str | None, environment: Mapping[str, str]) -> None:
    """Measure one file, each time in a new process."""
    fresh = folder / "fresh"
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "ms-tune lint": [*LINT, str(config)],
        "ms-tune lint --json": [*LINT, "--json", str(config)],
        FIRST: [*LINT, str(config)],
        **peers(config, folder, programs, environment),
    }
    costs: dict[str, list[Cost]] = {name: [] for name in commands}
    for command in commands.values():
        cost(command, environment)  # modules are compiled, and files in the page cache
    for _ in range(RUNS):
        for name, command in commands.items():
            shutil.rmtree(fresh, ignore_errors=True)
            costs[name].append(
                cost(command, {**environment, "MS_TUNE_CACHE": str(fresh)} if name == FIRST else environment)
            )
    ours = costs["ms-tune lint"]
    print(f"\n{config.name}, {line_count(config)} lines, medians of {RUNS}:\n")
    print(
        f"| program | wall clock | processor time | ms-tune lint / it, wall | ms-tune lint / it, processor |\n|{' --- |' * 5}"
    )
    for name, measured in costs.items():
        wall, processor = median(measured)
        ratios = [
            Cost(our.wall / other.wall, our.processor / other.processor)
            for our, other in zip(ours, measured, strict=True)
        ]
        walls, processors = median(ratios)
        print(f"| {name} | {wall * 1000:.0f} ms | {processor * 1000:.0f} ms | {walls:.2f} | {processors:.2f} |")


def median(costs: Sequence[Cost]) -> tuple[float, float]:
    """Return the medians of both times."""
    return statistics.median(one.wall for one in costs), statistics.median(one.processor for one in costs)


def line_count(config: Path) -> int:
    """Return the number of lines of the config."""
    return len(config.read_text(encoding="utf-8").splitlines())


def many_files(configs: Sequence[Path], folder: Path, programs: str | None, environment: Mapping[str, str]) -> None:
    """Measure a folder of a thousand different files, with one process, with two, and with yamllint."""
    folder.mkdir()
    for number in range(COPIES):
        text = configs[number % len(configs)].read_text(encoding="utf-8")
        (folder / f"config_{number:04}.yaml").write_text(f"# copy {number}\n{text}\n", encoding="utf-8")
    print(f"\n{COPIES} files, copies of {len(configs)}, medians of 3:\n")
    print(f"| program | wall clock | processor time |\n|{' --- |' * 3}")
    commands = {f"ms-tune lint --jobs {jobs}": [*LINT, "--jobs", str(jobs), str(folder)] for jobs in (1, 2)}
    yamllint = shutil.which("yamllint", path=programs)
    commands |= {"yamllint": [yamllint, str(folder)]} if yamllint else {}
    costs: dict[str, list[Cost]] = {name: [] for name in commands}
    for _ in range(3):
        for name, command in commands.items():
            costs[name].append(cost(command, environment))
    for name, measured in costs.items():
        wall, processor = median(measured)
        print(f"| {name} | {wall:.1f} s | {processor:.1f} s |")


def main() -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--program", type=Path, help="an installed ms-tune")
    parser.add_argument("--peers", metavar="BIN", help="where check-jsonschema, cfn-lint and yamllint are")
    parser.add_argument("--config", type=Path, help="the one file (default: the longest in the folder)")
    arguments = parser.parse_args()
    if arguments.program:
        LINT[:] = [str(arguments.program.absolute()), "lint"]
    configs = sorted(arguments.folder.rglob("*.yaml"))
    config = arguments.config or max(configs, key=lambda path: path.stat().st_size)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder / "pyc"), "MS_TUNE_CACHE": str(folder / "cache")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        print(json.dumps({"python": sys.version.split()[0], "cores": os.cpu_count(), "load": os.getloadavg()[0]}))
        one_file(Path(shutil.copy(config, folder)), folder, arguments.peers, environment)
        many_files(configs, folder / "many", arguments.peers, environment)


if __name__ == "__main__":
    main()
