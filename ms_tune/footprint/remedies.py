"""What would lower the peak of a trace, each with the peak that it would leave: the trace is summed up anew with it.

``checklists/findings/remedies.yaml`` holds the methods: which blocks they are about, what is left of them, what they cost and
how they are written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import yaml

from ms_tune.enums import MemoryCategory
from ms_tune.facts.query import data_folder
from ms_tune.footprint.category import CONTENTS, Contents, category_code
from ms_tune.footprint.layers import find_location, find_operator, find_weight_casts
from ms_tune.footprint.phases import EAGER, ORDER, Phase, phase_code
from ms_tune.footprint.steps import find_phase_peaks
from ms_tune.footprint.what_ifs import (
    RecomputeSaving,
    peak_if_cells_recomputed,
    peak_if_fewer_in_flight,
    peak_if_swapped,
)
from ms_tune.readers.memory_block import NEVER_FREED
from ms_tune.readers.table import NONE, Table
from ms_tune.records import Record
from ms_tune.text import Language, Text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ms_tune.footprint.breakdown import Theory
    from ms_tune.footprint.curve import Curve
    from ms_tune.footprint.lifetimes import Lifetimes

STATIC = ("mindformers",)  # dialects of the static graph
DYNAMIC = ("mindspeed-ms", "mindformers-pynative", "megatron")
TORCH = ("megatron", "torch_npu")
_LEAST = 1000  # a remedy that frees less than this part of the peak is none
_TWICE = 1.5  # sets of gradients, from which on there is one too many
_AND = ("; ", "；")  # between what it costs and what else is said, by language
_DEAD = 3  # kinds of blocks that are named at a moment


class Method(Record):
    """A way to need less memory, as the file of methods tells it."""

    name: str  # how scripts know it
    method: str  # how its effect is computed; empty: by the blocks that `takes` names
    within: str  # the cells, a pattern of scopes, that it is about, or in which alone its effect is known; empty: all
    # Operators, patterns of their names, that must be there, and must not be, for its effect to be known; empty: none.
    beside: str
    unless: str
    # Which blocks, by selections, of which the first that holds for a block counts, and the share of their size left.
    takes: tuple[tuple[Mapping[str, object], tuple[int, int]], ...]
    title: Text
    price: Text  # what it costs
    how_by_dialect: Mapping[str, Text]  # how it is written; `torch_npu` is the PyTorch of an NPU
    command: str  # what to run next
    # What is to be said of its figure in a static graph; None where nothing is. Of recompute it is said where the order
    # of what MindSpore recomputes makes the peak.
    rough: Text | None
    early: bool  # whether it is worth a look before there is a trace

    def how_text(self, dialects: Sequence[str], language: Language) -> str:
        """How it is written in some dialects; empty where none of them has a way to do it."""
        texts: dict[str, list[str]] = {}
        for dialect, text in self.texts_by_dialect(language).items():
            if dialect in dialects:
                texts.setdefault(text, []).append(dialect)
        if len(texts) == 1:
            return next(iter(texts))
        return "; ".join(f"{text} ({', '.join(names)})" for text, names in texts.items())

    def texts_by_dialect(self, language: Language) -> dict[str, str]:
        """How it is written in each dialect."""
        return {dialect: text[0 if language is Language.EN else 1] for dialect, text in self.how_by_dialect.items()}


class MemoryRemedy(Record):
    """A method that lowers this peak."""

    method: Method  # the method
    bytes_freed: int  # by how much
    peak_after_bytes: int  # the peak that is left, wherever it is then
    dynamic: bool  # whether the graph is dynamic
    rough: bool  # whether the second run may come to a somewhat other figure

    def how_text(self, language: Language) -> str:
        """How it is written, for each dialect of this kind of graph."""
        return self.method.how_text(DYNAMIC if self.dynamic else STATIC, language)

    def title_text(self, language: Language) -> str:
        """What it is."""
        return self.method.title[0 if language is Language.EN else 1]

    def price_text(self, language: Language) -> str:
        """What it costs, and how far its figure is to be relied on."""
        place = 0 if language is Language.EN else 1
        price = self.method.price[place]
        return f"{price}{_AND[place]}{self.method.rough[place]}" if self.rough and self.method.rough else price


class ContentBytes(Record):
    """Bytes at the peak of one content that one phase allocated; None where nothing tells which."""

    phase: Phase | None
    category: MemoryCategory
    bytes: int


class Dead(Record):
    """Blocks of one operator and place that are alive at a moment though their last use is past."""

    operator: str
    where: str
    bytes: int


class PeakMoment(Record):
    """The highest moment of a phase."""

    phase: Phase | None  # the phase; None where nothing tells
    # `tick`, `bytes`: when, and how much is in use
    tick: int
    bytes: int
    dead_bytes: int  # what of it nobody uses any more, and is released later or never
    dead: tuple[Dead, ...]  # the most of that


@cache
def load_methods() -> tuple[Method, ...]:
    """The methods, in the file's order."""
    content = yaml.safe_load((data_folder("checklists") / "findings" / "remedies.yaml").read_bytes())
    return tuple(
        Method(
            name=entry["name"],
            method=entry.get("method", ""),
            within=entry.get("within", ""),
            beside=entry.get("beside", ""),
            unless=entry.get("unless", ""),
            takes=tuple(
                ({key: value for key, value in selection.items() if key != "keeps"}, tuple(selection["keeps"]))
                for selection in entry.get("takes", ())
            ),
            title=_parse_text(entry["title"]),
            price=_parse_text(entry["price"]),
            how_by_dialect={dialect: _parse_text(value) for dialect, value in entry["at"].items()},
            command=entry["next"],
            rough=_parse_text(entry["rough"]) if "rough" in entry else None,
            early=entry.get("early", False),
        )
        for entry in content["remedies"]
    )


