"""Determine the placement and recomputation of layers in MindSpeed-Core-MS r0.1.0 (dynamic graph).

Rules of branch r0.1.0: placement in :mod:`ms_tune.dialects.mindspeed_ms.placement`; recomputation from
``ParallelTransformer.__init__``, ``_get_recompute_nums``, ``_set_checkpointed_recompute`` and
``ParallelTransformerLayer._set_selective_recompute`` of ``mindspeed_ms/legacy/model/transformer.py``.

Every rank computes only its own cells, so a value can stop one rank while the others wait. Here all cells are computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ms_tune.dialects import MINDSPEED_MS, FrameworkStop, LayerPlan, LayerSpec, failure_of, failure_problem, stop
from ms_tune.dialects.mindspeed_ms.ignored import find_ignored
from ms_tune.dialects.mindspeed_ms.placement import CellPlan, LayerPlacer, MindSpeedInputs, read_counts
from ms_tune.enums import RecomputeMode
from ms_tune.text import Message, msg

VERSION = "r0.1.0"
FRAMEWORK = "MindSpeed-Core-MS"
COMM_OPERATOR = "ColumnParallelLinear.all_gather"
_SHOWN = 4  # maximum cells in one message


def normalize_mindspeed_ms(inputs: MindSpeedInputs) -> LayerPlan:
    """Return the plan of a config, exactly as the framework determines it.

    Never raises for invalid configs: a refusal by the framework is the plan's ``failure``.
    """
    placer = LayerPlacer(inputs)
    recompute = CellRecompute(inputs, placer)
    failures: list[tuple[str, tuple[int, int], FrameworkStop]] = []
    counts: dict[tuple[int, int], int] = {}
    plans: dict[tuple[int, int], CellPlan] = {}
    log: list[str] = []
    for chunk, stage in placer.cells():
        step = "placement"
        try:
            placer.check_parallel()
            count, first = placer.place_cell(chunk, stage, log)
            counts[chunk, stage] = count
            step = "value"
            plans[chunk, stage] = recompute.plan_cell(chunk, stage, count, first, log)
        except FrameworkStop as error:
            failures.append((step, (chunk, stage), error))
    placement = None
    if len(counts) == len(placer.cells()):
        placement = tuple(tuple(counts[chunk, stage] for stage in range(inputs.stages)) for chunk in range(inputs.rows))
    if failures:
        step, _, first_stop = failures[0]
        problem = failure_problem(step, FRAMEWORK, first_stop, _remark(inputs, failures, len(placer.cells())))
        problems = (problem, *find_ignored(inputs, None))
        return LayerPlan(MINDSPEED_MS, VERSION, placement, None, (), problems, tuple(log), failure_of(first_stop))
    return LayerPlan(
        dialect=MINDSPEED_MS,
        framework_version=VERSION,
        placement=placement,
        formative=_formative(inputs, plans),
        layers=_layers(inputs, plans),
        problems=tuple(find_ignored(inputs, plans)),
        log=tuple(log),
    )


def _remark(
    inputs: MindSpeedInputs, failures: Sequence[tuple[str, tuple[int, int], FrameworkStop]], cells: int
) -> Message | None:
    """Return which ranks stop if others continue, or the framework's own bug that may be the cause."""
    if len(failures) == cells:
        return None
    step, first, _ = failures[0]
    if inputs.standalone and step == "value" and all(stage == 0 for _, (_, stage), _ in failures):
        return msg("plans.why.standalone", chunk=first[0])
    shown = ", ".join(str(stage) for stage in sorted({stage for _, (_, stage), _ in failures})[:_SHOWN])
    more = ", …" if len({stage for _, (_, stage), _ in failures}) > _SHOWN else ""
    return msg("plans.why.some-ranks", stages=shown + more, chunk=first[0], stage=first[1])


