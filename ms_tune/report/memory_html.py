"""Write the HTML page of `memory`, one file that works offline: for traces, snapshots and comparisons.

Its content security policy allows only the file's own scripts and styles, by their hashes: no network, no inline
handlers. All data is in JSON islands, which are not scripts; all texts are in both languages. Blocks are columns of
small numbers (differences, codes) as JSON, compressed and in base64, which the page unpacks with
``DecompressionStream``. Scope paths share many prefixes, so they are stored as a tree.
"""

from __future__ import annotations

import base64
import gzip
import html
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ms_tune.encode import as_json, json_text, record_json
from ms_tune.footprint.breakdown import Theory
from ms_tune.footprint.result import MemoryReport, RankReport
from ms_tune.memory.diff import Comparison, RankComparison
from ms_tune.readers.memory_block import NEVER_FREED, Frame
from ms_tune.readers.table import NONE, Coded
from ms_tune.report.console import Console
from ms_tune.report.memory_curve import Bands, bands_of
from ms_tune.report.memory_json import pair_json, rank_json
from ms_tune.report.page import LANGUAGES, in_both_languages, table_html, write_document
from ms_tune.report.words import drop_installation, listed_numbers, size_text
from ms_tune.text import Language, Message, Text, lookup, msg, texts_of
from ms_tune.verdict.outcome import Fit, Verdict
from ms_tune.version import __version__

if TYPE_CHECKING:
    from ms_tune.dryrun.reading import JobReport
    from ms_tune.dryrun.result import StageResult

_SHARED = ("memory.content.", "memory.phase.", "memory.severity.", "memory.column.")

POINTS = 6000  # points of a curve
MOST_BLOCKS = 150_000
_LONGEST = 10_000  # characters of a text that may name files; longer ones are packed data
_KINDS = {Fit.FITS: "good", Fit.TIGHT: "tight", Fit.DOES_NOT_FIT: "bad", None: "tight"}
_MOST_WITH_BLOCKS = 4  # ranks; a browser cannot handle the blocks of 32 ranks
TOP = 100  # number of groups; of changes, a fifth of it
CARD = ("id", "severity", "rank", "bytes", "title", "message", "help", "stack")  # fields of a finding


def memory_page(title: str, data: Mapping[str, object], language: Language, further: str = "") -> str:
    """Return the HTML page of some data in both languages, starting in one.

    ``further`` is an HTML section in both languages, placed before the section on expected memory.
    """
    common = {"version": __version__, "source": title, "language": language.value, "languages": LANGUAGES}
    body = _read_asset("templates", "memory.html").replace("<!-- further -->", further)
    # Escaped so that it cannot end the surrounding script element.
    text = json_text(_drop_installations(as_json({"texts": page_texts(), **common, **data}, None)))
    for character, escape in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026"), ("\u2028", "\\u2028")):
        text = text.replace(character, escape)
    island = text.replace("\u2029", "\\u2029")
    return write_document(
        f"{title} – ms-tune memory",
        language,
        f'{body}<script type="application/json" id="data">{island}</script>',
        styles=[_read_asset("_vendor/uplot", "uPlot.min.css"), _read_asset("templates", "memory.css")],
        scripts=[
            _read_asset("_vendor/uplot", "uPlot.iife.min.js"),
            "\n".join(
                _read_asset("templates", f"memory_{name}.js")
                for name in ("data", "timeline", "details", "flame", "addresses", "tables", "main")
            ),
        ],
    )


def _drop_installations(value: Any) -> Any:  # noqa: ANN401 - JSON
    # A page is shared: readers need the file of a line of code, not where it is installed.
    if isinstance(value, str):
        return value if len(value) > _LONGEST else drop_installation(value)
    if isinstance(value, dict):
        return {key: _drop_installations(each) for key, each in value.items()}
    return [_drop_installations(each) for each in value] if isinstance(value, list) else value


@cache
def _read_asset(folder: str, name: str) -> str:
    package = files("ms_tune")
    for part in (folder if folder.startswith("_") else f"report/{folder}").split("/"):
        package = package.joinpath(part)
    return package.joinpath(name).read_text(encoding="utf-8")


def page_texts() -> dict[str, Text]:
    """Return all texts of the page by the names that its scripts use."""
    names = [name.partition(".")[2] for name in texts_of("memory_html")]
    texts = {name: lookup(f"memory_html.{name}") for name in names}
    return texts | {name.partition(".")[2]: lookup(name) for name in texts_of("memory") if name.startswith(_SHARED)}


@dataclass(frozen=True, slots=True, eq=False)
class PageBlocks:
    """Blocks for the page, in order of allocation."""

    start: NDArray[np.int64]  # allocation ticks
    end: NDArray[np.int64]  # release ticks, or `ms_tune.readers.memory_block.NEVER_FREED`
    last: NDArray[np.int64]  # ticks of the last use; `ms_tune.readers.table.NONE` if unknown
    size: NDArray[np.int64]  # bytes
    address: NDArray[np.uint64]
    content: NDArray[np.int64]  # index in the page's categories
    node: Coded[str]  # scope paths of operators, parts separated by `/`
    stack: Coded[tuple[Frame, ...]]  # Python stacks, outermost frame first
    kind: Coded[str]  # operator, if its name is not in the path
    tensor: Coded[str]  # tensor names
    names: Mapping[int, str]  # parameter names by block index


