"""Train a MindFormers model (dynamic graph) with MindFormers' own trainer, on synthetic samples.

Makes the same calls as a training script: ``Trainer(config).train()`` of ``mindformers.pynative.trainer`` (2.0 and
2.1). Only a loader of synthetic samples and a callback that reports progress are added.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mindspore
import numpy as np
import yaml
from mindformers.pynative.callback import TrainerCallback
from mindformers.pynative.distributed.expert_parallel import ExpertParallel
from mindformers.pynative.trainer import Trainer
from mindformers.pynative.trainer import utils as trainer_utils
from mindspore import Parameter, Tensor, mint
from mindspore.dataset import GeneratorDataset

from ms_tune.dryrun.child.pynative_compat import know_who_is_in_a_group, receive_stage_input, spread_tokens_evenly
from ms_tune.dryrun.job import PYNATIVE_LOADER, PynativeJob
from ms_tune.records import from_plain
from ms_tune.training_process import begin_dynamic_graph, lies_in, report, tensors_in, write_tensor_list

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SMALL = 1 << 20  # bytes; step counts and the like keep their values


class _DynamicStepReport(TrainerCallback):
    """A callback that reports the current step to the parent process."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps

    def on_step_begin(self, args: object, state: Any, **_: object) -> None:  # noqa: ANN401, ARG002 - as it is called
        report("step", state.global_step + 1, self.steps)


def run(job_data: Mapping[str, object]) -> None:
    """Build this rank's part of the model from the rewritten config, train it, and list the tensors that stay in memory."""
    job = from_plain(PynativeJob, job_data)
    report("build")
    begin_dynamic_graph()
    _avoid_host_work()
    _answer_for_other_ranks(job)
    if not hasattr(trainer_utils, PYNATIVE_LOADER):
        message = f"{trainer_utils.__name__} has no {PYNATIVE_LOADER}: this release of MindFormers is not known"
        raise RuntimeError(message)
    setattr(trainer_utils, PYNATIVE_LOADER, _make_loader(job))
    config = yaml.safe_load(Path(job.config_file).read_text(encoding="utf-8"))
    trainer = Trainer(config=config, callbacks=[_DynamicStepReport(job.steps)])
    try:
        trainer.train()
    except RuntimeError as error:
        # ``training_step`` only says "Error in training step 0."; the actual error is the exception's cause.
        raise error.__cause__ or error from None
    mindspore.runtime.synchronize()
    write_tensor_list(_persistent_tensors(trainer.model, trainer.optimizer))
    report("write")


def _answer_for_other_ranks(job: PynativeJob) -> None:
    if "MS_SIMULATION_LEVEL" not in os.environ:
        return
    know_who_is_in_a_group()
    spread_tokens_evenly(ExpertParallel)
    if job.handed:
        receive_stage_input(job.handed, job.handed_dtype)


def _make_loader(job: PynativeJob) -> Callable[..., GeneratorDataset]:
    # Return the replacement for the config's data loader; the trainer makes batches of its samples by its own rules. A
    # single sequence: FlashAttention reads only the ends of sequences on the host.
    values = {"actual_seq_len": job.length, "loss_mask": 1}
    sample = tuple(np.full(column.shape, values.get(column.name, 0), column.dtype) for column in job.columns)
    names = [column.name for column in job.columns]

    def samples() -> Iterator[tuple[NDArray[Any], ...]]:
        for _ in range(job.samples):
            yield sample

    def load(**_: object) -> GeneratorDataset:
        return GeneratorDataset(samples, column_names=names, shuffle=False, num_parallel_workers=1)

    return load


def _persistent_tensors(models: Iterable[Any], optimizer: Any) -> dict[str, list[Tensor]]:  # noqa: ANN401 - MindFormers has no types
    parameters = [parameter for model in models for parameter in model.get_parameters()]
    weights = _on_the_device(parameters)
    kept = (trainer_utils.get_grad(parameter) for parameter in parameters)
    gradients = _on_the_device(gradient for gradient in kept if gradient is not None)
    state = _on_the_device(tensors_in(vars(optimizer)))
    others = [*weights, *gradients]
    return {
        "weights": weights,
        "optimizer_state": [tensor for tensor in state if not lies_in(tensor, others)],
        "gradients": gradients,
    }


def _on_the_device(tensors: Iterable[Any]) -> list[Tensor]:
    # Return the local parts of the tensors, except those moved to the host.
    local = (tensor.to_local() if hasattr(tensor, "to_local") else tensor for tensor in tensors)
    return [tensor for tensor in local if not str(tensor.device).startswith("CPU") and tensor.data_ptr()]


def _avoid_host_work() -> None:
    # Make parameters from tensors without copying the tensors' values to the host. ``AdamW._init_main_params``
    # (MindFormers 2.0 and 2.1, pynative/optimizer/adamw.py) makes a parameter of every float32 copy, and MindSpore
    # (2.10, ``Parameter._get_parameter_new_args``) reads the tensor's values into a NumPy array for it: a model of 7
    # billion weights would need 28 GB on the host, and the same again for the moments made from the copies. Device
    # memory is unchanged: the parameter is allocated there by the first operator that reads it. On devices (``--real``)
    # values matter, and nothing is changed.
    if "MS_SIMULATION_LEVEL" not in os.environ:
        return
    made_of = Parameter._get_parameter_new_args  # noqa: SLF001 - no public name

    def without_values(data: Any, *rest: Any) -> tuple[Any, ...]:  # noqa: ANN401 - as Parameter takes them
        # A model is first made without any memory.
        there = isinstance(data, Tensor) and not data.is_meta and mindspore.get_context("device_target") != "meta"
        if there and not data.has_init and data.nbytes > _SMALL:
            return Tensor, mint.empty(data.shape, dtype=data.dtype, device="CPU")
        made: tuple[Any, ...] = made_of(data, *rest)
        return made

    Parameter._get_parameter_new_args = staticmethod(without_values)  # noqa: SLF001 - as above
