"""What the memory at the peak holds: weights, gradients, optimizer state, activations, workspace, other.

MindSpore's tracker names parameters only where a graph uses them; in the dynamic graph a block has the operator that
first used it and the Python stack. So a block's category comes from, in this order: the list of tensors that the
dryrun's child process wrote; the tracker's ``type`` and the parameter's name; and the phase of the training step that
allocated it (:mod:`ms_tune.memory.phases`). Seen in MindSpore 2.10 and not mended here: outputs of a few eager operators
(Add, Mul, SiLU) carry the operator and stack of the task before.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from ms_tune.memory.phases import CALLS, EAGER, Origin, Phase, Phases, is_useful, origin

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ms_tune.memory.timeline import Peak
    from ms_tune.trace.memory_block import Block, BlockTrace, Frame
    from ms_tune.trace.tensor_list import TensorList

LARGEST = 5  # how many holders are told


class Category(str, Enum):
    """What a block holds. The order is that of every table, the values are the names in JSON."""

    WEIGHTS = "weights"
    GRADIENTS = "gradients"
    OPTIMIZER_STATE = "optimizer_state"
    ACTIVATIONS = "activations"
    WORKSPACE = "workspace"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Holder:
    """Blocks of one category that one operator at one place allocated.

    Attributes:
        bytes: The sum of their sizes.
        count: How many they are.
        operator: The operator, such as ``MatMulExt``; ``Parameter`` for a parameter of a graph; empty if unknown.
        category: What they hold.
        where: ``file:line`` of the script; in graph mode the scope path or the parameter's name, with ``*`` for the
            number of the layer; empty if unknown.
        name: The parameter's name, with ``*`` for the number of the layer, if all of them share it.
    """

    bytes: int
    count: int
    operator: str
    category: Category
    where: str
    name: str | None


@dataclass(frozen=True, slots=True)
class Attribution:
    """What the peak is made of.

    Attributes:
        categories: Bytes of every category, in the order of :class:`Category`; they add up to the peak.
        largest: The :data:`LARGEST` largest holders, the largest first.
        stacks_useful: False if most blocks of the dynamic graph have no stack of the script, so that activations and
            unlisted gradients cannot be told and are in ``other``. The run lacked ``MS_DEV_LAUNCH_BLOCKING=1``.
        tensors_missing: How many listed tensors no block of the trace holds. Where it is more than half of them, the
            list is of another run and was not used.
    """

    categories: Mapping[Category, int]
    largest: tuple[Holder, ...]
    stacks_useful: bool
    tensors_missing: int


def attribute(peak: Peak, trace: BlockTrace, tensors: TensorList | None) -> Attribution:
    """Tell what the blocks that are alive at the peak hold.

    Args:
        peak: The peak of the trace.
        trace: The whole trace: what follows a block tells what it was for.
        tensors: The tensors that the script held after the last step, if known.
    """
    sorter = _Sorter(trace.blocks, tensors)
    categories = dict.fromkeys(Category, 0)
    holders: dict[tuple[Category, str, str], list[Block]] = {}
    for block in peak.live:
        category = sorter.category(block)
        categories[category] += block.size
        holders.setdefault((category, _operator(block), _where(block)), []).append(block)
    found = [
        Holder(sum(block.size for block in blocks), len(blocks), operator, category, where, sorter.common_name(blocks))
        for (category, operator, where), blocks in holders.items()
    ]
    found.sort(key=lambda holder: (-holder.bytes, holder.category, holder.operator, holder.where))
    return Attribution(categories, tuple(found[:LARGEST]), _stacks_useful(trace.blocks), sorter.tensors_missing)


# First components of the names that MindSpore's and MindFormers' optimizers give their state (`clone(prefix=...)`).
_STATE = frozenset(
    {
        *("adam_m", "adam_v", "moment1", "moment2", "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "exp_inf", "vhat"),
        *("muon_m", "lamb_m", "lamb_v", "moments", "momentum_buffer", "mean_grad", "mean_square", "state_step"),
        *("beta1_power", "beta2_power"),
    }
)
_STATE_IF_CLONE = frozenset({"moment", "accum", "accum_update", "stat", "linear", "prev", "step_size", "ax_"})
_GRADIENTS = frozenset({"accu_grads", "grad_accumulation"})
_STATE_OPERATOR = re.compile(r"Adam|Lamb|Momentum|RMSProp|Adagrad|Adadelta|Muon")
# The types of hyper-parallel's emulator of the tracker.
_EMULATED = {
    "Parameter": Category.WEIGHTS,
    "Gradient": Category.GRADIENTS,
    "Optstate": Category.OPTIMIZER_STATE,
    "Activation": Category.ACTIVATIONS,
}
_OUTPUTS = frozenset({"PyNativeOutput", "Kernel", "SomasOutput"})


class _Sorter:
    """Tells the category of any block of a trace."""

    def __init__(self, blocks: Sequence[Block], tensors: TensorList | None) -> None:
        self._listed, self.tensors_missing = _listed(blocks, tensors) if tensors else ({}, 0)
        self._weight_names = {
            block.node_name for block in blocks if block.kind == "Weight" and block.task_name != EAGER
        }
        named_state = [block for block in blocks if self._by_name(block) is Category.OPTIMIZER_STATE]
        self._phases = Phases(blocks, named_state)
        state = [block for block in blocks if self._known(block) is Category.OPTIMIZER_STATE]
        self._updates = self._update_ticks(blocks, state)
        self._backward = sorted(block.start for block in blocks if self._phases.of(block) is Phase.BACKWARD)

    def category(self, block: Block) -> Category:
        """What the block holds."""
        known = self._known(block)
        if known is not None:
            return known
        if block.kind == "WorkSpace" or (not block.kind and block.end == block.start + 1):
            return Category.WORKSPACE  # aclnn kernels' scratch is unbound and lives for one tick
        if block.kind not in _OUTPUTS:
            return Category.OTHER
        phase = self._phases.of(block)
        if phase is None and block.task_name != EAGER:
            phase = self._phases.around(block)
        elif phase is None and is_useful(block.stack) and self._phases.around(block) is Phase.BACKWARD:
            phase = Phase.STEP  # eager code between backward pass and update, such as clipping
        if phase is Phase.FORWARD and not self._after_backward(block):
            return Category.ACTIVATIONS
        if phase in (Phase.BACKWARD, Phase.STEP) and self._lives_to_update(block):
            return Category.GRADIENTS
        return Category.OTHER

    def common_name(self, blocks: Iterable[Block]) -> str | None:
        """The name of the parameters in the blocks, if it is one but for the layer's number."""
        names = {self._name(block) for block in blocks}
        return names.pop() if len(names) == 1 else None

    def _name(self, block: Block) -> str | None:
        if id(block) in self._listed:
            return _without_layer(self._listed[id(block)][1])
        return _without_layer(block.node_name) if _is_named(block) else None

    def _known(self, block: Block) -> Category | None:
        """The category that needs no look at the phase: of what outlives a step, mostly."""
        if id(block) in self._listed:
            return self._listed[id(block)][0]
        if block.kind in _EMULATED:
            return _EMULATED[block.kind]
        if block.kind == "Weight":
            return self._by_name(block) or self._by_use(block)
        created = block.kind == "PyNativeOutput" and any(frame.function == "__init__" for frame in block.stack)
        return Category.OPTIMIZER_STATE if created and self._phases.of(block) is Phase.UPDATE else None

    def _by_name(self, block: Block) -> Category | None:
        """The category of a parameter that a graph names."""
        listed = self._listed.get(id(block))
        if listed is not None or not _is_named(block):
            return listed[0] if listed else None
        prefix, _, rest = block.node_name.partition(".")
        if prefix in _GRADIENTS:
            return Category.GRADIENTS
        if prefix in _STATE or (prefix in _STATE_IF_CLONE and rest in self._weight_names):
            return Category.OPTIMIZER_STATE
        return Category.WEIGHTS

    def _by_use(self, block: Block) -> Category:
        """The category of a parameter of the dynamic graph: the optimizer is the first to use its state."""
        useful = is_useful(block.stack)
        update = self._phases.of(block) is Phase.UPDATE if useful else bool(_STATE_OPERATOR.search(block.node_name))
        return Category.OPTIMIZER_STATE if update else Category.WEIGHTS

    def _update_ticks(self, blocks: Iterable[Block], state: Iterable[Block]) -> list[int]:
        """Ticks at which weights are updated: whenever a task touches optimizer state or the optimizer allocates."""
        ticks = {block.start for block in blocks if self._phases.of(block) is Phase.UPDATE and block.start >= 0}
        for block in state:
            ticks.update(block.users)
            if block.last_user_task is not None:
                ticks.add(block.last_user_task)
        return sorted(ticks)

    def _after_backward(self, block: Block) -> bool:
        """Whether a graph allocated the block after the backward pass, although its scope is of the forward pass.

        MindSpore's common-subexpression elimination gives operators of the update the scope of a model's layer.
        """
        position = bisect_right(self._updates, block.start)
        if block.task_name == EAGER or position == len(self._updates):
            return False
        backward = bisect_right(self._backward, block.start)
        return backward == len(self._backward) or self._backward[backward] >= self._updates[position]

    def _lives_to_update(self, block: Block) -> bool:
        """Whether the block is alive when weights are next updated."""
        position = bisect_right(self._updates, block.start)
        return position < len(self._updates) and (block.end is None or self._updates[position] < block.end)


