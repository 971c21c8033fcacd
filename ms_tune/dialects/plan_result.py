"""What the arithmetic of a recompute and swap plan ends in."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, NoReturn, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ms_tune.diagnostics import Diagnostic
    from ms_tune.enums import LayerKind, RecomputeMode
    from ms_tune.text import Message

ENDLESS_LOOP = "endless-loop"


class Failure(NamedTuple):
    """Where the framework does not go on."""

    exception: str  # the class of what it raises, or `ENDLESS_LOOP` when it never comes back
    text: str  # the exception's own text
    layer: int | None = None  # the layer it was about to set, if it got that far


class FrameworkStop(Exception):  # noqa: N818 - it stands for an exception of the framework, and is none of ours
    """Carries what the framework raises from the rule that knows it to whoever reports it.

    Args:
        exception: The class of what it raises, or :data:`ENDLESS_LOOP`.
        text: The exception's own text.
        why: What the text leaves unsaid.
    """

    def __init__(self, exception: str, text: str, why: Message | None) -> None:
        super().__init__(f"{exception}: {text}")
        self.exception = exception
        self.text = text
        self.why = why


def stop(exception: str, text: str, why: Message | None = None) -> NoReturn:
    """The framework raises this exception here."""
    raise FrameworkStop(exception, text, why)


class LayerCell(NamedTuple):
    """The place of one layer: its chunk and column in the framework's tables, its rank inside that cell, its stage."""

    chunk: int
    column: int
    rank: int
    stage: int


class Placement(NamedTuple):
    """How many layers each cell holds, and which."""

    # Layers of each cell: chunks x stages, in the framework's order. With `zero_bubble_v` the second chunk runs
    # backwards, so the first column of its row is the last stage.
    counts: tuple[tuple[int, ...], ...]
    ends: tuple[tuple[int, ...], ...]  # running sums of `counts`, in the same shape
    cells: tuple[LayerCell, ...]  # the place of every layer
    offset: tuple[tuple[int, ...], ...]  # the offset that was used, in the shape of `counts`

    @property
    def slots(self) -> int:
        """Layers that the cells hold together; more than there are layers when the offset is spread twice."""
        return sum(map(sum, self.counts))

    def column_total(self, column: int) -> int:
        """Layers of one column over all chunks."""
        return sum(row[column] for row in self.counts)


Rows = list[list[int]]

# Which layers, when swap is on: True for all of them, or their numbers.
LayerIds: TypeAlias = "bool | list[int]"


class LayerList(list[int]):
    """A list of layer numbers that is asked for each layer whether it has it: 10,000 numbers are asked 10,000 times."""

    __slots__ = ("_numbers",)

    def __init__(self, numbers: Iterable[int]) -> None:
        super().__init__(numbers)
        self._numbers = frozenset(self)

    def __contains__(self, number: object) -> bool:
        return number in self._numbers


class Warned(str):
    """A line that the framework logs as a warning."""

    __slots__ = ()


class SwapEntry(NamedTuple):
    """One entry of a swap list, as the framework keeps it: which layers, and how many operators ahead they come back."""

    prefetch: object
    layers: LayerIds

    def __repr__(self) -> str:
        return repr(self.as_dict())

    def as_dict(self) -> dict[str, object]:
        """The entry by the framework's key names."""
        return {"backward_prefetch": self.prefetch, "layers": self.layers}


class ById(NamedTuple):
    """Recompute and swap as the framework has them when swap is on: by the numbers of layers."""

    layer_recompute: LayerIds
    select_recompute: Mapping[object, LayerIds]
    select_comm_recompute: Mapping[object, LayerIds]
    layer_swap: Sequence[SwapEntry]
    op_swap: Mapping[str, Sequence[SwapEntry]]


class Formative(NamedTuple):
    """The values in the framework's own form: layers of each (chunk, stage), plain or for each pattern.

    Rows may be shorter than there are stages, and rows may be missing: a config can say so, and the framework goes
    on until it sets a layer that needs them.
    """

    layer_recompute: Sequence[Sequence[int]]
    select_recompute: Mapping[object, Sequence[Sequence[int]]]
    select_comm_recompute: Mapping[object, Sequence[Sequence[int]]]
    select_recompute_exclude: Mapping[object, Sequence[Sequence[int]]]
    select_comm_recompute_exclude: Mapping[object, Sequence[Sequence[int]]]
    # The values when swap is on. Then the first three tables are empty, and the last two without effect.
    by_id: ById | None = None

    def as_lists(self) -> dict[str, object]:
        """The values as plain lists, by the names that the framework logs them under.

        With swap on, a value is a list of layer numbers, or True for all layers.
        """
        by_id = self.by_id
        return {
            "layer_recompute": _plain(by_id.layer_recompute if by_id else self.layer_recompute),
            "select_recompute": _plain_each(by_id.select_recompute if by_id else self.select_recompute),
            "select_comm_recompute": _plain_each(by_id.select_comm_recompute if by_id else self.select_comm_recompute),
            "select_recompute_exclude": _plain_each(self.select_recompute_exclude),
            "select_comm_recompute_exclude": _plain_each(self.select_comm_recompute_exclude),
            "layer_swap": [entry.as_dict() for entry in by_id.layer_swap] if by_id else [],
            "op_swap": {name: [entry.as_dict() for entry in entries] for name, entries in by_id.op_swap.items()}
            if by_id
            else {},
        }


def _plain(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value if isinstance(value, bool) or not isinstance(value, int) else int(value)


def _plain_each(values: Mapping[object, object]) -> dict[str, object]:
    return {str(pattern): _plain(value) for pattern, value in values.items()}


class SwapPlan(NamedTuple):
    """What one layer offloads to the host."""

    target: str  # a pattern for its operators; empty for the whole layer
    prefetch: object  # how many operators ahead of its use it is fetched back


class LayerSpec(NamedTuple):
    """What one layer recomputes and swaps.

    The patterns are those switched on (or excluded) for the layer. Whether an operator of the model matches one is
    for the model to say. ``overridden`` are the patterns that would be on if the layer were not recomputed in full.
    ``kind`` is what the layer is, if the arguments tell.
    """

    layer: int
    stage: int
    chunk: int
    recompute: RecomputeMode
    select_patterns: tuple[str, ...] = ()
    comm_patterns: tuple[str, ...] = ()
    select_excludes: tuple[str, ...] = ()
    comm_excludes: tuple[str, ...] = ()
    swap: tuple[SwapPlan, ...] = ()
    overridden: tuple[str, ...] = ()
    kind: LayerKind | None = None


class RecomputePlan(NamedTuple):
    """The outcome."""

    placement: Placement | None  # none when the framework refuses the placement
    # None when the framework raises, whether it does so while it reads the values or when it sets a layer.
    formative: Formative | None
    layers: tuple[LayerSpec, ...]  # one entry a layer, in order; empty when `formative` is None
    problems: tuple[Diagnostic, ...]  # everything worth saying, the framework's own failure first
    log: tuple[str, ...]  # what the framework logs while it formats the values, up to where it raises if it does
    failure: Failure | None = None  # where the framework stops, if it does
