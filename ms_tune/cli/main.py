"""Find the command, run it, and turn every failure into a message and an exit code."""

from __future__ import annotations

import argparse
import errno
import gc
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from itertools import pairwise
from pathlib import Path

from ms_tune.cli import COMMANDS, lint
from ms_tune.cli.parser import Parser, UnknownArgumentError, fit_to_terminal, language_from_arguments, list_commands
from ms_tune.errors import USUAL, ExitCode, MsTuneError, UsageError, reason_of, shell_line, trace_of
from ms_tune.facts.query import installed_version
from ms_tune.records import Any
from ms_tune.report.console import Console
from ms_tune.text import Language, language_from_environment, msg
from ms_tune.version import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO


_INTERRUPTED, _SIGINT = 128, 2  # shells report their sum
# OS errors outside this set are treated as defects of ms-tune.
_TROUBLE = {*USUAL, errno.EMFILE, errno.ENFILE, errno.ESTALE}


def main(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    language = language_from_arguments(arguments, language_from_environment())
    console = Console(language)
    try:
        try:
            code = _run_command(arguments, console)
        except SystemExit as done:  # raised by argparse for --help and --version
            code = int(done.code or 0)
        sys.stdout.flush()  # here a closed pipe can still be distinguished from a failure
    except KeyboardInterrupt as stop:  # Python raises it without a number for Ctrl-C
        console.note(console.text("cli.interrupted"))
        return _INTERRUPTED + (stop.args[0] if stop.args else _SIGINT)
    except Exception as error:  # noqa: BLE001 - report any defect with its own exit code
        return _fail(error, console)
    return code


def _fail(error: Exception, console: Console) -> int:
    known = trouble(error) if isinstance(error, OSError) else error
    if isinstance(known, MsTuneError):
        console.fail(known)
        return known.exit_code
    console.note(trace_of(error))
    console.note(console.text("cli.internal", error=type(error).__name__))
    return ExitCode.INTERNAL


def _run_command(arguments: Sequence[str], console: Console) -> int:
    if not arguments:
        about = import_module("ms_tune.cli.start").describe_folder(Path(), console)
        console.write_raw(fit_to_terminal("\n\n".join(filter(None, (about, console.text("cli.start"))))))
        return ExitCode.OK
    options, rest = list(arguments), []
    for position, argument in enumerate(arguments):
        if argument in COMMANDS:
            options, rest = list(arguments[:position]), list(arguments[position:])
            break
    if options or not rest:
        # Help, version, or an error; importing the parser takes a tenth of the time to check a config.
        top = _top_parser(console.language)
        try:
            top.parse_args([*options, *rest[:1]])
        except UsageError as error:
            if not rest or not isinstance(error, UnknownArgumentError):
                raise
            typed = shell_line("ms-tune", rest[0], *options, *rest[1:])
            raise UsageError(error.message, msg("cli.usage.order", command=typed)) from None
        if not rest:
            top.print_help()
            return ExitCode.USAGE
    if rest[0] == "help" and COMMANDS.keys() & rest[1:2]:
        rest = [*rest[1:], "--help"]  # also of a subcommand: `help memory plan`
    _check_words(rest)
    command = lint if rest[0] == "lint" else import_module(f"ms_tune.cli.{COMMANDS[rest[0]]}")
    parsed = command.build_parser(console.language).parse_args(rest[1:])
    code: int = command.run(parsed, console)
    return code


def _check_words(words: Sequence[str]) -> None:
    """Raise an error if a file name, as hooks and workflows pass it, would be read as a command or an option."""
    for before, word in pairwise(words):
        if word == "--":
            return
        if not word and not before.startswith("-"):
            raise UsageError(msg("cli.usage.empty"), msg("cli.usage.empty.hint"))  # pathlib takes it as this folder
        if word.startswith("-") and word != "-" and os.path.lexists(word):
            raise UsageError(msg("cli.usage.disguised", file=word), msg("cli.usage.disguised.hint", file=word))


def _complete(language: Language) -> None:
    """Print shell completions and exit; do nothing without argcomplete (extra ``completion``)."""
    try:
        import argcomplete  # noqa: PLC0415 - only for completion
    except ModuleNotFoundError:
        return
    argcomplete.autocomplete(_build_completion_parser(language, os.environ.get("COMP_LINE", "").split()))


def _build_completion_parser(language: Language, words: list[str]) -> argparse.ArgumentParser:
    """Return a parser of the whole command line; only the typed command is imported."""
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
    parser.before_examples = f"{list_commands(parser.tr)}\n\n"
    parser.option("command", "cli.help.command", choices=list(COMMANDS), metavar="COMMAND", nargs="?")
    return parser


def _version() -> str:
    names = {"mindspore": "MindSpore", "mindformers": "MindFormers", "mindspeed_llm": "MindSpeed-LLM"}
    here = [f"{name} {found}" for package, name in names.items() if (found := installed_version(package))]
    python = f"Python {sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}"
    return f"ms-tune {__version__} ({', '.join([python, *here])})"


class OutputStream:
    """Standard output that ignores writes after its reader has closed the pipe.

    A closed pipe (``ms-tune lint ... | head``) is not an error and does not change the exit code: further output is
    dropped.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text."""
        if self._stream is None:
            raise UsageError(msg("cli.stdout.closed"))
        try:
            return self._stream.write(text)
        except OSError as error:
            self._drop(error)
            return len(text)

    def flush(self) -> None:
        """Write the buffered text."""
        try:
            if self._stream is not None:
                self._stream.flush()
        except OSError as error:
            self._drop(error)

    def isatty(self) -> bool:
        """Return whether the stream is a terminal."""
        return self._stream is not None and self._stream.isatty()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute of the stream
        return getattr(self._stream, name)

    def _drop(self, error: OSError) -> None:
        """Redirect the stream to /dev/null, so that the flush at exit cannot fail; raise unless a pipe was closed."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())  # type: ignore[union-attr] # it has just failed
        if not isinstance(error, BrokenPipeError):
            raise UsageError(msg("cli.stdout.failed", reason=reason_of(error))) from None


def prepare() -> None:
    """Make the standard streams robust: closed pipes are ignored, and Chinese text does not fail in locale "C"."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    sys.stdout = OutputStream(sys.stdout)
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - open until the process ends


def trouble(error: OSError) -> UsageError | None:
    """Return the user's error for a failed file operation; None if it indicates a defect of ms-tune."""
    if error.errno not in _TROUBLE:
        return None
    names = ", ".join(str(name) for name in (error.filename, error.filename2) if name is not None)
    if not names and error.errno == errno.ENOENT:  # raised by `os.getcwd`
        return UsageError(msg("cli.no-working-folder"))
    return UsageError(msg("cli.trouble", file=names or "-", reason=reason_of(error)))


def entry_point() -> None:
    """Run the program as the console script ``ms-tune``."""
    if "_ARGCOMPLETE" in os.environ:
        _complete(language_from_environment())
    prepare()
    code = main(sys.argv[1:])
    gc.freeze()  # skip the final garbage collection, which takes a tenth of the time of `lint`
    if sys.argv[1:2] in (["lint"], ["check"]):  # hooks run these; mypy ends like this too
        with suppress(OSError, MsTuneError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)  # freeing every object takes a twentieth of the time of `lint`
    sys.exit(code)