def _parse_text(value: str | Mapping[str, str]) -> Text:
    return Text(value, value) if isinstance(value, str) else Text(value["en"], value["zh"])


@dataclass(frozen=True, slots=True, eq=False)
class RemedyFacts:
    """What the analysis has found so far."""

    table: Table
    contents: Contents
    curve: Curve
    recompute: RecomputeSaving
    lifetimes: Lifetimes
    theory: Theory


def find_remedies(known: RemedyFacts) -> tuple[MemoryRemedy, ...]:
    """The methods that lower the peak, those that free most first."""
    table, curve = known.table, known.curve
    if not curve.peak_bytes:
        return ()
    replayed = _Resized(table, curve)
    dynamic = _is_dynamic(known)
    found = []
    for method in load_methods():
        after = _peak_after(method, known, replayed)
        freed = curve.peak_bytes - after
        if freed * _LEAST >= curve.peak_bytes and method.how_text(DYNAMIC if dynamic else STATIC, Language.EN):
            rough = not dynamic and (method.method != "recompute" or known.recompute.reordered)
            found.append(MemoryRemedy(method, freed, after, dynamic, rough))
    return tuple(sorted(found, key=lambda remedy: -remedy.bytes_freed))


def _is_dynamic(known: RemedyFacts) -> bool:
    passes = known.contents.phases.rows_of(Phase.FORWARD, Phase.BACKWARD)
    return 2 * int((passes & known.table.task.rows_in([EAGER])).sum()) > int(passes.sum())


def _peak_after(method: Method, known: RemedyFacts, replayed: _Resized) -> int:
    table, peak = known.table, known.curve.peak_bytes
    after, size = peak, table.size
    there = [any(re.search(pattern, name) for name in table.node.values) for pattern in (method.beside, method.unless)]
    if (method.beside and not there[0]) or (method.unless and there[1]):
        return peak
    if method.method == "recompute":
        after = known.recompute.peak
    elif method.method == "swap":
        if known.recompute.one_graph:
            after = peak_if_swapped(table, known.contents, known.curve, method.within)
    elif method.method == "selective":
        after = peak_if_cells_recomputed(table, known.contents, known.curve, method.within)
    elif method.method == "in-flight":
        after = peak_if_fewer_in_flight(table, known.contents, known.curve)
    elif method.method == "prompt":
        after = known.lifetimes.peak_if_freed_after_last_use
    elif method.method == "second-gradients":
        ratio = _sets_of_gradients(known.theory)
        if ratio >= _TWICE:
            gradients = _select_blocks({"contents": [MemoryCategory.GRADIENTS.value]}, known)
            after = replayed.peak_with(np.where(gradients, (size / ratio).astype(np.int64), size))
    else:
        after = _with_less(method, known, replayed)
    return min(peak, after)


