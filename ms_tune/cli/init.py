"""Define ``ms-tune init``, which copies a tested template config or writes one for a model and a number of NPUs."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from ms_tune.cli.device import add_device_arguments, device_fields
from ms_tune.cli.dryrun_progress import watch_dryrun
from ms_tune.cli.output import new_file
from ms_tune.cli.parser import Parser
from ms_tune.dryrun.request import DryrunRequest
from ms_tune.encode import record_json
from ms_tune.enums import CHECKED_ONLY, YAML_DIALECTS, Dialect
from ms_tune.errors import ExitCode, UsageError, closest
from ms_tune.facts.query import data_folder, load
from ms_tune.planning.layouts import DIMENSIONS, Layout
from ms_tune.report.check import overviews_json, write_overviews
from ms_tune.report.console import Console, usage_hint
from ms_tune.source.atomic_write import write_atomically
from ms_tune.source.files import diff_lines
from ms_tune.source.yaml import read_text
from ms_tune.text import Language, Message, msg
from ms_tune.units import short_gib
from ms_tune.workflows.check.config import OverviewRequest
from ms_tune.workflows.check.result import Overview
from ms_tune.workflows.check.run import check_job
from ms_tune.workflows.new_job.layouts import JobSize
from ms_tune.workflows.new_job.run import (
    SAMPLES,
    TOKENS,
    NewJob,
    choose_dialect,
    plan_new_job,
    read_model,
    simulate_new_job,
)

_PROGRAM = "ms-tune init"
VERSION = 1
_MOST_ROUNDS = 3  # dryruns, each with the margin that the one before has shown to be needed
_SIMULATED = (Dialect.MINDFORMERS, Dialect.MINDFORMERS_PYNATIVE)


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
        for file in sorted((data_folder("yaml_templates") / dialect.value.replace("-", "_")).glob("*.yaml")):
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
        return _write_new_job(arguments, console)
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


def _write_new_job(arguments: Namespace, console: Console) -> int:
    """Choose a layout that fits, write the config and its launch script, and dry-run it where MindSpore is installed."""
    size, job = _read_request(arguments)
    assumed = _list_assumed(arguments, size)
    console.note(console.text("init.searching"))
    margin = None
    for number in range(1, _MOST_ROUNDS + 1):
        found = plan_new_job(size, job, console.language, assumed, margin)
        if not found.draft.fits:
            _show_refusal(found, console, json=arguments.json, is_written=number > 1)
            return ExitCode.FINDINGS
        if arguments.diff:
            _show_diff(found, console)
            return ExitCode.OK
        for file, text in found.files.items():
            write_atomically(file, text.encode(), parents=True)
        screen = _check(found, job, arguments, console)
        margin = _missing_margin(found, screen, arguments)
        if margin is None or number == _MOST_ROUNDS:
            break
        console.note(console.text("init.again", margin=f"{margin:.2f}"))
    if arguments.json:
        console.write_json({**_new_job_json(found), "check": overviews_json([screen], [], console)})
        return screen.exit_code(allow_tight=arguments.allow_tight)
    _show_new_job(found, console)
    if size.dialect in CHECKED_ONLY:
        estimate = found.draft.estimate
        low, high = map(short_gib, estimate.range_bytes)
        console.write_text("init.not-simulated", low=low, high=high, usable=short_gib(estimate.limit.bytes))
    else:
        write_overviews([screen], console)
    return screen.exit_code(allow_tight=arguments.allow_tight)


def _read_request(arguments: Namespace) -> tuple[JobSize, DryrunRequest]:
    # Return the job that the options describe; UsageError if one is missing, or a file would be overwritten.
    if arguments.devices is None or arguments.name is not None:
        raise UsageError(msg("init.needs.devices"), usage_hint("ms-tune init"))
    model = read_model(arguments.model, arguments.model_config)
    dialect = choose_dialect(model, Dialect(arguments.dialect) if arguments.dialect else None)
    suffix = ".sh" if dialect is Dialect.MEGATRON else ".yaml"
    path = arguments.output or Path(f"{model.name.lower()}-{arguments.devices}{suffix}")
    if path.suffix not in ((suffix,) if suffix == ".sh" else (suffix, ".yml")):
        raise UsageError(msg("init.suffix", file=path, suffix=suffix))
    for file in () if arguments.diff else (path, path.with_suffix(".sh")):
        new_file(file, force=arguments.force, makes_folders=True)
    job = DryrunRequest(path, devices=arguments.devices, **device_fields(arguments), fewest_layers=True)
    # The assumed global batch is a multiple of the devices, so that any number of data-parallel ranks divides it.
    samples = arguments.global_batch or -(-SAMPLES // arguments.devices) * arguments.devices
    return JobSize(model, dialect, arguments.devices, arguments.seq or TOKENS, samples, arguments.chip), job


def _missing_margin(found: NewJob, screen: Overview, arguments: Namespace) -> float | None:
    # Return the ratio of the memory of a dryrun, with fragmentation, to the estimate if the job does not fit; else None.
    ratios = [
        one.verdict.need.footprint_bytes / found.draft.estimate.stages[one.stage].peak_bytes
        for one in screen.stages
        if one.verdict.need is not None and not one.verdict.is_good(allow_tight=arguments.allow_tight)
    ]
    return max(ratios, default=None)


def _show_diff(found: NewJob, console: Console) -> None:
    for file, text in found.files.items():
        old = read_text(file) if file.is_file() else ""
        for line in diff_lines(old, text, str(file), str(file)):
            console.write_raw(line)


def _check(found: NewJob, job: DryrunRequest, arguments: Namespace, console: Console) -> Overview:
    # Lint and estimate the written file, and dry-run it if that is possible here.
    screen = check_job(next(iter(found.files)), OverviewRequest(job, allow_tight=arguments.allow_tight))
    if arguments.no_verify or found.size.dialect not in _SIMULATED or find_spec("mindspore") is None:
        return screen
    with watch_dryrun("ms-tune init", console) as progress:
        return screen._replace(stages=simulate_new_job(job, progress))


def _list_assumed(arguments: Namespace, size: JobSize) -> tuple[Message, ...]:
    # The values that the user did not state.
    given = (
        (arguments.seq, "seq", size.tokens),
        (arguments.global_batch, "global-batch", size.samples),
        (arguments.chip or arguments.device_memory, "chip", "910B"),
        (arguments.dialect, "dialect", size.dialect.value),
    )
    missing = [msg("init.assumed", option=f"--{name}", value=value) for stated, name, value in given if not stated]
    if not size.model.has("rope_theta"):
        missing.append(msg("init.assumed.rotary"))
    return tuple(missing)


def _show_new_job(found: NewJob, console: Console) -> None:
    for file in found.files:
        console.write_text("init.wrote", file=file)
    draft = found.draft
    again = ", ".join(f"{some}/{count}" for some, count in zip(draft.recomputed, draft.layers, strict=True))
    console.write_text("init.layout", layout=draft.layout, again=again, samples=found.size.samples)
    _show_assumed(found, console)


def _show_assumed(found: NewJob, console: Console) -> None:
    console.write_text("init.assumptions")
    console.write_lines(found.assumed, "- ")


def _show_refusal(found: NewJob, console: Console, *, json: bool, is_written: bool) -> None:
    # Say that a job does not fit on its devices, and on how many it does; ``is_written``: a plan that a dryrun refuted is.
    if json:
        console.write_json({**_new_job_json(found), "written": list(found.files) if is_written else []})
        return
    draft, more = found.draft, found.enough
    sizes = {"need": short_gib(draft.estimate.fullest.peak_bytes), "usable": short_gib(draft.estimate.limit.bytes)}
    name = "init.refuted" if is_written else "init.too-large"
    console.write_text(name, devices=found.size.devices, layout=draft.layout, file=next(iter(found.files)), **sizes)
    if more is None:
        console.write_text("init.never", devices=found.size.devices * 64)
    else:
        need = short_gib(more.estimate.fullest.peak_bytes)
        console.write_text("init.enough", devices=more.layout.devices, layout=more.layout, need=need)
    _show_assumed(found, console)


def _new_job_json(found: NewJob) -> dict[str, object]:
    draft, more = found.draft, found.enough
    return {
        "version": VERSION,
        "model": found.size.model.name,
        "dialect": found.size.dialect,
        "fits": draft.fits,
        "layout": _layout_json(draft.layout),
        "recomputed": list(draft.recomputed),
        "peak_bytes": draft.estimate.fullest.peak_bytes,
        "limit_bytes": draft.estimate.limit.bytes,
        "written": list(found.files) if draft.fits else [],
        "enough": None if more is None else {"devices": more.layout.devices, "layout": _layout_json(more.layout)},
    }


def _layout_json(layout: Layout) -> dict[str, int]:
    return {name: getattr(layout, field) for name, field in DIMENSIONS.items()}
