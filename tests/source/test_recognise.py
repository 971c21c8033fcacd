"""Test the dialect of a file: configs of every framework, files of other programs, and parts of configs."""

from __future__ import annotations

import pytest
import yaml

from ms_tune.enums import YAML_DIALECTS, Dialect
from ms_tune.facts.query import load
from ms_tune.job.detect import count_keys, is_fragment, recognise
from ms_tune.source.yaml import load_source
from ms_tune.text import Language, render
from tests.files import read_data
from tests.source.corpus import wheel_configs

FOREIGN: dict[str, str] = read_data("foreign_files.yaml")


def test_keys_that_show_a_file_are_on_its_two_upper_levels() -> None:
    programs = [name for program in load("fingerprints")["foreign"] for name in program["keys"]]
    ours = [name for dialect in YAML_DIALECTS for kind in ("alone", "also") for name in load("releases")[dialect][kind]]
    assert max(name.count(".") for name in programs + ours) == 1


@pytest.mark.parametrize("program", sorted({one["id"] for one in load("fingerprints")["foreign"]}))
def test_files_of_other_programs_are_named(program: str) -> None:
    found = recognise(yaml.safe_load(FOREIGN[program]))
    assert found.foreign == program
    assert found.dialect in (None, program)  # of a dialect, or not checked
    assert found.why_not is not None
    assert render(found.why_not, Language.EN).startswith("this is ")
    assert render(found.why_not, Language.ZH).startswith("这是")


@pytest.mark.parametrize(
    "text",
    [
        "training: {max_steps: 3}\nmodel: {name: x}\n",  # names of sections, with none of their keys
        "trainer: {epochs: 3}\nmodel: {name: x}\ndata: {a: 1}\n",
        "lr_scheduler: cosine\noptimizer: adamw\nepochs: 3\n",
        "model_config: {bert: {a: 1}}\ndataset_config: {vqa: {b: 1}}\n",
        "dataset_config: {vqa: {b: 1}}\n",
        "parallelism: 4\nretries: 3\n",
    ],
)
def test_a_name_alone_is_not_enough(text: str) -> None:
    assert recognise(yaml.safe_load(text)).dialect is None


def test_a_file_most_of_whose_keys_are_unknown_is_of_no_dialect() -> None:
    unknown = {f"own_{number}": number for number in range(6)}
    data = {"runner_config": {"epochs": 1}, "use_parallel": True, **unknown}
    found = recognise(data)
    assert (found.dialect, found.looks_like) == (None, Dialect.MINDFORMERS)
    assert found.why_not is not None
    assert count_keys(data, Dialect.MINDFORMERS) == (3, 6)
    few = {"runner_config": {"epochs": 1}, "use_parallel": True, "own": 1, "_mine": 2}
    assert recognise(few).dialect is Dialect.MINDFORMERS
    assert count_keys(few, Dialect.MINDFORMERS) == (3, 1)
    assert count_keys({}, Dialect.MINDFORMERS) == count_keys([], Dialect.MINDFORMERS) == (0, 0)


def test_a_config_with_keys_of_another_program_stays_one() -> None:
    data = {
        "trainer": {"type": "CausalLanguageModelingTrainer", "model_name": "llama2_7b"},
        "runner_config": {"epochs": 1, "batch_size": 1},
        "parallel_config": {"data_parallel": 1, "model_parallel": 1},
        "model": {"model_config": {"type": "LlamaConfig", "num_layers": 2}},
        "use_parallel": True,
        "run_mode": "train",
        "repos": [],  # one stray key
    }
    assert recognise(data).dialect is Dialect.MINDFORMERS


def test_fragments() -> None:
    assert is_fragment({"train_dataset": {"data_loader": {}}}, Dialect.MINDFORMERS)
    assert is_fragment({"recompute_config": {}, "parallel_config": {}}, Dialect.MINDFORMERS)
    assert not is_fragment({"model": {"model_config": {}}, "parallel_config": {}}, Dialect.MINDFORMERS)
    assert is_fragment({"parallel_config": {}}, Dialect.MINDSPEED_MS)
    assert not is_fragment([], Dialect.MINDSPEED_MS)


def test_every_fingerprint_can_be_met_and_names_where_it_is_from() -> None:
    for one in load("fingerprints")["foreign"]:
        assert one["least"] <= len(one["keys"])
        assert set(one.get("needs", ())) <= set(one["keys"])
        assert one["source"]


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
