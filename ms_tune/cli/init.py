"""Define ``ms-tune init``, which copies a tested template config or writes one for a model and a number of NPUs."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ms_tune.cli.device import add_device_arguments
from ms_tune.cli.init_job import write_new_job
from ms_tune.cli.parser import Parser
from ms_tune.encode import record_json
from ms_tune.enums import YAML_DIALECTS, Dialect
from ms_tune.errors import ExitCode, UsageError, closest
from ms_tune.facts.query import data_folder, load
from ms_tune.report.console import Console, usage_hint
from ms_tune.source.atomic_write import write_atomically
from ms_tune.text import Language, msg

_PROGRAM = "ms-tune init"
_FOLDER = "yaml_templates"
VERSION = 1


@dataclass(frozen=True, slots=True)
class Template:
    """A template config: its name, dialect, file, and description (its first two lines, English and Chinese)."""

    name: str
    dialect: Dialect
    file: Path
    summary: dict[Language, str]


def list_templates() -> tuple[Template, ...]:
    """Return the template configs that ms-tune includes."""
    found = []
    for dialect in YAML_DIALECTS:
        for file in sorted((data_folder(_FOLDER) / dialect.value.replace("-", "_")).glob("*.yaml")):
            with file.open(encoding="utf-8") as lines:
                english, chinese = (next(lines).lstrip("# ").rstrip() for _ in range(2))
            found.append(Template(file.stem, dialect, file, {Language.EN: english, Language.ZH: chinese}))
    return tuple(found)


def build_parser(language: Language) -> Parser:
    """Return the command's parser."""
    parser = Parser(_PROGRAM, language, "init.description", "init.examples")
    parser.option(
        "name",
        "init.help.name",
        nargs="?",
        metavar="NAME",
        among=lambda: [template.name for template in list_templates()],
    )
    parser.option("destination", "init.help.destination", nargs="?", metavar="DEST", type=Path)
    parser.flag("--list", "init.help.list")
    parser.option("--model", "init.help.model", metavar="NAME", among=lambda: load("sizes")["models"])
    parser.option("--model-config", "init.help.model-config", type=Path, metavar="PATH")
    parser.option("--devices", "init.help.devices", type=parser.count, metavar="N")
    parser.option("--seq", "init.help.seq", type=parser.count, metavar="TOKENS")
    parser.option("--global-batch", "init.help.global-batch", type=parser.count, metavar="SAMPLES")
    parser.option("--dialect", "init.help.dialect", choices=list(load("from_zero")["trains"]))
    parser.file("-o, --output", "init.help.output")
    parser.flag("--no-verify", "init.help.no-verify")
    parser.flag("--diff", "init.help.diff")
    parser.flag("--force", "init.help.force")
    add_device_arguments(parser)
    parser.add_common_arguments(verdict=False)
    return parser


def run(arguments: Namespace, console: Console) -> int:
    """List the templates, copy one, or write a config for a model and a number of NPUs."""
    if arguments.model is not None or arguments.model_config is not None:
        return write_new_job(arguments, console)
    known = list_templates()
    if arguments.list:
        _show_templates(known, console, json=arguments.json)
        return ExitCode.OK
    if arguments.name is None:
        raise UsageError(msg("init.which"), usage_hint(_PROGRAM))
    template = next((one for one in known if one.name == arguments.name), None)
    if template is None:
        similar = closest(arguments.name, [one.name for one in known])
        hint = msg("rule.unknown.similar", similar=similar) if similar else msg("init.unknown.hint")
        raise UsageError(msg("init.unknown", name=arguments.name), hint)
    destination = arguments.destination or Path(f"{template.name}.yaml")
    if destination.is_dir():
        destination /= f"{template.name}.yaml"
    if destination.exists() and not arguments.force:
        raise UsageError(msg("init.exists", file=destination), msg("init.exists.hint"))
    write_atomically(destination, template.file.read_bytes(), parents=True)
    if arguments.json:
        console.write_json({"version": VERSION, "name": template.name, "file": destination})
    else:
        console.write(console.text("init.written", file=destination))
    return ExitCode.OK


def _show_templates(known: Sequence[Template], console: Console, *, json: bool) -> None:
    if json:
        entries = [record_json(one, "name", "dialect", "summary") for one in known]
        console.write_json({"version": VERSION, "templates": entries})
        return
    width = max(len(one.name) for one in known)
    for one in known:
        name = console.paint(f"{one.name:<{width}}", "cyan")
        console.write(f"{name}  {one.dialect.value:<20}  {one.summary[console.language]}")
