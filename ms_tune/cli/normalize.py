"""``ms-tune normalize-recompute``: what each layer of a config will recompute."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune.cli.parser import Parser
from ms_tune.config.dialects.mindformers import VERSIONS, read_recompute, swap_is_dropped
from ms_tune.config.dialects.recognise import Dialect, recognise
from ms_tune.config.source import load_source
from ms_tune.errors import ConfigError, ExitCode, UnsupportedError, UsageError
from ms_tune.layers import Problem, Severity, normalize
from ms_tune.render.console import usage_hint
from ms_tune.render.normalize_json import plan_json
from ms_tune.render.normalize_text import log_text, write_plan
from ms_tune.texts import msg

if TYPE_CHECKING:
    from argparse import Namespace

    from ms_tune.config.source import SourceFile
    from ms_tune.render.console import Console
    from ms_tune.texts import Language

_PROGRAM = "ms-tune normalize-recompute"


def build_parser(language: Language) -> Parser:
    """The command's own parser."""
    parser = Parser(
        prog=_PROGRAM,
        language=language,
        description=msg("normalize.description"),
        epilog=msg("normalize.examples"),
    )
    parser.add_common_arguments()
    parser.add_argument("--as-log", action="store_true", help=parser.tr("normalize.help.as-log"))
    parser.add_argument("file", metavar="FILE", type=Path, help=parser.tr("normalize.help.file"))
    return parser


def run(arguments: Namespace, console: Console) -> ExitCode:
    """Read the config, work out the plan, show it."""
    if arguments.json and arguments.as_log:
        raise UsageError(msg("cli.usage.not-allowed", argument="--as-log", other="--json"), usage_hint(_PROGRAM))
    source = load_source(arguments.file)
    _check_dialect(source)
    inputs = read_recompute(source)
    plan = normalize(inputs)
    if swap_is_dropped(source):
        problem = Problem("swap-dropped", Severity.WARNING, msg("normalize.swap-dropped"))
        plan = replace(plan, problems=(*plan.problems, problem))
    if arguments.json:
        console.write_json(plan_json(plan, Dialect.MINDFORMERS.value, VERSIONS, console.language))
    elif arguments.as_log:
        console.write(log_text(plan))
        for problem in plan.problems:
            if problem.severity is not Severity.INFO:
                console.warn(problem.message)
    else:
        write_plan(inputs, plan, Dialect.MINDFORMERS.value, VERSIONS, console)
    complaints = any(problem.severity is not Severity.INFO for problem in plan.problems)
    return ExitCode.FINDINGS if complaints else ExitCode.OK


def _check_dialect(source: SourceFile) -> None:
    dialect = recognise(source.data).dialect
    if dialect is None:
        raise ConfigError(msg("normalize.no-dialect"), path=source.path)
    if dialect is not Dialect.MINDFORMERS:
        raise UnsupportedError(msg("normalize.dialect", dialect=dialect.value))
