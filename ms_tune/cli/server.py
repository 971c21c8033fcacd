"""Define ``ms-tune server``, a language server for editors (LSP over standard input and output)."""

from __future__ import annotations

import sys
from argparse import Namespace
from importlib import import_module

from ms_tune.cli.device import add_device_arguments, device_fields
from ms_tune.cli.parser import Parser
from ms_tune.dryrun.request import DryrunRequest
from ms_tune.errors import ExitCode, UsageError
from ms_tune.extras import need
from ms_tune.report.console import Console, usage_hint
from ms_tune.text import Language, msg
from ms_tune.workflows.check.config import OverviewRequest

_PROGRAM = "ms-tune server"


def build_parser(language: Language) -> Parser:
    """Return the command's parser."""
    parser = Parser(_PROGRAM, language, "server.description", "server.examples")
    parser.flag("--stdio", "server.help.stdio")
    add_device_arguments(parser)
    parser.option("--framework-version", "check.help.version", metavar="VERSION")
    parser.add_common_arguments(json=False)
    return parser


def run(arguments: Namespace, console: Console) -> ExitCode:
    """Serve an editor until it closes the connection."""
    need(_PROGRAM, "server", "pygls")
    if sys.stdin.isatty():
        raise UsageError(msg("server.terminal"), usage_hint(_PROGRAM))
    job = DryrunRequest(**device_fields(arguments), fewest_layers=True)
    request = OverviewRequest(job, arguments.framework_version, arguments.allow_tight)
    output, sys.stdout = sys.stdout.buffer, sys.stderr  # a printed text would break the protocol
    import_module("ms_tune.cli.language_server").serve(request, console, output)  # imports pygls
    return ExitCode.OK
