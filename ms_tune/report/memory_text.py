"""Show the result of ``memory`` in the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ms_tune.diagnostics import Diagnostic
from ms_tune.footprint.breakdown import Holder, LayerActivations, PeakBreakdown
from ms_tune.footprint.dry_run import PlacedTensors
from ms_tune.footprint.remedies import ContentBytes, MemoryRemedy
from ms_tune.footprint.result import MemoryReport, RankReport
from ms_tune.memory.diff import Comparison, RankComparison
from ms_tune.readers.oom_log import Cause, FailureReport, MemoryFailure
from ms_tune.report.console import SEVERITY_COLOURS, Console, pad, terminal_width, text_width
from ms_tune.report.memory_curve import block_graph
from ms_tune.report.memory_json import trace_text
from ms_tune.report.words import (
    largest_contents,
    listed_numbers,
    number_or_dash,
    shorten_location,
    show_table,
    signed_text,
    size_text,
    verdict_line,
    verdict_lines,
    verdict_word,
    write_figure,
)
from ms_tune.units import GIB, gib

_BAR, _LABEL, _CURVE_LINES, _FRAMES = 24, 22, 8, 12
_MOST_REMEDIES, _MOST_RANKS = 6, 12  # on the screen of an out-of-memory log
_HELD = 4  # categories in the line about the peak
_PARTS, _SHORT, _REMEDIES = 3, 5, 3  # categories, holders and remedies on the short screen
_SCREEN, _HEADINGS, _FEWEST = 20, 3, 3  # its lines, those of headings besides the remedies', and the fewest holders


def show_summary(report: MemoryReport, console: Console, top: int | None) -> None:
    """Show the verdict, the peak, its largest parts, and suggestions, in a screen of 20 lines."""
    rank = report.worst
    before = [verdict_line(rank.verdict, console), *_trace_lines(rank, len(report.ranks), console)]
    if len(rank.table):
        before += _peak_lines(rank, console)
        title = _remedies_title(rank, console)
        remedies = [_remedy_line(remedy, console) for remedy in rank.remedies[:_REMEDIES]]
        left = _SCREEN - console.count_lines(*before, title) - _HEADINGS - _count_end(report, console)
        while len(remedies) > 1 and left - console.count_lines(*remedies) < _FEWEST:
            remedies.pop()
        most = top or max(_FEWEST, min(_SHORT, left - console.count_lines(*remedies)))
    console.write_lines(before)
    if len(rank.table):
        console.write_section("memory.show.largest")
        _show_short(rank.peak.holders[:most], console)
        console.write_lines(("", title, *remedies))
    if rank.placed is not None and len(report.ranks) > 1:
        _show_ranks(report, console)
    findings = sorted(report.all_findings, key=lambda finding: finding.severity.rank)
    if findings:
        more = console.text("memory.show.more-findings", count=len(findings) - 1) if len(findings) > 1 else ""
        console.write(_finding_title(findings[0], console) + more)
    console.write_raw(_next_line(report, console))


def _next_line(report: MemoryReport, console: Console) -> str:
    name = "memory.show.next" if report.worst.placed is None else "memory.show.next-settings"
    return console.text(name, path=report.source)


def _peak_lines(rank: RankReport, console: Console) -> Iterator[str]:
    peak, footprint = rank.curve.peak_bytes, rank.curve.footprint_bytes
    at = console.text("memory.show.at-tick", tick=rank.curve.peak_tick, phase=_phase_text(rank, console))
    said = "peak-line" if footprint else "peak-line-alone"
    yield console.text(f"memory.show.{said}", at=at, peak=size_text(peak), footprint=size_text(footprint or peak))
    contents = {content: amount for content, amount in rank.peak.contents.items() if amount}
    yield console.text("memory.show.categories", parts=largest_contents(contents, _PARTS, console))


def _remedies_title(rank: RankReport, console: Console) -> str:
    if not rank.remedies:
        return console.text("remedies.none")
    if rank.scaled_from is not None:
        layers, runs = rank.scaled_from
        return console.text("remedies.title-scaled", layers=layers, runs=listed_numbers(runs))
    if rank.placed is not None and rank.placed.later_peak_bytes:
        return console.text("remedies.title-second-step")
    return console.text("remedies.title-sample" if rank.sample is not None else "remedies.title")


def _remedy_line(remedy: MemoryRemedy, console: Console) -> str:
    title, price = console.say(remedy.title), console.say(remedy.price)
    return "  " + console.text("remedies.line", size=size_text(remedy.bytes_freed), title=title, price=price)


def _count_end(report: MemoryReport, console: Console) -> int:
    # The lines of the worst finding, with the number of the others, and of the next command.
    more = console.text("memory.show.more-findings", count=len(report.all_findings))
    titles = [_finding_title(finding, console) + more for finding in report.all_findings]
    return 1 + max((console.count_lines(title) for title in titles), default=0)


def _show_short(holders: Sequence[Holder], console: Console) -> None:
    # One line each: the beginning of a long location is cut.
    names = [console.text(f"memory.content.{holder.category.value}") for holder in holders]
    operators = [holder.operator or "–" for holder in holders]
    widths = [max(map(text_width, column), default=0) for column in (names, operators)]
    for holder, name, operator in zip(holders, names, operators, strict=True):
        line = f"  {size_text(holder.bytes):>10}  {pad(name, widths[0])}  {pad(operator, widths[1])}  "
        place, room = shorten_location(holder.where), max(terminal_width() - text_width(line), 1)
        console.write_raw(
            f"{line}{place if text_width(place) <= room else '…' + place[len(place) - room + 1 :]}".rstrip()
        )


def show_report(report: MemoryReport, console: Console, top: int) -> None:
    """Show everything: the verdict, ways to lower the peak, breakdowns of the memory, the findings."""
    worst = report.worst
    _show_figures(report, console)
    if len(worst.table):
        _show_remedies(worst, console, top)
        _show_curve(worst, console)
        _show_contents(worst.peak, console)
        _show_holders(worst.peak, console, top)
        _show_groups("layers", worst.peak, console, top)
        _show_groups("parameters", worst.peak, console, top)
        _show_activations(worst, console, top)
        _show_theory(worst, console)
    if len(report.ranks) > 1:
        _show_ranks(report, console)
    _show_findings(report.all_findings, console)
    console.write("")
    console.write_raw(_next_line(report, console))


def show_breakdown(parts: PeakBreakdown, console: Console, top: int) -> None:
    """Show the memory at a tick chosen by the user."""
    _show_contents(parts, console)
    _show_holders(parts, console, top)
    _show_groups("layers", parts, console, top)


def _trace_lines(rank: RankReport, ranks: int, console: Console) -> Iterator[str]:
    steps = len(rank.steps.ends)
    if rank.extrapolation is not None:
        layers, runs = rank.extrapolation
        rows = console.text("memory.show.extrapolated", layers=layers, runs=listed_numbers(runs), steps=steps)
    else:
        name = "rows" if rank.placed is None else "tensors"
        rows = console.text(f"memory.show.{name}", rows=f"{len(rank.table):,}", steps=steps)
    if rank.rank is not None:
        rows = console.labelled(console.text("memory.show.rank", rank=rank.rank), rows)
    yield rows + (console.text("memory.show.other-ranks", count=ranks - 1) if ranks > 1 else "")
    if rank.placed is not None:
        yield from _placement_lines(rank.placed, rank, console)
    if rank.table.unreleased:
        yield console.text("trace.unreleased", count=f"{rank.table.unreleased:,}")
    if rank.sample is not None:
        yield console.text("memory.show.sample", run=rank.sample[0], layers=rank.sample[1])
    if not len(rank.table):
        yield console.text("memory.empty")


def _placement_lines(placed: PlacedTensors, rank: RankReport, console: Console) -> Iterator[str]:
    peak, classic, expandable = rank.curve.peak_bytes, rank.curve.footprint_bytes, placed.expandable_bytes
    more, less = (f"{each / max(peak, 1) - 1:.1%}" for each in (classic, expandable))
    sizes = {"classic": size_text(classic), "expandable": size_text(expandable)}
    yield console.text("memory.show.placed", variable=placed.settings.variable, more=more, less=less, **sizes)
    if placed.later_peak_bytes > peak:
        later = {"peak": size_text(placed.later_peak_bytes), "reserved": size_text(placed.later_reserved_bytes)}
        yield console.text("memory.show.second-step", **later)
    if placed.unlisted_bytes:
        yield console.text("memory.show.unlisted", size=size_text(placed.unlisted_bytes))
    if rank.dry_run is not None and rank.dry_run.limitations:
        yield console.text("memory.show.limitations", texts="; ".join(rank.dry_run.limitations))


def _phase_text(rank: RankReport, console: Console) -> str:
    phase = rank.phase_at_peak()
    if phase is None:
        return console.text("memory.show.phase-unknown")
    return console.text("memory.show.in-phase", phase=console.text(f"memory.phase.{phase.value}"))


def _show_figures(report: MemoryReport, console: Console) -> None:
    rank = report.worst
    console.write_lines(verdict_lines(rank.verdict, console))
    console.write_lines(_trace_lines(rank, len(report.ranks), console))
    if not len(rank.table):
        return
    peak, footprint = rank.curve.peak_bytes, rank.curve.footprint_bytes
    console.write("")
    at = console.text("memory.show.at-tick", tick=rank.curve.peak_tick, phase=_phase_text(rank, console))
    write_figure(console, "memory.show.peak", size_text(peak), at)
    holes = {"free": size_text(rank.map.free_bytes), "hole": size_text(rank.map.largest_hole)}
    kind = "holes" if footprint else "footprint-untold"
    write_figure(
        console,
        "memory.show.footprint",
        size_text(footprint) if footprint else "–",
        console.text(f"memory.show.{kind}", **holes),
    )
    if rank.host_rows:
        write_figure(
            console,
            "memory.show.host",
            size_text(rank.host_bytes),
            console.text("memory.show.offloaded", rows=f"{rank.host_rows:,}"),
        )


def _show_remedies(rank: RankReport, console: Console, top: int) -> None:
    parts = [_content_text(part, console) for part in rank.held_at_peak[:_HELD]]
    console.write_section("remedies.held", parts=console.listed(parts))
    console.write("")
    console.write(_remedies_title(rank, console))
    if not rank.remedies:
        return
    rows = [
        [
            size_text(remedy.bytes_freed),
            size_text(remedy.peak_after_bytes),
            console.say(remedy.title),
            console.say(remedy.price),
        ]
        for remedy in rank.remedies[:top]
    ]
    show_table(console, ["frees", "leaves", "remedy", "price"], rows)
    for remedy in rank.remedies[:_HELD]:
        console.write(f"  {remedy.name}: {console.say(remedy.how)}")
    console.write_text("remedies.next", command=rank.remedies[0].next)


def _content_text(part: ContentBytes, console: Console) -> str:
    content, amount = console.text(f"memory.content.{part.category.value}"), size_text(part.bytes)
    if part.phase is None:
        return f"{content} {amount}"
    phase = console.text(f"memory.phase.{part.phase.value}")
    return console.text("remedies.held-part", content=content, phase=phase, size=amount)


def _show_curve(rank: RankReport, console: Console) -> None:
    width = max(20, min(terminal_width(), 120) - 14)
    ticks = int(rank.curve.tick[-1] - rank.curve.tick[0])
    console.write_section("memory.show.curve", ticks=f"{ticks:,}")
    lines = block_graph(rank.curve, width, _CURVE_LINES, rank.steps.ends)
    for number, line in enumerate(lines):
        label = size_text(rank.curve.peak_bytes) if not number else "0" if number == len(lines) - 1 else ""
        console.write(f"{label:>12} {line}".rstrip())


def _show_contents(parts: PeakBreakdown, console: Console) -> None:
    total = sum(parts.contents.values())
    console.write_section("memory.show.contents", tick=parts.tick)
    for content, amount in parts.contents.items():
        share = amount / total if total else 0
        label = console.text(f"memory.content.{content.value}")
        bar = "█" * round(share * _BAR)
        console.write(f"  {pad(label, _LABEL)}{size_text(amount):>12} {share:>6.1%}  {bar}".rstrip())


def _show_holders(parts: PeakBreakdown, console: Console, top: int) -> None:
    rows = [
        [
            size_text(holder.bytes),
            str(holder.count),
            console.text(f"memory.content.{holder.category.value}"),
            holder.operator or "–",
            holder.tensor,
            shorten_location(holder.where),
        ]
        for holder in parts.holders[:top]
    ]
    console.write_section("memory.show.largest")
    show_table(console, ["size", "count", "content", "operator", "tensor", "where"], rows)
    rest = parts.holders[top:]
    if rest:
        more = size_text(sum(holder.bytes for holder in rest))
        console.write_text("memory.show.more", count=len(rest), size=more)


def _show_groups(name: str, parts: PeakBreakdown, console: Console, top: int) -> None:
    groups = parts.layers if name == "layers" else parts.parameters
    if not any(group.key for group in groups):
        return
    total = max(1, sum(parts.contents.values()))
    rows = []
    for group in groups[:top]:
        key = group.key or console.text("memory.outside")
        rows.append(
            [
                size_text(group.bytes),
                f"{group.bytes / total:.1%}",
                str(group.count),
                key,
                largest_contents(group.categories, 2, console),
            ]
        )
    console.write_section(f"memory.show.{name}")
    show_table(console, ["size", "share", "count", name.removesuffix("s"), "content"], rows)


def _show_activations(rank: RankReport, console: Console, top: int) -> None:
    if not any(layer.layer for layer in rank.activations):
        return
    console.write_section("memory.show.activations")
    rows = [
        (_layers_text(run, console), sum(each.bytes for each in run), sum(each.count for each in run))
        for run in rank.alike_layers()
    ]
    shown = sorted(rows, key=lambda row: -row[1])[:top]
    rest = [row for row in rows if row not in shown]
    rows = [row for row in rows if row in shown]
    if rest:
        others = console.text("memory.show.other-layers", count=len(rest))
        rows.append((others, sum(amount for _, amount, _ in rest), sum(count for _, _, count in rest)))
    show_table(
        console, ["size", "count", "layer"], [[size_text(amount), str(count), name] for name, amount, count in rows]
    )


def _layers_text(run: Sequence[LayerActivations], console: Console) -> str:
    first, last = run[0].layer, run[-1].layer
    if len(run) == 1:
        return first or console.text("memory.outside")
    return console.text("memory.show.alike", first=first, last=last, count=len(run), each=size_text(run[0].bytes))


def _show_theory(rank: RankReport, console: Console) -> None:
    theory, padding = rank.theory, rank.padding_at_peak()
    console.write("")
    if theory.states:
        console.write_text("memory.show.theory", weights=size_text(theory.weights_bytes), count=theory.parameters)
        rows = [
            [
                console.text(f"memory.content.{each.content.value}"),
                size_text(each.bytes),
                size_text(each.expected_bytes),
                f"{each.bytes / each.expected_bytes:.2f}" if each.expected_bytes else "–",
                console.text("memory.show.shards", count=each.shards) if each.shards else "",
            ]
            for each in theory.states
        ]
        show_table(console, ["content", "size", "theory", "ratio", "remark"], rows)
    if padding is not None:
        console.write_text("memory.show.padding", size=size_text(padding))


def _show_ranks(report: MemoryReport, console: Console) -> None:
    console.write_section("memory.show.ranks")
    equal: dict[tuple[str, ...], list[RankReport]] = {}
    pairs = zip(report.ranks, report.stages, strict=True)
    # The worst first; equal ones in the order of their numbers.
    for rank, stage in sorted(pairs, key=lambda pair: (-pair[0].verdict.severity, -pair[0].curve.peak_bytes)):
        what = largest_contents(rank.peak.contents, 3, console)
        peak, footprint = size_text(rank.curve.peak_bytes), size_text(rank.curve.footprint_bytes)
        row = (number_or_dash(stage), peak, footprint, verdict_word(rank.verdict, console), what)
        equal.setdefault(row, []).append(rank)
    rows = [[", ".join(number_or_dash(one.rank) for one in ranks), *row] for row, ranks in equal.items()]
    show_table(console, ["rank", "stage", "peak", "footprint", "verdict", "content"], rows)


def _show_findings(findings: Sequence[Diagnostic], console: Console) -> None:
    console.write("")
    if not findings:
        console.write_text("memory.show.nothing-found")
        return
    console.write_text("memory.show.findings")
    for finding in findings:
        console.write(f"  {_finding_title(finding, console)}")
        console.write(f"    {console.say(finding.message)}")
        if finding.stack:
            console.write(f"    {console.text('memory.show.allocated-by')}")
            for file, line, function in finding.stack[-_FRAMES:]:
                console.write(f"      {file}:{line} {function}")
        if finding.help:
            console.write(f"    {console.text('memory.show.do', help=finding.help)}")


def _finding_title(finding: Diagnostic, console: Console) -> str:
    label = console.text(f"memory.severity.{finding.severity.value}")
    where = f" (rank {finding.rank})" if finding.rank is not None else ""
    title = console.say(finding.title) if finding.title else finding.name
    return f"{console.paint(label, SEVERITY_COLOURS[finding.severity])}[{finding.id}] {title}{where}"


def show_comparison(comparison: Comparison, console: Console, top: int, *, quiet: bool = False) -> None:
    """Show the changes between two runs."""
    for pair in comparison.ranks:
        _show_pair(pair, console, top, quiet=quiet)
    missing = (*comparison.only_before, *comparison.only_after)
    if missing:
        console.write_text("memory.diff.only", ranks=", ".join(number_or_dash(rank) for rank in missing))
    if not comparison.ranks:
        console.write_text("memory.diff.none")


def _show_pair(pair: RankComparison, console: Console, top: int, *, quiet: bool) -> None:
    before, after = size_text(pair.before.curve.peak_bytes), size_text(pair.after.curve.peak_bytes)
    rank = number_or_dash(pair.after.rank)
    console.write_text(
        "memory.diff.title", rank=rank, before=before, after=after, change=signed_text(pair.change_bytes)
    )
    if quiet:
        return
    if not pair.changes:
        console.write_text("memory.diff.same")
        return
    for content, amount in pair.contents.items():
        if amount:
            console.write(f"  {pad(console.text(f'memory.content.{content.value}'), _LABEL)}{signed_text(amount):>13}")
    rows = [
        [
            signed_text(change.change_bytes),
            size_text(change.before_bytes),
            size_text(change.after_bytes),
            console.text(f"memory.content.{change.category.value}"),
            change.operator or "–",
            shorten_location(change.where),
        ]
        for change in pair.changes[:top]
    ]
    show_table(console, ["change", "before", "after", "content", "operator", "where"], rows)
    console.write("")


def show_failures(report: FailureReport, console: Console, *, quiet: bool = False, verbose: bool = False) -> None:
    """Show why a run ran out of memory: the first failure and its cause, the other ranks, figures, and remedies."""
    first = report.first
    console.write(_failure_title(first, console))
    if quiet:
        return
    console.write_text(f"oom.cause.{first.cause.value}")
    if len(report.failures) > 1:
        _show_failed_ranks(report, console, verbose=verbose)
    console.write("")
    for name in ("wanted", "limit", "used", "held", "free", "allowed", "available", "outside", "short"):
        amount = getattr(first, f"{name}_bytes")
        if amount is not None and (amount or name != "short"):
            share = f"{first.used_share:.1%}" if name == "used" and first.used_share is not None else ""
            note = console.text("oom.share", share=share) if share else ""
            write_figure(console, f"oom.{name}", _failure_size(amount), note)
    text = first.text if first.cause in (Cause.UNKNOWN, Cause.HOST, Cause.NOT_MEMORY) else ""
    log = f"{first.path}:{first.line}"
    phase = console.text(f"oom.phase.{report.phase}") if report.phase else ""
    shown = {"phase": phase, "operator": first.operator, "where": first.where, "log": log, "text": text}
    for name, value in shown.items():
        if value:
            console.write(f"{pad(console.text(f'oom.{name}'), _LABEL)}   {value}")
    _show_failure_remedies(report, console, None if verbose else _MOST_REMEDIES)


def _show_failure_remedies(report: FailureReport, console: Console, most: int | None) -> None:
    new = [one for one in report.remedies if not one.is_set]
    if new:
        kind = (
            "oom.remedies.inference"
            if report.is_inference
            else "oom.remedies"
            if report.job
            else "oom.remedies.unknown"
        )
        console.write_section(kind, job=report.job)
    for one in new[:most]:
        title = console.text(f"oom.remedy.{one.name}")
        console.write(f"  {console.labelled(title, one.how) if one.how else title}")
    if len(new) < len(report.remedies):
        console.write_text("oom.set", settings=console.listed(one.how for one in report.remedies if one.is_set))
    if (trace := trace_text(report)) is not None:
        console.write(console.say(trace))


def _failure_title(failure: MemoryFailure, console: Console) -> str:
    if failure.is_guess and failure.cause is Cause.UNKNOWN:
        return console.text("oom.title.guess")
    name = "process" if failure.rank is None else "rank"
    rank = console.text(f"oom.title.{name}", **{name: failure.label}) if failure.label else ""
    given = {"framework": failure.framework, "rank": rank}
    if failure.cause is Cause.NOT_MEMORY:
        return console.text("oom.title.not-memory", **given)
    wanted = _failure_size(failure.wanted_bytes) if failure.wanted_bytes is not None else ""
    if failure.cause is Cause.HOST:
        return console.text("oom.title.host", **given, wanted=wanted and f" {wanted}")
    short = console.text("oom.title.short", size=_failure_size(failure.short_bytes)) if failure.short_bytes else ""
    return console.text("oom.title", **given, wanted=wanted or console.text("oom.untold"), short=short)


def _show_failed_ranks(report: FailureReport, console: Console, *, verbose: bool) -> None:
    labels = [failure.label or "–" for failure in report.failures]
    order = console.text("oom.ranks.first", rank=labels[0]) if report.is_ordered else ""
    console.write_section("oom.ranks", count=len(labels), first=order)
    most, several = len(labels) if verbose else _MOST_RANKS, len({failure.path for failure in report.failures}) > 1
    rows = [
        [
            label,
            console.text(f"oom.name.{failure.cause.value}"),
            *(
                "–" if amount is None else _failure_size(amount)
                for amount in (failure.wanted_bytes, failure.used_bytes, failure.outside_bytes, failure.short_bytes)
            ),
            f"{failure.path.name}:{failure.line}" if several and failure.path is not None else str(failure.line),
        ]
        for label, failure in zip(labels[:most], report.failures, strict=False)
    ]
    show_table(console, ["rank", "cause", "wanted", "used", "outside", "short", "line"], rows, room="oom")
    if len(labels) > most:
        console.write_text("oom.ranks.more", count=len(labels) - most)
    different = [
        label for label, one in zip(labels, report.failures, strict=True) if one.cause is not report.first.cause
    ]
    if different:
        console.write_text("oom.ranks.different", ranks=console.listed(different[:_MOST_RANKS]))


def _failure_size(amount: int) -> str:
    # Logs have GiB with two digits: figures in the same unit can be subtracted by eye.
    return gib(amount) if amount * 10 >= GIB or not amount else size_text(amount)
