"""Test dynamic-graph configs where their own framework is installed: its choice, and its input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ms_tune.dialects.job_parts import SettingChange
from ms_tune.dryrun.job import MindSpeedJob
from ms_tune.dryrun.reading import see_log
from ms_tune.dryrun.request import STEPS, DryrunRequest, PreparedRun
from ms_tune.errors import UnsupportedError
from ms_tune.facts.training import mindspeed_framework
from tests.dryrun.configs import MINDSPEED, edited, prepare_mindspeed

READS_YAML = "def init_configs_from_yaml(file_path):\n    raise AssertionError('never imported')\n"
PLACES = {
    "mindspeed_ms": "mindspeed_ms/core/config.py",
    "mindformers.experimental.parallel_core.pynative": "mindformers/experimental/parallel_core/pynative/config.py",
}


def install(folder: Path, config: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a package on the path whose modules must not be imported."""
    file = folder / config
    file.parent.mkdir(parents=True)
    file.write_text(text, encoding="utf-8")
    (folder / Path(config).parts[0] / "__init__.py").write_text("raise AssertionError('imported')", encoding="utf-8")
    monkeypatch.syspath_prepend(folder)


@pytest.fixture
def mindspeed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, PLACES["mindspeed_ms"], READS_YAML, monkeypatch)


def handed_over(run: PreparedRun) -> dict[str, Any]:
    assert isinstance(run.job, MindSpeedJob)
    loaded: dict[str, Any] = yaml.safe_load(run.files[run.job.config_file])
    return loaded


@pytest.mark.parametrize(("package", "config"), PLACES.items())
def test_the_installed_framework_is_found_without_importing_it(
    package: str, config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, config, READS_YAML, monkeypatch)
    found = mindspeed_framework()
    assert found is not None
    assert found.package == package


def test_a_release_that_reads_no_yaml_is_not_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, PLACES["mindspeed_ms"], "def parse_args():\n    pass\n", monkeypatch)
    found = mindspeed_framework()
    assert found is None or found.package != "mindspeed_ms"


@pytest.mark.usefixtures("mindspeed")
def test_the_framework_gets_the_users_config_but_for_what_reads_writes_or_waits() -> None:
    config = edited(MINDSPEED, "training_config.load_checkpoint", "/data/checkpoint")
    config = edited(config, "training_config.training_iters", 5000)
    config = edited(config, "dataset_config.dataset_dir", "/data/tokens")
    run = prepare_mindspeed(config)
    assert run.job == MindSpeedJob("mindspeed_ms", "config.yaml", STEPS)
    assert run.changes == (
        SettingChange("training_config.load_checkpoint", "/data/checkpoint", None),
        SettingChange("dataset_config.dataset_dir", "/data/tokens", None),
        SettingChange("training_config.training_iters", 5000, STEPS),
    )
    expected = edited(MINDSPEED, "training_config.training_iters", STEPS)
    assert handed_over(run) == expected
    assert run.model.id == "reference.by-framework"


@pytest.mark.usefixtures("mindspeed")
@pytest.mark.parametrize(("key", "value"), [("parallel_config.zero_level", "z3"), ("lora_config.use_lora", True)])
def test_it_may_do_what_the_reference_transformer_does_not(key: str, value: object) -> None:
    config = edited(MINDSPEED, key, value)
    run = prepare_mindspeed(config)
    assert isinstance(run.job, MindSpeedJob)
    assert run.theory == {}
    with pytest.raises(UnsupportedError):
        prepare_mindspeed(config, DryrunRequest(reference=True))


@pytest.mark.parametrize(
    ("job", "text"),
    [
        ('{"kind": "mindspeed"}', "reference.run.log"),
        ('{"kind": "reference"}', "dryrun.run.log"),
        ("[1]", "dryrun.run.log"),
        (None, "dryrun.run.log"),
    ],
)
def test_where_the_framework_failed_the_way_out_is_reported(job: str | None, text: str, tmp_path: Path) -> None:
    if job is not None:
        (tmp_path / "job.json").write_text(job, encoding="utf-8")
    assert see_log(tmp_path).id == text
