"""What ``ms-tune dryrun`` does alike for configs and for commands."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ms_tune.dryrun.request import StageChoice
from ms_tune.encode import json_text
from ms_tune.errors import ConfigError, UsageError
from ms_tune.source.atomic_write import write_atomically
from ms_tune.text import msg
from ms_tune.units import whole_number

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping

    from ms_tune.report.console import Console


def parse_numbers(option: str, text: str) -> tuple[int, ...]:
    """``0,3`` as numbers."""
    found = [whole_number(part) for part in text.split(",")]
    if None in found:
        raise UsageError(msg("cli.usage.value", argument=option, detail=msg("dryrun.numbers", text=text)))
    return tuple(number for number in found if number is not None)


def shared_fields(arguments: Namespace) -> dict[str, Any]:
    """The fields that requests for configs and for commands have in common, by their names."""
    return {
        "ranks": parse_numbers("--ranks", arguments.ranks) if arguments.ranks else (),
        "layers": arguments.layers if isinstance(arguments.layers, int) else None,
        "devices": arguments.devices,
        "device_bytes": arguments.device_memory,
        "chip": arguments.chip,
        "reserve_bytes": arguments.reserve or 0,
        "run_folder": arguments.run_dir,
        "timeout": arguments.timeout,
        "level": arguments.level,
        "jobs": arguments.jobs,
        "engine": arguments.engine,
        "real": arguments.real,
    }


def parse_stages(arguments: Namespace) -> StageChoice | tuple[int, ...]:
    """The pipeline stages that are asked for."""
    if arguments.stage:
        return tuple(arguments.stage)
    text = arguments.stages or StageChoice.ALL.value
    return StageChoice(text) if text in {choice.value for choice in StageChoice} else parse_numbers("--stages", text)


def present_report(report: Mapping[str, object], folder: Path, arguments: Namespace, console: Console) -> bool:
    """Keep what ``--json`` prints in the run folder, and print it where it is asked for; whether words are wanted instead."""
    with contextlib.suppress(ConfigError):  # on a full disk the user has seen it all the same
        write_atomically(folder / "report.json", (json_text(report, indent=2) + "\n").encode())
    if arguments.json:
        console.write_json(report)
    return not arguments.json


def refuse_options(arguments: Namespace, options: Mapping[str, object], text_id: str) -> None:
    """Raise :class:`UsageError` if an option was given that makes no sense here.

    Args:
        arguments: The command line.
        options: Names of options, with the values that they have when they are not given.
        text_id: What to say, with ``options``.
    """
    given = [name for name, default in options.items() if getattr(arguments, name) != default]
    if given:
        raise UsageError(msg(text_id, options=", ".join(f"--{name.replace('_', '-')}" for name in given)))


def python_of(name: str | None) -> str | None:
    """The interpreter, by its path from the root: the command may run elsewhere."""
    found = shutil.which(name) if name is not None else None
    if name is not None and found is None:
        raise UsageError(msg("stages.command.absent", program=name), msg("stages.command.absent.hint"))
    return None if found is None else str(Path(found).absolute())
