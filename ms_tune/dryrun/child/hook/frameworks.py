"""Adapt frameworks' code that needs a device or a cluster (MindSpore 2.7 to 2.10, MSAdapter 0.5 to 0.8, Megatron-LM).

Megatron-LM core 0.8 to 0.12 makes decisions by values read back from the device, which are zero in simulation. In the
token dispatcher, the number of tokens per expert depends on the router's values. Here every expert gets the same
number, tokens x top-k / experts, and :mod:`finite_checks` derives the values that Megatron computes from it
(``preprocess``: splits per rank, counts per local expert). Nothing else of the dispatcher is changed.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import math
import os
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

from . import bounds, finite_checks
from .support import HookedProcess, put_around, report

_DEVICES, _DEFAULT = "MS_TUNE_DEVICES", 8  # as set by the launcher; a node of Atlas 800T A2 has eight
_ROLE = "MS_ROLE"
_IN_PLACE = {  # the source of an operator, and its function
    "matmul_add": "npu_matmul_add_fp32",
    "groupmatmul_add": "npu_groupmatmul_add_fp32",
    "group_topk": "npu_group_topk",
}
_SOURCE = "GeneratorOp(self._seed"  # in mindspore/common/generator.py since 2.9


def count_devices(ascend: Any, process: HookedProcess | None) -> None:  # noqa: ANN401 - a module without types
    """Return the number of devices of one node of the job.

    In simulation MindSpore's own no-op for ``aclrtGetDeviceCount`` (``LoadSimulationApiSymbols``) leaves 0; Megatron
    then makes no groups (``megatron/training/initialize.py``).
    """

    def device_count(count: Callable[[], int]) -> int:
        requested = os.environ.get(_DEVICES, "")
        return int(count()) or (int(requested) if requested.isdecimal() and int(requested) else _DEFAULT)

    put_around(ascend, "device_count", device_count)
    report(process, "device-count")


def make_generators(msadapter: Any, process: HookedProcess | None) -> None:  # noqa: ANN401 - a module without types
    """Create generators as the installed MindSpore does.

    MSAdapter 0.5 creates the operator of a generator without the seed and the offset that MindSpore 2.9 requires
    (``msadapter/__init__.py``, ``mindspore/common/generator.py``).
    """
    own = msadapter.Generator
    base = own.__mro__[1]
    if _SOURCE not in inspect.getsource(base.__init__):
        return

    def __init__(self: Any, device: str = "cpu") -> None:  # noqa: ANN401, N807 - as the class's own
        del device
        base.__init__(self)

    own.__init__ = functools.wraps(own.__init__)(__init__)
    report(process, "generator")


def skip_in_place_operators(module: Any, process: HookedProcess | None) -> None:  # noqa: ANN401 - a module without types
    """Skip operators of CANN's transformer library that write their result into an existing tensor.

    MSAdapter 0.5 builds them with that library, which is not part of CANN's toolkit (``torch_npu/atb/__init__.py``).
    They allocate only workspaces. Operators that create tensors are built as usual, and fail.
    """

    def load_in_simulation(load: Any, self: Any, name: str) -> Any:  # noqa: ANN401 - as the method
        operator = _IN_PLACE.get(name)
        if operator is None:
            return load(self, name)
        report(process, "in-place", operator=operator)
        return SimpleNamespace(**{operator: lambda *_arguments, **_named: None})

    put_around(module.AtbOpBuilder, "load", load_in_simulation)


class _Proxy:
    """A proxy of a module or tensor with some functions replaced, for one module of a framework."""

    def __init__(self, thing: Any, **own: Callable[..., Any]) -> None:  # noqa: ANN401 - as above
        self._target = thing
        vars(self).update(own)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute
        return getattr(self._target, name)


def give_role(module: ModuleType, process: HookedProcess | None) -> None:
    """Make ``init_process_group`` see the role of a launched process, but not MindSpore.

    Without a role it starts a scheduler (``msadapter/distributed/distributed_c10d.py``); with one, MindSpore's
    simulation waits five minutes for a scheduler.
    """
    if _ROLE in os.environ:
        return

    def getenv(key: str, default: str | None = None) -> str | None:
        return os.environ.get(key, "MS_WORKER" if key == _ROLE else default)

    module.os = _Proxy(os, getenv=getenv)  # type: ignore[attr-defined]  # the name that it imports
    report(process, "role")


_MAKER, _GETTER = "setup_model_and_optimizer", "get_model"
_SIZES = (
    "_build_key_size_numel_dictionaries",
    "local_build_key_size_numel_dictionaries",
)  # Megatron's, MindSpeed-LLM's
_GATHERS = ("gather_from_sequence_parallel_region", "_gather_along_first_dim")


def train_always(module: Any, process: HookedProcess | None) -> None:  # noqa: ANN401 - a module without types
    """Set the flag that there is something to train, which the first tensor rank sends to the others as a tensor.

    Only the training flag is set: evaluation is skipped (``megatron/training/training.py``).
    """

    def build_and_train(build: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the function takes them
        options = module.get_args()
        if not getattr(options, "do_train", False):
            options.do_train = True
            report(process, "do-train")
        return build(*arguments, **named)

    put_around(module, "build_train_valid_test_data_loaders", build_and_train)
    note_model(module, process)


def build_index(module: Any, process: HookedProcess | None) -> None:  # noqa: ANN401 - a module without types
    """Let the running rank build the index of its data set, which only the job's first rank builds otherwise.

    During the build, ``torch.distributed`` reports rank 0 of the world (``megatron/core/datasets/gpt_dataset.py``, and
    MindSpeed-LLM's replacement).
    """
    put_around(module.BlendedMegatronDatasetBuilder, "build", functools.partial(_build_as_first_rank, module, process))


def build_packed_index(module: Any, process: HookedProcess | None) -> None:  # noqa: ANN401 - a module without types
    """Let the running rank build the index of its fine-tuning data (``decoder_packed_mtf_dataset.py`` of MindSpeed-LLM).

    ``check_equal`` is disabled: it only counts ranks, on the device, where all values are zero.
    """
    module.check_equal = lambda *_arguments, **_named: None
    put_around(module, "build_train_valid_test_datasets", functools.partial(_build_as_first_rank, module, process))


def _build_as_first_rank(module: Any, process: HookedProcess | None, build: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the function takes them
    distributed = module.torch.distributed
    ask = distributed.get_rank
    if not distributed.is_initialized() or not ask():
        return build(*arguments, **named)

    @functools.wraps(ask)
    def get_rank(group: Any = None) -> int:  # noqa: ANN401 - a group, or None for the world
        return 0 if group is None else int(ask(group))

    distributed.get_rank = get_rank
    report(process, "builds-index")
    try:
        return build(*arguments, **named)
    finally:
        distributed.get_rank = ask


def note_model(module: Any, process: HookedProcess | None) -> None:  # noqa: ANN401 - a module without types
    """Record the sizes of a rank's models and optimizer once they are made: their theoretical bytes follow from them.

    Preference tuning makes a second model, which is only evaluated and stays in memory for the whole run: only its
    weights count, without optimizer state (``mindspeed_llm/tasks/posttrain/dpo/dpo_trainer.py``).
    """
    if not hasattr(module, _MAKER) or process is None:
        return
    own: dict[str, Any] = {}
    making, asked = [False], [0]

    def note() -> None:
        if own:
            process.facts["model"] = {**own, "weights": own["weights"] + asked[0]}
            process.write()

    def make_and_note(make: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the function takes them
        making[0] = True
        try:
            made = make(*arguments, **named)
        finally:
            making[0] = False
        with contextlib.suppress(Exception):  # another release, for which theory has no result
            own.update(_describe_model(made[0], module.get_args(), module.mpu))
            note()
        return made

    def get_and_note(get: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the function takes them
        made = get(*arguments, **named)
        if not making[0]:
            with contextlib.suppress(Exception):  # as above
                asked[0] += sum(math.prod(one.shape) * one.element_size() for one in _parameters(made))
                note()
        return made

    put_around(module, _MAKER, make_and_note)
    if hasattr(module, _GETTER):
        put_around(module, _GETTER, get_and_note)


def _parameters(chunks: Any) -> list[Any]:  # noqa: ANN401 - models
    return list({id(one): one for chunk in chunks for one in chunk.parameters()}.values())


def _describe_model(chunks: Any, arguments: Any, mpu: Any) -> dict[str, int | bool | str]:  # noqa: ANN401 - modules, arguments, groups
    weights = trained = experts = 0
    for parameter in _parameters(chunks):
        count = math.prod(parameter.shape)
        weights += count * parameter.element_size()
        if parameter.requires_grad:
            trained += count
            experts += 0 if getattr(parameter, "allreduce", True) else count
    return {
        "weights": weights,
        "trained": trained,
        "experts": experts,
        "data": int(mpu.get_data_parallel_world_size(with_context_parallel=True)),
        "expert_data": int(mpu.get_expert_data_parallel_world_size()),
        "distributed": bool(arguments.use_distributed_optimizer),
        "float32_gradients": bool(arguments.accumulate_allreduce_grads_in_fp32),
        "mixed": bool(arguments.bf16 or arguments.fp16),
        "optimizer": str(arguments.optimizer),
        "reused": bool(getattr(arguments, "reuse_fp32_param", False)),
    }


def know_sizes(module: Any, process: HookedProcess | None) -> None:  # noqa: ANN401 - a module without types
    """Read the sizes of a batch from the data on the rank that has them.

    They are sent to all tensor ranks, and this rank reads back its own message: in ``megatron/core/tensor_parallel/data.py``,
    from MindSpeed-LLM 2.3 on in its own ``mindspore/core/tensor_parallel/data.py``.
    """

    def build_from_data(build: Any, keys: Any, data: Any) -> Any:  # noqa: ANN401 - as the function takes them
        if data is None or module.get_tensor_model_parallel_rank():
            return build(keys, data)
        report(process, "sizes")
        key_size = {key: list(data[key].shape) for key in keys}
        key_numel = {key: math.prod(size) for key, size in key_size.items()}
        return key_size, key_numel, sum(key_numel.values())

    put_around(module, next(name for name in _SIZES if hasattr(module, name)), build_from_data)


def know_shapes(module: Any, process: HookedProcess | None) -> None:  # noqa: ANN401 - a module without types
    """Return the shape of a full-length sample for tensors from another stage.

    Stages send each other their sequence lengths (``megatron/core/pipeline_parallel/p2p_communication.py``).
    """

    def communicate_full_length(  # noqa: PLR0913, PLR0917 - as Megatron's
        communicate: Any,  # noqa: ANN401 - a function
        tensor_send_next: Any,  # noqa: ANN401 - a tensor or None
        tensor_send_prev: Any,  # noqa: ANN401 - as above
        recv_prev: bool,  # noqa: FBT001 - as Megatron's
        recv_next: bool,  # noqa: FBT001 - as above
        config: Any,  # noqa: ANN401 - a TransformerConfig
    ) -> tuple[list[int], list[int]]:
        communicate(tensor_send_next, tensor_send_prev, recv_prev, recv_next, config)
        report(process, "lengths")
        arguments = importlib.import_module("megatron.training").get_args()
        length = arguments.seq_length // config.context_parallel_size
        length //= config.tensor_model_parallel_size if config.sequence_parallel else 1
        micro = getattr(arguments, "actual_micro_batch_size", None) or arguments.micro_batch_size
        shape = [length, int(micro), config.hidden_size]
        return (shape if recv_prev else [0, 0, 0], shape if recv_next else [0, 0, 0])

    put_around(module, "_communicate_shapes", communicate_full_length)


def know_gathered(module: Any, _process: HookedProcess | None) -> None:  # noqa: ANN401 - a module without types
    """Mark the gathered result of a tensor with known values as known (``megatron.core.tensor_parallel.mappings``)."""

    def gather_with_value(gather: Any, tensor: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the function takes them
        value = finite_checks.value_of(tensor)
        found = gather(tensor, *arguments, **named)
        return found if value is None else finite_checks.with_value(found, value)

    for name in _GATHERS:
        if hasattr(module, name):
            put_around(module, name, gather_with_value)


def permute_evenly(module: Any, _process: HookedProcess | None) -> None:  # noqa: ANN401 - a module without types
    """Limit the result of a permutation to its ``num_out_tokens`` (``megatron.core.transformer.moe.moe_utils``)."""

    def permute_tokens(permute: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the function takes them
        tokens = named.get("num_out_tokens")
        with bounds.at_most(tokens) if isinstance(tokens, int) else contextlib.nullcontext():
            return permute(*arguments, **named)

    put_around(module, "permute", permute_tokens)


def spread_tokens(module: Any, process: HookedProcess | None) -> None:  # noqa: ANN401 - a module without types
    """Distribute tokens evenly in the dispatchers of ``megatron.core.transformer.moe.token_dispatcher`` and their subclasses.

    MindSpeed replaces their methods, so the wrapper calls the method that is current at the time, with a routing map
    that knows the number of tokens per expert.
    """
    base = module.MoETokenDispatcher

    def spread(dispatcher: Any, routing_map: Any) -> Any:  # noqa: ANN401 - tensors
        preprocess = type(dispatcher).preprocess
        share, rest = divmod(routing_map.shape[0] * dispatcher.config.moe_router_topk, dispatcher.num_experts)
        if rest or getattr(dispatcher, "drop_and_pad", False):
            return preprocess(dispatcher, routing_map)
        report(process, "even-experts", tokens=share)

        def count(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as a tensor's `sum`
            return finite_checks.with_value(routing_map.sum(*arguments, **named), share)

        return preprocess(dispatcher, _Proxy(routing_map, sum=count))

    def __new__(cls: Any, *_arguments: Any, **_named: Any) -> Any:  # noqa: ANN401, N807 - as the class is called
        made = object.__new__(cls)
        if hasattr(cls, "preprocess"):
            made.preprocess = functools.partial(spread, made)
        return made

    base.__new__ = __new__


def sum_on_host(module: Any, _process: HookedProcess | None) -> None:  # noqa: ANN401 - a module without types
    """Compute the grouped matrix product's list of end offsets on the host, if the token counts per expert are known.

    MindSpeed v2.2.0's ``mindspeed/mindspore/core/transformer/moe/grouped_gemm_util.py`` sums them on the device and
    reads the list back.
    """
    torch = module.torch

    def cumsum(tensor: Any, dim: int) -> Any:  # noqa: ANN401 - as the function takes it
        value = finite_checks.value_of(tensor)
        if value is None:
            return torch.cumsum(tensor, dim=dim)
        return SimpleNamespace(tolist=lambda: [value * number for number in range(1, tensor.shape[0] + 1)])

    module.torch = _Proxy(torch, cumsum=cumsum)