def _formative(inputs: MindSpeedInputs, plans: Mapping[tuple[int, int], CellPlan]) -> dict[str, object]:
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
            index = rank - cell.full
            select, comm = 0 <= index < cell.select, 0 <= index < cell.comm
            layers.append(
                LayerSpec(
                    layer=cell.first + rank,
                    stage=stage,
                    chunk=chunk,
                    recompute=RecomputeMode.strongest(full=index < 0, select=select, comm=comm),
                    select_patterns=(inputs.select_operator,) if select else (),
                    comm_patterns=(COMM_OPERATOR,) if comm else (),
                    overridden=everywhere if index < 0 else (),
                )
            )
    return tuple(layers)


KINDS = ("recompute", "select_recompute", "select_comm_recompute")


class CellRecompute:
    """The framework's recompute settings, cell by cell; results that are the same for all ranks are cached."""

    def __init__(self, inputs: MindSpeedInputs, placer: LayerPlacer) -> None:
        self._inputs, self._placer = inputs, placer
        self._kinds: dict[str, list[int]] | FrameworkStop | None = None

    def plan_cell(self, chunk: int, stage: int, count: int, first: int, log: list[str]) -> CellPlan:
        """Return the recomputation of a cell's layers (``ParallelTransformer.__init__``)."""
        inputs = self._inputs
        full, select, comm = (
            (0, 0, 0) if inputs.recompute_config is None else self._count_listed_layers(chunk, stage, count, log)
        )
        if inputs.recompute_config is None and inputs.granularity == "full" and inputs.method and inputs.full_layers:
            # With "uniform" the number is the size of groups, each recomputed as one: all layers are included.
            full = count if inputs.method == "uniform" else min(count, inputs.full_layers)
        full = min(full, count)
        rest = count - full
        # The layers are copied from templates that are created before the lists reset the granularity.
        every = inputs.select or inputs.granularity == "selective"
        cell = CellPlan(
            count=count,
            first=first,
            full=full,
            select=rest if every else min(select, rest),
            comm=rest if inputs.comm else min(comm, rest),
        )
        self._check_activation(cell)
        return cell

    def _check_activation(self, cell: CellPlan) -> None:
        """Check that the feed-forward block has an activation, which a mixture of experts lacks."""
        inputs = self._inputs
        everywhere = inputs.select and cell.count
        if inputs.flash_attention and inputs.experts > 1 and (cell.select or everywhere):
            stop("AttributeError", "The 'MoELayer' object has no attribute 'act_func'.")

    def _count_listed_layers(self, chunk: int, stage: int, count: int, log: list[str]) -> tuple[int, int, int]:
        """Return how many layers of a cell the lists recompute (``_get_recompute_nums``); log and check as it does."""
        inputs = self._inputs
        if self._kinds is None:
            try:
                self._kinds = {kind: self._checked(kind) for kind in KINDS if (inputs.recompute_config or {}).get(kind)}
            except FrameworkStop as error:
                self._kinds = error
        if isinstance(self._kinds, FrameworkStop):
            stop(self._kinds.exception, self._kinds.text)
        # With a separate embedding stage, the first stage has index -1 and uses the last stage's value.
        column = 0 if inputs.stages == 1 else stage - 1 if inputs.standalone else stage
        place = chunk * self._placer.columns + column % self._placer.columns
        full, select, comm = (self._kinds[kind][place] if kind in self._kinds else 0 for kind in KINDS)
        for name, extra in ((KINDS[2], comm), (KINDS[1], select)):
            if extra + full > count:
                stop(
                    "ValueError",
                    f"Recompute layers must less or equal num layers, but got {name}_layers {extra} + "
                    f"full_recompute_layers {full} > num_layers {count}.",
                )
        where = f"in pp_rank:{column}" if inputs.chunks is None else f"in vpp_rank:{chunk}, pp_rank:{column}"
        log.append(
            f"{where}, full_recompute_layers is {full}, select_recompute_layers is {select}, "
            f"select_comm_recompute_layers is {comm}"
        )
        return full, select, comm

    def _checked(self, kind: str) -> list[int]:
        shape, counts = read_counts((self._inputs.recompute_config or {})[kind])
        if min(counts, default=0) < 0:
            stop("ValueError", "recompute_num_array has element < 0")
        if shape != self._placer.layout:
            stop("ValueError", f"The shape of recompute_num_list {shape} must equal to pp_layout {self._placer.layout}")
        return counts
