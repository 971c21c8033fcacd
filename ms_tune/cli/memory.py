"""Define ``ms-tune memory`` and its subcommands. Modules that need NumPy are imported when they run."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError, BooleanOptionalAction, Namespace
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, cast

from ms_tune.cli.device import add_device_arguments
from ms_tune.cli.output import new_file
from ms_tune.cli.parser import Parser, refuse_options
from ms_tune.errors import ExitCode, NoTraceError, UsageError
from ms_tune.extras import need
from ms_tune.memory.train import TrainRequest, start_training
from ms_tune.readers.dry_run import is_dry_run_json
from ms_tune.readers.folder import find_trace, is_dry_run
from ms_tune.readers.lines import has_logs
from ms_tune.readers.plain_pickle import find_snapshots, is_snapshot
from ms_tune.report.console import Console
from ms_tune.text import Language, msg, render

_ONLY_TRACES = (
    "snapshot",
    "csv",
    "chip",
    "device_memory",
    "reserve",
    "reserve_from",
    "remove",
    "shard",
    "parts",
    "recompute_layers",
)
_ONLY_SNAPSHOTS = (
    *("device", "expandable", "max_split_size_mb", "roundup_power2_divisions"),
    *("garbage_collection_threshold", "empty_cache_each_step", "keep_cache"),
)


class SubCommand(NamedTuple):
    """One subcommand: its help text, its parser and the function that runs it."""

    summary: str  # text ID of its one-line help
    build_parser: Callable[[Language], Parser]
    run: Callable[[Namespace, Console], ExitCode]


class _MemoryParser(Parser):
    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:  # noqa: ANN401 - as argparse types it
        arguments: Sequence[str] = args or ()
        if arguments and arguments[0] in SUBCOMMANDS and not _is_folder_named_run(arguments):
            command = SUBCOMMANDS[arguments[0]]
            parsed = command.build_parser(self.language).parse_args(arguments[1:], namespace)
            parsed.command = command
            return parsed
        return super().parse_args(args, namespace)


def _is_folder_named_run(arguments: Sequence[str]) -> bool:
    # `ms-tune memory run` was the report on a folder of that name, and still is where there is one.
    return arguments[0] == "run" and not {"--", "-h", "--help"} & {*arguments} and Path("run").exists()


def build_parser(language: Language) -> Parser:
    """Return the command's parser."""
    parser = _MemoryParser("ms-tune memory", language, "memory.description", "memory.examples")
    parser.option("logs", "memory.help.path", type=Path, metavar="RUN", nargs="+")
    _add_rank_arguments(parser)
    add_device_arguments(parser)
    parser.option("--reserve-from", "memory.help.reserve-from", type=Path, metavar="FILE")
    parser.option("--at", "memory.help.at", type=parser.natural, metavar="TICK")
    parser.option("--top", "memory.help.top", type=parser.count, metavar="N")
    parser.file("--html", "memory.help.html")
    parser.file("--csv", "memory.help.csv")
    parser.flag("--force", "memory.help.force")
    parser.flag("--no-graph", "memory.help.no-graph")
    parser.add_common_arguments()
    lines = [f"  {name:<22}{parser.tr(command.summary)}" for name, command in SUBCOMMANDS.items()]
    parser.before_examples = "\n".join([f"{parser.tr('cli.title.commands')}:", *lines, "", ""])
    return parser


def _add_rank_arguments(parser: Parser) -> None:
    parser.option("--rank", "memory.help.rank", type=parser.natural, action="append", default=[], metavar="N")
    parser.option("--device", "snapshot.help.device", type=parser.natural, metavar="N")


def run(arguments: Namespace, console: Console) -> ExitCode:
    """Run the command or its subcommand."""
    if "command" in arguments:
        return cast("ExitCode", arguments.command.run(arguments, console))
    path: Path = arguments.logs[0]
    arguments.path = path
    if all(map(_has_logs, arguments.logs)):
        return _run_with_numpy("run", "log", arguments, console)
    if len(arguments.logs) > 1:
        raise UsageError(msg("oom.only-logs"))
    if is_snapshot(path) or _has_snapshots(path):
        return _run_for_snapshots("", arguments, console)
    refuse_options(arguments, ["device"], "snapshot.only-snapshots")
    for file in (arguments.html, arguments.csv):
        new_file(file, force=arguments.force)
    return _run_with_numpy("run", "", arguments, console)


def _has_snapshots(path: Path) -> bool:
    # Return whether a path is a folder of snapshots, one for each rank, without a trace.
    try:
        return path.is_dir() and bool(find_snapshots(path)) and not find_trace(path)
    except NoTraceError:
        return True


