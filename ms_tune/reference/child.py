"""Trains one stage of ms-tune's reference transformer for a few steps."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import mindspore
from mindspore.communication import init

from ms_tune.reference.job import rank_groups, reference_job_from_json
from ms_tune.reference.transformer.parallel import make_groups
from ms_tune.reference.transformer.settings import NetworkSettings
from ms_tune.reference.transformer.training import Trainer
from ms_tune.training_process import begin_dynamic_graph, make_clones_cheap, report, write_tensor_list

if TYPE_CHECKING:
    from collections.abc import Mapping


def run(job_data: Mapping[str, object]) -> None:
    """Build the stage, train, and list what stays in memory."""
    job = reference_job_from_json(job_data)
    report("build")
    begin_dynamic_graph()
    make_clones_cheap()
    if job.data_parallel * job.config.parallelism.model_size > 1:
        init()
    groups = make_groups(rank_groups(job.config, job.data_parallel, int(os.environ["RANK_ID"])))
    trainer = Trainer(job.stage, NetworkSettings(job.config, groups))
    for step in range(1, job.steps + 1):
        report("step", step, job.steps)
        trainer.step()
    mindspore.runtime.synchronize()
    write_tensor_list(trainer.tensors())
    report("write")
