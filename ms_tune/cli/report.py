"""Define ``ms-tune report``, which writes one page about a job to send to others, or packs the folder of its run."""

from __future__ import annotations

import contextlib
import importlib.util
import json
from argparse import Namespace
from html import escape
from importlib import import_module
from pathlib import Path

from ms_tune.cli.device import add_device_arguments, device_fields
from ms_tune.cli.output import LONG, ProgressLine, file_to_write, new_file, write_text_file
from ms_tune.cli.parser import Parser
from ms_tune.dialects import LayerPlan
from ms_tune.dryrun.request import DryrunRequest
from ms_tune.dryrun.stored_runs import MANIFEST, RUNS, list_runs
from ms_tune.errors import ExitCode, MsTuneError, UsageError
from ms_tune.extras import need
from ms_tune.job import load_job
from ms_tune.job.script import ScriptJob
from ms_tune.lint.runner import is_code
from ms_tune.normalize.run import normalize_recompute
from ms_tune.normalize.script import normalize_script
from ms_tune.records import Any
from ms_tune.report.console import Console
from ms_tune.report.job_page import job_page
from ms_tune.source import SCRIPTS
from ms_tune.source.files import read_bytes
from ms_tune.text import Language, msg
from ms_tune.workflows.bundle import pack_run
from ms_tune.workflows.check.config import OverviewRequest
from ms_tune.workflows.check.run import check_job

_PROGRAM = "ms-tune report"
_MOST_BYTES = 1 << 20  # of a manifest


def build_parser(language: Language) -> Parser:
    """Return the command's parser."""
    parser = Parser(_PROGRAM, language, "report.description", "report.examples")
    parser.option("path", "report.help.path", metavar="FILE|RUN", type=Path)
    parser.file("-o, --output", "report.help.output")
    parser.file("--bundle", "report.help.bundle")
    parser.flag("--force", "report.help.force")
    add_device_arguments(parser)
    parser.add_common_arguments(json=False)
    return parser


def run(arguments: Namespace, console: Console) -> ExitCode:
    """Write the page, the zip, or both."""
    path: Path = arguments.path
    page = arguments.output or (None if arguments.bundle else Path("report.html"))
    for file in (page, arguments.bundle):
        new_file(file, force=arguments.force)
    config, folder = (_find_config(path), path) if path.is_dir() else (path, _find_run(path))
    if arguments.bundle is not None:
        if folder is None:
            raise UsageError(msg("report.bundle.none", file=path), msg("report.bundle.none.hint", file=path))
        with file_to_write(arguments.bundle, console) as part:
            packed = pack_run(folder, part)
        console.note(console.text("report.bundle.look", files=packed.files))
        if packed.left_out:
            console.note(console.text("report.bundle.left-out", files=console.listed(packed.left_out[:5])))
    if page is None:
        return ExitCode.OK
    request = DryrunRequest(**device_fields(arguments), fewest_layers=True)
    overview = check_job(config, OverviewRequest(request, allow_tight=arguments.allow_tight)) if config else None
    memory = _read_memory(folder, path, console)
    text = job_page(path, overview, _plan_of(config), memory, console.language)
    if config is not None:  # readers of the page need no folders of this machine
        text = text.replace(escape(f"{config.absolute().parent}/"), "")
    write_text_file(page, text, console)
    return ExitCode.OK


def _find_config(folder: Path) -> Path | None:
    """Return the config that a run was started with, if it is still there."""
    manifest: Any = {}
    with contextlib.suppress(OSError, ValueError, RecursionError):
        manifest = json.loads(read_bytes(folder / MANIFEST, _MOST_BYTES))
    name = manifest.get("config") if isinstance(manifest, dict) else None
    places = (folder.absolute().parent.parent / name, Path(name)) if isinstance(name, str) and name else ()
    return next((one for one in places if one.is_file()), None)


def _find_run(file: Path) -> Path | None:
    """Return the last run of a config since it was changed."""
    runs = [one for one in list_runs([Path(RUNS)]) if file.is_file() and one.begin.timestamp() >= file.stat().st_mtime]
    mine = [one.folder for one in runs if (config := _find_config(one.folder)) is not None and config.samefile(file)]
    return mine[-1] if mine else None


def _plan_of(config: Path | None) -> LayerPlan | None:
    with contextlib.suppress(MsTuneError):  # the overview has the reason
        if config is not None and config.suffix in SCRIPTS:
            return next((one.plan for one in normalize_script(ScriptJob(config), supposing=True) if one.plan), None)
        return normalize_recompute(load_job(config)) if config is not None and not is_code(config) else None
    return None


def _read_memory(folder: Path | None, path: Path, console: Console) -> Any:  # noqa: ANN401 - a MemoryReport, which needs NumPy
    if folder == path:
        need(_PROGRAM, "report", "numpy")
    if folder is None or importlib.util.find_spec("numpy") is None:
        return None
    with ProgressLine(console, LONG) as progress:
        return import_module("ms_tune.footprint.report").analyse_memory(folder, None, progress.read)