def _has_logs(path: Path) -> bool:
    # Return whether a path is a log, or a folder of logs without a trace or snapshots.
    if not path.is_dir():
        return _is_log(path)
    try:
        find_trace(path)
    except NoTraceError:
        return has_logs(path) and not find_snapshots(path)
    return False


def _is_log(path: Path) -> bool:
    named = path.name.lower().endswith((".csv", ".csv.gz")) or is_dry_run_json(path)
    return path.is_file() and not named and not is_snapshot(path)


def _run_for_snapshots(name: str, arguments: Namespace, console: Console) -> ExitCode:
    if getattr(arguments, "html", None):
        new_file(arguments.html, force=arguments.force)
    path: Path | None = getattr(arguments, "path", None)
    ranks = [] if path is not None and path.is_dir() else ["rank"]
    refuse_options(arguments, (*ranks, *_ONLY_TRACES), "snapshot.only-traces")
    return _run_with_numpy("snapshot", name, arguments, console)


def _run_for_dry_run(arguments: Namespace, console: Console) -> ExitCode:
    # `what-if` with the settings of PyTorch's allocator, on the device of a verdict.
    refuse_options(arguments, ("device", "remove", "shard", "parts", "recompute_layers"), "trace.dry-run.option")
    refuse_options(arguments, ("empty_cache_each_step", "keep_cache"), "snapshot.only-recordings")
    return _run_with_numpy("snapshot", "what-if", arguments, console)


def _run_with_numpy(kind: str, name: str, arguments: Namespace, console: Console) -> ExitCode:
    # Run a subcommand of one of the modules that need NumPy.
    need("ms-tune memory" if name in ("", "log") else f"ms-tune memory {name}", "report", "numpy")
    code: ExitCode = import_module(f"ms_tune.cli.memory_{kind}").COMMANDS[name](arguments, console)
    return code


def _build_diff_parser(language: Language) -> Parser:
    parser = Parser("ms-tune memory diff", language, "memory.diff.description", "memory.diff.examples")
    parser.option("before", "memory.help.before", type=Path, metavar="BEFORE")
    parser.option("after", "memory.help.after", type=Path, metavar="AFTER")
    _add_rank_arguments(parser)
    parser.option("--top", "memory.help.diff-top", type=parser.count, default=20, metavar="N")
    parser.file("--html", "memory.help.html")
    parser.flag("--force", "memory.help.force")
    parser.add_common_arguments()
    return parser


def _run_diff(arguments: Namespace, console: Console) -> ExitCode:
    paths = (arguments.before, arguments.after)
    if any(map(is_snapshot, paths)):
        if not all(is_snapshot(path) or is_dry_run(path) for path in paths):
            raise UsageError(msg("snapshot.two-kinds"))
        return _run_for_snapshots("diff", arguments, console)
    if is_dry_run(paths[0]) and _is_log(paths[1]):
        return _run_with_numpy("snapshot", "calibrate", arguments, console)
    new_file(arguments.html, force=arguments.force)
    return _run_with_numpy("run", "diff", arguments, console)


def _build_export_parser(language: Language) -> Parser:
    parser = Parser("ms-tune memory export", language, "memory.export.description", "memory.export.examples")
    parser.option("path", "memory.help.path", type=Path, metavar="RUN")
    _add_rank_arguments(parser)
    parser.file("--perfetto", "memory.help.perfetto")
    parser.file("--snapshot", "memory.help.snapshot")
    parser.flag("--force", "memory.help.force")
    parser.add_common_arguments(json=False)
    return parser


def _run_export(arguments: Namespace, console: Console) -> ExitCode:
    if not arguments.perfetto and not arguments.snapshot:
        raise UsageError(msg("memory.export.nothing"))
    for path in (arguments.perfetto, arguments.snapshot):
        new_file(path, force=arguments.force)
    if is_snapshot(arguments.path):
        return _run_for_snapshots("export", arguments, console)
    refuse_options(arguments, ["device"], "snapshot.only-snapshots")
    return _run_with_numpy("run", "export", arguments, console)


def _build_what_if_parser(language: Language) -> Parser:
    parser = Parser("ms-tune memory what-if", language, "allocator.what-if.description", "allocator.what-if.examples")
    parser.option("run", "allocator.help.run", type=Path, metavar="RUN")
    parser.option("--rank", "allocator.help.rank", type=parser.natural, metavar="N")
    add_device_arguments(parser, "--max-memory", "--limit")
    parser.option("--remove", "allocator.help.remove", metavar="GROUP")
    parser.option("--shard", "allocator.help.shard", metavar="GROUP")
    parser.option("--parts", "allocator.help.parts", type=parser.count, metavar="N")
    parser.option("--recompute-layers", "allocator.help.recompute", type=parser.count, metavar="K")
    parser.option("--device", "snapshot.help.device", type=parser.natural, metavar="N")
    parser.option("--expandable", "snapshot.help.expandable", action=BooleanOptionalAction, default=None)
    for name, text in (("--max-split-size-mb", "max-split"), ("--roundup-power2-divisions", "roundup")):
        parser.option(name, f"snapshot.help.{text}", type=parser.count, metavar="N")
    parser.option("--garbage-collection-threshold", "snapshot.help.collect", type=parser.share, metavar="SHARE")
    parser.flag("--empty-cache-each-step", "snapshot.help.empty-each-step")
    parser.flag("--keep-cache", "snapshot.help.keep-cache")
    parser.add_common_arguments()
    return parser


