"""Create requests from the arguments of ``dryrun``, and write its results, for configs and commands."""

from __future__ import annotations

import contextlib
import shutil
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ms_tune.cli.device import device_fields, exit_code
from ms_tune.dryrun.request import DryrunRequest, Setting, StageChoice
from ms_tune.dryrun.stored_runs import REPORT, RUNS, list_runs
from ms_tune.errors import ConfigError, ExitCode, UsageError
from ms_tune.report.console import Console, shown_path
from ms_tune.source.atomic_write import write_atomically
from ms_tune.text import msg
from ms_tune.units import mib, whole_number

if TYPE_CHECKING:
    from ms_tune.dryrun.result import DryrunResult

_MANY_BYTES = 5_000_000_000


def _parse_numbers(option: str, text: str) -> tuple[int, ...]:
    found = [whole_number(part) for part in text.split(",")]
    if None in found:
        raise UsageError(msg("cli.usage.value", argument=option, detail=msg("dryrun.numbers", text=text)))
    return tuple(number for number in found if number is not None)


def shared_fields(arguments: Namespace) -> dict[str, Any]:
    """Return the fields that requests for configs and commands share."""
    return {
        "ranks": _parse_numbers("--ranks", arguments.ranks) if arguments.ranks else (),
        "layers": arguments.layers if isinstance(arguments.layers, int) else None,
        "devices": arguments.devices,
        **device_fields(arguments),
        "run_folder": arguments.run_dir,
        "timeout": arguments.timeout,
        "level": arguments.level,
        "jobs": arguments.jobs,
        "engine": arguments.engine,
    }


def parse_stages(arguments: Namespace) -> StageChoice | tuple[int, ...]:
    """Return the requested pipeline stages."""
    if arguments.stage:
        return tuple(arguments.stage)
    text = arguments.stages or StageChoice.ALL.value
    return StageChoice(text) if text in {choice.value for choice in StageChoice} else _parse_numbers("--stages", text)


def warn_of_many(run_folder: Path, console: Console) -> None:
    """Say so if the runs in the folder of a new one take more than 5 GB."""
    size = sum(one.bytes for one in list_runs([run_folder.parent])) if run_folder.parent.name == RUNS else 0
    if size > _MANY_BYTES:
        console.note(console.text("runs.many", folder=shown_path(run_folder.parent), size=mib(size)))


def present_report(report: Mapping[str, object], folder: Path, arguments: Namespace, console: Console) -> bool:
    """Save the JSON in the run folder, print it if requested, and return whether to show text instead."""
    with contextlib.suppress(ConfigError):  # on a full disk, the user still sees the result
        write_atomically(folder / REPORT, (console.json_text(report) + "\n").encode())
    warn_of_many(folder, console)
    if arguments.json:
        console.write_json(report)
    return not arguments.json


def python_of(name: str | None) -> str | None:
    """Return the absolute path of a Python interpreter, because the command may run in another folder."""
    found = shutil.which(name) if name is not None else None
    if name is not None and found is None:
        raise UsageError(msg("stages.command.absent", program=name), msg("stages.command.absent.hint"))
    return None if found is None else str(Path(found).absolute())


def config_request(arguments: Namespace) -> DryrunRequest:
    """Return the request for a config."""
    return DryrunRequest(
        config=arguments.config,
        fewest_layers=_wants_fewest_layers(arguments),
        stages=parse_stages(arguments),
        extrapolate=not arguments.no_extrapolate,
        settings=tuple(map(Setting.parse, arguments.set)),
        reference=arguments.reference,
        model_config=arguments.model_config,
        **shared_fields(arguments),
    )


def _wants_fewest_layers(arguments: Namespace) -> bool:
    # True if ms-tune chooses the layers: the user did not, and no figure of the whole model is requested.
    whole = arguments.no_extrapolate or not arguments.level or arguments.compare_real
    return bool(arguments.layers == "auto" or (arguments.layers is None and not whole))


def config_exit_code(results: Sequence[DryrunResult], arguments: Namespace) -> ExitCode:
    """Return the exit code; results that were only compiled have no verdict."""
    return exit_code([result.verdict for result in results if result.stages], arguments)
