"""Define the options about device memory, and map verdicts to an exit code; shared by all commands."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable
from functools import partial

from ms_tune.cli.parser import Parser
from ms_tune.errors import ExitCode
from ms_tune.records import Any
from ms_tune.verdict.limit import device_of
from ms_tune.verdict.outcome import Fit, Verdict


def add_device_arguments(parser: Parser, *limit: str) -> None:
    """Add ``--chip``, ``--device-memory``, ``--reserve`` and ``--allow-tight``.

    ``limit`` names a further option that sets the limit itself.
    """
    which = parser.add_mutually_exclusive_group()
    parser.option("--device-memory", "verdict.help.device-memory", type=parser.size, metavar="SIZE", into=which)
    parser.option("--chip", "verdict.help.chip", type=partial(parser.check, device_of), metavar="NAME", into=which)
    if limit:
        parser.option(", ".join(limit), "verdict.help.limit", type=parser.size, metavar="SIZE", into=which)
    parser.option("--reserve", "verdict.help.reserve", type=parser.size, metavar="SIZE")
    parser.flag("--allow-tight", "verdict.help.allow-tight")


def device_fields(arguments: Namespace) -> dict[str, Any]:
    """Return the fields of a request that these options set."""
    return {
        "device_bytes": arguments.device_memory,
        "chip": arguments.chip,
        "reserve_bytes": arguments.reserve or 0,
    }


def exit_code(verdicts: Iterable[Verdict], arguments: Namespace) -> ExitCode:
    """Return 0 if all jobs fit, 1 if one is tight or does not fit, 2 if one has no verdict and none does not fit."""
    found = list(verdicts)
    outcomes = {one.outcome for one in found}
    if None in outcomes and Fit.DOES_NOT_FIT not in outcomes:
        return ExitCode.USAGE
    good = all(one.is_good(allow_tight=arguments.allow_tight) for one in found)
    return ExitCode.OK if good else ExitCode.FINDINGS
