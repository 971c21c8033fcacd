"""Find ways to reduce the peak of a trace, and compute the peak after each by summing up the trace again.

``checklists/findings/remedies.yaml`` contains the methods: affected blocks, remaining share, price and syntax.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np
import yaml
from numpy.typing import NDArray

from ms_tune.enums import MemoryCategory
from ms_tune.facts.query import data_folder
from ms_tune.footprint.breakdown import Theory
from ms_tune.footprint.category import CONTENTS, Contents, category_code
from ms_tune.footprint.curve import ChangedLives, Curve
from ms_tune.footprint.layers import find_weight_casts
from ms_tune.footprint.lifetimes import Lifetimes
from ms_tune.footprint.phases import EAGER, ORDER, Phase, phase_code
from ms_tune.footprint.savings import SAVINGS, RecomputeSaving
from ms_tune.readers.table import Table
from ms_tune.records import Record
from ms_tune.text import Language, Text

STATIC = ("mindformers",)  # dialects of the static graph
DYNAMIC = ("mindspeed-ms", "mindformers-pynative", "megatron")
DRY_RUN = ("hyper-parallel",)
TORCH = ("megatron", "torch_npu")
_NEXT_OF_DRY_RUN = "ms-tune memory what-if RUN"  # its config has no other command
_LEAST = 1000  # a remedy must free at least this part (1/1000) of the peak
_TWICE = 1.5  # sets of gradients from which one counts as too many
_AND = ("; ", "；")  # between the price and the caveat, by language


class Method(Record):
    """A method to reduce memory, as defined in the file of methods."""

    name: str  # its name for scripts
    method: str  # how its effect is computed; empty: from the blocks that `takes` selects
    within: str  # pattern of the scopes of cells that it changes, or where its effect is known; empty: all
    # Operator names (patterns) that must be present (`needs`) or absent (`unless`) for a known effect; or empty.
    needs: str
    unless: str
    # Selections of blocks, each with the share of their size that remains; the first match of a block counts.
    takes: tuple[tuple[Mapping[str, object], tuple[int, int]], ...]
    title: Text
    price: Text  # its cost
    how_by_dialect: Mapping[str, Text]  # how to write it; `torch_npu` is PyTorch on an NPU
    command: str  # the command to run next
    # Caveat about its figure in a static graph; or None. For recomputation it applies only if the order of MindSpore's
    # recomputed operators determines the peak.
    rough: Text | None

    def how_in(self, dialects: Sequence[str]) -> Text:
        """Return how to write it in some dialects; empty if none of them supports it."""
        return Text(*(_join_dialects(self.how_by_dialect, dialects, place) for place in range(len(Language))))


def _join_dialects(texts: Mapping[str, Text], dialects: Sequence[str], place: int) -> str:
    names: dict[str, list[str]] = {}
    for dialect, text in texts.items():
        if dialect in dialects:
            names.setdefault(text[place], []).append(dialect)
    return (
        next(iter(names))
        if len(names) == 1
        else "; ".join(f"{text} ({', '.join(some)})" for text, some in names.items())
    )


class MemoryRemedy(Record):
    """A method that reduces this peak."""

    name: str
    title: Text
    bytes_freed: int  # reduction of the peak
    peak_after_bytes: int  # the remaining peak, perhaps at another moment
    price: Text  # its cost, and how reliable the figure is: a second run may differ somewhat
    how: Text  # how to write it, for each dialect of this kind of graph
    how_by_dialect: Mapping[str, Text]
    next: str  # the command to run next


class ContentBytes(Record):
    """Bytes at the peak of one category that one phase allocated; None: unknown phase."""

    phase: Phase | None
    category: MemoryCategory
    bytes: int


@cache
def load_methods() -> tuple[Method, ...]:
    """Return the methods, in the order of the file."""
    content = yaml.safe_load((data_folder("checklists") / "findings" / "remedies.yaml").read_bytes())
    return tuple(
        Method(
            name=entry["name"],
            **{key: entry.get(key, "") for key in ("method", "within", "needs", "unless")},
            takes=tuple(
                ({key: value for key, value in selection.items() if key != "keeps"}, tuple(selection["keeps"]))
                for selection in entry.get("takes", ())
            ),
            title=_parse_text(entry["title"]),
            price=_parse_text(entry["price"]),
            how_by_dialect={dialect: _parse_text(value) for dialect, value in entry["at"].items()},
            command=entry["next"],
            rough=_parse_text(entry["rough"]) if "rough" in entry else None,
        )
        for entry in content["remedies"]
    )


def _parse_text(value: str | Mapping[str, str]) -> Text:
    return Text(value, value) if isinstance(value, str) else Text(value["en"], value["zh"])


@dataclass(frozen=True, slots=True, eq=False)
class RemedyFacts:
    """Results of the analysis that the remedies need."""

    table: Table
    contents: Contents
    curve: Curve
    recompute: RecomputeSaving
    lifetimes: Lifetimes
    theory: Theory


def find_remedies(known: RemedyFacts) -> tuple[MemoryRemedy, ...]:
    """Return the methods that reduce the peak, the largest saving first."""
    peak, dynamic = known.curve.peak_bytes, _is_dynamic(known)
    found = []
    for method in load_methods() if peak else ():
        after = _peak_after(method, known)
        kinds = DRY_RUN if known.table.is_logical else DYNAMIC if dynamic else STATIC
        freed, how = peak - after, method.how_in(kinds)
        if freed * _LEAST < peak or not how.en:
            continue
        price = method.price
        if method.rough and kinds == STATIC and (method.method != "recompute" or known.recompute.reordered):
            price = Text(*(f"{cost}{also}{rough}" for cost, also, rough in zip(price, _AND, method.rough, strict=True)))
        command = _NEXT_OF_DRY_RUN if kinds == DRY_RUN else method.command
        what = (method.name, method.title, freed, after, price, how, method.how_by_dialect, command)
        found.append(MemoryRemedy(*what))
    return tuple(sorted(found, key=lambda remedy: -remedy.bytes_freed))


def scale_remedies(
    peak: int, weights: Sequence[Fraction], runs: Sequence[tuple[int, Sequence[MemoryRemedy]]]
) -> tuple[MemoryRemedy, ...]:
    """Return the remedies for a stage whose peak is the weighted sum of those of its runs, each a peak and its remedies."""
    found = []
    for remedy in {remedy.name: remedy for _, remedies in runs for remedy in remedies}.values():
        left = [
            next((one.peak_after_bytes for one in remedies if one.name == remedy.name), used) for used, remedies in runs
        ]
        after = round(sum(weight * size for weight, size in zip(weights, left, strict=True)))
        freed = min(peak, peak - after)
        if freed * _LEAST >= peak:
            found.append(remedy._replace(bytes_freed=freed, peak_after_bytes=peak - freed))
    return tuple(sorted(found, key=lambda remedy: -remedy.bytes_freed))


def _is_dynamic(known: RemedyFacts) -> bool:
    passes = known.contents.phases.rows_of(Phase.FORWARD, Phase.BACKWARD)
    return 2 * int((passes & known.table.task.rows_in([EAGER])).sum()) > int(passes.sum())


def _peak_after(method: Method, known: RemedyFacts) -> int:
    table, peak = known.table, known.curve.peak_bytes
    there = [any(re.search(pattern, name) for name in table.node.values) for pattern in (method.needs, method.unless)]
    unknown = (method.needs and not there[0]) or (method.unless and there[1])
    if unknown or (method.method == "swap" and not known.recompute.one_graph):
        return peak
    if method.method == "recompute":
        return min(peak, known.recompute.peak)
    if method.method == "prompt":
        return min(peak, known.lifetimes.peak_if_freed_after_last_use)
    if method.method in SAVINGS:
        lives = SAVINGS[method.method](table, known.contents, known.curve, method.within)
    else:
        lives = (_drop_second_gradients if method.method else _take_parts)(method, known)
    return min(peak, lives.peak_moment()[0])


def _drop_second_gradients(_method: Method, known: RemedyFacts) -> ChangedLives:
    lives = ChangedLives(known.table, known.curve)
    states = (each for each in known.theory.states if each.content is MemoryCategory.GRADIENTS)
    theory = next(states, None)
    if theory is not None and theory.expected_bytes:
        # If formats are unknown, gradients may have twice the bytes of the weights.
        ratio = theory.bytes / theory.expected_bytes / (1 if theory.typed else 2)
        if ratio >= _TWICE:
            gradients = known.contents.codes == category_code(MemoryCategory.GRADIENTS)
            lives.size[gradients] = (lives.size[gradients] / ratio).astype(np.int64)
    return lives


def _take_parts(method: Method, known: RemedyFacts) -> ChangedLives:
    lives, left = ChangedLives(known.table, known.curve), known.curve.counted_rows(known.table)
    for selection, keeps in method.takes:
        taken = left.copy()
        for key, wanted in selection.items():
            taken &= _rows_selected(key, wanted, known.table, known.contents)
        left &= ~taken
        lives.size[taken] = -(-lives.size[taken] * keeps[0] // keeps[1])
    return lives


def _rows_selected(key: str, wanted: object, table: Table, contents: Contents) -> NDArray[np.bool_]:
    if key == "contents" and isinstance(wanted, list):
        return np.isin(contents.codes, [category_code(MemoryCategory(name)) for name in wanted])
    if key == "phases" and isinstance(wanted, list):
        return np.isin(contents.phases.sure_codes, [phase_code(Phase(name)) for name in wanted])
    if key == "of_weights_alone":
        return np.asarray(find_weight_casts(table) == wanted, np.bool_)
    pattern = re.compile(str(wanted))
    if key == "modules":
        return table.graph.rows_matching(lambda name: pattern.search(name) is not None)
    if key == "operators":
        return table.node.rows_matching(lambda name: pattern.search(name) is not None)
    return table.stack.rows_matching(lambda stack: any(pattern.search(frame.file) for frame in stack))


def sum_peak_contents(known: RemedyFacts, rows: NDArray[np.int64]) -> tuple[ContentBytes, ...]:
    """Return the memory at the peak by phase and category; it adds up to the peak."""
    table, contents = known.table, known.contents
    key = contents.phases.sure_codes[rows].astype(np.int64) * len(CONTENTS) + contents.codes[rows]
    totals = np.zeros((len(ORDER) + 1) * len(CONTENTS), np.int64)
    np.add.at(totals, key, table.size[rows])
    found = [
        ContentBytes(ORDER[phase - 1] if phase else None, CONTENTS[content], int(totals[place]))
        for place in np.flatnonzero(totals).tolist()
        for phase, content in [divmod(place, len(CONTENTS))]
    ]
    return tuple(sorted(found, key=lambda one: -one.bytes))
