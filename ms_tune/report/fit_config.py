"""Show the plan of a config in the terminal: the table's prediction and the results of simulating the plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ms_tune.fit.predict import Cluster, Prediction
from ms_tune.fit.rank import PRUNED
from ms_tune.fit.result import NEAR, ConfigFit, VerifiedStage, VerifyRound
from ms_tune.fit.search import SearchFit, TriedLayout
from ms_tune.planning.fit import EvaluatedPlan
from ms_tune.report import fit_text
from ms_tune.report.console import Console
from ms_tune.report.fit_text import FitPage
from ms_tune.report.fit_text import show_report as show_plan
from ms_tune.source.files import diff_lines
from ms_tune.text import Message, msg
from ms_tune.units import GIB, gib, mib


def shown_of(found: ConfigFit, console: Console, more: Sequence[Message] = ()) -> FitPage:
    """Return all parts of the result screen for a config's plan."""
    report = found.last.report
    plan = report.planned or report.nearest
    heads, rows = _stage_table(found, plan, console) if plan is not None else ([], [])
    return FitPage(
        report=report,
        good=found.chosen is not None,
        assumptions=tuple(_assumption_lines(found)),
        verdict=verdict_lines_of(found),
        heads=heads,
        rows=rows,
        change=_change_text(found, console),
        sections=(
            ("fit.title.why", plan_reasons(found)),
            ("fit.title.others", fit_text.alternatives_of(report)),
            ("fit.title.remedies", fit_text.remedies_of(found.lacking or report)),
            ("fitting.title.table", tuple(_table_lines(found))),
            ("fit.title.notes", (*more, *plan_notes(found))),
        ),
        next_step=_next_step(found),
        changed_file=found.source.path.name if found.chosen is not None and found.changed else "",
    )


def _next_step(found: ConfigFit) -> str:
    if found.chosen is None:
        return "search"
    if not found.last.verified:
        return "verify"
    return "write" if found.changed else "more"


def _change_text(found: ConfigFit, console: Console) -> str:
    if found.chosen is None:
        return console.text("fitting.no-change")
    return diff_of_plan(found).rstrip("\n") if found.changed else console.text("fitting.same")


def diff_of_plan(found: ConfigFit) -> str:
    """Return the plan's changes to the config as a unified diff."""
    name = found.source.path.name
    return "".join(f"{line}\n" for line in diff_lines(found.source.text, found.text, f"a/{name}", f"b/{name}"))


def _assumption_lines(found: ConfigFit) -> Iterator[Message]:
    sizes = found.table
    yield msg(
        "fitting.pipeline",
        layers=sizes.layer_count,
        stages=sizes.stages,
        chunks=sizes.chunks,
        micro_batches=sizes.micro_batches,
        order=sizes.order.value,
    )
    fragments = gib(max(found.fragment_bytes))
    yield msg("fitting.limit", limit=gib(found.limit.bytes), source=found.limit.source)
    yield msg("fitting.set-aside", reserve=mib(found.reserve_bytes), fragments=fragments)


def verdict_lines_of(found: ConfigFit) -> list[Message]:
    """Return the verdict on the search and on the simulation of the plan."""
    return [*_result_lines(found), *fit_text.stop_notes(found.last.report)]


def _result_lines(found: ConfigFit) -> list[Message]:
    one = found.last
    if found.chosen is None and one.verified:
        stages = (msg("fitting.stage-verdict", stage=at.stage, verdict=at.verdict.sentence) for at in one.verified)
        return [msg("fitting.unproved", rounds=len(found.rounds)), *stages, *_lacking_lines(found)]
    if found.chosen is None:
        return [fit_text.verdict_of(one.report)]
    state = "fits" if one.fits else "tight" if one.verified else "estimated"
    now = one.report.reference.cells if one.report.has_present else ()
    plans = [(tried.report.planned, tried.fits) for tried in found.rounds if tried.verified]
    fails = any(plan is not None and plan.cells == now and not fits for plan, fits in plans)
    lines = [fit_text.verdict_of(one.report, state, present_fails=fails), *fit_text.step_times(one.report)]
    if one.verified:
        worst = max(one.verified, key=lambda stage: abs(stage.error))
        params = {"stages": len(one.verified), "error": f"{abs(worst.error):.2%}", "stage": worst.stage}
        lines.append(msg("fitting.proved", **params))
    else:
        lines.append(msg("fitting.not-verified"))
    return [*lines, *prediction_lines(found.predicted)]


