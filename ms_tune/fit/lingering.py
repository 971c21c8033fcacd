"""What layers that are recomputed in full leave behind their chunk's backward pass, until that chunk's next pass.

A layer that was computed once more keeps what its attention made until it runs again: its next forward pass, or its next backward pass,
whose own tensors then take that place. It is so in the reference transformer that stands for MindFormers' dynamic graph; nobody has seen
MindFormers' own, whose pipeline needs HyperParallel. What a stage holds on top therefore depends on which chunks went
backward last, and not on how many micro-batches are in flight. Seen in traces of MindSpore 2.9 (latent attention and experts, 4
stages x 2 chunks): of the second stage with two recomputed layers in its first chunk their attention's tensors of micro-batch 2
lie there when micro-batch 3 is about to go backward through the chunk, and are freed one by one while it does.

Small runs show it as a layer of the first chunk that frees less than one of the others (:func:`~ms_tune.fit.recomputed.told_apart`): when
a stage holds most, the first chunk's last pass was a backward one and the others' was not. It may be so for another reason, too:
there is twice what enters the first chunk in that of MindSpeed-Core-MS. A run that recomputes that chunk alone tells the two apart.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from ms_tune.dialects.stage import make_name
from ms_tune.enums import LayerKind, RecomputeMode
from ms_tune.fit.probes import middle_of
from ms_tune.planning.costs import costs_of
from ms_tune.planning.table import Again

if TYPE_CHECKING:
    from collections.abc import Callable

    from ms_tune.fit.measure import RunFigures
    from ms_tune.fit.measured import Measured
    from ms_tune.planning.table import CostTable, LayerCost, LayerGroup

_WORTH = Fraction(1, 20)  # of what a layer keeps of a micro-batch; less is no tensor that stays


def with_lingering(table: CostTable, measured: Measured, in_flight: Fraction) -> CostTable:
    """The table with what stays behind backward passes told apart; as it is where nothing does, or no run tells.

    Args:
        table: The table, which has that as bytes of the first chunk's layers (``again.layer_bytes``).
        measured: What the small runs held.
        in_flight: Micro-batches in flight on the first stage, the mean of its chunks.
    """
    main, again, known = make_name(measured.model.main), table.again, telling_stage(table.stages)
    if again is None or table.chunks == 1 or known not in measured.freed:
        return table
    first, *others = (again.layer_bytes[chunk * table.stages + known] for chunk in range(table.chunks))
    left = first - max(others)
    (row,) = (layer for layer in table.layers if layer.name == main)
    if left <= row.recompute[RecomputeMode.NONE].activation_bytes * _WORTH:
        return table
    full = row.recompute[RecomputeMode.FULL]
    row = _with(row, full._replace(once_bytes=full.once_bytes + max(others), again_bytes=left))
    nothing = (0,) * table.cells
    made = replace(
        table,
        layers=tuple(row if one.name == main else _dense(one, row, in_flight) for one in table.layers),
        again=Again((again.first_bytes[known],) * table.stages, nothing, nothing, lingers=True),
    )
    made = _held_to(made, measured)
    alone = measured.of_first_chunk_alone(known)
    if alone is None:
        return table
    phases = measured.usual(measured.model.main, RecomputeMode.NONE, known)
    peak = max((alone.peaks[phase] for phase in phases if phase in alone.peaks), default=0)
    nearer = abs(_foretold(made, alone) - peak) < abs(_foretold(table, alone) - peak)
    return made if peak and nearer else table


def telling_stage(stages: int) -> int:
    """The stage whose run with the first chunk recomputed alone tells: one in the middle, or the last; the first has other layers, too."""
    return middle_of(stages - 1) if stages > 2 else stages - 1  # noqa: PLR2004 - the first, one between, the last


def _with(row: LayerGroup, full: LayerCost) -> LayerGroup:
    return replace(row, recompute={**row.recompute, RecomputeMode.FULL: full})


def _dense(row: LayerGroup, main: LayerGroup, in_flight: Fraction) -> LayerGroup:
    """The row of layers that one stage alone was run with, so that all that they hold was taken for activations.

    Gradients and gathered copies are to weights what they are in the layers that most are; a recomputed layer keeps what enters it, as
    one of those does, and leaves the rest.
    """
    kept, of_main = row.recompute, main.recompute
    once = round(Fraction(row.bytes * of_main[RecomputeMode.NONE].once_bytes, main.bytes)) if main.bytes else 0
    each = round(once / in_flight)
    found = {
        kind: one._replace(activation_bytes=max(0, one.activation_bytes - each), once_bytes=once)
        for kind, one in kept.items()
    }
    full, entering = found[RecomputeMode.FULL], of_main[RecomputeMode.FULL].activation_bytes
    left = round(max(Fraction(0), (full.activation_bytes - entering) * in_flight))
    most = found[RecomputeMode.NONE].activation_bytes
    again = max(0, most - entering - left)  # while it is computed once more it is all there
    full = full._replace(activation_bytes=min(entering, most), again_bytes=left, transient_bytes=again)
    return _with(replace(row, recompute=found), full)


def _held_to(table: CostTable, measured: Measured) -> CostTable:
    """The table with what stages hold anyhow, and on top while layers are computed once more, as the small runs have it."""
    main, last = measured.model.main, table.stages - 1

    def lacking(table: CostTable, kind: RecomputeMode, runs: Callable[[int], RunFigures | None]) -> tuple[int, ...]:
        found: dict[int, int] = {}
        for stage in measured.stages(main):
            figures, phases = runs(stage), measured.usual(main, kind, stage)
            if figures is not None and phases:
                found[stage] = max(figures.peaks[phase] for phase in phases) - _foretold(table, figures)
        return tuple(found.get(stage, found.get(middle_of(last), 0)) for stage in range(table.stages))

    anyhow = lacking(table, RecomputeMode.NONE, lambda stage: measured.few(main, RecomputeMode.NONE, stage))
    held = [table.held_by(stage) - _ends(table, stage) + more for stage, more in enumerate(anyhow)]
    table = replace(table, constant_bytes=min(held), stage_bytes=tuple(one - min(held) for one in held))
    again = table.again
    assert again is not None  # noqa: S101 - it lingers
    on_top = lacking(table, RecomputeMode.FULL, lambda stage: measured.many(main, RecomputeMode.FULL, stage))
    transients = tuple(max(0, one) for one in on_top) * table.chunks
    layers = [
        _with(one, full._replace(transient_bytes=max(0, full.transient_bytes - transients[0])))
        if one.name == make_name(LayerKind.DENSE)
        else one
        for one in table.layers
        for full in (one.recompute[RecomputeMode.FULL],)
    ]
    return replace(table, layers=tuple(layers), again=replace(again, transient_bytes=transients))


def _ends(table: CostTable, stage: int) -> int:
    """What the head and the tail hold, which is no matter of the stage's own."""
    return (table.head.bytes if stage == 0 else 0) + (table.tail.bytes if stage == table.stages - 1 else 0)


def _foretold(table: CostTable, figures: RunFigures) -> int:
    """The peak of a small run by the table, in bytes."""
    counts = dict.fromkeys((layer.name for layer in table.layers), 0)
    cells: list[dict[RecomputeMode, int]] = [{RecomputeMode.NONE: 0} for _ in range(table.cells)]
    for kind, count in figures.kinds.items():
        chunk, make = kind.cell
        counts[make_name(make)] += count
        cell = cells[chunk * table.stages + figures.stage]
        recompute = RecomputeMode.FULL if kind.recompute is RecomputeMode.FULL else RecomputeMode.NONE
        cell[recompute] = cell.get(recompute, 0) + count
    rows = tuple(replace(layer, count=counts[layer.name]) for layer in table.layers if counts[layer.name])
    costs = costs_of(replace(table, layers=rows))
    return int(costs.peaks(costs.state(cells)[None])[0, figures.stage])