def _run_what_if(arguments: Namespace, console: Console) -> ExitCode:
    if is_dry_run(arguments.run):
        return _run_for_dry_run(arguments, console)
    if is_snapshot(arguments.run):
        return _run_for_snapshots("what-if", arguments, console)
    refuse_options(arguments, _ONLY_SNAPSHOTS, "snapshot.only-snapshots")
    if arguments.parts and not arguments.shard:
        raise UsageError(msg("allocator.parts-alone"))
    return _run_with_numpy("run", "what-if", arguments, console)


def _build_plan_parser(language: Language) -> Parser:
    parser = Parser("ms-tune memory plan", language, "placement.plan.description", "placement.plan.examples")
    parser.option("run", "placement.help.run", type=Path, metavar="RUN")
    parser.option("--rank", "placement.help.rank", type=parser.natural, metavar="N")
    parser.option("--capacity", "placement.help.capacity", type=parser.size, metavar="SIZE")
    _add_plan_arguments(parser)
    parser.add_common_arguments()
    return parser


def _build_import_parser(language: Language) -> Parser:
    parser = Parser("ms-tune memory import-memlog", language, "memlog.description", "memlog.examples")
    parser.option("file", "memlog.help.file", type=Path, metavar="FILE")
    parser.flag("--npu", "memlog.help.npu")
    parser.removed_options |= {"--stalloc": "memlog.stalloc-removed"}
    _add_plan_arguments(parser)
    parser.add_common_arguments()
    return parser


def _add_plan_arguments(parser: Parser) -> None:
    limit = _seconds_argument(parser.language)
    parser.option("--time-limit", "placement.help.time-limit", type=limit, metavar="SECONDS")
    parser.removed_options |= {"--svg": "placement.svg-removed"}
    for kind in ("plan", "csv", "html"):
        parser.file(f"--{kind}", f"placement.help.{kind}")
    parser.flag("--force", "memory.help.force")


def _seconds_argument(language: Language) -> Callable[[str], float]:

    def convert(text: str) -> float:
        if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text) or float(text) <= 0:
            raise ArgumentTypeError(render(msg("placement.help.seconds", value=text), language))
        return float(text)

    return convert


def _run_plan(arguments: Namespace, console: Console) -> ExitCode:
    for path in (arguments.plan, arguments.csv, arguments.html):
        new_file(path, force=arguments.force)
    return _run_with_numpy("plan", "import-memlog" if "npu" in arguments else "plan", arguments, console)


def _build_train_parser(language: Language) -> Parser:
    parser = Parser("ms-tune memory run", language, "train.description", "train.examples")
    parser.option("words", "train.help.command", metavar="COMMAND", nargs="+")
    modes = parser.add_mutually_exclusive_group()
    parser.flag("--report", "train.help.report", into=modes)
    parser.option("--record", "train.help.record", type=Path, metavar="FOLDER", into=modes)
    parser.option("--plan", "train.help.plan", type=Path, metavar="PLAN", into=modes)
    parser.option("--steps", "train.help.steps", type=parser.count, metavar="N", default=3)
    parser.option("--every", "train.help.every", type=parser.count, metavar="N", default=1)
    parser.flag("--force", "memory.help.force")
    parser.add_common_arguments(json=False)
    return parser


def _run_train(arguments: Namespace, console: Console) -> ExitCode:
    del console
    if arguments.record is not None:
        for path in arguments.record.glob("rank_*.pickle"):
            new_file(path, force=arguments.force)
    start_training(TrainRequest(arguments.words, arguments.record, arguments.plan, arguments.steps, arguments.every))
    raise AssertionError  # this process is the training's now


SUBCOMMANDS = {
    "diff": SubCommand("memory.diff.summary", _build_diff_parser, _run_diff),
    "export": SubCommand("memory.export.summary", _build_export_parser, _run_export),
    "what-if": SubCommand("allocator.what-if.summary", _build_what_if_parser, _run_what_if),
    "plan": SubCommand("placement.plan.summary", _build_plan_parser, _run_plan),
    "run": SubCommand("train.summary", _build_train_parser, _run_train),
    "import-memlog": SubCommand("memlog.summary", _build_import_parser, _run_plan),
}