def _lacking_lines(found: ConfigFit) -> Iterator[Message]:
    report = found.lacking
    if report is None:
        return
    lost = gib(max(found.least_fragment_bytes))
    if report.planned is not None:
        yield msg("fitting.untried", time=fit_text.relative_time(report, report.planned.time), fragments=lost)
    elif report.shortage is not None:
        at = report.shortage.stage
        sizes = {"over": gib(report.shortage.over_bytes), "fragments": gib(found.least_fragment_bytes[at])}
        yield msg("fitting.lacking", stage=at, least=gib(report.shortage.at_least_bytes), **sizes)


def _stage_table(found: ConfigFit, plan: EvaluatedPlan, console: Console) -> tuple[list[str], list[list[str]]]:
    one = found.last
    seen = {stage.stage: stage for stage in one.verified}
    names = ["stage", "predicted", "verified", "free", "layers", "recompute", "before"]
    rows = []
    for stage, peak in enumerate(one.peak_bytes or plan.peak_bytes):
        rows.append(
            [
                str(stage),
                f"{peak / GIB:.2f}",
                _verified_text(found, seen, stage, console),
                _free_text(found, seen, stage, peak),
                *fit_text.layer_cells(one.report, plan, stage),
            ]
        )
    return [console.text(f"fitting.column.{name}") for name in names], rows


def _verified_text(found: ConfigFit, seen: dict[int, VerifiedStage], stage: int, console: Console) -> str:
    if stage in seen:
        return f"{seen[stage].peak_bytes / GIB:.2f}"
    if not found.last.verified:
        return "-"
    return console.text("fitting.stands-for", stage=found.last.stands_for[stage])


def _free_text(found: ConfigFit, seen: dict[int, VerifiedStage], stage: int, peak: int) -> str:
    if stage in seen:
        return f"{seen[stage].verdict.spare_bytes / GIB:.2f}"
    return f"{(found.limit.bytes - found.reserve_bytes - found.fragment_bytes[stage] - peak) / GIB:.2f}"


def plan_reasons(found: ConfigFit) -> list[Message]:
    """Return the reasons for the plan; the stage with the least free memory comes from the dryrun, if there was one."""
    lines, one = fit_text.reasons_of(found.last.report), found.last
    if not lines or not one.verified:
        return lines
    least = min(one.verified, key=lambda stage: stage.verdict.spare_bytes)
    sizes = {"free": gib(least.verdict.spare_bytes), "peak": gib(least.peak_bytes)}
    return [msg("fitting.why.memory", stage=least.stage, **sizes), *lines[1:]]


def _table_lines(found: ConfigFit) -> Iterator[Message]:
    for layer in found.table.layers:
        kept = ", ".join(f"{kind.value} {mib(one.activation_bytes)}" for kind, one in layer.recompute.items())
        yield msg("fitting.layer", name=layer.name, count=layer.layer_count, bytes=mib(layer.bytes), kept=kept)
    if found.idle:
        yield msg("fitting.idle", kinds=", ".join(kind.value for kind in found.idle))


def plan_notes(found: ConfigFit) -> list[Message]:
    """Return notes on the figures."""
    report = found.last.report
    lines = [
        *found.notes,
        msg("fit.note.present" if report.has_present else "fit.note.even"),
        *fit_text.clock_notes(report.clock),
        *(prediction_notes(found.predicted.cluster) if found.predicted is not None else ()),
    ]
    if any(kind.value == "swap" for kind in found.table.kinds):
        lines.append(msg("fitting.note.swap" if report.clock.runs else "fitting.note.swap-peak"))
    if not report.clock.times:
        lines.append(msg("fitting.note.costs" if found.costs.known else "fitting.note.no-costs"))
    if found.chosen is not None and len(found.rounds) > 1:
        lines.append(msg("fitting.note.rounds", rounds=len(found.rounds)))
    lines += [note for number, one in enumerate(found.rounds, start=1) for note in _relief_lines(number, one)]
    off = sum(not one.exact for one in found.rounds)
    if off:
        lines.append(msg("fitting.note.off", count=off, rounds=len(found.rounds), most=f"{NEAR:.1%}"))
    return lines


