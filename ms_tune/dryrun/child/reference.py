"""Trains ms-tune's reference transformer for a few steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mindspore
import numpy as np
from mindspore import Tensor
from mindspore.communication import init

from ms_tune.dryrun.child.common import make_initialisation_cheap, report, write_tensor_list
from ms_tune.dryrun.job import reference_job_from_json
from ms_tune.dryrun.reference_model.network import Transformer
from ms_tune.dryrun.reference_model.training import DTYPES, Trainer

if TYPE_CHECKING:
    from collections.abc import Mapping


def run(job_data: Mapping[str, object]) -> None:
    """Build the network, train, and list what stays in memory."""
    job = reference_job_from_json(job_data)
    report("build")
    mindspore.set_device("Ascend", 0)
    make_initialisation_cheap()
    if job.data_parallel > 1:
        init()
    config = job.config
    recomputed = config.recompute.full if config.recompute else 0
    network = Transformer(config.shape, DTYPES[config.precision.parameters.value], recomputed)
    network.set_train()
    trainer = Trainer(network, config, job.data_parallel)
    shape = (config.batch.micro_batch_size, config.shape.seq_length)
    tokens, labels = Tensor(np.zeros(shape, np.int32)), Tensor(np.zeros(shape, np.int32))
    for step in range(1, job.steps + 1):
        report("step", step, job.steps)
        trainer.step(tokens, labels)
    mindspore.runtime.synchronize()
    write_tensor_list(trainer.tensors())
    report("write")
