"""Put a huge number at every place of a config: ``python -m tests.fuzz.huge CONFIG``.

An extremely large number must be refused or harmless: it must not fill the memory nor keep a loop busy. Failures are
printed. The process may use 2 GiB and ten seconds of processor time per value, so that a failure is caused by ms-tune
and not by the machine.
"""

from __future__ import annotations

import contextlib
import io
import os
import resource
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from ms_tune.cli.main import main
from ms_tune.dryrun.request import DryrunRequest
from ms_tune.dryrun.shrink import mindformers
from ms_tune.enums import Dialect
from ms_tune.errors import ExitCode, MsTuneError
from ms_tune.job import Job
from ms_tune.job.detect import recognise
from ms_tune.source.yaml import load_source
from tests import dynamic_jobs
from tests.dryrun.fuzz import paths, replaced

_MEMORY = 2 << 30
_SECONDS = 10.0
_VALUES: tuple[Any, ...] = (10**30, [10**7])


def _prepare(config: Path) -> None:
    source = load_source(config)
    dialect = recognise(source.data).dialect or Dialect.MINDFORMERS
    request = DryrunRequest(config=config, layers=2)
    with contextlib.suppress(MsTuneError):
        if dialect is Dialect.MINDFORMERS:
            mindformers.prepare_mindformers(
                mindformers.prepare_config(Job(source, dialect=dialect), None), config.name, request
            )
        else:
            dynamic_jobs.prepare(source, config.name, request, None, dialect)


def _command(*arguments: str) -> Callable[[Path], None]:
    def run(config: Path) -> None:
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = main([*arguments, str(config)])
        assert code != ExitCode.INTERNAL, said.getvalue()

    return run


_READERS: dict[str, Callable[[Path], None]] = {
    "dryrun": _prepare,
    "lint": _command("lint"),
    "normalize-recompute": _command("normalize-recompute"),
}


def failures(config: Path, scratch: Path) -> Iterator[str]:
    """Return the failures of one of two values at each key path, alternating; ``MS_TUNE_TEST_MORE`` tries both."""
    data = yaml.safe_load(config.read_text(encoding="utf-8"))
    changed = scratch / "config.yaml"
    for number, path in enumerate(paths(data)):
        for value in _VALUES if "MS_TUNE_TEST_MORE" in os.environ else _VALUES[number % 2 :][:1]:
            changed.write_text(yaml.dump(replaced(data, path, value), Dumper=yaml.CSafeDumper), encoding="utf-8")
            for name, read in _READERS.items():
                signal.setitimer(signal.ITIMER_PROF, _SECONDS)
                try:
                    read(changed)
                except Exception as error:  # noqa: BLE001 - any exception is what is looked for
                    yield f"{name}: {'.'.join(map(str, path))} = {value!r}: {error!r}"
                finally:
                    signal.setitimer(signal.ITIMER_PROF, 0)


def _too_slow(*_: object) -> None:
    raise TimeoutError


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    signal.signal(signal.SIGPROF, _too_slow)
    with tempfile.TemporaryDirectory() as place:
        found = list(failures(Path(sys.argv[1]), Path(place)))
    sys.stderr.write("\n".join(found))
    sys.exit(bool(found))