def _relief_lines(number: int, one: VerifyRound) -> Iterator[Message]:
    kept = ", ".join(map(str, one.kept)) or "-"
    run = ", ".join(str(stage.stage) for stage in one.verified if stage.stage not in one.kept) or "-"
    for relief in one.relieved:
        does = {
            name: " | ".join(map(fit_text.recomputed_layers, cells))
            for name, cells in (("before", relief.before), ("after", relief.after))
        }
        stage = {"stage": relief.stage, "verdict": relief.verdict.sentence}
        yield msg("fitting.note.relieved", round=number, kept=kept, run=run, **stage, **does)


_SHOWN = 10  # layouts shown in the ranking


def show_search(found: SearchFit, console: Console, **how: bool) -> None:
    """Print the verdict, the simulated layouts and the chosen plan; with ``verbose`` all details."""
    console.write_lines(search_verdict(found))
    if how.get("quiet"):
        return
    verbose = how.get("verbose", False)
    heads = list(_head_lines(found))
    console.write_lines(heads if verbose else heads[:1])
    ranked = found.ranking.candidates
    if ranked and (verbose or not found.tried):
        console.write_section("layouts.title.ranking", shown=min(_SHOWN, len(ranked)), count=len(ranked))
        console.write_table(*_ranking_table(found, console), right=range(1))
    if found.tried:
        console.write_section("layouts.title.tried")
        console.write_table(*_tried_table(found, console), right=range(1))
    if verbose:
        console.write_section("layouts.title.notes")
        console.write_lines(search_notes(found), "  - ")
    if found.best is not None:
        console.write_section("layouts.plan")
        console.write("")
        show_plan(shown_of(found.best, console), console, **how)
    else:
        console.write_section("fit.next", what=msg("layouts.next.more" if found.tried else "layouts.next.simulate"))


def _head_lines(found: SearchFit) -> Iterator[Message]:
    yield msg("layouts.job", devices=found.devices, samples=found.samples, limit=gib(found.limit.bytes))
    if found.ranking.pruned:
        yield msg("layouts.pruned", count=found.ranking.pruned, most=f"{PRUNED - 1:.0%}")
    for reason, count in list_refusals(found):
        yield msg("layouts.left-out", count=count, reason=reason)


def list_refusals(found: SearchFit) -> Iterator[tuple[Message, int]]:
    """Yield the reasons for excluding layouts, each with a count; similar reasons are shown as the first of them."""
    for name, count in found.refused.items():
        yield msg(f"layouts.refused.{name}"), count
    alike: dict[str, list[Message]] = {}
    for reason in found.ranking.refused:
        alike.setdefault(reason.id, []).append(reason)
    for reasons in sorted(alike.values(), key=len, reverse=True):
        yield reasons[0], len(reasons)


def _ranking_table(found: SearchFit, console: Console) -> tuple[list[str], list[list[str]]]:
    names = ("number", "layout", "time", "rate", "mfu", "bubble", "sent", "recomputed", "peak")
    ranked, present = found.ranking.candidates, found.ranking.present
    places = [*range(min(_SHOWN, len(ranked))), *([present] if present is not None and present >= _SHOWN else [])]
    rows = []
    for place in places:
        one, step = ranked[place], ranked[place].estimate.step
        rows.append(
            [
                f"{place + 1}{'*' if place == present else ''}",
                str(one.layout),
                f"{step.seconds:.3g}",
                f"{step.tokens_per_second:.0f}",
                f"{step.mfu:.1%}",
                f"{step.bubble:.1%}",
                f"{step.sent_seconds / step.seconds:.1%}",
                str(sum(one.estimate.recomputed)),
                f"{max(one.estimate.peak_bytes) / GIB:.1f}",
            ]
        )
    return [console.text(f"layouts.column.{name}") for name in names], rows


