"""The job's way through a JSON file."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_tune.config.model import (
    Batch,
    DType,
    ModelShape,
    Optimizer,
    Parallelism,
    Precision,
    Recompute,
    TrainingConfig,
)
from ms_tune.dryrun.job import MindFormersJob, ReferenceJob, mindformers_job_from_json, reference_job_from_json

REFERENCE = st.builds(
    ReferenceJob,
    st.builds(
        TrainingConfig,
        shape=st.builds(ModelShape),
        parallelism=st.builds(Parallelism),
        batch=st.builds(Batch),
        precision=st.builds(Precision, st.sampled_from(DType), st.booleans(), st.sampled_from(DType)),
        optimizer=st.builds(Optimizer),
        recompute=st.none() | st.builds(Recompute),
    ),
    st.integers(1, 1024),
    st.integers(1, 10),
)
MINDFORMERS = st.builds(MindFormersJob, columns=st.lists(st.text()).map(tuple))


@given(REFERENCE)
def test_a_reference_job_comes_back_as_it_went(job: ReferenceJob) -> None:
    written = json.loads(json.dumps(job.to_json()))
    assert written["kind"] == "reference"
    assert reference_job_from_json(written) == job


@given(MINDFORMERS)
def test_a_mindformers_job_comes_back_as_it_went(job: MindFormersJob) -> None:
    written = json.loads(json.dumps(job.to_json()))
    assert written["kind"] == "mindformers"
    assert mindformers_job_from_json(written) == job


def test_number_formats_are_written_as_their_names() -> None:
    precision = Precision(DType.BFLOAT16, mixed=True, gradients=DType.FLOAT32)
    shape = ModelShape(100, 64, 128, 2, 4, 4, 16, 32, "swiglu", "RMSNorm", *[True] * 6)
    config = TrainingConfig(
        shape,
        Parallelism(1, 1, 1, 1, None, sequence=False),
        Batch(1, 2),
        precision,
        Optimizer("mint.AdamW", gradient_buffers=True, distributed=True),
        None,
    )
    written = json.loads(json.dumps(ReferenceJob(config, 8, 2).to_json()))
    assert written["config"]["precision"] == {"parameters": "bfloat16", "mixed": True, "gradients": "float32"}
    assert written["config"]["recompute"] is None


def test_a_job_with_a_missing_field_is_an_error_and_not_a_guess() -> None:
    written = MindFormersJob("config.yaml", ("input_ids",), 2, 1, 128, 8).to_json()
    del written["batch_size"]
    with pytest.raises(KeyError, match="batch_size"):
        mindformers_job_from_json(written)
