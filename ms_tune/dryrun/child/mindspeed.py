"""Train a MindSpeed-Core-MS model (dynamic graph) with the framework's own code, on synthetic tokens.

Makes the same calls as a training script of r0.1.0: ``init_configs_from_yaml``, ``initialize_model_parallel``,
``get_model``, ``get_optimizer``, ``TrainOneStepCell``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, Type, mint
from mindspore.communication import init
from mindspore.mint import distributed

from ms_tune.dryrun.child.hook import finite_checks
from ms_tune.dryrun.job import MindSpeedJob
from ms_tune.records import from_plain
from ms_tune.training_process import begin_dynamic_graph, lies_in, report, write_tensor_list

# The modules' names in MindSpeed-Core-MS r0.1.0, and in the MindFormers package in which it was developed.
_PLACES = {
    "mindspeed_ms": {
        "config": "mindspeed_ms.core.config",
        "state": "mindspeed_ms.core.parallel_state",
        "p2p": "mindspeed_ms.core.pipeline_parallel.p2p_communication",
        "optimizer": "mindspeed_ms.core.optimizer",
        "training": "mindspeed_ms.training.training",
        "weight_decay": "mindspeed_ms.training.utils",
        "model": "mindspeed_ms.legacy.model.gpt_model",
    },
    "mindformers.experimental.parallel_core.pynative": {
        "config": "{}.config",
        "state": "mindformers.parallel_core.inference.parallel_state",
        "p2p": "{}.pipeline_parallel.p2p_communication",
        "optimizer": "{}.optimizer",
        "training": "{}.training.training",
        "weight_decay": "{}.training.utils",
        "model": "ms_tune.dryrun.child.mindspeed_model",
    },
}


class _Library:
    """The framework's modules, by their purpose."""

    def __init__(self, package: str) -> None:
        self._package = package

    def __getattr__(self, part: str) -> ModuleType:
        return import_module(_PLACES[self._package][part].format(self._package))


def run(job_data: Mapping[str, object]) -> None:
    """Build this rank's part of the model from the rewritten config, train it, and list the tensors that stay in memory."""
    job = from_plain(MindSpeedJob, job_data)
    report("build")
    begin_dynamic_graph()
    # Every step's gradients must be finite; otherwise the optimizer would be skipped.
    finite_checks.install(mindspore, None)
    _initialise_at_once()
    # The optimizer for mixed precision without DDP reads ``parameter.grad`` before setting it; Parameter has no such
    # attribute in MindSpore 2.7 and 2.9.
    if not hasattr(Parameter, "grad"):
        Parameter.grad = None
    init()
    library: Any = _Library(job.package)
    _receive_by_the_public_function(library.p2p)
    config = library.config.init_configs_from_yaml(job.config_file)
    _split_layers(library, config.parallel_config)
    model, optimizer, step = _build_model(library, config)
    data = _make_data(config)
    for number in range(1, job.steps + 1):
        report("step", number, job.steps)
        step(**data)
    mindspore.runtime.synchronize()
    write_tensor_list(_persistent_tensors(model, optimizer))
    report("write")


def _split_layers(library: Any, parallel: Any) -> None:  # noqa: ANN401 - objects of the framework, which has no types
    chunks = parallel.virtual_pipeline_model_parallel_size
    library.state.initialize_model_parallel(
        tensor_model_parallel_size=parallel.tensor_model_parallel_size,
        pipeline_model_parallel_size=parallel.pipeline_model_parallel_size,
        virtual_pipeline_model_parallel_size=chunks if chunks is not None and chunks > 1 else None,
        context_parallel_size=parallel.context_parallel_size,
        expert_model_parallel_size=parallel.expert_model_parallel_size,
    )


def _build_model(library: Any, config: Any) -> tuple[Any, Any, Any]:  # noqa: ANN401 - as above
    training, model_config = config.training_config, config.model_config

    def provide(*, pre_process: bool = True, post_process: bool = True) -> object:
        return library.model.GPTModel(model_config, pre_process=pre_process, post_process=post_process)

    model = library.training.get_model(provide, training)
    parameters = library.weight_decay.set_weight_decay(model.trainable_params(), config.optimizer_config.weight_decay)
    optimizer = library.optimizer.get_optimizer(
        config.optimizer_config, training, parameters, model, grad_allreduce_op=training.loss_reduction
    )
    step = library.training.TrainOneStepCell(model, optimizer, None, training, model_config)
    step.set_train()
    return model, optimizer, step