def _tried_table(found: SearchFit, console: Console) -> tuple[list[str], list[list[str]]]:
    names = ("number", "layout", "estimated-time", "time", "stage", "estimated", "predicted", "dryrun", "verdict")
    places = {id(one): number for number, one in enumerate(found.ranking.candidates, 1)}
    rows = []
    for one in found.tried:
        first = [
            str(places[id(one.candidate)]),
            str(one.candidate.layout),
            f"{one.candidate.estimate.step.seconds:.3g}",
        ]
        if one.fit is None or one.fit.last.report.planned is None or not one.fit.last.verified:
            rows.append([*first, _seconds_text(one), *["-"] * 4, console.say(one.error or _undecided_text(one))])
            continue
        for stage in one.fit.last.verified:
            outcome = stage.verdict.outcome
            rows.append(
                [
                    *first,
                    _seconds_text(one),
                    str(stage.stage),
                    f"{one.estimated_bytes[stage.stage] / GIB:.1f}",
                    f"{stage.predicted_bytes / GIB:.2f}",
                    f"{stage.peak_bytes / GIB:.2f}",
                    "-" if outcome is None else outcome.value,
                ]
            )
            first = ["", "", ""]
    return [console.text(f"layouts.column.{name}") for name in names], rows


def _undecided_text(one: TriedLayout) -> Message:
    short = None if one.fit is None else one.fit.last.report.shortage
    if short is None:
        return msg("layouts.not-verified")
    return msg("layouts.no-plan", stage=short.stage, over=gib(short.over_bytes))


def _seconds_text(one: TriedLayout) -> str:
    return "-" if one.step is None else f"{one.step.seconds:.3g}"


def search_verdict(found: SearchFit) -> list[Message]:
    """Return the verdict on the layout search, the place of the current layout, and why the first one is first."""
    if found.chosen is None or found.chosen.step is None:
        runs = sum(one.fit is not None for one in found.tried)
        lines = [msg("layouts.none", count=runs) if found.tried else msg("layouts.only-ranked")]
    else:
        step = found.chosen.step
        sizes = {"seconds": f"{step.seconds:.3g}", "time": f"{found.relative_time(step):.1f}"}
        lines = [msg("layouts.chosen", layout=str(found.chosen.candidate.layout), **sizes)]
    return [*lines, _present_line(found), *_first_reasons(found)]


def _present_line(found: SearchFit) -> Message:
    ranking = found.ranking
    if ranking.present is None:
        return msg("layouts.present-refused", layout=str(found.now))
    one = ranking.candidates[ranking.present]
    params = {"layout": str(found.now), "seconds": f"{one.estimate.step.seconds:.3g}"}
    if not ranking.present_fits:
        return msg("layouts.present-over", **params)
    return msg("layouts.present", number=ranking.present + 1, count=len(ranking.fitting), **params)


def _first_reasons(found: SearchFit) -> Iterator[Message]:
    # Compare the first layout with the current one; with the second, if it is the current one or that is unknown.
    ranking = found.ranking
    if len(ranking.candidates) > 1:
        first, other = ranking.candidates[0], ranking.candidates[ranking.present or 1]
        parts = [
            (one.estimate.step.work_seconds, one.estimate.step.waiting_seconds, one.estimate.step.sent_seconds)
            for one in (first, other)
        ]
        less = {name: f"{a - b:+.3g}" for name, a, b in zip(("work", "waiting", "sent"), *parts, strict=True)}
        yield msg("layouts.why", first=str(first.layout), other=str(other.layout), **less)


def search_notes(found: SearchFit) -> list[Message]:
    """Return notes on the figures of the search."""
    reference = "layouts.note.present" if found.ranking.present is not None else "layouts.note.best"
    notes = (msg(f"layouts.note.{name}") for name in ("estimate", "time", "equal"))
    return [msg(reference), *notes, *prediction_notes(found.ranking.cluster)]


def prediction_lines(found: Prediction | None) -> list[Message]:
    """Return a predicted step in seconds, tokens per second and MFU."""
    if found is None:
        return []
    step, kind = found.step, "step" if found.cluster.scale is None else "measured"
    rate = {"rate": f"{step.tokens_per_second:.0f}", "mfu": f"{step.mfu:.1%}", "device": found.cluster.speed.name}
    return [msg(f"seconds.{kind}", seconds=f"{step.seconds:.3g}", **rate)]


def prediction_notes(cluster: Cluster) -> list[Message]:
    """Return the measurements that predicted seconds are based on."""
    speed = cluster.speed
    notes = [msg("seconds.note.assumed", device=speed.name)] if cluster.assumed else []
    notes += [msg("seconds.note.error", like=speed.like, error=f"{speed.error:.0%}")] if cluster.scale is None else []
    return notes + ([msg("seconds.note.other", device=speed.name, like=speed.like)] if speed.name != speed.like else [])
