"""Show a snapshot of PyTorch's allocator in the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import join

from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.footprint.torch_report import CodeLocation, LineChange, TorchRemedy, TorchReport
from ms_tune.footprint.torch_runs import Calibration, RankPeaks
from ms_tune.memory.what_if import TorchWhatIf
from ms_tune.pools.torch_replay import Cache, TorchOutcome
from ms_tune.pools.torch_space import TorchSettings
from ms_tune.readers.memory_block import Frame
from ms_tune.report.console import Console
from ms_tune.report.words import shorten_location, show_table, signed_text, size_text, write_figure
from ms_tune.text import Message, msg
from ms_tune.units import MIB


def show_peak(report: TorchReport, console: Console) -> None:
    """Show only the first figure: the peak, or the memory in use."""
    for name, amount, when in list(list_figures(report))[:1]:
        write_figure(console, f"snapshot.show.{name}", size_text(amount), console.say(when))


def show_report(
    report: TorchReport, remedies: Sequence[TorchRemedy], console: Console, top: int, *, verbose: bool = True
) -> None:
    """Show the peak, ways to lower it, the proof, the memory by script line, and the findings."""
    _show_figures(report, console)
    device, others = report.device.number, [str(each.number) for each in report.snapshot.devices]
    console.write_text("snapshot.show.device", device=device, events=f"{len(report.device.events):,}")
    if len(others) > 1:
        console.write_text("snapshot.show.devices", devices=", ".join(others))
    console.write_lines(proof_lines(report))
    for remedy in remedies[:top]:
        sizes = {"freed": size_text(remedy.bytes_freed), "after": size_text(remedy.peak_after_bytes)}
        name = f"snapshot.show.remedy.{'held' if remedy.of == 'reserved' else 'used'}"
        console.write_text(name, title=console.say(remedy.title), how=remedy.how, **sizes)
    _show_contents(report, console, top)
    if report.step_ends and verbose:
        ends = ", ".join(map(str, report.step_ends[:top]))
        console.write_section("snapshot.show.steps", count=len(report.step_ends), ends=ends)
    console.write("")
    for finding in list_findings(report, top if verbose else 1):
        console.write(console.say(finding.message))
    name = "next" if report.refused_because is None else "no-next"
    console.write_raw(console.text(f"snapshot.show.{name}", path=report.snapshot.path))


def show_ranks(ranks: Sequence[RankPeaks], console: Console) -> None:
    """Show the ranks of a folder, the worst first and equal ones once, and those whose snapshot cannot be read."""
    equal: dict[tuple[str, ...], list[int]] = {}
    for one in sorted(ranks, key=lambda one: -max(one.peak_bytes, one.reserved_peak_bytes or 0)):
        if one.error is None:
            held = "-" if one.reserved_peak_bytes is None else size_text(one.reserved_peak_bytes)
            equal.setdefault((size_text(one.peak_bytes), held), []).append(one.rank)
    if equal:
        console.write_section("memory.show.ranks")
        rows = [[", ".join(map(str, sorted(numbers))), *row] for row, numbers in equal.items()]
        show_table(console, ["rank", "peak", "reserved"], rows)
    for one in ranks:
        if one.error is not None:
            console.write_text("snapshot.show.unreadable", path=one.path, reason=one.error.message)
    if ranks:
        console.write_section("snapshot.show.worst", rank=next(iter(equal.values()))[0])


def show_calibration(found: Calibration, dry_run: Path, run: Path, console: Console, *, quiet: bool) -> None:
    """Show the bytes that a run reserved beyond its dry-run, and how to reserve them in later verdicts."""
    more, measured = size_text(abs(found.rest_bytes)), size_text(found.measured_bytes)
    console.write_text(f"snapshot.diff.{'rest' if found.rest_bytes >= 0 else 'less'}", size=more, measured=measured)
    if not quiet:
        sizes = {"logical": size_text(found.logical_bytes), "replayed": size_text(found.replayed_bytes)}
        console.write_text("snapshot.diff.dry-run", **sizes)
        keep = join(("ms-tune", "memory", "diff", str(dry_run), str(run), "--json"))
        console.write_text("snapshot.diff.keep")
        console.write_raw(f"  {keep} > rest.json")
        console.write("")


def _show_figures(report: TorchReport, console: Console) -> None:
    for name, amount, when in list_figures(report):
        note = msg("snapshot.show.cached-note", when=when) if name == "cached" else when
        write_figure(console, f"snapshot.show.{name}", size_text(amount), console.say(note))


def list_figures(report: TorchReport) -> Iterator[tuple[str, int, Message]]:
    """Yield the known figures: text ID, bytes and moment."""
    recorded, used = len(report.device.events) > 0, report.content_bytes if report.replay.is_exact else None
    known: tuple[tuple[str, int | None, int | None], ...] = (
        ("used-peak", report.peak_bytes, report.peak_event) if recorded else ("used-then", used, report.event),
        ("requested-peak" if recorded else "requested-then", report.requested_peak_bytes, report.requested_peak_event),
        ("reserved", report.reserved_peak_bytes, report.reserved_peak_event),
        ("cached", report.cached_bytes, report.event),
    )
    for name, amount, event in known:
        if amount is not None:
            yield name, amount, moment_text(report, event)


def moment_text(report: TorchReport, event: int | None) -> Message:
    """Return a moment in words."""
    if event is not None and event >= 0:
        return msg("snapshot.show.at-event", event=event)
    return msg("snapshot.show.at-start" if len(report.device.events) else "snapshot.show.at-snapshot")


def proof_lines(report: TorchReport) -> list[Message]:
    """Return lines that state whether the figures are proved."""
    replay, reason = report.replay, report.refused_because
    unknown = [report.passed_over] if report.passed_over is not None else []
    if not len(report.device.events):
        return [reason] if reason is not None else []
    counts = {"allocations": f"{replay.allocations:,}", "differences": f"{replay.differences:,}"}
    if report.simulated and reason is None:
        return [msg("snapshot.show.simulated", **counts)]
    refused = [msg("snapshot.show.refused", reason=reason)] if reason is not None else []
    uncertain = replay.uncertain_bytes if reason is None else 0
    range_note = [msg("snapshot.show.uncertain", size=size_text(uncertain))] if uncertain else []
    return [msg("snapshot.show.replayed", **counts), *range_note, *refused, *unknown]


def _line_name(place: CodeLocation, console: Console) -> str:
    where = _place_text(place.where, place.before_recording, console)
    return f"{where} [{place.category}]" if place.category else where


def _place_text(line: str, before: bool, console: Console) -> str:  # noqa: FBT001 - as Place has it
    return shorten_location(line) if line else console.text(f"snapshot.where.{'before' if before else 'none'}")


def _show_contents(report: TorchReport, console: Console, top: int) -> None:
    total = max(1, sum(place.bytes for place in report.contents))
    rows = [
        [size_text(place.bytes), f"{place.bytes / total:.1%}", str(place.count), _line_name(place, console)]
        for place in report.contents[:top]
    ]
    console.write_section("snapshot.show.contents", when=moment_text(report, report.event))
    show_table(console, ["size", "share", "count", "where"], rows)
    rest = report.contents[top:]
    if rest:
        more = size_text(sum(place.bytes for place in rest))
        console.write_text("memory.show.more", count=len(rest), size=more)


def list_findings(report: TorchReport, most: int) -> Iterator[Diagnostic]:
    """Yield failed requests, leaks, growth per step (at most ``most`` of each), and growth despite enough free memory."""
    for one in report.shortages[:most]:
        sizes = {"wanted": size_text(one.wanted_bytes), "free": size_text(one.device_free_bytes)}
        message = msg("snapshot.show.oom", event=one.event, **sizes)
        yield _make_finding("oom", Severity.ERROR, message, one.wanted_bytes)
    for each in [each for each in report.survivors if each.leak][:most]:
        what = {"size": size_text(each.bytes // each.count), "count": each.count, "where": each.where}
        message = msg("snapshot.show.leak", **what, events=", ".join(map(str, each.events[:5])))
        stack = report.snapshot.stacks[report.device.events[each.events[0]].stack]
        yield _make_finding("leak", Severity.WARNING, message, each.bytes, stack)
    for growth in report.step_growth[:most]:
        where = shorten_location(growth.where) if growth.where else msg("snapshot.where.none")
        message = msg("snapshot.show.step-growth", where=where, size=size_text(growth.bytes_per_step))
        yield _make_finding("growth", Severity.WARNING, message, growth.bytes_per_step)
    if report.causes:
        fragments = [cause for cause in report.causes if cause.fragments]
        taken, lost = (sum(cause.taken_bytes for cause in causes) for causes in (report.causes, fragments))
        counts = {"all": len(report.causes), "fragments": len(fragments)}
        message = msg("snapshot.show.growths", **counts, taken=size_text(taken), lost=size_text(lost))
        yield _make_finding("fragments", Severity.INFO, message, lost)


def _make_finding(
    name: str, severity: Severity, message: Message, amount: int, stack: tuple[Frame, ...] = ()
) -> Diagnostic:
    title, what_to_do = msg(f"snapshot.card.{name}"), msg(f"snapshot.card.{name}.help")
    return Diagnostic("", severity, message, what_to_do, name, title=title, bytes=amount, stack=stack)


def show_what_if(result: TorchWhatIf, console: Console, *, quiet: bool = False, verbose: bool = True) -> None:
    """Show the best setting, then the memory that each setting reserves, the recorded one first."""
    report = result.report
    asked = [outcome for outcome in result.outcomes if not outcome.recorded]
    best = min(asked, key=lambda outcome: outcome.reserved_peak_bytes)
    saved = result.outcomes[0].reserved_peak_bytes - best.reserved_peak_bytes
    setting = _setting_text(best, console, report)
    text = f"snapshot.show.{'saves' if saved > 0 else 'no-gain-default' if report.simulated else 'no-gain'}"
    console.write_text(text, saved=size_text(max(saved, 0)), setting=setting, written=_variable_text(best))
    if quiet:
        return
    console.write("")
    rows = []
    for outcome in result.outcomes:
        change = signed_text(outcome.reserved_peak_bytes - result.outcomes[0].reserved_peak_bytes)
        over = (
            "" if result.limit is None else console.text(f"snapshot.limit.{'over' if outcome.over_limit else 'within'}")
        )
        sizes = [
            size_text(outcome.reserved_start_bytes),
            size_text(outcome.reserved_peak_bytes),
            change,
            size_text(outcome.reserved_end_bytes),
        ]
        rows.append([*sizes, _setting_text(outcome, console, report), over])
    show_table(console, ["start", "peak", "change", "end", "setting", "fits"], rows)
    console.write_lines(proof_lines(report)[0 if verbose else 1 :])
    if verbose and not report.simulated:
        recorded = report.reserved_peak_bytes or 0
        write_figure(console, "snapshot.show.reserved", size_text(recorded), console.text("snapshot.show.as-recorded"))
    if (verbose and not report.simulated) or result.error_bytes:
        console.write_text("snapshot.show.error", error=signed_text(result.error_bytes))
    if any(outcome.settings.collect_above is not None for outcome in asked):
        console.write_text("snapshot.show.collect", limit=size_text(result.limit or 0))


def _setting_text(outcome: TorchOutcome, console: Console, report: TorchReport) -> str:
    settings = outcome.settings
    parts = [console.text("snapshot.setting.expandable" if settings.expandable else "snapshot.setting.classic")]
    parts += _list_options(settings)
    if len(settings.roundup) > 1:
        parts.append("roundup")
    if outcome.cache is not Cache.AS_RECORDED:
        parts.append(console.text(f"snapshot.setting.cache.{outcome.cache.value}"))
    if outcome.recorded:
        parts.append(console.text(f"snapshot.setting.{'default' if report.simulated else 'recorded'}"))
    return console.listed(parts)


def _variable_text(outcome: TorchOutcome) -> str:
    settings = outcome.settings
    options = ",".join([f"expandable_segments:{settings.expandable}", *_list_options(settings)])
    return f"{settings.variable}={options}"


def _list_options(settings: TorchSettings) -> Iterator[str]:
    if settings.max_split is not None:
        yield f"max_split_size_mb:{settings.max_split // MIB}"
    if len(settings.roundup) == 1:
        yield f"roundup_power2_divisions:{settings.roundup[0]}"
    if settings.collect_above is not None:
        yield f"garbage_collection_threshold:{settings.collect_above:g}"


def show_comparison(
    before: TorchReport, after: TorchReport, changes: Sequence[LineChange], console: Console, top: int | None
) -> None:
    """Show the changes by script line and the compared figures; without ``top`` only the two peaks."""
    for name, report in (("before", before), ("after", after)):
        console.write_text(f"snapshot.diff.{name}", path=report.snapshot.path)
        if top is None:
            show_peak(report, console)
            continue
        console.write_lines(proof_lines(report))
        _show_figures(report, console)
        console.write("")
    if top is None:
        return
    if before.replay.is_exact != after.replay.is_exact:
        console.write_text("snapshot.diff.unlike")
    if not changes:
        console.write_text("memory.diff.same")
        return
    rows = [
        [
            signed_text(change.change_bytes),
            size_text(change.before_bytes),
            size_text(change.after_bytes),
            _place_text(change.where, change.before_recording, console),
        ]
        for change in changes[:top]
    ]
    console.write_text("snapshot.diff.lines", before=measure_text(before), after=measure_text(after))
    show_table(console, ["change", "before", "after", "where"], rows)


def measure_text(report: TorchReport) -> Message:
    """Return the figure that the report's contents add up to."""
    figure = msg(f"snapshot.show.{report.content_measure}")
    return msg("snapshot.diff.figure", figure=figure, when=moment_text(report, report.event))
