"""``ms-tune memory what-if``: the trace replayed in MindSpore's pool under other settings."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune.cli.allocator_inputs import ProgressLine, elapsed, largest_pool, names_of, read_rank
from ms_tune.cli.parser import Parser, integer_argument, size_argument
from ms_tune.errors import ExitCode, UsageError
from ms_tune.extras import need
from ms_tune.texts import msg

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from ms_tune.allocator.scenarios import Change, Facts
    from ms_tune.allocator.workload import Workload
    from ms_tune.cli.allocator_inputs import RankTrace
    from ms_tune.render.console import Console
    from ms_tune.render.what_if.text import Report
    from ms_tune.texts import Language

_SHARDS = (2, 4, 8)


def build_parser(language: Language) -> Parser:
    """The command's own parser."""
    parser = Parser(
        prog="ms-tune memory what-if",
        language=language,
        description=msg("allocator.what-if.description"),
        epilog=msg("allocator.what-if.examples"),
    )
    parser.add_argument("run", type=Path, metavar="RUN", help=parser.tr("allocator.help.run"))
    parser.add_argument(
        "--rank", type=integer_argument(language, minimum=0), metavar="N", help=parser.tr("allocator.help.rank")
    )
    parser.add_argument(
        "--max-memory", type=size_argument(language), metavar="SIZE", help=parser.tr("allocator.help.max-memory")
    )
    parser.add_argument("--remove", metavar="GROUP", help=parser.tr("allocator.help.remove"))
    parser.add_argument("--shard", metavar="GROUP", help=parser.tr("allocator.help.shard"))
    count = integer_argument(language, minimum=1)
    parser.add_argument("--parts", type=count, metavar="N", help=parser.tr("allocator.help.parts"))
    parser.add_argument("--recompute-layers", type=count, metavar="K", help=parser.tr("allocator.help.recompute"))
    parser.add_common_arguments()
    return parser


def run(arguments: Namespace, console: Console) -> ExitCode:
    """Replay, compare, advise."""
    if arguments.parts and not arguments.shard:
        raise UsageError(msg("allocator.parts-alone"))
    need("ms-tune memory what-if", "report", "numpy")
    trace = read_rank(arguments.run, arguments.rank)
    from ms_tune.render.what_if.json import report_json  # noqa: PLC0415 - imported late: start-up time
    from ms_tune.render.what_if.text import show  # noqa: PLC0415

    report = _report(arguments, trace, ProgressLine(console))
    if arguments.json:
        console.write_json(report_json(report, console))
    else:
        show(report, console)
    result = report.result
    return ExitCode.FINDINGS if result.wasteful or not result.recorded.fits else ExitCode.OK


def _report(arguments: Namespace, trace: RankTrace, progress: ProgressLine) -> Report:
    """All replays."""
    from ms_tune.allocator.scenarios import outcome_of  # noqa: PLC0415 - imported late: start-up time
    from ms_tune.allocator.settings import infer  # noqa: PLC0415
    from ms_tune.allocator.whatif import what_if  # noqa: PLC0415
    from ms_tune.render.what_if.text import Report  # noqa: PLC0415

    start = time.perf_counter()
    pool, work, rows = largest_pool(trace.table)
    names = tuple(names_of(trace.table, rows))
    try:
        progress.show(msg("allocator.progress.infer"), 0)
        inferred = infer(work, pool, trace.limit)
        result = what_if(
            pool,
            inferred,
            arguments.max_memory,
            lambda done, total: progress.show(msg("allocator.progress.settings"), done / total),
        )
        facts = _facts(trace, rows)
        scenarios = tuple(
            outcome_of(change, inferred, result.total) for change in _changes(arguments, inferred.work, facts)
        )
    finally:
        progress.clear()
    return Report(
        rank=trace.files.rank,
        others=trace.others,
        limit_by="user" if arguments.max_memory else "log" if trace.limit else "assumed",
        result=result,
        scenarios=scenarios,
        names=names,
        seconds=elapsed(start),
    )


def _facts(trace: RankTrace, rows: list[int]) -> Facts:
    """What the analysis of the trace knows about the requests."""
    from ms_tune.allocator.scenarios import Facts  # noqa: PLC0415 - imported late: start-up time
    from ms_tune.memory.contents import CONTENTS, Contents  # noqa: PLC0415
    from ms_tune.memory.phases import Phase  # noqa: PLC0415
    from ms_tune.memory.places import layer_at  # noqa: PLC0415
    from ms_tune.trace.tensor_list import read_tensor_list  # noqa: PLC0415

    table = trace.table
    contents = Contents(table, read_tensor_list(trace.files.tensors) if trace.files.tensors else None)
    return Facts(
        last_use=[None if tick < 0 else tick for tick in table.last_user[rows].tolist()],
        content=[CONTENTS[code].value for code in contents.codes[rows].tolist()],
        name=[table.node.at(row) for row in rows],
        layer=[layer_at(table, row, contents.names.get(row)) for row in rows],
        forward=contents.phases.is_(Phase.FORWARD)[rows].tolist(),
        backward=contents.phases.is_(Phase.BACKWARD)[rows].tolist(),
    )


def _changes(arguments: Namespace, work: Workload, facts: Facts) -> Iterator[Change]:
    """What the user asks for; without a wish what is most often tried."""
    from ms_tune.allocator.scenarios import (  # noqa: PLC0415 - imported late: start-up time
        freed_after_last_use,
        layers_with,
        recomputed,
        sharded,
    )

    asked = arguments.remove or arguments.shard or arguments.recompute_layers
    if not asked:
        yield freed_after_last_use(work, facts)
    wishes = [(arguments.remove, 0)] if arguments.remove else []
    if arguments.shard:
        wishes.append((arguments.shard, arguments.parts or 2))
    if not asked and "optimizer_state" in facts.content:
        wishes = [("optimizer_state", parts) for parts in _SHARDS]
    for group, parts in wishes:
        change = sharded(work, facts, group, parts)
        if not change.changed:
            raise UsageError(msg("allocator.no-group", group=group), msg("allocator.no-group.hint"))
        yield change
    layers = layers_with(work, facts, "activations")
    if arguments.recompute_layers and not layers:
        raise UsageError(msg("allocator.no-layers"))
    counts = [arguments.recompute_layers] if arguments.recompute_layers else [] if asked else [1, len(layers)]
    for count in dict.fromkeys(min(count, len(layers)) for count in counts if layers):
        yield recomputed(work, facts, "activations", set(layers[:count]))
