"""Inputs of the plan in MindSpeed-Core-MS r0.1.0, and the placement of layers.

Sources: ``_get_num_layers`` and ``_get_custom_num_layers`` of ``mindspeed_ms/legacy/model/transformer.py``,
``initialize_model_parallel`` of ``mindspeed_ms/core/parallel_state.py``, branch r0.1.0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from ms_tune.dialects import FrameworkStop, stop
from ms_tune.dialects.values import array_text, read_array


@dataclass(frozen=True, slots=True)
class MindSpeedInputs:
    """The inputs of placement and recompute after the config has been loaded."""

    layers: int  # layers of the model
    tensor: int = 1  # tensor-parallel size
    stages: int = 1  # pipeline stages
    chunks: int | None = None  # virtual-pipeline chunks; the training entry passes None and 1 as "none"
    standalone: bool = False  # `standalone_embedding_stage`: the first stage has the embedding and no layers
    other_layers: bool = False  # whether encoder or decoder layers are counted separately
    num_layer_list: Sequence[object] | None = None  # layers of each cell as given, or None
    # Lists of counts by kind, or None without that setting.
    recompute_config: Mapping[str, object] | None = None
    granularity: str | None = None  # `model_config.recompute_granularity`
    method: str | None = None  # `model_config.recompute_method`
    full_layers: int | None = None  # number of layers for the method
    select: bool = False  # `model_config.select_recompute`: every layer
    comm: bool = False  # `model_config.select_comm_recompute`: every layer
    flash_attention: bool = False  # `model_config.use_flash_attention`
    activation: str = "gelu"  # `model_config.hidden_act`
    experts: int = 1  # `moe_config.num_experts`
    sequence_parallel: bool = False  # `parallel_config.sequence_parallel`

    @property
    def rows(self) -> int:
        """Return the number of chunks, at least one."""
        return self.chunks or 1

    @property
    def select_operator(self) -> str:
        """Return the operator that selective recompute recomputes in a layer."""
        return "mlp.act_func" if self.flash_attention else "attention.core_attention"


@dataclass(frozen=True, slots=True)
class CellPlan:
    """The number of layers in one cell, its first layer, and the numbers of recomputed layers.

    The first ``full`` layers are fully recomputed. ``select`` and ``comm`` count the layers after those, both from the
    same position.
    """

    count: int
    first: int
    full: int
    select: int
    comm: int


def read_counts(value: object) -> tuple[tuple[int, ...], list[int]]:
    """Return the shape and the elements, row by row, of nested lists of counts.

    The framework makes a NumPy array of them. Anything but whole numbers stops it sooner or later: here as soon as it is
    read, with the error for fractions.
    """
    shape, items = read_array(value)
    if odd := [item for item in items if not isinstance(item, int)]:
        kind = "numpy.float64" if isinstance(odd[0], float) else type(odd[0]).__name__
        stop("TypeError", f"'{kind}' object cannot be interpreted as an integer")
    return shape, [int(item) for item in items if isinstance(item, int)]


class LayerPlacer:
    """The framework's distribution of layers; results that are the same for all ranks are cached."""

    def __init__(self, inputs: MindSpeedInputs) -> None:
        self._inputs = inputs
        # With a separate embedding stage, the first stage has no layers.
        self.columns = inputs.stages - 1 if inputs.standalone and inputs.stages > 1 else inputs.stages
        self.layout = (
            (1,) if inputs.stages == 1 else (self.columns,) if inputs.chunks is None else (inputs.chunks, self.columns)
        )
        self._placed: tuple[list[int], list[int]] | FrameworkStop | None = None
        self._shown = ""
        # Checked first: a typing error in the number of stages must not create too many cells.
        self._cells = (
            [(0, 0)]
            if self._too_few()
            else [(chunk, stage) for chunk in range(inputs.rows) for stage in range(inputs.stages)]
        )

    def cells(self) -> Sequence[tuple[int, int]]:
        """Return every (chunk, stage) in the order of building; one is enough if all have the same result."""
        return self._cells

    def _too_few(self) -> bool:
        inputs = self._inputs
        return inputs.layers < inputs.stages * inputs.rows

    def check_parallel(self) -> None:
        """Apply the check of ``initialize_model_parallel`` (``core/parallel_state.py``)."""
        if self._inputs.chunks is not None and self._inputs.stages == 1:
            stop("RuntimeError", "pipeline-model-parallel size should be greater than 1 with interleaved schedule")

    def place_cell(self, chunk: int, stage: int, log: list[str]) -> tuple[int, int]:
        """Return the number of layers of a cell and its first layer (``_get_num_layers``)."""
        inputs = self._inputs
        if self._too_few():
            stop(
                "RuntimeError",
                f"The number of model layers is {inputs.layers}, but using pipeline parallel requires at least "
                f"'pp({inputs.stages}) * vpp({inputs.rows}) = {inputs.stages * inputs.rows}' layers for splitting",
            )
        if inputs.other_layers:
            stop("NotImplementedError", "`encoder_num_layers` and `decoder_num_layers` are not supported for now.")
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
        place = chunk * self.columns + column
        if self._shown:
            where = f"pp_rank:{column}" if inputs.chunks is None else f"vpp_rank:{chunk}, pp_rank:{column}"
            log.append(f"Custom num layer list is {self._shown}. Num_layers in {where} is {counts[place]}.")
        return counts[place], firsts[place]

    def _place_all(self) -> tuple[list[int], list[int]]:
        inputs = self._inputs
        if inputs.num_layer_list:
            counts = self._custom(inputs.num_layer_list)
        else:
            counts = []
            for share in divide(inputs.layers, inputs.rows):
                counts += divide(share, self.columns)
        return counts, [0, *accumulate(counts)][:-1]

    def _custom(self, value: Sequence[object]) -> list[int]:
        layers = self._inputs.layers
        shape, counts = read_counts(value)
        if sum(counts) != layers:
            stop(
                "ValueError",
                f"The number of model layers is {layers}, but the sum of num_layer_list  {value} is {sum(counts)}.",
            )
        self._shown = array_text(shape, counts)
        if min(counts) <= 0:
            stop("ValueError", f"All elements of num_layer_list should be larger than 0, but got {self._shown}.")
        if shape != self.layout:
            stop("ValueError", f"The shape of num_layer_list {shape} must equal to pp_layout {self.layout}")
        return counts


def divide(layers: int, parts: int) -> list[int]:
    """Divide layers evenly; each of the parts just before the last gets one layer of the remainder."""
    share, rest = divmod(layers, parts)
    return [share + (parts - 1 - rest <= part < parts - 1) for part in range(parts)]
