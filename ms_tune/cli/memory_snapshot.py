"""What ``ms-tune memory`` and its sub-commands do with a snapshot of PyTorch's or torch_npu's allocator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune import api
from ms_tune.cli.output import LONG, ProgressLine, new_file, written
from ms_tune.cli.parser import share_argument
from ms_tune.errors import ExitCode, UsageError
from ms_tune.extras import need
from ms_tune.text import msg

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence
    from pathlib import Path

    from ms_tune.cli.parser import Parser
    from ms_tune.footprint.torch_report import PlaceChange, TorchRemedy, TorchReport
    from ms_tune.report.console import Console

_ONLY_TRACES = (
    "rank",
    "csv",
    "chip",
    "device_memory",
    "reserve",
    "remove",
    "shard",
    "parts",
    "recompute_layers",
)
_ONLY_SNAPSHOTS = (
    "device",
    "expandable",
    "max_split_size_mb",
    "roundup_power2_divisions",
    "garbage_collection_threshold",
    "empty_cache_each_step",
    "keep_cache",
)


def show_snapshot(arguments: Namespace, console: Console) -> ExitCode:
    """``ms-tune memory SNAPSHOT``."""
    _check_arguments("ms-tune memory", arguments)
    from ms_tune.report import torch_json, torch_text  # noqa: PLC0415 - imported late: start-up time

    report = _read_snapshot(arguments.path, arguments, console)
    remedies = api.memory_snapshot_remedies(report)
    _write_page(report, None, remedies, arguments, console)
    if arguments.json:
        console.write_json(torch_json.report_json(report, remedies, console, arguments.top))
    else:
        torch_text.show_report(report, remedies, console, arguments.top)
    return ExitCode.OK


def replay_snapshot(arguments: Namespace, console: Console) -> ExitCode:
    """``ms-tune memory what-if SNAPSHOT``: 1 if what is asked for is over the limit."""
    _check_arguments("ms-tune memory what-if", arguments)
    from ms_tune.memory.request import TorchWhatIfRequest  # noqa: PLC0415 - imported late: start-up time
    from ms_tune.report import torch_json, torch_text  # noqa: PLC0415 - as above

    request = TorchWhatIfRequest(
        device=arguments.device,
        expandable=arguments.expandable,
        max_split=arguments.max_split_size_mb * 2**20 if arguments.max_split_size_mb is not None else None,
        roundup=arguments.roundup_power2_divisions,
        keep_cache=arguments.keep_cache,
        empty_each_step=arguments.empty_cache_each_step,
        collect_above=arguments.garbage_collection_threshold,
        limit=arguments.max_memory,
    )
    with ProgressLine(console, LONG) as progress:
        result = api.memory_snapshot_what_if(arguments.run, request=request, on_progress=progress.show)
    if arguments.json:
        console.write_json(torch_json.what_if_json(result, console))
    else:
        torch_text.show_what_if(result, console)
    return ExitCode.FINDINGS if result.is_over_limit else ExitCode.OK


def diff_snapshots(arguments: Namespace, console: Console) -> ExitCode:
    """``ms-tune memory diff`` of two snapshots; 1 if they differ."""
    _check_arguments("ms-tune memory diff", arguments)
    from ms_tune.report import torch_json, torch_text  # noqa: PLC0415 - imported late: start-up time

    before, after = (_read_snapshot(path, arguments, console) for path in (arguments.before, arguments.after))
    changes = api.memory_snapshot_diff(before, after)
    _write_page(after, (before, changes), (), arguments, console)
    if arguments.json:
        console.write_json(torch_json.comparison_json(before, after, changes, console))
    else:
        torch_text.show_comparison(before, after, changes, console, arguments.top)
    return ExitCode.FINDINGS if changes else ExitCode.OK


def add_setting_arguments(parser: Parser) -> None:
    """The settings of PyTorch's allocator that ``what-if`` knows."""
    import argparse  # noqa: PLC0415 - start-up time

    parser.option("--device", "snapshot.help.device", type=parser.natural, metavar="N")
    parser.option("--expandable", "snapshot.help.expandable", action=argparse.BooleanOptionalAction, default=None)
    for name, text in (("--max-split-size-mb", "max-split"), ("--roundup-power2-divisions", "roundup")):
        parser.option(name, f"snapshot.help.{text}", type=parser.count, metavar="N")
    share = share_argument(parser.language)
    parser.option("--garbage-collection-threshold", "snapshot.help.collect", type=share, metavar="SHARE")
    parser.flag("--empty-cache-each-step", "snapshot.help.empty-each-step")
    parser.flag("--keep-cache", "snapshot.help.keep-cache")


def refuse_settings(arguments: Namespace) -> None:
    """Raise :class:`UsageError` for settings of PyTorch's allocator where a trace of MindSpore's is named."""
    for name in _ONLY_SNAPSHOTS:
        if getattr(arguments, name, None) not in (None, False):
            raise UsageError(msg("snapshot.only-snapshots", option="--" + name.replace("_", "-")))


def export_snapshot(arguments: Namespace, console: Console) -> ExitCode:
    """``ms-tune memory export SNAPSHOT --perfetto FILE``."""
    if arguments.snapshot:
        raise UsageError(msg("snapshot.only-traces", option="--snapshot"))
    _check_arguments("ms-tune memory export", arguments)
    from ms_tune.report.memory_export import write_torch_perfetto  # noqa: PLC0415 - imported late: start-up time

    report = _read_snapshot(arguments.path, arguments, console)
    with written(arguments.perfetto, console) as path, path.open("w", encoding="utf-8") as file:
        write_torch_perfetto(file, api.memory_snapshot_lives(report))
    return ExitCode.OK


def _write_page(
    report: TorchReport,
    before: tuple[TorchReport, Sequence[PlaceChange]] | None,
    remedies: Sequence[TorchRemedy],
    arguments: Namespace,
    console: Console,
) -> None:
    if not arguments.html:
        return
    from ms_tune.report.torch_html import snapshot_html  # noqa: PLC0415 - imported late: start-up time

    other = (api.memory_snapshot_lives(before[0]), before[1]) if before else None
    with written(arguments.html, console) as path:
        page = snapshot_html(api.memory_snapshot_lives(report), other, console.language, remedies)
        path.write_text(page, encoding="utf-8")


def _check_arguments(command: str, arguments: Namespace) -> None:
    need(command, "report", "numpy")
    if getattr(arguments, "html", None):
        new_file(arguments.html, force=arguments.force)
        need(f"{command} --html", "report", "jinja2")
    for name in _ONLY_TRACES:
        if getattr(arguments, name, None) not in (None, [], False):
            raise UsageError(msg("snapshot.only-traces", option="--" + name.replace("_", "-")))


def _read_snapshot(path: Path, arguments: Namespace, console: Console) -> TorchReport:
    with ProgressLine(console, LONG) as progress:
        return api.memory_snapshot(
            path, device=arguments.device, at=getattr(arguments, "at", None), on_progress=progress.show
        )
