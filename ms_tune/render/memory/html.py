"""The report of ``memory`` for the browser: one file that works off line.

Its content security policy allows the file's own scripts and styles, by their hashes, and nothing else: no network, no
inline handlers. All data is in JSON islands, which are no scripts; all texts are in both languages.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from ms_tune.render.memory.bands import bands_of
from ms_tune.render.memory.html_blocks import packed_blocks
from ms_tune.render.memory.json import phase_name
from ms_tune.texts import Language, Message, lookup, render, texts_of
from ms_tune.verdict.judge import Fit
from ms_tune.version import __version__

if TYPE_CHECKING:
    from ms_tune.memory.comparison import Comparison, RankComparison
    from ms_tune.memory.groups import Group
    from ms_tune.memory.remedies import Remedy
    from ms_tune.memory.result import MemoryFinding, MemoryReport, RankReport
    from ms_tune.verdict.judge import Verdict

_POINTS = 6000
_KINDS = {Fit.FITS: "good", Fit.TIGHT: "tight", Fit.DOES_NOT_FIT: "bad", None: "tight"}
_MOST_WITH_BLOCKS = 4  # ranks; the blocks of 32 ranks would be more than a browser should open
_TOP = 100
_LANGUAGES = {"en": "English", "zh": "中文"}  # each in its own words
_SHARED = ("memory.content.", "memory.phase.", "memory.severity.", "memory.column.")
_SCRIPTS = ("data", "timeline", "details", "flame", "addresses", "tables", "main")


def report_html(report: MemoryReport, comparison: Comparison | None, language: Language, further: str = "") -> str:
    """The page.

    Args:
        report: The run to show; where there is a comparison, the second one.
        comparison: What it is compared with.
        language: The language that the page starts in.
        further: A section of HTML before that of theory. Its texts are elements with ``data-en`` and ``data-zh``.
    """
    import jinja2  # noqa: PLC0415 - an optional dependency, imported late

    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    script = "\n".join(_asset("templates", f"memory_{name}.js") for name in _SCRIPTS)
    library, library_style = _asset("_vendor/uplot", "uPlot.iife.min.js"), _asset("_vendor/uplot", "uPlot.min.css")
    style = _asset("templates", "memory.css")
    return environment.from_string(_asset("templates", "memory.html")).render(
        title=str(report.source),
        language=language.value,
        policy=_policy((library, script), (library_style, style)),
        library=_raw(library),
        script=_raw(script),
        library_style=_raw(library_style),
        style=_raw(style),
        further=_raw(further),
        data=_raw(_island(_page(report, comparison, language))),
    )


@cache
def _asset(folder: str, name: str) -> str:
    package = files("ms_tune")
    for part in (folder if folder.startswith("_") else f"render/{folder}").split("/"):
        package = package.joinpath(part)
    return package.joinpath(name).read_text(encoding="utf-8")


def _raw(text: str) -> object:
    """Text that is not to be escaped: our own assets, and JSON that is escaped already."""
    import markupsafe  # noqa: PLC0415 - comes with Jinja2

    return markupsafe.Markup(text)  # noqa: S704 - nothing of the user's but the escaped JSON


def _policy(scripts: tuple[str, ...], styles: tuple[str, ...]) -> str:
    def hashes(texts: tuple[str, ...]) -> str:
        return " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(t.encode()).digest()).decode()}'" for t in texts)

    return f"default-src 'none'; script-src {hashes(scripts)}; style-src {hashes(styles)}; base-uri 'none'; form-action 'none'"


def _island(value: object) -> str:
    """JSON that cannot end the script element that it stands in."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for character, escape in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026"), ("\u2028", "\\u2028")):
        text = text.replace(character, escape)
    return text.replace("\u2029", "\\u2029")


def _page(report: MemoryReport, comparison: Comparison | None, language: Language) -> dict[str, object]:
    by_peak = sorted(report.ranks, key=lambda rank: -rank.curve.peak_bytes)[:_MOST_WITH_BLOCKS]
    ranks = [
        _rank(rank, stage, with_blocks=rank in by_peak) for rank, stage in zip(report.ranks, report.stages, strict=True)
    ]
    return {
        "version": __version__,
        "source": str(report.source),
        "language": language.value,
        "texts": _texts(),
        "languages": _LANGUAGES,
        "contents": [content.value for content in report.worst.peak.contents],
        "ranks": ranks,
        "worst": report.ranks.index(report.worst),
        "findings": [_finding(finding) for finding in report.all_findings],
        "comparison": [_pair(pair) for pair in comparison.ranks] if comparison else None,
    }


