"""A profile's verdict on the terminal, and the tables it rests on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.readers.scopes import ScopePass
from ms_tune.report.console import pad, table, terminal_width, text_width

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ms_tune.profile.result import ProfileReport
    from ms_tune.readers.profile_tables import Kernels
    from ms_tune.report.console import Console

_BAR = 30  # characters
_MOST_RANKS = 32
_MOST_LAYERS_SHOWN = 32
_LONGEST_SHAPES = 40  # characters


def show_report(report: ProfileReport, top: int, console: Console) -> None:
    """Write all of it, the verdict first."""
    bound = console.text(f"profile.bound.{report.verdict.bound.value}")
    console.write(console.labelled(console.text("profile.show.verdict"), console.paint(bound, "cyan")))
    for label, lines in (("because", report.verdict.evidence), ("next", report.verdict.next_steps)):
        console.write(console.labelled(console.text(f"profile.show.{label}"), ""))
        for line in lines:
            console.write(f"  - {console.say(line)}")
    _show_shares(report, console)
    for title, heads, rows, right in tables_of(report, top, console):
        if rows:
            console.write("")
            console.write(title)
            for text in table(heads, rows, right=range(right), width=terminal_width() - 2):
                console.write(f"  {text}")
    console.write("")
    if report.identity_error_us is not None:
        console.write(console.text("profile.show.identity", error=f"{report.identity_error_us:,.3f}"))
    for problem in report.problems:
        label = console.text("profile.show.serious" if problem.serious else "profile.show.problem")
        hint = f" ({console.say(problem.hint)})" if problem.hint else ""
        console.write(f"{console.labelled(label, console.say(problem.message))}{hint} [{problem.id}]")


def _show_shares(report: ProfileReport, console: Console) -> None:
    counted = [rank.whole / rank.steps for rank in report.ranks if rank.whole]
    if not counted:
        return
    mean = sum(counted) / len(counted) / 1000
    console.write("")
    console.write(console.text("profile.show.shares", ranks=len(counted), ms=f"{mean:,.2f}"))
    names = {cause: console.text(f"profile.cause.{cause.value}") for cause in report.shares}
    width = max(map(text_width, names.values()))
    for cause, share in sorted(report.shares.items(), key=lambda one: -one[1]):
        console.write(f"  {pad(names[cause], width)}  {share:6.1%}  {'#' * round(share * _BAR)}")


def tables_of(
    report: ProfileReport, top: int, console: Console
) -> Iterator[tuple[str, list[str], list[Sequence[str]], int]]:
    """Titles, heads, rows, and how many columns are numbers: ranks, gaps, collectives, operators, layers."""

    def heads(*names: str) -> list[str]:
        return [console.text(f"profile.show.{name}") for name in names]

    causes = sorted(report.shares, key=lambda cause: -report.shares[cause])
    names = [console.text(f"profile.short.{cause.value}") for cause in causes]
    ranks: list[Sequence[str]] = [
        [
            rank_name(rank.rank),
            f"{rank.whole / rank.steps / 1000:,.2f}",
            rank.level or "-",
            *(f"{rank.share(cause):.1%}" for cause in causes),
        ]
        for rank in report.ranks[:_MOST_RANKS]
    ]
    yield console.text("profile.show.ranks"), [*heads("rank", "step", "level"), *names], ranks, 2
    queues: list[Sequence[str]] = [
        [rank_name(rank.rank), stream, f"{count:,}", f"{share:.1%}"]
        for rank in report.ranks[:_MOST_RANKS]
        for stream, (count, share) in rank.queues.items()
    ]
    yield console.text("profile.show.queues"), heads("rank", "stream", "operator-count", "busy"), queues, 4
    gaps: list[Sequence[str]] = [
        [
            rank_name(gap.rank),
            f"{gap.microseconds / 1000:,.3f}",
            gap.start,
            console.text(f"profile.short.{gap.cause.value}"),
            " … ".join(name or "-" for name in gap.between),
            gap.host or "-",
        ]
        for gap in report.gaps
    ]
    columns = heads("rank", "gap-ms", "gap-at", "gap-cause", "gap-between", "gap-host")
    yield console.text("profile.show.gaps"), columns, gaps, 3
    yield _collectives(report, console)
    yield _operators(report, top, console)
    yield _layers(report, console)


def _collectives(report: ProfileReport, console: Console) -> tuple[str, list[str], list[Sequence[str]], int]:
    rows: list[Sequence[str]] = [
        [
            f"{one.count:,}",
            f"{one.elapsed / 1000:,.3f}",
            f"{one.transit / 1000:,.3f}",
            f"{(one.elapsed - one.transit) / 1000:,.3f}",
            one.name,
        ]
        for one in report.collectives
    ]
    names = ("collective-count", "collective-elapsed", "collective-transit", "collective-waiting", "collective-kind")
    return console.text("profile.show.collectives"), [console.text(f"profile.show.{name}") for name in names], rows, 4


def _longest_computing(report: ProfileReport) -> Kernels | None:
    """The kernels of the rank that computes longest."""
    able = [rank.kernels for rank in report.ranks if rank.kernels is not None and rank.kernels.microseconds]
    return max(able, key=lambda kernels: kernels.microseconds, default=None)


def _operators(report: ProfileReport, top: int, console: Console) -> tuple[str, list[str], list[Sequence[str]], int]:
    """The operators of the rank that computes longest."""
    kernels = _longest_computing(report)
    rows: list[Sequence[str]] = []
    if kernels is not None:
        rows += [
            [
                f"{one.count:,}",
                f"{one.microseconds / 1000:,.3f}",
                f"{one.microseconds / kernels.microseconds:.1%}",
                one.name,
                one.core,
                _short(one.shapes[0].inputs) if one.shapes else "",
            ]
            for one in kernels.types[:top]
        ]
    names = ("operator-count", "operator-ms", "operator-share", "operator-type", "operator-core", "operator-shapes")
    return console.text("profile.show.operators"), [console.text(f"profile.show.{name}") for name in names], rows, 3


def _short(shapes: str) -> str:
    return shapes if len(shapes) <= _LONGEST_SHAPES else f"{shapes[: _LONGEST_SHAPES - 1]}…"


def _layers(report: ProfileReport, console: Console) -> tuple[str, list[str], list[Sequence[str]], int]:
    """The layers of the rank that computes longest, the slowest first where there are many."""
    kernels = _longest_computing(report)
    layers = sorted(kernels.layers, key=lambda one: -sum(one.microseconds.values())) if kernels is not None else []
    kept = {one.name for one in layers[:_MOST_LAYERS_SHOWN]}
    rows: list[Sequence[str]] = [
        [f"{one.count:,}", *(f"{one.microseconds.get(name, 0.0) / 1000:,.3f}" for name in ScopePass), one.name]
        for one in (kernels.layers if kernels is not None else ())
        if one.name in kept
    ]
    names = ("layer-count", "layer-forward", "layer-backward", "layer-recompute", "layer-name")
    heads = [console.text(f"profile.show.{name}") for name in names]
    title = console.text("profile.show.layers", shown=len(rows), count=len(layers))
    return title, heads, rows, 4


def rank_name(rank: int | None) -> str:
    """A rank's number for readers."""
    return "?" if rank is None else str(rank)
