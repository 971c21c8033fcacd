"""Train a MindFormers model (static graph) on a small synthetic data set."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mindspore
import numpy as np
from mindformers import MindFormerConfig, build_context
from mindformers.parallel_core.training_graph.transformer.moe.token_dispatcher import MoEAlltoAllTokenDispatcher
from mindformers.parallel_core.transformer_config import TransformerConfig
from mindformers.trainer import Trainer
from mindspore import Callback, Tensor, ops
from mindspore.dataset import GeneratorDataset

from ms_tune.dryrun.experts import shared_out
from ms_tune.dryrun.job import MindFormersJob
from ms_tune.records import from_plain
from ms_tune.training_process import make_initialisation_cheap, report

if TYPE_CHECKING:
    from mindspore.train import RunContext
    from numpy.typing import NDArray

_LEVEL = "MS_SIMULATION_LEVEL"
_EVEN = "preprocess_with_dryrun"
_DISPATCHER = "alltoall"


def _serve_any_number_of_experts() -> None:
    # Let MindFormers simulate a mixture of experts whose number does not divide the tokens of a sequence. In simulation
    # the router's choices are unknown, so MindFormers (1.8 to 2.1) gives every expert the same number, and rejects a
    # config if its tokens do not divide evenly (``__post_init__`` in parallel_core/transformer_config.py): for example
    # 160 or 192 experts and sequences of 4096 tokens, which train on devices. Here the first experts get one token more
    # than the others. Configs that MindFormers can simulate are left to it.
    if not hasattr(MoEAlltoAllTokenDispatcher, _EVEN):  # MindFormers 1.6 reads the router's result
        return
    settle = TransformerConfig.__post_init__

    @wraps(settle)
    def validate_in_simulation(config: TransformerConfig) -> None:
        experts = config.num_moe_experts
        if not experts or config.seq_length % experts == 0 or config.moe_token_dispatcher_type != _DISPATCHER:
            settle(config)
            return
        level = os.environ.pop(_LEVEL)  # makes MindFormers check, and switch its dispatcher
        try:
            settle(config)
        finally:
            os.environ[_LEVEL] = level
        config.is_dryrun = True
        setattr(MoEAlltoAllTokenDispatcher, _EVEN, _preprocess)

    TransformerConfig.__post_init__ = validate_in_simulation


def _preprocess(self: MoEAlltoAllTokenDispatcher, permuted_input: Tensor) -> object:
    # Replace ``preprocess_with_dryrun``: return the ends of the experts' tokens, and the counts exchanged with each rank.
    return _split_tokens(permuted_input.shape[1], self.expert_num, self.ep, self.rank_id % self.ep)


@ops.constexpr  # type: ignore[untyped-decorator]
def _split_tokens(tokens: int, experts: int, ranks: int, own: int) -> tuple[Tensor, ...]:
    return tuple(Tensor(list(numbers), mindspore.int64) for numbers in shared_out(tokens, experts, ranks, own))


class _StaticStepReport(Callback):
    """A callback that reports the current step to the parent process."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps

    def on_train_step_begin(self, run_context: RunContext) -> None:
        step = run_context.original_args().cur_step_num
        # The first step compiles the graph before it runs, which takes most of the time.
        report("step" if step > 1 else "compile", step, self.steps)


def run(job_data: Mapping[str, object]) -> None:
    """Build the model from the rewritten config and train it."""
    job = from_plain(MindFormersJob, job_data)
    # MindFormers leaves a file `parallel_speed_up_*.json` in the temporary folder (core/context/build_context.py).
    tempfile.tempdir = str(Path.cwd())
    report("build")
    # Some models build their network for inference by default, and fail later (qwen2/modeling_qwen2.py).
    os.environ["RUN_MODE"] = "train"
    make_initialisation_cheap()
    _serve_any_number_of_experts()
    config = MindFormerConfig(job.config_file)
    build_context(config)
    mindspore.runtime.dispatch_threads_num(job.threads)
    trainer = Trainer(task="text_generation", args=config, train_dataset=_data_set(job))
    trainer.callbacks = [_StaticStepReport(job.batches)]
    trainer.train()
    report("write")


def _data_set(job: MindFormersJob) -> GeneratorDataset:
    # Return samples of zeros: nothing is computed, only shapes and number formats matter.
    sample = tuple(np.zeros(column.shape, column.dtype) for column in job.columns)

    def samples() -> Iterator[tuple[NDArray[Any], ...]]:
        for _ in range(job.batches * job.batch_size):
            yield sample

    names = [column.name for column in job.columns]
    return GeneratorDataset(samples, column_names=names, shuffle=False).batch(job.batch_size)
