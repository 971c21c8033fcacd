"""Show a profile's verdict with its evidence in the terminal, as JSON, or as an HTML page."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence

from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.encode import record_json
from ms_tune.profile.result import Cause, Gap, ProfileReport, QueueState, RankTimes
from ms_tune.readers.profile_tables import Kernels
from ms_tune.readers.scopes import ScopePass
from ms_tune.report.console import Console, pad, table_lines, terminal_width, text_width
from ms_tune.report.page import list_html, table_html, verdict_html, write_page
from ms_tune.report.words import doubt_json, doubt_line, shorten_location
from ms_tune.text import Language, shorten

# Title, column names, rows, number of numeric columns.
_ShownTable = tuple[str, list[str], list[list[str]], int]

_BAR = 30  # characters
_MOST_RANKS = 32
_MOST_LAYERS_SHOWN = 32
_LONGEST_SHAPES = 40  # characters
VERSION = 1
_COLOURS = {
    "compute": "#2f7d4f",
    "transfer": "#3b6fb6",
    "waiting": "#c98a1b",
    "bubble": "#b5651d",
    "host": "#b03a48",
    "dependency": "#7a4fa3",
    "communication": "#5f8fbf",
    "free": "#8a8f98",
}
_HEIGHT, _WIDTH, _NAME = 22, 1000, 70  # height of a bar, width of the picture, width of rank names
_MOST_BARS = 64
_MS_DIGITS = 1000.0  # microseconds from which two decimals are enough
_SHORT = 3  # groups of gaps or causes on the short screen
_EVIDENCE = (5, 5, 3, 2)  # lines of evidence on it, by the number of causes: 20 lines with 80 columns


def show_verdict(report: ProfileReport, console: Console) -> None:
    """Show the verdict line alone."""
    bound = console.text(f"profile.bound.{report.verdict.bound.value}")
    console.write(console.paint(console.text("profile.show.verdict-line", bound=bound), "cyan"))


def show_summary(report: ProfileReport, console: Console) -> None:
    """Show the verdict with its evidence, the largest gaps by the host's activity, and the next steps."""
    show_verdict(report, console)
    causes = report.causes[:_SHORT]
    console.write_lines(report.verdict.evidence[: _EVIDENCE[len(causes)]], "  - ")
    if causes:
        _show_causes(causes, console)
    else:
        _show_gaps(report.gaps, console)
    for problem in sorted(report.problems, key=lambda problem: problem.severity.rank)[:1]:
        if problem.severity is Severity.ERROR or not report.causes:
            console.write(_problem_line(problem, console))
    if not report.causes:
        _show_next(report, console)
    console.write_lines(report.unknown[:1])
    console.write_text("profile.show.verbose")


def _show_causes(causes: Sequence[Cause], console: Console) -> None:
    console.write(console.labelled(console.text("profile.show.causes"), ""))
    for number, cause in enumerate(causes, 1):
        console.write(f"  {number}. {console.say(cause.text)}")
        console.write("     " + console.labelled(console.text("profile.show.remedy"), console.say(cause.remedy)))


def _show_gaps(gaps: Sequence[Gap], console: Console) -> None:
    if gaps:
        console.write_section("profile.show.short-gaps")
    named: set[str] = set()
    for group in _group_gaps(gaps)[:_SHORT]:
        longest = max(group, key=lambda gap: gap.microseconds)
        sizes = {"ms": f"{_total_ms(group):.3g}", "count": len(group), "longest": f"{longest.microseconds / 1000:.3g}"}
        cause = console.text(f"profile.short.{longest.cause.value}")
        where = {"timestamp": longest.timestamp_us.partition(".")[0], "rank": rank_name(longest.rank)}
        console.write(f"  {console.text('profile.show.short-gap', **sizes, cause=cause, **where)}")
        if longest.host and longest.host not in named:
            console.write("    " + console.text("profile.show.gap-of-host", host=shorten_location(longest.host)))
        named.add(longest.host)


def _group_gaps(gaps: Sequence[Gap], *, by_cause: bool = True) -> list[list[Gap]]:
    # By host activity, and by cause where that is unknown or ``by_cause``; longest total time first.
    groups: dict[tuple[QueueState | None, str], list[Gap]] = {}
    for gap in gaps:
        groups.setdefault((gap.cause if by_cause or not gap.host else None, gap.host), []).append(gap)
    return sorted(groups.values(), key=_total_ms, reverse=True)


def _total_ms(gaps: Sequence[Gap]) -> float:
    return sum(gap.microseconds for gap in gaps) / 1000


def _show_next(report: ProfileReport, console: Console) -> None:
    console.write(console.labelled(console.text("profile.show.next"), ""))
    console.write_lines(report.verdict.next_steps, "  - ")


def show_report(report: ProfileReport, top: int, console: Console) -> None:
    """Show all results, the verdict first."""
    show_verdict(report, console)
    console.write_lines(report.verdict.evidence, "  - ")
    if report.causes:
        _show_causes(report.causes, console)
    else:
        _show_next(report, console)
    console.write_lines(report.unknown)
    _show_shares(report, console)
    for title, heads, rows, right in tables_of(report, top, console):
        if rows:
            console.write(f"\n{title}")
            console.write_lines(table_lines(heads, rows, right=range(right), width=terminal_width() - 2), "  ")
    console.write("")
    console.write_lines(_doubt_lines(report, console))