def _is_named(block: Block) -> bool:
    """Whether the block's node name is the name of a parameter."""
    return block.kind == "Weight" and block.task_name != EAGER


def _listed(blocks: Iterable[Block], tensors: TensorList) -> tuple[dict[int, tuple[Category, str]], int]:
    """Category and name of the blocks that hold listed tensors, and how many tensors no block holds.

    The list was written after the last step, so of all blocks that ever held an address the last one is meant.
    """
    groups = (
        (Category.WEIGHTS, tensors.weights),
        (Category.OPTIMIZER_STATE, tensors.optimizer_state),
        (Category.GRADIENTS, tensors.gradients),
    )
    wanted = [(tensor, category) for category, group in groups for tensor in group]
    wanted.sort(key=lambda entry: entry[0].address)
    addresses = [tensor.address for tensor, _ in wanted]
    last: list[Block | None] = [None] * len(wanted)
    for block in sorted(blocks, key=lambda block: block.start):
        if block.start >= 0 and block.address:
            for position in range(
                bisect_left(addresses, block.address), bisect_left(addresses, block.address + block.size)
            ):
                last[position] = block
    found: dict[int, tuple[Category, str]] = {}
    missing = 0
    order = [category for category, _ in groups]  # tensors may share a block (tied weights, flat buffers)
    for (tensor, category), held in zip(wanted, last, strict=True):
        if held is None or tensor.address + tensor.bytes > held.address + held.size:
            missing += 1
        elif id(held) not in found or order.index(category) < order.index(found[id(held)][0]):
            found[id(held)] = (category, tensor.name)
    # Weights that no step used are not on the device, but most are.
    return (found, missing) if 2 * missing <= len(wanted) else ({}, missing)


