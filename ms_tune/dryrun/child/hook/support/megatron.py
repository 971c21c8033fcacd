"""Megatron-LM core 0.8 to 0.12: decisions that it takes by values read back from the device, which are zero in simulation."""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
from typing import TYPE_CHECKING, Any

from . import tell

if TYPE_CHECKING:
    from ms_tune.dryrun.child.hook.process import HookedProcess

_LOADERS = "build_train_valid_test_data_loaders"
_MAKER, _GETTER = "setup_model_and_optimizer", "get_model"
_SIZES = (
    "_build_key_size_numel_dictionaries",
    "local_build_key_size_numel_dictionaries",
)  # Megatron's, MindSpeed-LLM's
_SHAPES = "_communicate_shapes"


def training(module: Any, process: HookedProcess | None) -> None:  # noqa: ANN401 - a module without types
    """Whether there is anything to train is sent from the first tensor rank to the others as a tensor of flags.

    Only the training is told that there is: evaluation is left out (``megatron/training/training.py``).
    """
    build = getattr(module, _LOADERS)

    @functools.wraps(build)
    def build_and_train(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the function takes them
        told = module.get_args()
        if not getattr(told, "do_train", False):
            told.do_train = True
            tell(process, "do-train")
        return build(*arguments, **named)

    setattr(module, _LOADERS, build_and_train)
    model(module, process)


def datasets(module: Any, process: HookedProcess | None) -> None:  # noqa: ANN401 - a module without types
    """Let the rank that runs build the index of its data set, which the job's first rank builds for all others.

    While it does, whoever asks ``torch.distributed`` for the rank in the world hears 0
    (``megatron/core/datasets/gpt_dataset.py``, and MindSpeed-LLM's in its place).
    """
    builder = module.BlendedMegatronDatasetBuilder
    builder.build = _as_first_rank(builder.build, module, process)


def packed_datasets(module: Any, process: HookedProcess | None) -> None:  # noqa: ANN401 - a module without types
    """The same for the data of a tuning (``mindspeed_llm/tasks/preprocess/decoder_packed_mtf_dataset.py``).

    Whether all ranks have come so far is counted on the device, where all is zero: ``check_equal`` is about nothing else there.
    """
    module.check_equal = lambda *_arguments, **_named: None
    module.build_train_valid_test_datasets = _as_first_rank(module.build_train_valid_test_datasets, module, process)


def _as_first_rank(build: Any, module: Any, process: HookedProcess | None) -> Any:  # noqa: ANN401 - a function
    @functools.wraps(build)
    def build_here(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the function takes them
        distributed = module.torch.distributed
        ask = distributed.get_rank
        if not distributed.is_initialized() or not ask():
            return build(*arguments, **named)

        @functools.wraps(ask)
        def get_rank(group: Any = None) -> int:  # noqa: ANN401 - a group, or None for the world
            return 0 if group is None else int(ask(group))

        distributed.get_rank = get_rank
        tell(process, "builds-index")
        try:
            return build(*arguments, **named)
        finally:
            distributed.get_rank = ask

    return build_here


def model(module: Any, process: HookedProcess | None) -> None:  # noqa: ANN401 - a module without types
    """Note what a rank's models and optimizer are, once they are made: their bytes by theory follow from it.

    Preference tuning makes a second model, which is only asked and held for the whole run: its weights count, and nothing
    of an optimizer (``mindspeed_llm/tasks/posttrain/dpo/dpo_trainer.py``).
    """
    make: Any = getattr(module, _MAKER, None)
    get: Any = getattr(module, _GETTER, None)
    if make is None or process is None:
        return
    own: dict[str, Any] = {}
    making, asked = [False], [0]

    def note() -> None:
        if own:
            process.facts["model"] = {**own, "weights": own["weights"] + asked[0]}
            process.write()

    @functools.wraps(make)
    def make_and_note(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the function takes them
        making[0] = True
        try:
            made = make(*arguments, **named)
        finally:
            making[0] = False
        with contextlib.suppress(Exception):  # of another release, in which theory tells nothing
            own.update(_facts(made[0], module.get_args(), module.mpu))
            note()
        return made

    @functools.wraps(get)
    def get_and_note(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the function takes them
        made = get(*arguments, **named)
        if not making[0]:
            with contextlib.suppress(Exception):  # as above
                asked[0] += sum(math.prod(one.shape) * one.element_size() for one in _parameters(made))
                note()
        return made

    setattr(module, _MAKER, make_and_note)
    if get is not None:
        setattr(module, _GETTER, get_and_note)


def _parameters(chunks: Any) -> list[Any]:  # noqa: ANN401 - models
    return list({id(one): one for chunk in chunks for one in chunk.parameters()}.values())


def _facts(chunks: Any, told: Any, mpu: Any) -> dict[str, int | bool | str]:  # noqa: ANN401 - modules, arguments, groups
    """Parameters by what is kept of them, and over how many ranks the optimizer's state of each is shared out."""
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
        "distributed": bool(told.use_distributed_optimizer),
        "float32_gradients": bool(told.accumulate_allreduce_grads_in_fp32),
        "mixed": bool(told.bf16 or told.fp16),
        "optimizer": str(told.optimizer),
        "reused": bool(getattr(told, "reuse_fp32_param", False)),
    }


def sizes(module: Any, process: HookedProcess | None) -> None:  # noqa: ANN401 - a module without types
    """Take the sizes of a batch from the data on the rank that has them.

    They are sent to all tensor ranks, and this one reads back what it has sent itself: in
    ``megatron/core/tensor_parallel/data.py``, from MindSpeed-LLM 2.3 on in its own ``mindspore/core/tensor_parallel/data.py``.
    """
    name = next(name for name in _SIZES if hasattr(module, name))
    build = getattr(module, name)

    @functools.wraps(build)
    def build_known(keys: Any, data: Any) -> Any:  # noqa: ANN401 - as the function takes them
        if data is None or module.get_tensor_model_parallel_rank():
            return build(keys, data)
        tell(process, "sizes")
        key_size = {key: list(data[key].shape) for key in keys}
        key_numel = {key: math.prod(size) for key, size in key_size.items()}
        return key_size, key_numel, sum(key_numel.values())

    setattr(module, name, build_known)


def shapes(module: Any, process: HookedProcess | None) -> None:  # noqa: ANN401 - a module without types
    """Know the shape of what another stage sends: a sample of full length (``megatron/core/pipeline_parallel/p2p_communication.py``).

    With sequences of several lengths, stages tell each other how long theirs is; made-up data have the greatest length.
    """
    communicate = getattr(module, _SHAPES)

    @functools.wraps(communicate)
    def communicate_known(
        tensor_send_next: Any,  # noqa: ANN401 - a tensor or None
        tensor_send_prev: Any,  # noqa: ANN401 - as above
        recv_prev: bool,  # noqa: FBT001 - as Megatron's
        recv_next: bool,  # noqa: FBT001 - as above
        config: Any,  # noqa: ANN401 - a TransformerConfig
    ) -> tuple[list[int], list[int]]:
        communicate(tensor_send_next, tensor_send_prev, recv_prev, recv_next, config)
        tell(process, "lengths")
        arguments = importlib.import_module("megatron.training").get_args()
        length = arguments.seq_length // config.context_parallel_size
        length //= config.tensor_model_parallel_size if config.sequence_parallel else 1
        micro = getattr(arguments, "actual_micro_batch_size", None) or arguments.micro_batch_size
        shape = [length, int(micro), config.hidden_size]
        return (shape if recv_prev else [0, 0, 0], shape if recv_next else [0, 0, 0])

    setattr(module, _SHAPES, communicate_known)
