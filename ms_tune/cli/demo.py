"""Define ``ms-tune demo``, which walks through a config that does not fit, in a folder of its own."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from ms_tune.cli import check, lint
from ms_tune.cli.parser import Parser
from ms_tune.dryrun.request import DEFAULT_TEMPLATE
from ms_tune.errors import ExitCode, UsageError, shell_line
from ms_tune.facts.query import data_folder
from ms_tune.report.console import Console
from ms_tune.source.atomic_write import write_atomically
from ms_tune.text import Language, msg
from ms_tune.workflows.check.run import check_job

# The template without recomputation, and with a number that YAML reads as text.
_CHANGES = (("recompute: [32]", "recompute: [0] "), ("min_lr: 0.00003", "min_lr: 3e-5"), (": all 32 layers", ""))


def build_parser(language: Language) -> Parser:
    """Return the command's parser."""
    parser = Parser("ms-tune demo", language, "demo.description", "demo.examples")
    parser.option("folder", "demo.help.folder", nargs="?", metavar="FOLDER", type=Path, default=Path("ms-tune-demo"))
    parser.add_common_arguments(json=False)
    return parser


def run(arguments: Namespace, console: Console) -> ExitCode:
    """Write the config, and run the commands that lead to one that is estimated to fit."""
    file: Path = arguments.folder / "train.yaml"
    if file.exists():
        raise UsageError(msg("init.exists", file=file), msg("demo.exists.hint"))
    text = (data_folder("yaml_templates") / DEFAULT_TEMPLATE).read_text("utf-8")
    _comments, _, body = text.partition("\n\n")
    for old, new in _CHANGES:
        body = body.replace(old, new)
    write_atomically(file, f"{console.text('demo.head')}\n# devices: 8\n\n{body}".encode(), parents=True)
    console.write(console.text("demo.written", file=file))
    name = str(file)
    _show_step("demo.check", "check", [name], console)
    _show_step("demo.lint", "lint", [name], console)
    _show_step("demo.fix", "lint", ["--fix", name], console)
    change = check_job(file).change
    settings = [word for one in (change.settings if change else ()) for word in ("--set", str(one))]
    _show_step("demo.change", "check", [name, *settings], console)
    console.write_section("demo.further", file=file)
    return ExitCode.OK


def _show_step(text_id: str, command: str, words: list[str], console: Console) -> None:
    """Print the reason for a command, the command, and its output."""
    console.write_section(text_id)
    console.write_raw(f"$ {shell_line('ms-tune', command, *words)}")
    module = {"check": check, "lint": lint}[command]
    module.run(module.build_parser(console.language).parse_args(words), console)
