"""Test the transfer of a job through a JSON file."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from ms_tune.dialects.job_parts import (
    Experts,
    LatentAttention,
    MicroBatches,
    ModelShape,
    Optimizer,
    Parallelism,
    Precision,
    TrainingConfig,
)
from ms_tune.dialects.stage import Chunk, Stage, StageLayer
from ms_tune.dryrun.job import Column, MindFormersJob
from ms_tune.records import from_plain, plain_data
from ms_tune.reference.job import ReferenceJob
from tests.dryrun.configs import TRAINING

REFERENCE = st.builds(
    ReferenceJob,
    st.builds(
        TrainingConfig,
        shape=st.builds(
            ModelShape,
            rotary_fraction=st.floats(0, 1),  # no job has NaN, which equals nothing
            latent=st.none() | st.builds(LatentAttention),
            experts=st.none() | st.builds(Experts, capacity_factor=st.none() | st.floats(0.5, 4.0)),
        ),
        parallelism=st.builds(Parallelism),
        batch=st.builds(MicroBatches),
        precision=st.builds(Precision),
        optimizer=st.builds(Optimizer),
    ),
    st.builds(
        Stage,
        chunks=st.lists(
            st.builds(
                Chunk,
                st.lists(st.builds(StageLayer, select=st.lists(st.text()).map(tuple)), max_size=3).map(tuple),
                st.booleans(),
                st.booleans(),
            ),
            max_size=3,
        ).map(tuple),
    ),
    st.integers(1, 1024),
    st.integers(1, 10),
    st.just("reference"),
    st.just("ms_tune.reference.transformer.training"),
)
MINDFORMERS = st.builds(
    MindFormersJob,
    columns=st.lists(st.builds(Column)).map(tuple),
    kind=st.just("mindformers"),
    module=st.just("ms_tune.dryrun.child.mindformers"),
)


@given(REFERENCE)
def test_a_reference_job_comes_back_as_it_went(job: ReferenceJob) -> None:
    written = json.loads(json.dumps(plain_data(job)))
    assert written["kind"] == "reference"
    assert from_plain(ReferenceJob, written) == job


@given(MINDFORMERS)
def test_a_mindformers_job_comes_back_as_it_went(job: MindFormersJob) -> None:
    written = json.loads(json.dumps(plain_data(job)))
    assert written["kind"] == "mindformers"
    assert from_plain(MindFormersJob, written) == job


def test_number_formats_are_written_as_their_names() -> None:
    stage = Stage(0, 1, (Chunk((StageLayer(0),), embedding=True, head=True),))
    written = json.loads(json.dumps(plain_data(ReferenceJob(TRAINING, stage, 8, 2))))
    given = {name: value for name, value in written["config"]["precision"].items() if value is not None}
    assert given == {"parameters": "bfloat16", "mixed": True, "gradients": "float32"}
    assert written["config"]["optimizer"]["sharding"] == "optimizer"
