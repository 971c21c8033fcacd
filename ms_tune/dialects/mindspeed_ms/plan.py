"""Where MindSpeed-Core-MS r0.1.0 (dynamic graph) puts each layer, and what the layer recomputes.

The rules are those of ``mindspeed_ms/legacy/model/transformer.py`` of branch r0.1.0: ``_get_num_layers``,
``_get_custom_num_layers``, ``ParallelTransformer.__init__``, ``_get_recompute_nums``, ``_set_checkpointed_recompute``
and ``ParallelTransformerLayer._set_selective_recompute``; and of ``initialize_model_parallel`` in
``mindspeed_ms/core/parallel_state.py``.

Every rank works out its own cells only, so a value can stop one rank while the others wait for it. Here every cell is
worked out.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from ms_tune.dialects.layer_plan import (
    MINDSPEED_MS,
    FrameworkStop,
    LayerPlan,
    LayerSpec,
    failure_of,
    failure_problem,
    stop,
)
from ms_tune.dialects.mindspeed_ms.ignored import find_traps
from ms_tune.dialects.mindspeed_ms.placement import CellPlan, CountArray, Number, add, as_count, count_array, subtract
from ms_tune.enums import RecomputeMode
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ms_tune.dialects.mindspeed_ms.placement import MindSpeedInputs
    from ms_tune.text import Message

VERSION = "r0.1.0"
FRAMEWORK = "MindSpeed-Core-MS"
KINDS = ("recompute", "select_recompute", "select_comm_recompute")
COMM_OPERATOR = "ColumnParallelLinear.all_gather"
_SHOWN = 4  # cells in one message


def normalize_mindspeed_ms(inputs: MindSpeedInputs) -> LayerPlan:
    """What each layer will recompute, exactly as the framework decides it.

    Never raises for what a config may say: what the framework refuses is the plan's ``failure``.
    """
    model = _Model(inputs)
    failures: list[tuple[str, tuple[int, int], FrameworkStop]] = []
    counts: dict[tuple[int, int], Number] = {}
    plans: dict[tuple[int, int], CellPlan] = {}
    log: list[str] = []
    for chunk, stage in model.cells():
        step = "placement"
        try:
            model.check_parallel()
            count, first = model.place(chunk, stage, log)
            counts[chunk, stage] = count
            step = "value"
            plans[chunk, stage] = model.plan(chunk, stage, count, first, log)
        except FrameworkStop as error:
            failures.append((step, (chunk, stage), error))
    placement = None
    if len(counts) == len(model.cells()):
        placement = tuple(
            tuple(int(counts[chunk, stage]) for stage in range(inputs.stages)) for chunk in range(inputs.rows)
        )
    if failures:
        step, _, first_stop = failures[0]
        problem = failure_problem(step, FRAMEWORK, first_stop, _remark(inputs, failures, len(model.cells())))
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


class _Model:
    """The framework while it builds the model. What does not depend on the rank is worked out once."""

    def __init__(self, inputs: MindSpeedInputs) -> None:
        self._inputs = inputs
        self._columns = inputs.stages - 1 if inputs.standalone and inputs.stages > 1 else inputs.stages
        self._layout = (
            (1,)
            if inputs.stages == 1
            else (self._columns,)
            if inputs.chunks is None
            else (inputs.chunks, self._columns)
        )
        self._placed: tuple[list[Number], list[Number]] | FrameworkStop | None = None
        self._shown = ""
        self._kinds: dict[str, CountArray] | FrameworkStop | None = None
        # Asked first: a slip of the keyboard in the number of stages must not fill the memory with cells.
        self._cells = (
            [(0, 0)]
            if self._too_few()
            else [(chunk, stage) for chunk in range(inputs.rows) for stage in range(inputs.stages)]
        )

    def cells(self) -> Sequence[tuple[int, int]]:
        """Every (chunk, stage), in the order in which the chunks are built; one will do if all come to the same."""
        return self._cells

    def _too_few(self) -> bool:
        inputs = self._inputs
        return inputs.layers < inputs.stages * inputs.rows

    def check_parallel(self) -> None:
        """``initialize_model_parallel`` (``core/parallel_state.py``)."""
        if self._inputs.chunks is not None and self._inputs.stages == 1:
            stop(
                "RuntimeError",
                "pipeline-model-parallel size should be greater than 1 with interleaved schedule",
            )

    def place(self, chunk: int, stage: int, log: list[str]) -> tuple[Number, int]:
        """How many layers a cell has, and the first of them (``_get_num_layers``)."""
        inputs = self._inputs
        if self._too_few():
            stop(
                "RuntimeError",
                f"The number of model layers is {inputs.layers}, but using pipeline parallel requires at least "
                f"'pp({inputs.stages}) * vpp({inputs.rows}) = {inputs.stages * inputs.rows}' layers for splitting",
            )
        if inputs.other_layers:
            stop(
                "NotImplementedError",
                "`encoder_num_layers` and `decoder_num_layers` are not supported for now.",
            )
        if inputs.stages == 1:
            return inputs.layers, 0
        if inputs.standalone and stage == 0:
            return 0, 0
        column = stage - 1 if inputs.standalone else stage
        if self._placed is None:
            try:
                self._placed = self._place_all()
            except FrameworkStop as error:
                self._placed = error
        if isinstance(self._placed, FrameworkStop):
            stop(self._placed.exception, self._placed.text)
        counts, firsts = self._placed
        place = chunk * self._columns + column
        if self._shown:
            where = f"pp_rank:{column}" if inputs.chunks is None else f"vpp_rank:{chunk}, pp_rank:{column}"
            log.append(f"Custom num layer list is {self._shown}. Num_layers in {where} is {counts[place]}.")
        return counts[place], int(firsts[place])

    def _place_all(self) -> tuple[list[Number], list[Number]]:
        """Layers of all cells, chunk by chunk, and the first layer of each."""
        inputs = self._inputs
        if inputs.num_layer_list:
            array = self._custom(inputs.num_layer_list)
            counts: list[Number] = list(array.items)
            self._shown = array.text()
        else:
            counts = []
            for share in divide(inputs.layers, inputs.rows):
                counts += divide(share, self._columns)
        return counts, [0, *accumulate(counts)][:-1]

    def _custom(self, value: Sequence[object]) -> CountArray:
        layers = self._inputs.layers
        array = count_array(value)
        total = array.total()
        if total != layers:
            stop(
                "ValueError",
                f"The number of model layers is {layers}, but the sum of num_layer_list  {value} is {total}.",
            )
        if not array.all_at_least(0, strictly=True):
            stop("ValueError", f"All elements of num_layer_list should be larger than 0, but got {array.text()}.")
        if array.shape != self._layout:
            stop(
                "ValueError",
                f"The shape of num_layer_list {array.shape} must equal to pp_layout {self._layout}",
            )
        return array

    def plan(self, chunk: int, stage: int, count: Number, first: int, log: list[str]) -> CellPlan:
        """What the layers of a cell recompute (``ParallelTransformer.__init__``)."""
        inputs = self._inputs
        full, select, comm = (0, 0, 0) if inputs.recompute_config is None else self._listed(chunk, stage, count, log)
        layers = as_count(count)
        if inputs.recompute_config is None and inputs.granularity == "full" and inputs.method and inputs.full_layers:
            # Groups of so many layers with "uniform", each recomputed as one: no layer is left out.
            full = layers if inputs.method == "uniform" else min(layers, inputs.full_layers)
        full = min(full, layers)
        behind = layers - full
        # The copies that the layers are built from are made before the lists reset the granularity.
        every = inputs.select or inputs.granularity == "selective"
        cell = CellPlan(
            count=layers,
            first=first,
            full=full,
            select=behind if every else min(select, behind),
            comm=behind if inputs.comm else min(comm, behind),
        )
        self._check_activation(cell)
        return cell

    def _check_activation(self, cell: CellPlan) -> None:
        """The layer looks for the activation of its feed-forward block, which a mixture of experts does not have."""
        inputs = self._inputs
        everywhere = inputs.select and cell.count
        if inputs.flash_attention and inputs.experts > 1 and (cell.select or everywhere):
            stop("AttributeError", "The 'MoELayer' object has no attribute 'act_func'.")

    def _listed(self, chunk: int, stage: int, count: Number, log: list[str]) -> tuple[int, int, int]:
        """The counts that the lists have for a cell (``_get_recompute_nums``), and what is done with them."""
        inputs = self._inputs
        if self._kinds is None:
            try:
                self._kinds = {kind: self._checked(kind) for kind in KINDS if (inputs.recompute_config or {}).get(kind)}
            except FrameworkStop as error:
                self._kinds = error
        if isinstance(self._kinds, FrameworkStop):
            stop(self._kinds.exception, self._kinds.text)
        # With an embedding stage of its own, the first stage counts as -1 and takes the last stage's value.
        column = 0 if inputs.stages == 1 else stage - 1 if inputs.standalone else stage
        place = chunk * self._columns + column % self._columns
        full, select, comm = (self._kinds[kind].items[place] if kind in self._kinds else 0 for kind in KINDS)
        for name, extra in ((KINDS[2], comm), (KINDS[1], select)):
            if add(extra, full) > count:
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
        self._check_ranges(count, full, select, comm)
        return int(full), int(select), int(comm)

    def _checked(self, kind: str) -> CountArray:
        array = count_array((self._inputs.recompute_config or {})[kind])
        if not array.all_at_least(0):
            stop("ValueError", "recompute_num_array has element < 0")
        if array.shape != self._layout:
            stop(
                "ValueError",
                f"The shape of recompute_num_list {array.shape} must equal to pp_layout {self._layout}",
            )
        return array

    def _check_ranges(self, count: Number, full: Number, select: Number, comm: Number) -> None:
        """What is counted off layer by layer; numbers that are no whole ones get this far."""
        if full != 0 and full < 1:
            kind = "float64" if isinstance(full, float) else "int64"
            stop(
                "ValueError",
                f"The 'recompute_num_layers' must be in range of [1, {self._inputs.layers}], but got {full} with "
                f"type '{kind}'.",
            )
        both = min(select, comm)
        more = subtract(comm, select)
        for number in (full, both, more, subtract(subtract(subtract(count, both), more), full)):
            as_count(number)


def divide(layers: int, parts: int) -> list[int]:
    """Layers of each part when no list says so: the rest goes to the last part but one, and on from there backwards."""
    share, rest = divmod(layers, parts)
    return [share + (parts - 1 - rest <= part < parts - 1) for part in range(parts)]


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
