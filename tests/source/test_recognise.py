from __future__ import annotations

import pytest

from ms_tune.enums import Dialect
from ms_tune.job.detect import recognise
from ms_tune.source.yaml import load_source
from tests.source.corpus import wheel_configs

CONFIGS = wheel_configs()


@pytest.mark.parametrize(
    ("data", "dialect", "confident"),
    [
        ({"runner_config": {}, "trainer": {}, "model": {"model_config": {}}}, Dialect.MINDFORMERS, True),
        ({"parallel_config": {"pipeline_stage": 2}}, Dialect.MINDFORMERS, True),
        ({"recompute_config": {}}, Dialect.MINDFORMERS, False),
        ({"train_dataset": {"data_loader": {}}}, Dialect.MINDFORMERS, False),  # a file of data set settings alone
        ({"train_dataset": {"dataloader": {}}}, Dialect.MINDFORMERS_PYNATIVE, True),
        ({"train_dataset": {"batch_size": 1}}, None, False),
        ({"parallelism": {}, "training": {}, "model": {}}, Dialect.MINDFORMERS_PYNATIVE, True),
        ({"training_config": {}, "parallel_config": {}}, Dialect.MINDSPEED_MS, True),
        ({"parallel_config": {"tensor_model_parallel_size": 2}}, Dialect.MINDSPEED_MS, True),
        ({"parallel_config": {"recompute_config": {}}}, Dialect.MINDSPEED_MS, False),
        ({"training_config": {}, "model_config": {}, "trainer": {}}, Dialect.MINDSPEED_MS, False),
        ({"parallel_config": 3}, None, False),
        ({"llama": {"a": 1}}, None, False),
        ([], None, False),
        ({"parallelism": {}, "trainer": {}}, None, False),
    ],
)
def test_recognise(data: object, dialect: Dialect | None, *, confident: bool) -> None:
    found = recognise(data)
    assert (found.dialect, found.confident) == (dialect, confident)


def test_evidence_names_key_paths() -> None:
    found = recognise({"parallel_config": {"pipeline_stage": 2, "data_parallel": 1}, "other": 1})
    assert found.evidence == (("parallel_config", "data_parallel"), ("parallel_config", "pipeline_stage"))
    assert recognise({"parallelism": {}, "trainer": {}}).evidence == (("trainer",), ("parallelism",))


@pytest.mark.skipif(not CONFIGS, reason="mindformers is not installed")
def test_wheel_configs() -> None:
    for path in CONFIGS:
        found = recognise(load_source(path).data)
        if path.parent.name == "convert_config":
            assert found.dialect is None, path
        elif "parallelism" in load_source(path).data:
            assert found.dialect is Dialect.MINDFORMERS_PYNATIVE, path
        else:
            assert found.dialect is Dialect.MINDFORMERS, path
            assert found.confident, path
