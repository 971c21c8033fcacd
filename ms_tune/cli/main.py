"""``ms-tune``: finds the command, runs it, and turns every failure into a text and an exit code."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from importlib import import_module

from ms_tune.cli.parser import Parser, UnknownArgumentError, fit_to_terminal, language_from_arguments
from ms_tune.cli.streams import prepare, trouble
from ms_tune.errors import ExitCode, MsTuneError, UsageError
from ms_tune.facts.query import installed_version
from ms_tune.report.console import Console
from ms_tune.text import language_from_environment, msg
from ms_tune.version import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ms_tune.text import Language

# Command, and the module of this package that holds it. The one-line help of NAME is the text "NAME.summary".
COMMANDS = {
    "check": "check",
    "lint": "lint",
    "rule": "rule",
    "schema": "schema",
    "init": "init",
    "normalize-recompute": "normalize",
    "migrate": "migrate",
    "dryrun": "dryrun",
    "memory": "memory",
    "fit": "fit",
    "metrics": "metrics",
    "profile": "profile",
}

_ASKED = "_ARGCOMPLETE"  # the variable with which a shell asks what may follow
_INTERRUPTED = 130  # 128 + SIGINT, as shells report it


def main(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    language = language_from_arguments(arguments, language_from_environment())
    console = Console(language)
    try:
        try:
            code = _run_command(arguments, console)
        except SystemExit as done:  # how argparse ends --help and --version
            code = int(done.code or 0)
        sys.stdout.flush()  # here, where a reader that went away can still be told from a failure
    except MsTuneError as error:
        console.fail(error)
        return error.exit_code
    except KeyboardInterrupt:
        console.note(console.text("cli.interrupted"))
        return _INTERRUPTED
    except OSError as error:
        return _fail_of_system(error, console)
    except Exception as error:  # noqa: BLE001 - the last resort, so that a defect has an exit code of its own
        return _fail_of_defect(error, console)
    return code


def _fail_of_system(error: OSError, console: Console) -> int:
    known = trouble(error)
    if known is None:
        return _fail_of_defect(error, console)
    console.fail(known)
    return known.exit_code


def _fail_of_defect(error: Exception, console: Console) -> int:
    import traceback  # noqa: PLC0415 - start-up time

    console.note("".join(traceback.format_exception(error)))
    console.note(console.text("cli.internal", error=type(error).__name__))
    return ExitCode.INTERNAL


def _run_command(arguments: Sequence[str], console: Console) -> int:
    if not arguments:
        console.write_whole(fit_to_terminal(console.text("cli.start")))
        return ExitCode.OK
    options, rest = list(arguments), []
    for position, argument in enumerate(arguments):
        if argument in COMMANDS:
            options, rest = list(arguments[:position]), list(arguments[position:])
            break
    if options or not rest:
        # Help, version, or a mistake; the parser that explains them takes a tenth of the time of checking a config.
        top = _top_parser(console.language)
        try:
            top.parse_args([*options, *rest[:1]])
        except UsageError as error:
            if not rest or not isinstance(error, UnknownArgumentError):
                raise
            import shlex  # noqa: PLC0415 - start-up time

            typed = shlex.join(["ms-tune", rest[0], *options, *rest[1:]])
            raise UsageError(error.message, msg("cli.usage.order", command=typed)) from None
        if not rest:
            top.print_help()
            return ExitCode.USAGE
    command = import_module(f"ms_tune.cli.{COMMANDS[rest[0]]}")
    parsed = command.build_parser(console.language).parse_args(rest[1:])
    code: int = command.run(parsed, console)
    return code


def _complete(language: Language) -> None:
    """Answer the shell that asks what may follow, and end the process; without argcomplete (extra ``completion``) there is no answer.

    Args:
        language: The language of explanations, which some shells show.
    """
    try:
        import argcomplete  # noqa: PLC0415 - only where a shell asks
    except ModuleNotFoundError:
        return
    argcomplete.autocomplete(_completed(language, os.environ.get("COMP_LINE", "").split()))


def _completed(language: Language, words: list[str]) -> argparse.ArgumentParser:
    """A parser of the whole command line; of all commands only the one that was typed is imported."""
    parser = argparse.ArgumentParser(prog="ms-tune")
    places = parser.add_subparsers()
    for name, module in COMMANDS.items():
        if name not in words[1:]:
            places.add_parser(name)
            continue
        command = import_module(f"ms_tune.cli.{module}")
        inner = getattr(command, "SUBCOMMANDS", {})
        deeper = next((word for word in words[2:] if word in inner), None)
        if deeper is None:
            one = command.build_parser(language)
            places.add_parser(name, parents=[one], add_help=False)
        else:
            below = places.add_parser(name).add_subparsers()
            one = inner[deeper].build_parser(language)
            below.add_parser(deeper, parents=[one], add_help=False)
        one.write_texts()
    return parser


def _top_parser(language: Language) -> Parser:
    parser = Parser("ms-tune", language, "cli.description", "cli.examples")
    parser.option("--version", "cli.help.version", action="version", version=_version())
    parser.add_common_arguments(json=False)
    summaries = "\n".join(f"  {name:<22}{parser.tr(f'{module}.summary')}" for name, module in COMMANDS.items())
    parser.before_examples = f"{parser.tr('cli.title.commands')}:\n{summaries}\n\n"
    parser.option("command", "cli.help.command", choices=list(COMMANDS), metavar="COMMAND", nargs="?")
    return parser


def _version() -> str:
    """ms-tune, and the frameworks that were found beside it."""
    names = {"mindspore": "MindSpore", "mindformers": "MindFormers", "mindspeed_llm": "MindSpeed-LLM"}
    here = [f"{name} {found}" for package, name in names.items() if (found := installed_version(package))]
    python = f"Python {sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}"
    return f"ms-tune {__version__} ({', '.join([python, *here])})"


def entry_point() -> None:
    """The console script."""
    if _ASKED in os.environ:
        _complete(language_from_environment())
    prepare()
    code = main(sys.argv[1:])
    gc.freeze()  # what is left ends with the process; looking through it once more takes a tenth of the time of `lint`
    sys.exit(code)