_LAYER = re.compile(r"(?<=/)\d+(?=-)|(?<=\.)\d+(?=\.)")
_NUMBER = re.compile(r"-(?:op)?\d+$")


def _without_layer(path: str) -> str:
    """A scope path or parameter name with ``*`` for the number of the layer."""
    return _LAYER.sub("*", path)


def _operator(block: Block) -> str:
    if _is_named(block):
        return "Parameter"
    return _NUMBER.sub("", block.node_name.rpartition("/")[2])


def _where(block: Block) -> str:
    if _is_named(block):
        return _without_layer(block.node_name)
    scope = block.node_name.rpartition("/")[0]
    if scope and block.task_name != EAGER:
        return _without_layer(scope)
    frame = _telling_frame(block.stack)
    return f"{frame.file}:{frame.line}" if frame else ""


def _telling_frame(stack: Sequence[Frame]) -> Frame | None:
    """The innermost frame of the user's code; of a model library's, if the user's code only starts the forward pass.

    Where there is neither, it is MindSpore's innermost.
    """
    called = next((i for i, frame in enumerate(stack) if frame.function in CALLS), 0)
    for frames in (stack[called:], stack):
        for whose in (Origin.USER, Origin.LIBRARY):
            for frame in reversed(frames):
                if origin(frame) is whose:
                    return frame
    return next((frame for frame in reversed(stack) if origin(frame) is Origin.FRAMEWORK), None)


def _stacks_useful(blocks: Iterable[Block]) -> bool:
    eager = [is_useful(block.stack) for block in blocks if block.task_name == EAGER]
    return not eager or 2 * sum(eager) > len(eager)
