"""``ms-tune dryrun``: does it fit?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune.cli.parser import Parser, integer_argument, size_argument
from ms_tune.dryrun.device import CHIPS
from ms_tune.dryrun.request import DryrunRequest
from ms_tune.errors import ExitCode
from ms_tune.texts import msg

if TYPE_CHECKING:
    from argparse import Namespace

    from ms_tune.render.console import Console
    from ms_tune.texts import Language, Message


def build_parser(language: Language) -> Parser:
    """The command's own parser."""
    parser = Parser(
        prog="ms-tune dryrun",
        language=language,
        description=msg("dryrun.description"),
        epilog=msg("dryrun.examples"),
    )
    count = integer_argument(language, minimum=1)
    size = size_argument(language)
    parser.add_argument("config", nargs="?", type=Path, metavar="CONFIG", help=parser.tr("dryrun.help.config"))
    parser.add_argument("--layers", type=count, metavar="N", help=parser.tr("dryrun.help.layers"))
    parser.add_argument(
        "--stage",
        type=integer_argument(language, minimum=0),
        default=0,
        metavar="K",
        help=parser.tr("dryrun.help.stage"),
    )
    parser.add_argument("--devices", type=count, metavar="N", help=parser.tr("dryrun.help.devices"))
    memory = parser.add_mutually_exclusive_group()
    memory.add_argument("--device-memory", type=size, metavar="SIZE", help=parser.tr("dryrun.help.device-memory"))
    memory.add_argument("--chip", choices=sorted(CHIPS), help=parser.tr("dryrun.help.chip"))
    parser.add_argument("--run-dir", type=Path, metavar="DIR", help=parser.tr("dryrun.help.run-dir"))
    parser.add_argument("--timeout", type=count, default=3600, metavar="SECONDS", help=parser.tr("dryrun.help.timeout"))
    parser.add_argument("--check", action="store_true", help=parser.tr("dryrun.help.check"))
    parser.add_common_arguments()
    return parser


def run(arguments: Namespace, console: Console) -> ExitCode:
    """Simulate, show, judge."""
    if arguments.check:
        return _check(arguments, console)
    from ms_tune.dryrun.result import Verdict  # noqa: PLC0415
    from ms_tune.dryrun.run import dryrun  # noqa: PLC0415 - imported late: start-up time
    from ms_tune.render import dryrun_json, dryrun_text  # noqa: PLC0415

    progress = _Progress(console)
    try:
        result = dryrun(
            DryrunRequest(
                config=arguments.config,
                layers=arguments.layers,
                stage=arguments.stage,
                devices=arguments.devices,
                device_bytes=CHIPS[arguments.chip] if arguments.chip else arguments.device_memory,
                run_folder=arguments.run_dir,
                timeout=arguments.timeout,
            ),
            progress.show,
        )
    finally:
        progress.clear()
    for warning in result.warnings:
        console.warn(warning)
    if arguments.json:
        console.write_json(dryrun_json.to_json(result, console))
    else:
        dryrun_text.show(result, console)
    return ExitCode.OK if result.verdict is Verdict.FITS else ExitCode.FINDINGS


def _check(arguments: Namespace, console: Console) -> ExitCode:
    from ms_tune.dryrun.check import check_machine  # noqa: PLC0415 - imported late: start-up time
    from ms_tune.render import dryrun_check  # noqa: PLC0415

    check = check_machine()
    if arguments.json:
        console.write_json(dryrun_check.to_json(check, console))
    else:
        dryrun_check.show(check, console)
    return ExitCode.USAGE if check.problem else ExitCode.OK


class _Progress:
    """One line on standard error that is rewritten on a terminal; elsewhere each new phase is a line of its own."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = sys.stderr.isatty()
        self._last_id = ""
        self._last_text = ""

    def show(self, message: Message) -> None:
        """Show what is going on."""
        text = self._console.say(message)
        if self._live and text != self._last_text:
            sys.stderr.write(f"\r\033[K{text}")
            sys.stderr.flush()
        elif not self._live and message.id != self._last_id:
            self._console.note(text)
        self._last_id, self._last_text = message.id, text

    def clear(self) -> None:
        """Leave the terminal clean."""
        if self._live and self._last_text:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
