"""Trains a MindFormers model (static graph) on a small synthetic data set."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mindspore
import numpy as np
from mindformers import MindFormerConfig, build_context
from mindformers.trainer import Trainer
from mindspore import Callback
from mindspore.dataset import GeneratorDataset

from ms_tune.dryrun.child.mindformers_experts import serve_any_number_of_experts
from ms_tune.dryrun.job import MindFormersJob, mindformers_job_from_json
from ms_tune.training_process import make_initialisation_cheap, report

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mindspore.train import RunContext
    from numpy.typing import NDArray


class _StaticStepReport(Callback):
    """Tells the parent process which step runs."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps

    def on_train_step_begin(self, run_context: RunContext) -> None:
        """Report the step that begins."""
        step = run_context.original_args().cur_step_num
        # The first step compiles the graph before it runs, which takes most of the time.
        report("step" if step > 1 else "compile", step, self.steps)


def run(job_data: Mapping[str, object]) -> None:
    """Build the model from the rewritten config and train it."""
    job = mindformers_job_from_json(job_data)
    # MindFormers leaves a file `parallel_speed_up_*.json` in the temporary folder (core/context/build_context.py).
    tempfile.tempdir = str(Path.cwd())
    report("build")
    # Some models build their network for inference unless they are told, and fail later on (qwen2/modeling_qwen2.py).
    os.environ["RUN_MODE"] = "train"
    make_initialisation_cheap()
    serve_any_number_of_experts()
    config = MindFormerConfig(job.config_file)
    build_context(config)
    mindspore.runtime.dispatch_threads_num(job.threads)
    trainer = Trainer(task="text_generation", args=config, train_dataset=_data_set(job))
    trainer.callbacks = [_StaticStepReport(job.batches)]
    trainer.train()
    report("write")


def _data_set(job: MindFormersJob) -> GeneratorDataset:
    """Samples of zeros: nothing is computed, only shapes and number formats count."""
    sample = tuple(np.zeros(column.shape, column.dtype) for column in job.columns)

    def samples() -> Iterator[tuple[NDArray[Any], ...]]:
        for _ in range(job.batches * job.batch_size):
            yield sample

    names = [column.name for column in job.columns]
    return GeneratorDataset(samples, column_names=names, shuffle=False).batch(job.batch_size)