def _texts() -> dict[str, dict[str, str]]:
    """All texts that the page may need, by the names that its scripts use."""
    names = [name.partition(".")[2] for name in texts_of("memory_html")]
    texts = {name: lookup(f"memory_html.{name}") for name in names}
    texts |= {name.partition(".")[2]: text for name, text in texts_of("memory").items() if name.startswith(_SHARED)}
    return {name: {"en": text.en, "zh": text.zh} for name, text in texts.items()}


def _rank(rank: RankReport, stage: int | None, *, with_blocks: bool) -> dict[str, object]:
    bands = bands_of(rank, _POINTS)
    packed, count = packed_blocks(rank) if with_blocks and len(rank.curve.rows) else (None, 0)
    lives = rank.lifetimes
    return {
        "rank": rank.rank,
        "stage": stage,
        "rows": len(rank.table),
        "dropped": rank.table.dropped_count,
        "peak": rank.curve.peak_bytes,
        "peakTick": rank.curve.peak_tick,
        "footprint": rank.curve.footprint_bytes,
        "limit": rank.limit_bytes,
        "verdict": _verdict(rank.verdict),
        "steps": list(rank.steps.ends),
        "spans": [[phase_name(span.phase), span.start, span.end] for span in rank.spans],
        "bands": {"tick": bands.tick, "used": bands.used, "footprint": bands.footprint},
        "contents": _contents(rank),
        "layers": [_group(group) for group in rank.peak.layers[:_TOP]],
        "parameters": [_group(group) for group in rank.peak.parameters[:_TOP]],
        "activations": [[layer.layer, layer.bytes, layer.count] for layer in rank.activations],
        "held": [[phase_name(held.phase), held.content.value, held.bytes] for held in rank.held],
        "remedies": [_remedy(remedy) for remedy in rank.remedies],
        "recomputeSaving": rank.recompute.saving,
        "recomputePeak": rank.recompute.peak,
        "promptPeak": lives.peak_if_prompt,
        "neverFreed": lives.never_freed_bytes,
        "stepBytes": list(lives.step_bytes),
        "holes": [rank.map.free_bytes, rank.map.largest_hole],
        "overlaps": rank.map.overlaps,
        "theory": {
            "weights": rank.theory.weights,
            "count": rank.theory.parameters,
            "states": [[each.content.value, each.measured, each.expected, each.shards] for each in rank.theory.states],
        },
        "late": [
            [waste.content.value, waste.operator, waste.where, waste.count, waste.bytes, waste.byte_ticks]
            for waste in lives.late
        ],
        "blocks": packed,
        "blockCount": count,
        "counted": len(rank.curve.rows),
    }


def _remedy(remedy: Remedy) -> dict[str, object]:
    return {
        "freed": remedy.bytes_freed,
        "after": remedy.peak_after,
        "title": {language.value: remedy.title(language) for language in Language},
        "price": {language.value: remedy.price(language) for language in Language},
        "how": remedy.how,
    }


def _verdict(verdict: Verdict) -> dict[str, object]:
    """The verdict in both languages: one word, the sentence, and what it was made of."""
    lines = [verdict.sentence, *verdict.grounds]
    name = verdict.outcome.value if verdict.outcome else "none"
    return {
        "kind": _KINDS[verdict.outcome],
        "word": _both(Message(f"verdict.word.{name}")),
        "lines": [_both(line) for line in lines],
    }


def _both(message: Message) -> dict[str, str]:
    return {language.value: render(message, language) for language in Language}


def _contents(rank: RankReport) -> dict[str, int]:
    return {content.value: size for content, size in rank.peak.contents.items()}


def _group(group: Group) -> list[object]:
    return [group.key, group.bytes, group.count, {content.value: size for content, size in group.contents.items()}]


def _finding(finding: MemoryFinding) -> dict[str, object]:
    return {
        "id": finding.check.id,
        "severity": finding.check.severity.value,
        "rank": finding.rank,
        "bytes": finding.bytes,
        "title": {language.value: finding.title(language) for language in Language},
        "message": {language.value: finding.message(language) for language in Language},
        "help": {language.value: finding.help(language) for language in Language},
        "stack": [f"{frame.file}:{frame.line} {frame.function}" for frame in finding.stack],
    }


def _pair(pair: RankComparison) -> dict[str, object]:
    before = bands_of(pair.before, _POINTS // 4)
    total = [sum(values) for values in zip(*before.used.values(), strict=True)]
    return {
        "rank": pair.after.rank,
        "was": _contents(pair.before),
        "now": _contents(pair.after),
        "before": pair.before.curve.peak_bytes,
        "after": pair.after.curve.peak_bytes,
        "curve": {"tick": before.tick, "used": total},
        "changes": [
            [change.operator, change.where, change.content.value, change.before, change.after]
            for change in pair.changes[: 5 * _TOP]
        ],
    }