def pack_rank_blocks(rank: RankReport) -> tuple[str, int]:
    """Return the packed blocks of the curve and their number; at most ``MOST_BLOCKS``, largest and longest-lived first."""
    table, rows = rank.table, rank.curve.rows
    rows = rows[np.argsort(table.start[rows], kind="stable")]
    rows = rows[select_blocks(table.start[rows], table.end[rows], table.size[rows], rank.curve.peak_tick)]
    tensors = [rank.tensor_of(row) for row in rows.tolist()]
    known = {text: place for place, text in enumerate(dict.fromkeys(tensors))}
    names = rank.contents.names
    blocks = PageBlocks(
        start=table.start[rows],
        end=table.end[rows],
        last=table.last_user[rows],
        size=table.size[rows],
        address=table.address[rows],
        content=rank.contents.codes[rows].astype(np.int64),
        node=replace(table.node, codes=table.node.codes[rows]),
        stack=replace(table.stack, codes=table.stack.codes[rows]),
        kind=replace(table.kind, codes=table.kind.codes[rows]),
        tensor=Coded(np.array([known[text] for text in tensors], np.int32), tuple(known)),
        names={place: names[row] for place, row in enumerate(rows.tolist()) if row in names},
    )
    return pack_blocks(blocks), len(rows)


def pack_blocks(blocks: PageBlocks) -> str:
    """Return blocks in the packed form that the page reads."""
    text = json_text(_block_columns(blocks))
    data = gzip.compress(text.encode("utf-8", errors="replace"), 6, mtime=0)
    return base64.b64encode(data).decode("ascii")


def select_blocks(
    start: NDArray[np.int64], end: NDArray[np.int64], size: NDArray[np.int64], moment: int
) -> NDArray[np.int64]:
    """Return indices of at most ``MOST_BLOCKS`` blocks: those alive at ``moment``, then by size times lifetime."""
    if len(start) <= MOST_BLOCKS:
        return np.arange(len(start))
    last = float(max(start.max(), np.max(end, initial=0, where=end != NEVER_FREED)))
    weight = size * np.maximum(np.minimum(end.astype(np.float64), last) - start, 1)
    weight[(start <= moment) & (moment < end)] = np.inf
    return np.sort(np.argsort(-weight, kind="stable")[:MOST_BLOCKS])


