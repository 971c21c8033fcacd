"""Test which kind of run a config gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ms_tune.dryrun.prepare import load_config, prepare_run
from ms_tune.dryrun.request import DryrunRequest
from ms_tune.enums import Dialect
from ms_tune.errors import ConfigError
from ms_tune.facts.query import data_folder
from tests.dryrun.configs import MINDFORMERS, MINDSPEED
from tests.kinds import labels


@pytest.fixture(autouse=True)
def working_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def write(config: dict[str, Any], name: str = "config.yaml") -> Path:
    path = Path(name)
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


def test_a_config_below_the_working_folder_is_named_from_there(tmp_path: Path) -> None:
    path = write(MINDSPEED)
    assert prepare_run(DryrunRequest(config=path.resolve())).config_name == "config.yaml"
    (tmp_path / "sub").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path / "sub")
        assert prepare_run(
            DryrunRequest(config=path.resolve() if path.exists() else tmp_path / path)
        ).config_name == str(tmp_path / "config.yaml")


def test_a_dynamic_graph_config_of_mindformers_is_run_by_the_reference_transformer() -> None:
    path = data_folder("yaml_templates") / "mindformers_pynative" / "deepseek3_1b_moe.yaml"
    run = prepare_run(DryrunRequest(config=path, devices=8))
    assert run.dialect is Dialect.MINDFORMERS_PYNATIVE
    assert labels(run.kinds) == {"dense, full recompute": 1, "moe, full recompute": 15}
    assert run.model.id == "dryrun.model.reference"


def test_what_is_no_training_config_is_reported() -> None:
    with pytest.raises(ConfigError) as caught:
        prepare_run(DryrunRequest(config=write({"services": {"web": {"image": "nginx"}}})))
    assert caught.value.message.id == "dryrun.not-a-config"
    assert caught.value.location() == "config.yaml"


@pytest.mark.parametrize("config", [MINDFORMERS, MINDSPEED], ids=["mindformers", "mindspeed"])
def test_a_base_is_part_of_the_run_and_is_reported(config: dict[str, Any]) -> None:
    own = {"parallel_config": config["parallel_config"]}
    write({key: value for key, value in config.items() if key not in own}, "base.yaml")
    path = write({"base_config": "base.yaml", **own}, "split.yaml")
    whole = prepare_run(DryrunRequest(config=write(config)))
    run = prepare_run(DryrunRequest(config=path))
    assert (run.job, run.kinds, run.world_size) == (whole.job, whole.kinds, whole.world_size)
    assert [yaml.safe_load(text) for text in run.files.values()] == [
        yaml.safe_load(one) for one in whole.files.values()
    ]
    assert yaml.safe_load(load_config(DryrunRequest(config=path)).original.text) == config
    assert (run.config_name, run.warnings[1:]) == ("split.yaml", whole.warnings)
    assert run.warnings[0].params["file"] == Path("base.yaml")
