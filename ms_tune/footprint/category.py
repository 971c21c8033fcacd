"""Determine the category of every block of a trace.

MindSpore's tracker names parameters only where a graph uses them; in the dynamic graph a block has the operator that
first used it and the Python stack. So the category is determined by, in this order: the list of tensors that the dryrun's
child process wrote; the tracker's ``type`` and the parameter's name; and the phase of the training step that allocated it
(:mod:`ms_tune.footprint.phases`). A known error of MindSpore 2.10 is not corrected: outputs of a few eager operators
(Add, Mul, SiLU) have the operator and stack of the task before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ms_tune.enums import MemoryCategory
from ms_tune.footprint.phases import EAGER, Phase, Phases, is_useful, phase_code
from ms_tune.readers.memory_block import NEVER_FREED, Frame, parse_users
from ms_tune.readers.table import NONE, Table
from ms_tune.readers.tensors import TensorList

CONTENTS = tuple(MemoryCategory)
_UNKNOWN = -1  # no rule applied yet
# Functions of Megatron-LM core_v0.12.1 for memory that outlives a step: `get_model` of `megatron/training/training.py`,
# buffers of `megatron/core/distributed/param_and_grad_buffer.py`, `megatron/core/optimizer`; and the input that a stage
# receives. MindSpeed v2.2.0_core_r0.12.1 has optimizers there, too.
_TRAINING = re.compile(r"(?:^|/)megatron/training/training\.py$")
_BUFFER = re.compile(r"(?:^|/)core/distributed/param_and_grad_buffer\.py$")
_OPTIMIZER = re.compile(r"(?:^|/)core/optimizer/\w+\.py$")
_EXCHANGE = re.compile(r"(?:^|/)pipeline_parallel/p2p_communication\.py$")
_MODEL = "get_model"
_RECEIVER = "create_tensor_recv_prev"
# The second is from MindSpeed v2.3.0 with --param-and-grad-buffer-pad, the third from MindSpeed-LLM v26.1.0.
_BUFFER_MAKERS = frozenset({"__init__", "param_and_grad_buffer_init_pad", "param_and_grad_buffer_init"})
_OPTIMIZER_MAKERS = frozenset({"get_megatron_optimizer", "step", "step_with_ready_grads"})
# First parts of the names of optimizer state in MindSpore and MindFormers (`clone(prefix=...)`).
_STATE = frozenset(
    {
        *("adam_m", "adam_v", "moment1", "moment2", "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "exp_inf", "vhat"),
        *("muon_m", "lamb_m", "lamb_v", "moments", "momentum_buffer", "mean_grad", "mean_square", "state_step"),
        *("beta1_power", "beta2_power"),
    }
)
_STATE_IF_CLONE = frozenset({"moment", "accum", "accum_update", "stat", "linear", "prev", "step_size", "ax_"})
_UNLIKELY_LAYER = _STATE_IF_CLONE - {"linear"}
_GRADIENTS = frozenset({"accu_grads", "grad_accumulation"})
STATE_PREFIXES = _STATE | _UNLIKELY_LAYER | _GRADIENTS
_STATE_OPERATOR = re.compile(
    r"Adam|Lamb|Momentum|RMSProp|Adagrad|Adadelta|Adafactor|Muon|^SGD$|^(?:Fused(?:Sparse)?|Sparse)?Apply[A-Z]"
)
# The types of hyper-parallel's emulator of the tracker.
_EMULATED = {
    "Parameter": MemoryCategory.WEIGHTS,
    "Gradient": MemoryCategory.GRADIENTS,
    "Optstate": MemoryCategory.OPTIMIZER_STATE,
    "Activation": MemoryCategory.ACTIVATIONS,
    "Temp": MemoryCategory.TEMPORARIES,
    "Buffer": MemoryCategory.CONSTANTS,
}
_OUTPUTS = frozenset({"PyNativeOutput", "Kernel", "SomasOutput"})
_TEMPORARY = frozenset({"GraphOutput", "BatchMemory", "PyNativeOutput", "Kernel", "SomasOutput"})
_CONSTANTS = frozenset({"ConstantValue", "GeConst", "PyNativeInput"})
_COMMUNICATION = re.compile(
    r"^(?:DistComm|InnerComm)?(?:All(?:Reduce|Gather|ToAll)|ReduceScatter|Send|Receive|Broadcast|Barrier|Gather|Scatter"
    r"|Reduce|Irecv|Isend|BatchISendIRecv|NeighborExchange|(?:_Mirror|_VirtualDiv)\w*)"
    r"(?:V|All|IntoTensor|Tensor|Base|SingleV?|Single|V2|Operator)?$"
)
_NOT_COLLECTIVE = frozenset({"Gather", "Scatter", "Reduce"})  # without the prefix they are ordinary operators
_NUMBER = re.compile(r"-(?:op)?\d+$")


def category_code(content: MemoryCategory) -> int:
    """Return the index of a category in :data:`CONTENTS`, as arrays store it."""
    return CONTENTS.index(content)


def parse_operator(node_name: str) -> str:
    """Return the operator in a node name: ``MatMul`` in ``Default/net-Net/MatMul-op0``."""
    return _NUMBER.sub("", node_name.rpartition("/")[2])


def is_collective(node_name: str) -> bool:
    """Return whether the operator is a communication operator."""
    operator = parse_operator(node_name)
    return operator not in _NOT_COLLECTIVE and _COMMUNICATION.match(operator) is not None


def find_lasting_categories(stacks: Sequence[Sequence[Frame]]) -> list[MemoryCategory | None]:
    """Return the category of a block of each stack if it is never freed; None if Megatron's code does not show it.

    A buffer of parameters and gradients is one object with one or two tensors: the gradients and, allocated before them
    with the distributed optimizer, the parameters, which contain the weights.
    """
    lines = [_line_of_buffer(stack) for stack in stacks]
    made = sorted({line for line in lines if line is not None})
    of_buffer: dict[int | None, MemoryCategory] = dict.fromkeys(made, MemoryCategory.GRADIENTS)
    if len(made) > 1:
        of_buffer[made[0]] = MemoryCategory.WEIGHTS
    return [of_buffer.get(line) or _lasting_category(stack) for stack, line in zip(stacks, lines, strict=True)]


def is_received_input(stack: Iterable[Frame]) -> bool:
    """Return whether a block is the input that a stage receives from the one before and keeps for its backward pass.

    The last stage receives the input of the next micro-batch in its backward pass (``send_backward_recv_forward``), in
    which other blocks that live until the update are gradients.
    """
    return any(frame.function == _RECEIVER and _EXCHANGE.search(frame.file.replace("\\", "/")) for frame in stack)


def _lasting_category(stack: Iterable[Frame]) -> MemoryCategory | None:
    found = None
    for frame in stack:
        path = frame.file.replace("\\", "/")
        if frame.function in _OPTIMIZER_MAKERS and _OPTIMIZER.search(path):
            return MemoryCategory.OPTIMIZER_STATE
        if frame.function == _MODEL and _TRAINING.search(path):
            found = MemoryCategory.WEIGHTS
    return found


def _line_of_buffer(stack: Iterable[Frame]) -> int | None:
    for frame in stack:
        if frame.function in _BUFFER_MAKERS and _BUFFER.search(frame.file.replace("\\", "/")):
            return frame.line
    return None


class Contents:
    """The category of every row of a trace."""

    def __init__(
        self, table: Table, tensors: TensorList | None, listed: Mapping[int, tuple[MemoryCategory, str]] | None = None
    ) -> None:
        self._table = table
        self._eager = table.task.rows_in([EAGER])
        # Number of listed tensors without a block; if more than half, the list is of another run and is not used.
        found, self.tensors_missing = match_listed_tensors(table, tensors) if tensors else ({}, 0)
        # Category and name of the rows of listed tensors; given for the rows of a derived trace, which has no list.
        self.listed = found if listed is None else listed
        self._weight = table.kind.rows_in(["Weight"])
        self._parameters = self._weight & ~self._eager
        # The parameter's name by row, where it is known.
        self.names = {row: table.node.value_at(row) for row in np.flatnonzero(self._parameters).tolist()}
        self.names |= {row: name for row, (_, name) in self.listed.items()}
        self._listed = np.full(len(table), _UNKNOWN, np.int8)
        for row, (content, _) in self.listed.items():
            self._listed[row] = category_code(content)
        self._useful = table.stack.rows_matching(is_useful)
        eager = int(self._eager.sum())
        # False if most blocks of the dynamic graph have no stack of the script.
        self.stacks_useful = not eager or 2 * int((self._useful & self._eager).sum()) > eager
        named = self._classify_parameters()
        self.phases = Phases(table, named == category_code(MemoryCategory.OPTIMIZER_STATE))
        # The index in `CONTENTS` of every row's category.
        self.codes = self._classify_rest(self._classify_lasting(named))

    def _classify_parameters(self) -> NDArray[np.int8]:
        table = self._table
        weights = {table.node.values[name] for name in np.unique(table.node.codes[self._parameters]).tolist()}
        # In the dynamic graph a compiled optimizer names its state, but not the weights, which are on the device.
        unnamed = bool((self._weight & self._eager).any())
        by_name = np.full(max(len(table.node.values), 1), _UNKNOWN, np.int8)
        for place, name in enumerate(table.node.values):
            if name in weights:
                by_name[place] = category_code(_classify_name(name, weights, unnamed=unnamed))
        found = np.where(self._parameters, by_name[table.node.codes], _UNKNOWN)
        return np.where(self._listed != _UNKNOWN, self._listed, found).astype(np.int8)

    def _classify_lasting(self, named: NDArray[np.int8]) -> NDArray[np.int8]:
        table, update = self._table, self.phases.rows_of(Phase.UPDATE)
        known = named.copy()
        settle = partial(_set_category, known)
        endless = self._eager & (table.end == NEVER_FREED)
        lasting = find_lasting_categories(table.stack.values)
        by_stack = [_UNKNOWN if content is None else category_code(content) for content in lasting]
        by_megatron = np.array(by_stack, np.int8)[table.stack.codes]
        # If Megatron has a buffer for all gradients, other blocks that a backward pass leaves are not gradients.
        self._by_producer = np.argsort(table.producer, kind="stable")
        self._producers = table.producer[self._by_producer]
        self._in_passes = self.phases.rows_of(Phase.FORWARD, Phase.BACKWARD)
        self._buffered = bool((endless & (by_megatron == category_code(MemoryCategory.GRADIENTS))).any())
        for content in (MemoryCategory.WEIGHTS, MemoryCategory.OPTIMIZER_STATE, MemoryCategory.GRADIENTS):
            settle(endless & (by_megatron == category_code(content)), content)
        for kind, content in _EMULATED.items():
            settle(table.kind.rows_in([kind]), content)
        if table.is_logical:
            settle(table.kind.rows_in(["Other"]), MemoryCategory.CONSTANTS)
        # The optimizer is the first to use its state.
        by_operator = table.node.rows_matching(lambda name: _STATE_OPERATOR.search(name) is not None)
        state = np.where(self._useful, update, by_operator)
        settle(self._weight & state, MemoryCategory.OPTIMIZER_STATE)
        settle(self._weight, MemoryCategory.WEIGHTS)
        in_init = table.stack.rows_matching(lambda stack: any(frame.function == "__init__" for frame in stack))
        created = table.kind.rows_in(["PyNativeOutput"]) & in_init
        settle(created & update, MemoryCategory.OPTIMIZER_STATE)
        self._hand_made = np.zeros(len(table), np.bool_)
        if not update.any() and not (known == category_code(MemoryCategory.OPTIMIZER_STATE)).any():
            self._hand_made = self._find_hand_made_state() & (known == _UNKNOWN)
            settle(self._hand_made, MemoryCategory.OPTIMIZER_STATE)
        return known

    def _classify_rest(self, codes: NDArray[np.int8]) -> NDArray[np.int8]:
        table, settle = self._table, partial(_set_category, codes)

        unbound = table.kind.rows_in([""])
        # scratch memory of aclnn kernels is unbound and lives for one tick
        settle(table.kind.rows_in(["WorkSpace"]) | (unbound & (table.end == table.start + 1)), MemoryCategory.WORKSPACE)
        settle(table.kind.rows_in(["ContinuousMemory"]), MemoryCategory.COMMUNICATION)
        # Ticks at which weights are updated, ascending.
        updates = self.updates = self._update_ticks(codes == category_code(MemoryCategory.OPTIMIZER_STATE))
        phase = self._guess_phases()
        outputs = table.kind.rows_in(_OUTPUTS)
        backward = np.sort(table.start[self.phases.rows_of(Phase.BACKWARD)])
        next_update, next_backward = _next_after(table.start, updates), _next_after(table.start, backward)
        # MindSpore's common-subexpression elimination assigns operators of the update to the scope of a model layer.
        after_backward = ~self._eager & (next_update != NEVER_FREED) & (next_backward >= next_update)
        kept = (next_backward < table.end) | (len(backward) == 0)
        forward = outputs & (phase == phase_code(Phase.FORWARD)) & ~after_backward
        settle(forward & kept, MemoryCategory.ACTIVATIONS)
        settle(outputs & self._eager & table.stack.rows_matching(is_received_input), MemoryCategory.ACTIVATIONS)
        passing = (phase == phase_code(Phase.BACKWARD)) | (phase == phase_code(Phase.STEP))
        self._mark_renewed_weights(codes, outputs & self._eager & ~self._in_passes)
        if not self._buffered:
            settle(outputs & passing & (next_update < table.end), MemoryCategory.GRADIENTS)
            self._mark_addends(codes, outputs & passing & self._eager)
        settle(table.kind.rows_in(_TEMPORARY) & table.node.rows_matching(is_collective), MemoryCategory.COMMUNICATION)
        settle(table.kind.rows_in(_CONSTANTS), MemoryCategory.CONSTANTS)
        known = ~self._eager | self._useful | (phase > 0)
        settle(table.kind.rows_in(_TEMPORARY) & known, MemoryCategory.TEMPORARIES)
        codes[codes == _UNKNOWN] = category_code(MemoryCategory.UNATTRIBUTED)
        return codes

    def _outlives_backward(self) -> NDArray[np.bool_]:
        """Return which blocks live from before a forward pass until the backward pass after it has ended."""
        start, end = self._table.start, self._table.end
        forward, backward = (np.sort(start[self.phases.rows_of(phase)]) for phase in (Phase.FORWARD, Phase.BACKWARD))
        begin = _next_after(_next_after(start, forward), backward)
        last = _last_before(_next_after(begin, forward), backward)
        return np.asarray((begin != NEVER_FREED) & (last < end))

    def _derive(self, sources: NDArray[np.bool_], rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return the sources, and which rows are computed from them, as far as the first and last user of a block show it."""
        table, derived = self._table, sources.copy()
        new = sources
        while new.any():
            users = np.concatenate([table.first_user[new], table.last_user[new]])
            new = rows & ~derived & np.isin(table.producer, users[users != NONE])
            derived |= new
        return derived

    def _find_hand_made_state(self) -> NDArray[np.bool_]:
        """Return the state of an optimizer that is plain code: no pass uses it, and each of it replaces that of the last step.

        Sums of gradients outlive a backward pass, too, but each step computes them from new blocks.
        """
        table, state = self._table, np.zeros(len(self._table), np.bool_)
        outside = table.kind.rows_in(["PyNativeOutput"]) & self._eager & ~self._in_passes
        kept = outside & self._outlives_backward() & ~self._is_used_in_passes()
        backward = np.sort(table.start[self.phases.rows_of(Phase.BACKWARD)])
        age = np.searchsorted(backward, table.start)
        origins: dict[int, int] = {}  # the oldest block that a task reads, by the task
        for row in table.rows_by_start(outside).tolist():
            age[row] = origins.get(int(table.producer[row]), age[row])
            for user in (int(table.first_user[row]), int(table.last_user[row])):
                origins[user] = min(origins.get(user, age[row]), age[row])
        for site in np.unique(table.stack.codes[kept]).tolist():
            rows = kept & (table.stack.codes == site)
            state |= rows & (len(np.unique(age[rows])) == 1)
        return state

    def _is_used_in_passes(self) -> NDArray[np.bool_]:
        """Return which blocks an operator of a forward or backward pass uses first or last."""
        table = self._table
        in_passes = np.append(self._in_passes[self._by_producer], False)  # a task without a block: as the next one
        users = (table.first_user, table.last_user)
        first, last = (in_passes[np.searchsorted(self._producers, ticks)] & (ticks != NONE) for ticks in users)
        return np.asarray(first | last)

    def _mark_addends(self, codes: NDArray[np.int8], rows: NDArray[np.bool_]) -> None:
        """Mark gradients that are added to those of earlier micro-batches: a block of the same size replaces the two."""
        table, gradients = self._table, category_code(MemoryCategory.GRADIENTS)
        for row in table.rows_by_start(rows & (codes == _UNKNOWN) & (table.last_user != NONE))[::-1].tolist():
            at = int(np.searchsorted(self._producers, table.last_user[row]))
            if at < len(self._producers) and self._producers[at] == table.last_user[row]:
                total = self._by_producer[at]
                if codes[total] == gradients and table.size[total] == table.size[row]:
                    codes[row] = gradients

    def _mark_renewed_weights(self, codes: NDArray[np.int8], rows: NDArray[np.bool_]) -> None:
        """Mark weights that a step makes of the state of its optimizer, for the passes of the next one."""
        derived = self._derive(self._eager & (codes == category_code(MemoryCategory.OPTIMIZER_STATE)), rows)
        unknown = rows & derived & self._outlives_backward() & self._is_used_in_passes()
        _set_category(codes, unknown, MemoryCategory.WEIGHTS)

    def _guess_phases(self) -> NDArray[np.int8]:
        own, around = self.phases.own_codes, self.phases.guessed_codes
        # Eager code between backward pass and update, such as clipping, belongs to the step.
        start = self._table.start
        backward = np.sort(start[self.phases.rows_of(Phase.BACKWARD)])
        before_update = _last_before(start, self.updates) <= _last_before(start, backward)
        step = self._eager & self._useful & (around == phase_code(Phase.BACKWARD)) & before_update
        fallback = np.where(self._eager, np.where(step, phase_code(Phase.STEP), 0), around)
        return np.where(own > 0, own, fallback).astype(np.int8)

    def _update_ticks(self, state: NDArray[np.bool_]) -> NDArray[np.int64]:
        table = self._table
        ticks = [table.start[self.phases.rows_of(Phase.UPDATE) & (table.start >= 0)]]
        ticks += [table.last_user[state & (table.last_user != NONE)]]
        ticks += [table.first_user[self._hand_made & (table.first_user != NONE)]]  # the step that made it uses it, too
        touched = [parse_users(text) for row, text in table.users.items() if state[row]]
        ticks += [np.array(users, np.int64) for users in touched]
        unique: NDArray[np.int64] = np.unique(np.concatenate(ticks))
        return unique


