"""Show the result of ``ms-tune memory what-if`` in the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ms_tune.memory.what_if import WhatIfReport
from ms_tune.pools.pool import PoolGrowth
from ms_tune.pools.what_if import Causes, Lines, Pin, ReplayOutcome
from ms_tune.report.console import Console
from ms_tune.report.words import listed_numbers, show_table, verdict_lines, verdict_word
from ms_tune.units import GIB, gib, mib

_SHOWN = 3  # growths and units shown among the reasons


def show_best(report: WhatIfReport, console: Console) -> None:
    """Show only the best setting."""
    console.write(next(_best_lines(report, console))[0])


def show_summary(report: WhatIfReport, console: Console) -> None:
    """Show the best setting with a line to copy, its saving, and a table that compares it with the run."""
    result = report.result
    said, lines = next(_best_lines(report, console))
    console.write(said)
    place = next((name for name in ("environment", "config", "script") if getattr(lines, name, None)), None)
    if place is not None:
        console.write_raw("  " + console.labelled(console.text(f"allocator.place.{place}"), getattr(lines, place)))
    kept = (result.best, result.best_without_vmm)
    inexact = bool(result.inferred.mismatches.total)
    shown = kept[: 1 if inexact or report.unreleased else 2]  # the screen has eight lines
    _show_settings(report, console, [one for one in result.outcomes if one.recorded or one in shown])
    if inexact:
        console.write(console.paint(console.text("allocator.show.inexact"), "yellow"))
    if report.unreleased:
        console.write_text("trace.unreleased", count=f"{report.unreleased:,}")
    left = len(result.outcomes) + len(report.scenarios) - 1
    finding = report.finding
    if finding is None:
        console.write_text("allocator.show.next", count=left)
        return
    label = console.paint(f"{console.text('cli.warning')}[{finding.id}]", "yellow")
    console.write_text("allocator.show.next-causes", count=left, finding=label)


def show_what_if(report: WhatIfReport, console: Console) -> None:
    """Show the best setting, a table of all settings, the run's settings, the reasons, and further what-ifs."""
    for said, lines in _best_lines(report, console):
        console.write(said)
        # Never wrapped, so that users can copy these lines.
        for place in ("script", "config", "environment"):
            if line := getattr(lines, place, None):
                console.write_raw("  " + console.labelled(console.text(f"allocator.place.{place}"), line))
    console.write("")
    _show_settings(report, console, report.result.outcomes)
    if report.finding is not None:
        warning = f"{console.text('cli.warning')}[{report.finding.id}] {console.say(report.finding.message)}"
        console.write(console.paint(warning, "yellow"))
    console.write("")
    _show_run(report, console)
    _show_causes(report, console)
    _show_scenarios(report, console)
    console.write("")
    for text_id in ("allocator.worth.reserved", "allocator.worth.vmm"):
        console.write_text(text_id)
    console.write_text("allocator.worth.seconds", seconds=f"{report.seconds:.1f}")


def _show_run(report: WhatIfReport, console: Console) -> None:
    result, inferred = report.result, report.result.inferred
    rank = "" if report.rank is None else console.text("allocator.show.rank", rank=report.rank)
    console.write_text("allocator.show.trace", pool=result.pool, rank=rank, rows=f"{report.allocation_count:,}")
    if report.extrapolation is not None:
        layers, runs = report.extrapolation
        console.write_text("allocator.show.extrapolated", layers=layers, runs=listed_numbers(runs))
    if report.unreleased:
        console.write_text("trace.unreleased", count=f"{report.unreleased:,}")
    if report.others:
        console.write_text("allocator.show.others", ranks=", ".join(map(str, report.others)))
    if result.causes is not None:
        lines = result.recorded_outcome.setting_lines
        settings = ", ".join(filter(None, (lines.script, lines.environment)))
        settings = settings or console.text("allocator.show.no-set-memory")
        if inferred.work.releases:
            settings += console.text("allocator.show.releases", count=len(inferred.work.releases))
        console.write_text("allocator.show.inferred", settings=settings)
    _show_proof(report, console)
    if inferred.undecided:
        console.write("  " + console.text("allocator.show.open", names=", ".join(inferred.undecided)))
    console.write_lines(verdict_lines(report.verdict, console))


def _show_proof(report: WhatIfReport, console: Console) -> None:
    inferred, rows = report.result.inferred, f"{report.allocation_count:,}"
    wrong = inferred.mismatches
    if not wrong.total:
        console.write("  " + console.text("allocator.show.exact", rows=rows))
        return
    numbers = {"address": f"{wrong.address:,}", "used": f"{wrong.used:,}", "actual": f"{wrong.actual:,}"}
    console.write(console.paint("  " + console.text("allocator.show.mismatches", rows=rows, **numbers), "yellow"))
    why = "vmm" if inferred.settings.vmm.value == "on" else "unknown"
    console.write("  " + console.text(f"allocator.unexplained.{why}"))