def _make_data(config: Any) -> dict[str, Tensor]:  # noqa: ANN401 - as above
    # Return all micro-batches of a step. Nothing is computed, only shapes and number formats matter.
    samples = config.dataset_config.batch_size * config.dataset_config.micro_batch_num
    words = config.model_config.seq_length
    tokens = np.zeros((samples, words), np.int32)
    return {
        "tokens": Tensor(tokens),
        "position_ids": Tensor(tokens),
        "attention_mask": Tensor(np.zeros((samples, 1, words, words), np.uint8)),
        "loss_mask": Tensor(np.ones((samples, words), np.float32)),
        "labels": Tensor(tokens),
    }


def _persistent_tensors(model: Any, optimizer: Any) -> dict[str, list[Tensor]]:  # noqa: ANN401 - as above
    # Return the tensors that live for the whole run, by category. With DDP, weights and gradients are parts of buffers.
    kinds = [getattr(chunk, kind, None) for chunk in model for kind in ("buffers", "expert_parallel_buffers")]
    # Without DDP, `buffers` is only a method that every Cell has.
    buffers = [buffer for kind in kinds if isinstance(kind, list) for buffer in kind]
    weights = [buffer.param_data[0 : buffer.numel] for buffer in buffers if buffer.param_data is not None]
    # `set_hidden_states` contains the data from the previous stage, not a weight.
    named = [weight for weight in model.get_parameters() if "set_hidden_states" not in weight.name]
    weights += [weight for weight in named if not lies_in(weight, weights)]
    gradients = [buffer.grad_data for buffer in buffers]
    buffered = [*weights, *gradients]
    state = [tensor for tensor in _optimizer_tensors(optimizer, set()) if not lies_in(tensor, buffered)]
    return {"weights": weights, "optimizer_state": state, "gradients": gradients}


def _optimizer_tensors(thing: object, seen: set[int]) -> Iterator[Tensor]:
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, Tensor):
        if not str(thing.device).startswith("CPU"):
            yield thing
    elif isinstance(thing, list | tuple):
        for item in thing:
            yield from _optimizer_tensors(item, seen)
    elif isinstance(thing, dict):
        for item in thing.values():
            yield from _optimizer_tensors(item, seen)
    elif "ptimizer" in type(thing).__name__ or "Adam" in type(thing).__name__:
        yield from _optimizer_tensors(vars(thing), seen)


_MOST_ON_THE_HOST = 1 << 28  # elements


def _initialise_at_once() -> None:
    # Allocate tensors when they are created. ``RMSNorm`` multiplies, and the gradient buffers slice, tensors that MindSpore 2.7
    # and later leave without data until ``init_data`` is called, and which then fail ("is uninitialized").
    make = Tensor.__init__

    def initialise(self: Tensor, *arguments: object, **named: Any) -> None:  # noqa: ANN401 - as Tensor takes them
        if named.get("init") is not None and not arguments and np.prod(named["shape"]) > _MOST_ON_THE_HOST:
            # A buffer: as a host array it would exceed many hosts' memory.
            make(self, mint.empty(named["shape"], dtype=named["dtype"]))
            return
        make(self, *arguments, **named)
        if self.has_init:
            self.init_data()

    Tensor.__init__ = initialise


def _receive_by_the_public_function(communication: Any) -> None:  # noqa: ANN401 - a module of the framework, no types
    # Receive from other stages through ``mint.distributed``. The inner operator that the pipeline's ``IRecv`` calls crashes the
    # simulated process with a segmentation fault (MindSpore 2.7 and 2.9); the public function creates the same tensor and works.
    def receive(tag: int, source: int, shape: Sequence[int], group: str, dtype: Type) -> tuple[Tensor, Any]:
        buffer = mint.empty(tuple(shape), dtype=dtype)
        return buffer, distributed.irecv(buffer, distributed.get_global_rank(group, source), group=group, tag=tag)

    communication.inner_comm_irecv_op = receive