def _last_before(ticks: NDArray[np.int64], events: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.append(np.int64(-1), events)[np.searchsorted(events, ticks, side="right")]


def _next_after(ticks: NDArray[np.int64], events: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.append(events, np.int64(NEVER_FREED))[np.searchsorted(events, ticks, side="right")]


def _set_category(codes: NDArray[np.int8], rows: NDArray[np.bool_], content: MemoryCategory) -> None:
    codes[rows & (codes == _UNKNOWN)] = category_code(content)


def _classify_name(name: str, weights: set[str], *, unnamed: bool) -> MemoryCategory:
    prefix, _, rest = name.partition(".")
    if prefix in _GRADIENTS:
        return MemoryCategory.GRADIENTS
    clone = rest in weights or (unnamed and "." in rest and prefix in _UNLIKELY_LAYER)
    if prefix in _STATE or (prefix in _STATE_IF_CLONE and clone):
        return MemoryCategory.OPTIMIZER_STATE
    return MemoryCategory.WEIGHTS


def match_listed_tensors(table: Table, tensors: TensorList) -> tuple[dict[int, tuple[MemoryCategory, str]], int]:
    """Return category and name of the rows with listed tensors, and the number of tensors without a row.

    The list was written after the last step, so a tensor belongs to the last block at its address.
    """
    # Priority if tensors share a block (tied weights, flat buffers).
    order = (MemoryCategory.WEIGHTS, MemoryCategory.OPTIMIZER_STATE, MemoryCategory.GRADIENTS)
    wanted = [(tensor, content) for content in order for tensor in getattr(tensors, content.value)]
    wanted.sort(key=lambda entry: entry[0].address)
    addresses = np.array([tensor.address for tensor, _ in wanted], np.uint64)
    ends = table.address + table.size.astype(np.uint64)
    first, last = np.searchsorted(addresses, table.address), np.searchsorted(addresses, ends)
    hit = np.flatnonzero((last > first) & (table.start >= 0) & (table.address > 0))
    holder = np.full(len(wanted), NONE, np.int64)
    for row in hit[np.argsort(table.start[hit], kind="stable")].tolist():
        holder[first[row] : last[row]] = row
    found: dict[int, tuple[MemoryCategory, str]] = {}
    missing = 0
    for (tensor, content), row in zip(wanted, holder.tolist(), strict=True):
        if row == NONE or tensor.address + tensor.bytes > int(table.address[row]) + int(table.size[row]):
            missing += 1
        elif row not in found or order.index(content) < order.index(found[row][0]):
            found[row] = (content, tensor.name)
    # Some may be missing: weights that no step used are not on the device.
    return (found, missing) if 2 * missing <= len(wanted) else ({}, missing)