def _show_shares(report: ProfileReport, console: Console) -> None:
    counted = [rank.microseconds / rank.steps for rank in report.ranks if rank.microseconds]
    if not counted:
        return
    mean = _step_ms(sum(counted) / len(counted))
    console.write_section("profile.show.shares", ranks=len(counted), ms=mean)
    names = {cause: console.text(f"profile.cause.{cause.value}") for cause in report.shares}
    width = max(map(text_width, names.values()))
    for cause, share in sorted(report.shares.items(), key=lambda one: -one[1]):
        console.write(f"  {pad(names[cause], width)}  {share:6.1%}  {'#' * round(share * _BAR)}")


def tables_of(report: ProfileReport, top: int, console: Console) -> Iterator[_ShownTable]:
    """Yield the tables: ranks, queues, gaps, collectives, operators, layers."""
    causes = sorted(report.shares, key=lambda cause: -report.shares[cause])
    ranks = [
        [
            rank_name(rank.rank),
            _step_ms(rank.microseconds / rank.steps) if rank.microseconds else "-",
            rank.level or "-",
            *(f"{rank.share_of(cause):.1%}" for cause in causes),
        ]
        for rank in report.ranks[:_MOST_RANKS]
    ]
    title, heads, rows, right = _make_table("ranks", ("rank", "step", "level"), ranks, 2, console)
    yield title, [*heads, *(console.text(f"profile.short.{cause.value}") for cause in causes)], rows, right
    queues = [
        [rank_name(rank.rank), stream, f"{count:,}", f"{share:.1%}"]
        for rank in report.ranks[:_MOST_RANKS]
        for stream, (count, share) in rank.queues.items()
    ]
    yield _make_table("queues", ("rank", "stream", "operator-count", "busy"), queues, 4, console)
    gaps = [
        [
            rank_name(gap.rank),
            f"{gap.microseconds / 1000:,.3f}",
            gap.timestamp_us,
            console.text(f"profile.short.{gap.cause.value}"),
            " … ".join(name or "-" for name in gap.kernels_around),
            console.text("profile.show.again") if place and gap.host else gap.host or "-",
        ]
        for some in _group_gaps(report.gaps, by_cause=False)
        for place, gap in enumerate(some)
    ]
    yield _make_table("gaps", ("rank", "gap-ms", "gap-at", "gap-cause", "gap-between", "gap-host"), gaps, 3, console)
    collectives = [
        [
            f"{one.count:,}",
            f"{one.elapsed_us / 1000:,.3f}",
            f"{one.transit_us / 1000:,.3f}",
            f"{one.waiting_us / 1000:,.3f}",
            one.name,
        ]
        for one in report.collectives
    ]
    names = ("collective-count", "collective-elapsed", "collective-transit", "collective-waiting", "collective-kind")
    yield _make_table("collectives", names, collectives, 4, console)
    yield from _kernel_tables(report, top, console)


def _kernel_tables(report: ProfileReport, top: int, console: Console) -> Iterator[_ShownTable]:
    able = [rank.kernels for rank in report.ranks if rank.kernels is not None and rank.kernels.microseconds]
    kernels = max(able, key=lambda kernels: kernels.microseconds, default=None)
    if kernels is None:
        return
    operators = [
        [
            f"{one.count:,}",
            f"{one.microseconds / 1000:,.3f}",
            f"{one.microseconds / kernels.microseconds:.1%}",
            one.name,
            one.core,
            shorten(one.shapes[0].inputs, _LONGEST_SHAPES) if one.shapes else "",
        ]
        for one in kernels.types[:top]
    ]
    names = ("operator-count", "operator-ms", "operator-share", "operator-type", "operator-core", "operator-shapes")
    yield _make_table("operators", names, operators, 3, console)
    longest = sorted(kernels.layers, key=lambda one: -sum(one.microseconds.values()))[:_MOST_LAYERS_SHOWN]
    layers = [
        [f"{one.count:,}", *(f"{one.microseconds.get(name, 0.0) / 1000:,.3f}" for name in ScopePass), one.name]
        for one in kernels.layers
        if one.name in {each.name for each in longest}
    ]
    columns = ("layer-count", "layer-forward", "layer-backward", "layer-recompute", "layer-name")
    yield _make_table("layers", columns, layers, 4, console, shown=len(layers), count=len(kernels.layers))


def _make_table(
    title: str, heads: Sequence[str], rows: list[list[str]], right: int, console: Console, **params: object
) -> _ShownTable:
    return (
        console.text(f"profile.show.{title}", **params),
        [console.text(f"profile.show.{name}") for name in heads],
        rows,
        right,
    )


def rank_name(rank: int | None) -> str:
    """Return a rank's number, or "?" if unknown."""
    return "?" if rank is None else str(rank)


