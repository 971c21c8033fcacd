"""``ms-tune memory import-memlog``: what STAlloc's report tells about a trace that STAlloc recorded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune import api
from ms_tune.cli.memory_plan import PlanProgress, add_plan_arguments, check_files, finish, verdict
from ms_tune.cli.output import new_file, written
from ms_tune.cli.parser import Parser
from ms_tune.errors import ExitCode, UsageError
from ms_tune.extras import need
from ms_tune.memory.request import PlanRequest
from ms_tune.text import msg

if TYPE_CHECKING:
    from argparse import Namespace

    from ms_tune.report.console import Console
    from ms_tune.text import Language


def build_parser(language: Language) -> Parser:
    """The command's own parser."""
    parser = Parser("ms-tune memory import-memlog", language, "memlog.description", "memlog.examples")
    parser.option("file", "memlog.help.file", type=Path, metavar="FILE")
    parser.flag("--npu", "memlog.help.npu")
    parser.option("--stalloc", "memlog.help.stalloc", type=Path, metavar="FOLDER")
    add_plan_arguments(parser)
    parser.add_common_arguments()
    return parser


def run(arguments: Namespace, console: Console) -> ExitCode:
    """Read, analyse, plan, show."""
    need("ms-tune memory import-memlog", "report", "numpy")
    check_files(arguments)
    from ms_tune.report import packing_text as memlog_render  # noqa: PLC0415 - imported late: start-up time

    files = _files(arguments)
    if arguments.stalloc is not None:
        for file in files:
            new_file(
                arguments.stalloc / "output" / "plan" / f"dev_{_device(file)}.txt",
                force=arguments.force,
                makes_folders=True,
            )
    request = PlanRequest(seconds=arguments.time_limit)
    results: list[dict[str, object]] = []
    code = ExitCode.OK
    for file in files:
        progress = PlanProgress(console)
        with progress:
            asked = arguments.stalloc is not None
            found = api.memory_import(
                file, request=request, on_progress=progress.tell, npu=arguments.npu, stalloc=asked
            )
        finish(found.plan, arguments, console)
        if found.stalloc is not None:
            for name, text in memlog_render.stalloc_files(found.stalloc, _device(file)).items():
                path = arguments.stalloc / name
                path.parent.mkdir(parents=True, exist_ok=True)
                with written(path, console) as part:
                    part.write_text(text, encoding="utf-8")
        if arguments.json:
            results.append(
                {"file": str(file), **memlog_render.memlog_json(found.log, found.report, found.plan, found.stalloc)}
            )
        else:
            if len(files) > 1:
                console.write(str(file))
            memlog_render.show_memlog(found.log, found.report, found.plan, found.stalloc, console)
        code = max([code, verdict(found.plan), *([verdict(found.stalloc.plan)] if found.stalloc else [])])
    if arguments.json:
        console.write_json({"devices": results} if arguments.file.is_dir() else results[0])
    return code


def _device(file: Path) -> int:
    """The device whose trace it is, by its name; else 0."""
    found = re.fullmatch(r"mem_log_dev([0-9]{1,6})\.txt", file.name)
    return int(found[1]) if found else 0


def _files(arguments: Namespace) -> list[Path]:
    """The file, or those of all devices in a folder, in order of the devices' numbers.

    Raises:
        UsageError: The folder has none, or several devices are to be written into one file.
    """
    if not arguments.file.is_dir():
        return [arguments.file]
    found = [path for path in arguments.file.rglob("mem_log_dev*.txt") if path.is_file()]
    if not found:
        raise UsageError(msg("memlog.no-files", path=arguments.file))
    if len(found) > 1 and any((arguments.plan, arguments.csv, arguments.svg, arguments.html)):
        raise UsageError(msg("memlog.several", count=len(found)))
    return sorted(found, key=lambda path: (len(path.name), str(path)))
