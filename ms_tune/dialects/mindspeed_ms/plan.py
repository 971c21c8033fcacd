"""Where MindSpeed-Core-MS r0.1.0 (dynamic graph) puts each layer, and what the layer recomputes.

The rules are those of branch r0.1.0: where layers lie in :mod:`ms_tune.dialects.mindspeed_ms.placement`, what they recompute in
:mod:`ms_tune.dialects.mindspeed_ms.recompute`; ``ParallelTransformer.__init__`` of ``mindspeed_ms/legacy/model/transformer.py`` asks both.

Every rank works out its own cells only, so a value can stop one rank while the others wait for it. Here every cell is
worked out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.dialects.layer_plan import (
    MINDSPEED_MS,
    FrameworkStop,
    LayerPlan,
    LayerSpec,
    failure_of,
    failure_problem,
)
from ms_tune.dialects.mindspeed_ms.ignored import find_traps
from ms_tune.dialects.mindspeed_ms.placement import LayerPlacer
from ms_tune.dialects.mindspeed_ms.recompute import CellRecompute
from ms_tune.enums import RecomputeMode
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ms_tune.dialects.mindspeed_ms.placement import CellPlan, MindSpeedInputs, Number
    from ms_tune.text import Message

VERSION = "r0.1.0"
FRAMEWORK = "MindSpeed-Core-MS"
COMM_OPERATOR = "ColumnParallelLinear.all_gather"
_SHOWN = 4  # cells in one message


def normalize_mindspeed_ms(inputs: MindSpeedInputs) -> LayerPlan:
    """What each layer will recompute, exactly as the framework decides it.

    Never raises for what a config may say: what the framework refuses is the plan's ``failure``.
    """
    placer = LayerPlacer(inputs)
    recompute = CellRecompute(inputs, placer)
    failures: list[tuple[str, tuple[int, int], FrameworkStop]] = []
    counts: dict[tuple[int, int], Number] = {}
    plans: dict[tuple[int, int], CellPlan] = {}
    log: list[str] = []
    for chunk, stage in placer.cells():
        step = "placement"
        try:
            placer.check_parallel()
            count, first = placer.place(chunk, stage, log)
            counts[chunk, stage] = count
            step = "value"
            plans[chunk, stage] = recompute.plan_cell(chunk, stage, count, first, log)
        except FrameworkStop as error:
            failures.append((step, (chunk, stage), error))
    placement = None
    if len(counts) == len(placer.cells()):
        placement = tuple(
            tuple(int(counts[chunk, stage]) for stage in range(inputs.stages)) for chunk in range(inputs.rows)
        )
    if failures:
        step, _, first_stop = failures[0]
        problem = failure_problem(step, FRAMEWORK, first_stop, _remark(inputs, failures, len(placer.cells())))
        problems = (problem, *find_traps(inputs, None))
        return LayerPlan(MINDSPEED_MS, VERSION, placement, None, (), problems, tuple(log), failure_of(first_stop))
    return LayerPlan(
        dialect=MINDSPEED_MS,
        framework_version=VERSION,
        placement=placement,
        formative=_formative(inputs, plans),
        layers=_layers(inputs, plans),
        problems=tuple(find_traps(inputs, plans)),
        log=tuple(log),
    )


def _remark(
    inputs: MindSpeedInputs, failures: Sequence[tuple[str, tuple[int, int], FrameworkStop]], cells: int
) -> Message | None:
    """Which ranks it is that stop, if others go on; and the fault of the framework's own that may be behind it."""
    if len(failures) == cells:
        return None
    step, first, _ = failures[0]
    if inputs.standalone and step == "value" and all(stage == 0 for _, (_, stage), _ in failures):
        return msg("plans.why.standalone", chunk=first[0])
    shown = ", ".join(str(stage) for stage in sorted({stage for _, (_, stage), _ in failures})[:_SHOWN])
    more = ", …" if len({stage for _, (_, stage), _ in failures}) > _SHOWN else ""
    return msg("plans.why.some-ranks", stages=shown + more, chunk=first[0], stage=first[1])


def _formative(inputs: MindSpeedInputs, plans: Mapping[tuple[int, int], CellPlan]) -> dict[str, object]:
    """The lists that say the same, in the shapes that the framework wants."""
    stages = range(1 if inputs.standalone and inputs.stages > 1 else 0, inputs.stages)

    def table(name: str) -> list[object]:
        rows = [[getattr(plans[chunk, stage], name) for stage in stages] for chunk in range(inputs.rows)]
        return list(rows if inputs.chunks is not None else rows[0])

    return {
        "num_layer_list": table("count"),
        "recompute": table("full"),
        "select_recompute": table("select"),
        "select_comm_recompute": table("comm"),
    }


def _layers(inputs: MindSpeedInputs, plans: Mapping[tuple[int, int], CellPlan]) -> tuple[LayerSpec, ...]:
    layers = []
    flags = ((inputs.select, inputs.select_operator), (inputs.comm, COMM_OPERATOR))
    everywhere = tuple(operator for on, operator in flags if on)
    for (chunk, stage), cell in plans.items():
        for rank in range(cell.count):
            behind = rank - cell.full
            select, comm = 0 <= behind < cell.select, 0 <= behind < cell.comm
            effect = (
                RecomputeMode.FULL
                if behind < 0
                else RecomputeMode.SELECT
                if select
                else RecomputeMode.COMM
                if comm
                else RecomputeMode.NONE
            )
            layers.append(
                LayerSpec(
                    layer=cell.first + rank,
                    stage=stage,
                    chunk=chunk,
                    recompute=effect,
                    select_patterns=(inputs.select_operator,) if select else (),
                    comm_patterns=(COMM_OPERATOR,) if comm else (),
                    overridden=everywhere if behind < 0 else (),
                )
            )
    return tuple(layers)