def _show_settings(report: WhatIfReport, console: Console, outcomes: Sequence[ReplayOutcome]) -> None:
    rows = [
        (
            _setting_label(outcome, console, report.extrapolation),
            *map(_gib_or_dash, (outcome.used_bytes, outcome.actual_bytes, outcome.reserved_bytes)),
            "–" if outcome.waste_share is None else f"{outcome.waste_share:.1%}",
            verdict_word(report.verdict_about(outcome), console),
        )
        for outcome in outcomes
    ]
    show_table(console, ("setting", "used", "actual", "reserved", "waste", "verdict"), rows, "allocator")


def _gib_or_dash(size: int | None) -> str:
    return "–" if size is None else f"{size / GIB:.3f}"


def _setting_label(
    outcome: ReplayOutcome, console: Console, extrapolation: tuple[int, tuple[int, ...]] | None = None
) -> str:
    if (change := outcome.change) is not None:
        subject = console.text(f"memory.content.{change.subject}") if change.by_content else change.subject
        return console.text(f"allocator.scenario.{change.name}", subject=subject, parts=change.parts)
    if outcome.recorded:
        if extrapolation is not None:
            return console.text("allocator.setting.extrapolated", layers=extrapolation[0])
        return console.text("allocator.setting.recorded")
    if outcome.name == "vmm":
        return console.text("allocator.setting.vmm")
    return console.text("allocator.setting.vmm-floor") if outcome.name == "vmm floor" else outcome.name


def _best_lines(report: WhatIfReport, console: Console) -> Iterator[tuple[str, Lines | None]]:
    # The best setting, then the best one without vmm, each with the lines that set it.
    result = report.result
    if result.best is None:
        yield console.text("allocator.show.none-fits"), None
        return
    for outcome, kind in ((result.best, "best"), (result.best_without_vmm, "else")):
        if outcome is None or (outcome is result.best and kind == "else"):
            continue
        if outcome.recorded:
            yield console.text(f"allocator.show.{kind}-recorded"), None
            continue
        before = result.recorded_outcome.reserved_bytes
        saved = (before or 0) - (outcome.reserved_bytes or 0)
        said = f"allocator.show.{kind}" + ("-alone" if before is None else "" if saved > 0 else "-no-gain")
        sizes = {"setting": _setting_label(outcome, console), "saved": gib(abs(saved))}
        yield console.text(said, **sizes), outcome.setting_lines


def _show_causes(report: WhatIfReport, console: Console) -> None:
    recorded, causes = report.result.recorded_outcome, report.result.causes
    if causes is None or recorded.reserved_bytes is None or recorded.reserved_bytes <= recorded.used_bytes:
        return
    console.write_section("allocator.causes", lost=gib(recorded.reserved_bytes - recorded.used_bytes))
    if causes.spilled_bytes:
        console.write("  - " + console.text("allocator.causes.spilled", size=gib(causes.spilled_bytes)))
    _show_growths(causes, report, console)
    if causes.idle_at_peak_bytes:
        console.write("  - " + console.text("allocator.causes.idle", size=gib(causes.idle_at_peak_bytes)))
        for pin in [pin for pin in causes.pins if pin.touched_bytes > pin.live_at_peak_bytes][:_SHOWN]:
            console.write(f"      {_pin_text(pin, report, console)}")
    if causes.untouched_bytes:
        console.write("  - " + console.text("allocator.causes.untouched", size=gib(causes.untouched_bytes)))


def _show_growths(causes: Causes, report: WhatIfReport, console: Console) -> None:
    if not causes.missed:
        return
    count = len(causes.growths)
    console.write("  - " + console.text("allocator.causes.missed", missed=len(causes.missed), all=count))
    for growth in sorted(causes.missed, key=lambda growth: -growth.unit_bytes)[:_SHOWN]:
        console.write(f"      {_growth_text(growth, report, console)}")


def _growth_text(growth: PoolGrowth, report: WhatIfReport, console: Console) -> str:
    return console.text(
        "allocator.causes.growth",
        part=console.text(f"allocator.part.{growth.part}"),
        request="-" if growth.request is None else report.names[growth.request],
        size=mib(growth.request_bytes),
        hole=mib(growth.largest_hole),
        free=mib(growth.free_bytes),
    )


def _pin_text(pin: Pin, report: WhatIfReport, console: Console) -> str:
    holder = console.text("allocator.causes.nobody") if pin.request is None else report.names[pin.request]
    part = console.text(f"allocator.part.{pin.unit.part}")
    sizes = {"touched": mib(pin.touched_bytes), "live": mib(pin.live_at_peak_bytes)}
    return console.text("allocator.causes.pin", part=part, holder=holder, **sizes)


def _show_scenarios(report: WhatIfReport, console: Console) -> None:
    if not report.scenarios:
        return
    before = report.result.recorded_outcome.used_bytes
    rows = [
        (
            _setting_label(scenario, console),
            _gib_or_dash(scenario.used_bytes),
            f"{(scenario.used_bytes - before) / GIB:+.3f}",
            _gib_or_dash(scenario.reserved_bytes),
            verdict_word(report.verdict_about(scenario), console),
        )
        for scenario in report.scenarios
    ]
    console.write_section("allocator.scenarios")
    show_table(console, ("scenario", "used", "change", "reserved", "verdict"), rows, "allocator")
