"""Show a job on one screen: in the terminal, as GitHub Actions annotations, or as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ms_tune.diagnostics import Severity
from ms_tune.encode import record_json
from ms_tune.enums import SizeOrigin
from ms_tune.errors import ConfigError, MsTuneError
from ms_tune.estimate.memory import Estimate
from ms_tune.report.console import SEVERITY_COLOURS, Console, fold, pad, shown_path, terminal_width, text_width
from ms_tune.report.lint_formats import LEVELS, failure_json, format_annotation
from ms_tune.report.markdown import code_markdown, escape_markdown
from ms_tune.report.words import evidence_lines, verdict_word
from ms_tune.text import Message, msg, shorten
from ms_tune.units import short_gib
from ms_tune.verdict.outcome import Verdict
from ms_tune.version import __version__
from ms_tune.workflows.check.result import Assumptions, Matter, MemoryDifference, Overview, Sizes

_LONGEST = 40  # characters of a value


def _change_sentence(difference: MemoryDifference, console: Console) -> str:
    more = difference.after_bytes - difference.before_bytes
    estimated = console.text("check.base.estimated") if difference.estimated else ""
    sizes = {
        "after": short_gib(difference.after_bytes),
        "before": short_gib(difference.before_bytes),
        "more": short_gib(more),
        "limit": short_gib(difference.limit_bytes),
    }
    text = console.text(f"check.base.{difference.outcome}", stage=difference.stage, estimated=estimated, **sizes)
    if difference.estimated and difference.outcome == "over" and difference.before_bytes > difference.limit_bytes:
        text += console.text("check.base.unsure")
    blame = difference.blame
    if blame is None:
        return text
    key = ".".join(map(str, blame.path)) or console.text("check.base.line", line=blame.line)
    share = f"{blame.share:.0%}" if blame.share is not None else ""
    id_ = "check.base.key" if share else "check.base.changed" if blame.alone else "check.base.among"
    id_ = "check.base.together" if share and blame.together else id_
    others = ", ".join(".".join(map(str, path)) for path in blame.together)
    old, new = _shorten_value(blame.old, console), _shorten_value(blame.new, console)
    what = console.text(id_, key=key, old=old, new=new, share=share, others=others)
    return console.text("check.base.and", reason=text, what=what)


def memory_sentence(overview: Overview) -> Message:
    """Return the verdict about memory, simulated or estimated, or why there is none."""
    worst = overview.worst
    if worst is not None:
        return worst.verdict.sentence_about(worst.stage)
    found = overview.estimate
    if found is not None:
        peak, limit = found.fullest.peak_bytes, found.limit.bytes
        low, high = found.range_bytes
        sizes = {"peak": peak, "low": low, "high": high, "limit": limit, "over": peak - limit}
        shown = {name: short_gib(size) for name, size in sizes.items()}
        shown |= {name: shown[name].split()[0] for name in ("low", "high")}  # in the unit of the estimate
        return msg(f"check.estimate.{found.outlook.value}", stage=found.fullest.stage, **shown)
    return msg("check.estimate.none", reason=overview.no_estimate_because, hint=overview.no_estimate_hint)


def _shorten_value(value: object, console: Console) -> str:
    return shorten(console.text("check.base.absent") if value is None else str(value), _LONGEST)


_SHOWN = 3  # findings shown with --verbose
_LINES = 2  # lines per sentence
_MORE = " …"
_COLUMNS = ("file", "memory", "errors", "warnings", "infos")


def write_overviews(
    overviews: Sequence[Overview], console: Console, *, verbose: bool = False, quiet: bool = False
) -> None:
    """Write a screen about one file, a table of several; all screens with ``verbose``, only the verdicts with ``quiet``."""
    if len(overviews) > 1 and not (verbose or quiet):
        _write_table(overviews, console)
        return
    for number, overview in enumerate(overviews):
        if quiet:
            about = f"{overview.path}: " if len(overviews) > 1 else ""
            console.write_raw(f"{about}{verdict_line(overview, console)}")
            continue
        if number:
            console.write("")
        for line in _overview_lines(overview, console, verbose=verbose):
            console.write_raw(line)


def verdict_line(overview: Overview, console: Console) -> str:
    """Return the verdict about memory as the first line of the screen."""
    return console.text("verdict.line.verdict", sentence=console.say(memory_sentence(overview)))


def _write_table(overviews: Sequence[Overview], console: Console) -> None:
    heads = [console.text(f"check.column.{name}") for name in _COLUMNS]
    rows = []
    for one in overviews:
        counts = [sum(matter.severity is severity for matter in one.matters) for severity in Severity]
        rows.append([str(one.path), _memory_cell(one, console), *map(str, counts)])
    console.write_table(heads, rows, right=range(2, len(_COLUMNS)))
    worst = min(overviews, key=lambda one: (-one.exit_code(), not one.is_over, not one.has_errors))
    console.write_raw(f"{console.text('check.next')}{worst.command}")


def _memory_cell(overview: Overview, console: Console) -> str:
    word, sizes = _memory_sizes(overview, console)
    if sizes is None:
        return word
    return console.text("check.word.sizes", need=short_gib(sizes[0]), limit=short_gib(sizes[1]), word=word)


def _memory_sizes(overview: Overview, console: Console) -> tuple[str, tuple[int, int] | None]:
    # The state, and the need and the limit of the fullest stage if known.
    worst, found = overview.worst, overview.estimate
    if worst is not None:
        need, limit = worst.verdict.need, worst.verdict.limit
        sizes = (need.footprint_bytes, limit.bytes) if need is not None and limit is not None else None
        return verdict_word(worst.verdict, console), sizes
    if found is not None:
        return console.text(f"check.word.{found.outlook.value}"), (found.fullest.peak_bytes, found.limit.bytes)
    return console.text("check.word.none"), None


def _overview_lines(overview: Overview, console: Console, *, verbose: bool) -> Iterator[str]:
    most = None if verbose else _LINES
    is_missing = overview.worst is None and overview.estimate is None  # then the way to get it must not be cut off
    for line in _wrap_lines(verdict_line(overview, console), None if is_missing else most):
        yield console.paint(line, _memory_colour(overview))
    if verbose and overview.worst is not None:
        yield from evidence_lines(overview.worst.verdict, console)
    elif verbose and overview.estimate is not None:
        yield from _estimate_lines(overview.estimate, console)
    if overview.against is not None:
        yield from _wrap_lines(_change_sentence(overview.against, console), None if verbose else _LINES + 1)
    elif overview.not_compared_because is not None:
        yield from _wrap_lines(console.text("check.base.not-compared", reason=overview.not_compared_because), most)
    for text in _job_texts(overview, console, all_sizes=verbose):
        yield from _wrap_lines(text, most)
    yield from _matters_lines(overview, console, verbose=verbose)
    for text in _suggestions(overview, console):
        yield from _wrap_lines(text)
    head = console.text("check.next")
    for number, command in enumerate(overview.next if verbose else _best_command(overview)):
        yield f"{pad('' if number else head, text_width(head))}{command}"


def screen_lines(overview: Overview, console: Console) -> Iterator[str]:
    """Yield the sentences about the job and its memory that follow the verdict, without findings and commands."""
    if overview.against is not None:
        yield _change_sentence(overview.against, console)
    yield from _job_texts(overview, console, all_sizes=True)
    yield from _suggestions(overview, console)


def _job_texts(overview: Overview, console: Console, *, all_sizes: bool) -> Iterator[str]:
    yield _subject_text(overview, console)
    if overview.assumptions is not None:
        yield _assumptions_text(overview.assumptions, console)
    if overview.sizes is not None and (all_sizes or overview.sizes.origin is not SizeOrigin.CONFIG):
        yield _sizes_text(overview.sizes, console)
    if overview.estimated_as:
        yield console.text("check.estimated-as", release=overview.estimated_as)


def _suggestions(overview: Overview, console: Console) -> Iterator[str]:
    if overview.change is not None:
        yield console.text("check.change", change=console.say(overview.change.text))


def _best_command(overview: Overview) -> Sequence[str]:
    # The first command is the linter's if there are findings; errors take precedence over memory.
    return overview.next[:1] if overview.has_errors else overview.next[-1:]


def _subject_text(overview: Overview, console: Console) -> str:
    subject = overview.subject
    if not subject.dialect:
        return console.text("check.subject.unknown", path=overview.path)
    model = console.text("check.subject.model", model=subject.model) if subject.model else ""
    layers = console.text("check.subject.layers", count=subject.layers) if subject.layers is not None else ""
    names = {"path": overview.path, "dialect": subject.dialect, "framework": subject.framework}
    return console.text("check.subject", **names, model=model, layers=layers)


def _assumptions_text(seen: Assumptions, console: Console) -> str:
    chunks = f" VPP={seen.chunks}" if seen.chunks > 1 else ""
    rest = {"devices": seen.devices, "source": console.say(seen.source), "micro_batches": seen.micro_batches}
    return console.text("check.assumed", **seen.split._asdict(), **rest, chunks=chunks)


def _sizes_text(sizes: Sizes, console: Console) -> str:
    text = console.text(f"sizes.{sizes.origin.value}", model=sizes.model, key=sizes.key, file=sizes.file)
    if sizes.parameters is None:
        return text
    return console.text("sizes.parameters", sizes=text, count=f"{sizes.parameters / 1e9:.3g}")


def _estimate_lines(estimate: Estimate, console: Console) -> Iterator[str]:
    fullest = estimate.fullest
    sizes = {
        "lasting": short_gib(fullest.lasting_bytes),
        "activations": short_gib(fullest.activation_bytes),
        "passing": short_gib(fullest.transient_bytes),
    }
    counts = {"recomputed": fullest.recomputed, "layers": fullest.layers}
    low, high = estimate.ratio_range
    yield from _wrap_lines(f"- {console.text('check.estimate.parts', **sizes, **counts)}", indent="  ")
    yield from _wrap_lines(f"- {console.text('check.estimate.worth', low=low, high=high)}", indent="  ")


def _matters_lines(overview: Overview, console: Console, *, verbose: bool) -> Iterator[str]:
    if not overview.matters:
        yield console.text("check.matters.none")
        return
    counts = _count_matters(overview.matters, console)
    first = overview.matters[0]
    if not verbose:
        where = f"{first.path.name}:{first.line}: " if first.line is not None else ""
        name = f"{first.id} " if first.name else ""
        worst = f"{where}{name}{console.say(first.text)}"
        text = console.text("check.matters.worst", counts=counts, worst=worst)
        line, *rest = _wrap_lines(text, _LINES)
        yield _linked_line(line, first, where, name, console)
        yield from rest
        return
    yield console.text("check.matters", counts=counts)
    for number, one in enumerate(overview.matters[:_SHOWN], 1):
        yield from _matter_lines(number, one, console)
    if len(overview.matters) > _SHOWN:
        yield f"  {console.text('check.matters.more', count=len(overview.matters) - _SHOWN)}"


def _count_matters(matters: Sequence[Matter], console: Console) -> str:
    counts = [(one.value, sum(matter.severity is one for matter in matters)) for one in Severity]
    return console.listed(console.text(f"check.count.{name}", count=count) for name, count in counts if count)


def _matter_lines(number: int, one: Matter, console: Console) -> Iterator[str]:
    where = f"{one.path.name}:{one.line}: " if one.line is not None else ""
    name = f"{one.id} {one.name}".strip() or console.text("cli.error")
    first, *rest = _wrap_lines(f"{number} {where}{name}: {console.say(one.text)}", _LINES, indent="  ")
    yield _linked_line(first, one, where, name, console)
    yield from rest


def _linked_line(line: str, one: Matter, where: str, name: str, console: Console) -> str:
    if name:
        line = line.replace(name, console.link(console.paint(name, SEVERITY_COLOURS[one.severity]), one.page), 1)
    return line.replace(where, console.link(where, one.path), 1) if where else line


def _memory_colour(overview: Overview) -> str:
    if overview.worst is not None:
        return ("green", "yellow", "yellow", "red")[overview.worst.verdict.severity]
    if overview.estimate is None:
        return "dim"
    return {"over": "red", "unsure": "yellow", "below": "green"}[overview.estimate.outlook.value]


def _wrap_lines(text: str, most: int | None = None, indent: str = "") -> list[str]:
    # Text wrapped to the terminal's width; further lines beyond the maximum are replaced by a mark.
    lines = fold(f"{indent}{text}", terminal_width())
    if most is not None and len(lines) > most:
        lines = fold(f"{indent}{text}", terminal_width() - len(_MORE))[:most]
        lines[-1] += _MORE
    return lines


MARKER = "<!-- ms-tune check -->"  # by which a later run finds the comment to replace
_MOST_ROWS, _MOST_MATTERS = 10, 5


def overviews_markdown(overviews: Sequence[Overview], failures: Sequence[ConfigError], console: Console) -> str:
    """Return the comment of a merge request: a table of the files, the worst first, and the findings."""
    matters = sorted((one for screen in overviews for one in screen.matters), key=lambda one: one.severity.rank)
    summary = _count_matters(matters, console) or console.text("check.matters.none")
    sizes = {"files": len(overviews) + len(failures), "over": sum(one.is_over for one in overviews)}
    lines = [MARKER, f"### {console.text('check.markdown.title', **sizes, summary=summary)}"]
    screens = sorted(overviews, key=lambda one: (not one.is_over, -one.exit_code()))
    if screens:
        lines += ["", *_markdown_table(screens[:_MOST_ROWS], console)]
    if len(screens) > _MOST_ROWS:
        lines += ["", console.text("check.matters.more", count=len(screens) - _MOST_ROWS)]
    items = [_markdown_change(one, console) for one in screens[:_MOST_MATTERS] if one.against or one.is_over]
    texts = [(error.path, error.line, "", error.message) for error in failures]
    texts += [(one.path, one.line, one.id, one.text) for one in matters]
    for path, line, id_, text in texts[:_MOST_MATTERS]:
        place = code_markdown(f"{path}:{line}" if line else path)
        items.append(f"{place} {f'**{id_}** ' if id_ else ''}{escape_markdown(console.say(text))}")
    if len(texts) > _MOST_MATTERS:
        items.append(console.text("check.matters.more", count=len(texts) - _MOST_MATTERS))
    lines += ["", *(f"- {one}" for one in items)] if items else []
    if screens:
        lines += ["", f"{console.text('check.next')}{code_markdown(_best_command(screens[0])[0])}"]
    how = "simulated" if any(one.stages for one in screens) else "estimated"
    return "\n".join([*lines, "", f"<sub>ms-tune {__version__}: {console.text(f'check.markdown.{how}')}</sub>", ""])


def _markdown_table(screens: Sequence[Overview], console: Console) -> Iterator[str]:
    names = ["file", "memory", "need", *(["before"] if any(one.against for one in screens) else []), "limit"]
    yield f"| {' | '.join(console.text(f'check.column.{name}') for name in names)} |"
    yield f"| --- | --- |{' ---: |' * len(names[2:])}"
    for one in screens:
        word, sizes = _memory_sizes(one, console)
        cells = {"file": code_markdown(one.path), "memory": f"**{word}**" if one.is_over else word}
        if one.against is not None:
            cells["before"] = short_gib(one.against.before_bytes)
        if sizes is not None:
            cells |= {"need": short_gib(sizes[0]), "limit": short_gib(sizes[1])}
        yield f"| {' | '.join(cells.get(name, '') for name in names)} |"


def _markdown_change(one: Overview, console: Console) -> str:
    text = console.say(memory_sentence(one)) if one.against is None else _change_sentence(one.against, console)
    return f"{code_markdown(one.path)} {escape_markdown(text)}"


_TITLE = "ms-tune check"
_OUTCOMES = {"over": "error", "still": "error", "tight": "warning", "more": "notice", "less": "notice"}


def write_github(overviews: Sequence[Overview], console: Console) -> None:
    """Write one workflow command per file about memory and one per finding, worst first."""
    for one in overviews:
        for line in (*_annotated_memory(one, console), *_annotated_matters(one, console)):
            console.write_raw(line)


def _annotated_memory(one: Overview, console: Console) -> Iterator[str]:
    place, found = {"file": shown_path(one.path), "line": 1}, one.against
    if found is not None:
        line = found.blame.line if found.blame is not None else 1
        text = _change_sentence(found, console)
        yield format_annotation(_OUTCOMES[found.outcome], {**place, "line": line}, _TITLE, text)
        if found.is_short:
            return
    if one.is_over:
        yield format_annotation("error", place, _TITLE, console.say(memory_sentence(one)))


def _annotated_matters(one: Overview, console: Console) -> Iterator[str]:
    for matter in one.matters:
        title = f"{matter.id} {matter.name}".strip() or _TITLE
        place = {"file": shown_path(matter.path), "line": matter.line or 1}
        yield format_annotation(LEVELS[matter.severity], place, title, console.say(matter.text))


def overviews_json(
    overviews: Sequence[Overview], failures: Sequence[MsTuneError], console: Console
) -> dict[str, object]:
    """Return all files as JSON, in the order of the command line, and the errors of those that cannot be checked."""
    return {"files": [_overview_json(one, console) for one in overviews], "failed": list(map(failure_json, failures))}


def _overview_json(one: Overview, console: Console) -> dict[str, object]:
    return {
        "file": one.path,
        **one.subject._asdict(),
        "assumptions": one.assumptions and _assumptions_json(one.assumptions),
        "sizes": one.sizes and one.sizes._asdict(),
        "memory": memory_sentence(one),
        "estimate": one.estimate
        and {
            **record_json(one.estimate, "outlook", "reserve_bytes"),
            **record_json(one.estimate.fullest, "stage", "peak_bytes"),
            "limit_bytes": one.estimate.limit.bytes,
            "range_bytes": one.estimate.range_bytes,
            "simulated_peaks_were": one.estimate.ratio_range,
            "stages": [{**stage._asdict(), "peak_bytes": stage.peak_bytes} for stage in one.estimate.stages],
        },
        "estimated_as": one.estimated_as or None,
        "stages": [_stage_json(stage.stage, stage.verdict) for stage in one.stages],
        **record_json(one, "no_estimate_because", "no_estimate_hint", "counts", "fixable", "next"),
        "matters": [
            {
                "file": matter.path,
                "message": matter.text,
                **record_json(matter, "severity", "id", "name", "line"),
                "more": {"command": f"ms-tune rule {matter.name}", "page": matter.page} if matter.id else None,
            }
            for matter in one.matters
        ],
        "change": one.change
        and {
            "bytes_freed": one.change.freed_bytes,
            "settings": {setting.name: setting.raw for setting in one.change.settings},
            **record_json(one.change, "name", "text", "enough"),
        },
        "against": one.against and _against_json(one.against, console),
        "not_compared_because": one.not_compared_because,
    }


def _stage_json(stage: int, verdict: Verdict) -> dict[str, object]:
    return {
        "stage": stage,
        "verdict": verdict.outcome,
        **record_json(verdict, "sentence", "reserve_bytes"),
        **record_json(verdict.need, "peak_bytes", "footprint_bytes"),
        "limit_bytes": verdict.limit and verdict.limit.bytes,
    }


def _assumptions_json(seen: Assumptions) -> dict[str, object]:
    figures = record_json(seen, "devices", "chunks", "micro_batches")
    return {**figures, "devices_source": seen.source, **seen.split._asdict()}


def _against_json(found: MemoryDifference, console: Console) -> dict[str, object]:
    blame = found.blame
    return {
        **record_json(found, "outcome", "stage", "before_bytes", "after_bytes", "limit_bytes", "estimated"),
        "text": _change_sentence(found, console),
        "key": ".".join(map(str, blame.path)) if blame is not None and blame.alone else None,
        "with": [".".join(map(str, path)) for path in blame.together] if blame is not None else [],
        "line": blame and blame.line,
    }