def _step_ms(microseconds: float) -> str:
    return f"{microseconds / 1000:,.2f}" if microseconds >= _MS_DIGITS else f"{microseconds / 1000:.2g}"


def report_json(report: ProfileReport, top: int) -> dict[str, object]:
    """Return the JSON object of ``ms-tune profile --json``."""
    return {
        "version": VERSION,
        "verdict": report.verdict.bound,
        "evidence": report.verdict.evidence,
        "next": report.verdict.next_steps,
        "causes": report.causes,
        "unknown": report.unknown,
        **record_json(report, "sources", "shares", "identity_error_us", "imbalance"),
        "ranks": [_rank_json(rank, top) for rank in report.ranks],
        "gaps": [
            record_json(gap, "rank", "timestamp_us", "microseconds", "cause")
            | {"before": gap.before or None, "after": gap.after or None, "host": gap.host or None}
            for gap in report.gaps
        ],
        "collectives": [
            record_json(one, "name", "count", "point_to_point", "elapsed_us", "transit_us", "waiting_us")
            for one in report.collectives
        ],
        "problems": [doubt_json(problem) for problem in report.problems],
    }


def _rank_json(rank: RankTimes, top: int) -> dict[str, object]:
    return {
        **record_json(rank, "rank", "folder", "steps", "microseconds", "times_us", "identity_error_us", "idle_linked"),
        "level": rank.level or None,
        "queues": {name: {"kernels": count, "busy": share} for name, (count, share) in rank.queues.items()},
        "kernels": _kernels_json(rank.kernels, top) if rank.kernels else None,
    }


def _kernels_json(kernels: Kernels, top: int) -> dict[str, object]:
    return {
        **record_json(kernels, "count", "microseconds"),
        "types": kernels.types[:top],
        "layers": [
            record_json(one, "name", "count")
            | {f"{name.value}_us": one.microseconds.get(name, 0.0) for name in ScopePass}
            for one in kernels.layers
        ],
    }


def report_html(report: ProfileReport, top: int, language: Language) -> str:
    """Return the HTML page in both languages, starting in one."""

    def parts(console: Console) -> Iterator[str]:
        yield verdict_html([console.text(f"profile.bound.{report.verdict.bound.value}")])
        causes = [cause.text for cause in report.causes]
        lists = {"because": report.verdict.evidence, "causes": causes, "next": report.verdict.next_steps}
        for label, lines in (*lists.items(), ("unknown", report.unknown)):
            yield from list_html(map(console.say, lines), console.text(f"profile.show.{label}"))
        yield from _bars_html(report, console)
        for one in tables_of(report, top, console):
            yield from table_html(*one)
        yield from list_html(_doubt_lines(report, console))

    return write_page("profile.show.title", report.sources, parts, language)


def _bars_html(report: ProfileReport, console: Console) -> Iterator[str]:
    ranks = [rank for rank in report.ranks if rank.microseconds][:_MOST_BARS]
    if not ranks:
        return
    longest = max(rank.microseconds / rank.steps for rank in ranks)
    mean = _step_ms(sum(rank.microseconds / rank.steps for rank in ranks) / len(ranks))
    yield f"<h2>{_escaped_text(console, 'profile.show.shares', ranks=len(ranks), ms=mean)}</h2>"
    yield f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT * len(ranks)}" role="img">'
    for row, rank in enumerate(ranks):
        yield f'<text x="0" y="{row * _HEIGHT + 15}" font-size="13" fill="currentColor">{rank_name(rank.rank)}</text>'
        at = float(_NAME)
        for cause in report.shares:
            width = rank.times_us.get(cause, 0.0) / rank.steps / longest * (_WIDTH - _NAME)
            tip = console.labelled(console.text(f"profile.cause.{cause.value}"), f"{rank.share_of(cause):.1%}")
            if width > 0:
                yield (
                    f'<rect x="{at:.2f}" y="{row * _HEIGHT + 2}" width="{width:.2f}" height="{_HEIGHT - 5}" '
                    f'fill="{_COLOURS[cause.value]}"><title>{html.escape(tip)}</title></rect>'
                )
            at += width
    yield '</svg><ul class="legend">'
    for cause, share in report.shares.items():
        box = f'<svg viewBox="0 0 8 8"><rect width="8" height="8" fill="{_COLOURS[cause.value]}"/></svg>'
        yield f"<li>{box}{_escaped_text(console, f'profile.cause.{cause.value}')} {share:.1%}</li>"
    yield "</ul>"


def _doubt_lines(report: ProfileReport, console: Console) -> Iterator[str]:
    if report.identity_error_us is not None:
        yield console.text("profile.show.identity", error=f"{report.identity_error_us:,.3f}")
    for problem in report.problems:
        yield _problem_line(problem, console)


def _problem_line(problem: Diagnostic, console: Console) -> str:
    label = console.text("profile.show.serious" if problem.severity is Severity.ERROR else "profile.show.problem")
    return doubt_line(problem, label, console)


def _escaped_text(console: Console, text_id: str, **params: object) -> str:
    return html.escape(console.text(text_id, **params))