def _block_columns(blocks: PageBlocks) -> dict[str, object]:
    start, end, last = blocks.start, blocks.end, blocks.last
    sizes, size = np.unique(blocks.size, return_inverse=True)
    node, nodes = _recode_used(blocks.node.codes, blocks.node.values)
    stack, stacks = _recode_used(blocks.stack.codes, blocks.stack.values)
    kind, kinds = _recode_used(blocks.kind.codes, blocks.kind.values)
    frames = {frame: place for place, frame in enumerate(dict.fromkeys(frame for each in stacks for frame in each))}
    tree, leaves = _path_tree(list(nodes))
    base = int(blocks.address.min()) if len(blocks.address) else 0
    offset = (blocks.address - np.uint64(base)).astype(np.int64)
    unit = int(np.gcd.reduce(offset)) or 1 if len(offset) else 1
    return {
        "start": np.diff(start, prepend=0).tolist(),
        "life": np.where(end == NEVER_FREED, -1, end - start).tolist(),
        "last": np.where((last == NONE) | (last < start), -1, last - start).tolist(),
        "sizes": sizes.tolist(),
        "size": size.reshape(-1).tolist(),
        "content": blocks.content.tolist(),
        "node": node,
        "tree": tree,
        "leaf": leaves,
        "stack": stack,
        "stacks": [[frames[frame] for frame in each] for each in stacks],
        "frames": [[drop_installation(frame.file), frame.line, frame.function] for frame in frames],
        "kind": kind,
        "kinds": list(kinds),
        "tensor": blocks.tensor.codes.tolist(),
        "tensors": list(blocks.tensor.values),
        "names": dict(blocks.names),
        "base": str(base),
        "unit": unit,
        "offset": (offset // unit).tolist(),
    }


def _recode_used(codes: NDArray[np.int32], values: tuple[object, ...]) -> tuple[list[int], list]:  # type: ignore[type-arg]
    used, again = np.unique(codes, return_inverse=True)
    return again.reshape(-1).tolist(), [values[code] for code in used.tolist()]


def _path_tree(paths: list[str]) -> tuple[list[list[object]], list[int]]:
    # Path parts as [parent, name], parents first, roots with parent -1; and the last part of each path.
    known: dict[tuple[int, str], int] = {}
    leaves = []
    for path in paths:
        at = -1
        for part in path.split("/"):
            at = known.setdefault((at, part), len(known))
        leaves.append(at)
    return [[parent, name] for parent, name in known], leaves


def report_html(report: MemoryReport, comparison: Comparison | None, language: Language, further: str = "") -> str:
    """Return the page of a run, compared with another run if given; ``further`` as for :func:`memory_page`."""
    source = report.source.name if report.source.is_absolute() else str(report.source)
    return memory_page(source, _page_data(report, comparison), language, further)


def _page_data(report: MemoryReport, comparison: Comparison | None) -> dict[str, object]:
    by_peak = sorted(report.ranks, key=lambda rank: -rank.curve.peak_bytes)[:_MOST_WITH_BLOCKS]
    return {
        "contents": list(report.worst.peak.contents),
        "ranks": [
            {**_rank_data(rank, with_blocks=rank in by_peak), "stage": stage}
            for rank, stage in zip(report.ranks, report.stages, strict=True)
        ],
        "worst": report.ranks.index(report.worst),
        "findings": [record_json(finding, *CARD) for finding in report.all_findings],
        "comparison": [_pair_data(pair) for pair in comparison.ranks] if comparison else None,
    }


def _rank_data(rank: RankReport, *, with_blocks: bool) -> dict[str, object]:
    packed, count = pack_rank_blocks(rank) if with_blocks and len(rank.curve.rows) else (None, 0)
    values = rank_json(rank)
    del values["trace"]  # do not share the trace's location with readers of the page
    return {
        **values,
        "limit_bytes": rank.limit_bytes,
        "about": _about_layers(rank),
        "remedies_hint": _remedies_hint(rank),
        "verdict": _verdict_data(rank.verdict),
        "spans": rank.spans,
        "bands": bands_of(rank, POINTS),
        "by_layer": rank.peak.layers[:TOP],
        "by_parameter": rank.peak.parameters[:TOP],
        "overlaps": rank.map.overlaps,
        "blocks": packed,
        "block_count": count,
        "counted": len(rank.curve.rows),
    }


def _about_layers(rank: RankReport) -> Message | None:
    if rank.extrapolation is not None:
        layers, runs = rank.extrapolation
        return msg("memory_html.extrapolated", layers=layers, runs=listed_numbers(runs))
    return msg("memory_html.sample", run=rank.sample[0], layers=rank.sample[1]) if rank.sample is not None else None


def _remedies_hint(rank: RankReport) -> Message:
    if rank.scaled_from is not None:
        layers, runs = rank.scaled_from
        return msg("memory_html.remedies-hint-scaled", layers=layers, runs=listed_numbers(runs))
    return msg("memory_html.remedies-hint-sample" if rank.sample is not None else "memory_html.remedies-hint")


def _verdict_data(verdict: Verdict) -> dict[str, object]:
    word = msg(f"verdict.word.{verdict.outcome.value if verdict.outcome else 'none'}")
    return {"kind": _KINDS[verdict.outcome], "word": word, "lines": [verdict.sentence, *verdict.grounds]}


def _pair_data(pair: RankComparison) -> dict[str, object]:
    sides = {"was": pair.before.peak.contents, "now": pair.after.peak.contents}
    return {**pair_json(pair, 5 * TOP), **sides, "curve": sum_bands(bands_of(pair.before, POINTS // 4))}


def sum_bands(bands: Bands) -> dict[str, list[int]]:
    """Return the curve of a rank's memory as the sum of all its categories."""
    return {"tick": bands.tick, "used": [sum(values) for values in zip(*bands.used.values(), strict=True)]}


def job_html(report: JobReport, language: Language) -> str:
    """Return the memory page of a job's stages or of a command's ranks."""
    memory = report.memory
    if not report.stages:
        return report_html(memory, None, language)
    # Expected memory from the model's sizes replaces the page's estimate from the weights.
    ranks = tuple(
        replace(rank, theory=Theory(rank.theory.weights_bytes, rank.theory.parameters, (), None, None))
        if stage.theory
        else rank
        for rank, stage in zip(memory.ranks, report.stages, strict=True)
    )
    section = in_both_languages(partial(_theory_parts, report.stages), "section")
    return report_html(replace(memory, ranks=ranks), None, language, section)


def _theory_parts(stages: tuple[StageResult, ...], console: Console) -> Iterator[str]:
    names = ("stage", "rank", "measured", "theory", "difference", "content")
    rows = []
    for stage in stages:
        numbers = [str(stage.run.stage), str(stage.run.rank)]
        for pair in stage.theory:
            apart = "–" if pair.difference is None else f"{pair.difference:+.3%}"
            sizes = [size_text(pair.measured), size_text(pair.expected), apart]
            rows.append([*numbers, *sizes, console.text(f"memory.content.{pair.content}")])
        if not stage.theory:
            rows.append([*numbers, "", "", "", console.text("dryrun.page.unknown")])
    heads = [console.text(f"dryrun.page.{name}") for name in names]
    yield from table_html(console.text("dryrun.page.title"), heads, rows, len(heads) - 1)
    small = any(stage.full_layers not in (None, stage.run.layers) for stage in stages)
    hint = console.text("dryrun.page.hint-sample" if small else "dryrun.page.hint")
    yield f'<p class="hint">{html.escape(hint)}</p>'