def _sets_of_gradients(theory: Theory) -> float:
    # Where formats are not known, gradients may have twice the weights' bytes.
    for each in theory.states:
        if each.content is MemoryCategory.GRADIENTS and each.expected_bytes:
            return each.bytes / each.expected_bytes / (1 if each.typed else 2)
    return 0.0


def _with_less(method: Method, known: RemedyFacts, replayed: _Resized) -> int:
    table, left = known.table, known.table.size.copy()
    open_ = known.curve.counted_rows(table)
    for selection, keeps in method.takes:
        taken = _select_blocks(selection, known) & open_
        open_ &= ~taken
        left[taken] = -(-left[taken] * keeps[0] // keeps[1])
    return replayed.peak_with(left)


def _select_blocks(selection: Mapping[str, object], known: RemedyFacts) -> NDArray[np.bool_]:
    taken = np.ones(len(known.table), np.bool_)
    for key, wanted in selection.items():
        taken &= _rows_selected(key, wanted, known.table, known.contents)
    return taken


def _rows_selected(key: str, wanted: object, table: Table, contents: Contents) -> NDArray[np.bool_]:
    if key == "contents" and isinstance(wanted, list):
        return np.isin(contents.codes, [category_code(MemoryCategory(name)) for name in wanted])
    if key == "phases" and isinstance(wanted, list):
        return np.isin(contents.phases.sure_codes, [phase_code(Phase(name)) for name in wanted])
    if key == "of_weights_alone":
        return np.asarray(find_weight_casts(table) == wanted, np.bool_)
    pattern = re.compile(str(wanted))
    if key == "operators":
        return table.node.rows_matching(lambda name: pattern.search(name) is not None)
    return table.stack.rows_matching(lambda stack: any(pattern.search(frame.file) for frame in stack))


class _Resized:
    """The peak of the same allocations and releases with other sizes."""

    def __init__(self, table: Table, curve: Curve) -> None:
        rows = curve.rows
        freed = rows[table.end[rows] != NEVER_FREED]
        order = np.argsort(np.concatenate([table.end[freed], table.start[rows]]), kind="stable")
        self._row = np.concatenate([freed, rows])[order]
        self._sign = np.where(order < len(freed), -1, 1)

    def peak_with(self, size: NDArray[np.int64]) -> int:
        used = np.cumsum(self._sign * size[self._row])
        return max(int(used.max()), 0) if len(used) else 0


def held_at_peak(known: RemedyFacts, rows: NDArray[np.int64]) -> tuple[ContentBytes, ...]:
    """What the peak is made of, by phase and content; it adds up to the peak."""
    table, contents = known.table, known.contents
    key = contents.phases.sure_codes[rows].astype(np.int64) * len(CONTENTS) + contents.codes[rows]
    totals = np.zeros((len(ORDER) + 1) * len(CONTENTS), np.int64)
    np.add.at(totals, key, table.size[rows])
    found = [
        ContentBytes(ORDER[phase - 1] if phase else None, CONTENTS[content], int(totals[place]))
        for place in np.flatnonzero(totals).tolist()
        for phase, content in [divmod(place, len(CONTENTS))]
    ]
    return tuple(sorted(found, key=lambda held: -held.bytes))


def find_peak_moments(known: RemedyFacts) -> tuple[PeakMoment, ...]:
    """The highest moment of each phase, and what is dead then."""
    table, curve = known.table, known.curve
    found = []
    for phase, (used, tick) in find_phase_peaks(curve, table, known.contents.phases.sure_codes).items():
        alive = curve.rows[table.live_at(tick)[curve.rows]]
        last = table.last_user[alive]
        dead = alive[(last != NONE) & (last < tick) & (table.end[alive] != NEVER_FREED)]
        kinds: dict[tuple[str, str], int] = {}
        for row in dead.tolist():
            kind = (find_operator(table, row), find_location(table, row))
            kinds[kind] = kinds.get(kind, 0) + int(table.size[row])
        most: Sequence[tuple[tuple[str, str], int]] = sorted(kinds.items(), key=lambda item: (-item[1], item[0]))[
            :_DEAD
        ]
        total = int(table.size[dead].sum())
        found.append(PeakMoment(phase, tick, used, total, tuple(Dead(*kind, size) for kind, size in most)))
    return tuple(sorted(found, key=lambda moment: -moment.bytes))
