"""Where the sizes of a job's model come from, and the commands that say so."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ms_tune.cli.main import main
from ms_tune.dryrun.prepare import load_config, prepare_run
from ms_tune.dryrun.request import DryrunRequest
from ms_tune.enums import SizeOrigin
from ms_tune.errors import ConfigError, ExitCode, UnknownSizesError
from ms_tune.job import ModelSizes, load_job
from ms_tune.workflows.check.config import OverviewRequest
from ms_tune.workflows.check.run import check_job

if TYPE_CHECKING:
    Write = Callable[..., Path]

CONFIG = """\
use_legacy: False
use_parallel: True
run_mode: finetune
pretrained_model_dir: {folder}
trainer: {{type: CausalLanguageModelingTrainer, model_name: {name}}}
context: {{mode: 0}}
parallel: {{parallel_mode: 1, enable_parallel_optimizer: True}}
parallel_config: {{data_parallel: 2, model_parallel: 4, pipeline_stage: 4, micro_batch_num: 4}}
runner_config: {{batch_size: 1}}
optimizer: {{type: AdamW}}
train_dataset: {{input_columns: [input_ids, labels, loss_mask, position_ids]}}
model: {{model_config: {{params_dtype: bfloat16{sizes}}}}}
"""
SMALL = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "vocab_size": 151936, "hidden_size": 1024}
SMALL |= {"intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8}
SMALL |= {"head_dim": 128, "tie_word_embeddings": True}


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def file(folder: object = "/nowhere/Qwen3-32B", name: str = "llm", sizes: str = "") -> Path:
        path = tmp_path / "train.yaml"
        path.write_text(CONFIG.format(folder=folder, name=name, sizes=sizes), encoding="utf-8")
        return path

    return file


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "Qwen3-0.6B"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(SMALL), encoding="utf-8")
    return folder


def sizes(path: Path, given: Path | None = None) -> tuple[ModelSizes, int]:
    """The origin of the sizes in a dryrun, and the layers."""
    job = load_config(DryrunRequest(config=path, model_config=given)).job
    return job.sizes, len(job.plan.layers)


def test_the_first_that_states_the_sizes_counts(write: Write, model: Path) -> None:
    named, here = write(), model / "config.json"
    assert sizes(named) == (ModelSizes(SizeOrigin.ASSUMED, None, "Qwen3-32B", "pretrained_model_dir"), 64)
    assert sizes(write(folder=model)) == (ModelSizes(SizeOrigin.FOLDER, here), 28)
    for given in (model, here):
        assert sizes(write(), given) == (ModelSizes(SizeOrigin.OPTION, here), 28)
    beside = here.rename(model.parent / "config.json")  # the program of the folder may set it
    assert sizes(write(folder="''")) == (ModelSizes(SizeOrigin.FOLDER, beside), 28)
    beside.unlink()
    written = ", model_type: qwen3, num_hidden_layers: 12"
    assert sizes(write(folder="''", name="Qwen3-32B", sizes=written)) == (ModelSizes(SizeOrigin.CONFIG), 12)
    assert sizes(write(sizes=written))[1] == 12  # the config wins
    assert sizes(write(folder="''", name="qwen3_14b"))[0] == ModelSizes(
        SizeOrigin.ASSUMED, None, "Qwen3-14B", "trainer.model_name"
    )


def test_a_dryrun_has_the_same_run_with_assumed_sizes_as_with_the_file(write: Write, model: Path) -> None:
    from_file = prepare_run(DryrunRequest(config=write(folder=model)))
    assumed = prepare_run(DryrunRequest(config=write(folder="/nowhere/Qwen3-0.6B")))
    assert assumed.configs == from_file.configs
    assert assumed.theory == from_file.theory
    assert [one.id for one in assumed.warnings if one.id.startswith("sizes")] == ["sizes.assumed"]


def test_unknown_sizes_are_asked_for(write: Write) -> None:
    path = write(folder="/nowhere/our-model")
    with pytest.raises(UnknownSizesError) as caught:
        prepare_run(DryrunRequest(config=path))
    assert caught.value.hint is not None
    assert caught.value.hint.id == "sizes.unknown.hint"
    overview = check_job(path)
    assert overview.no_estimate_because is not None
    assert overview.no_estimate_hint is not None
    assert (overview.exit_code(), overview.no_estimate_hint.id) == (ExitCode.OK, "sizes.unknown.hint")


def shipped() -> list[Path]:
    """The configs in the installed wheel of MindFormers that are a job's."""
    try:
        folder = Path(str(distribution("mindformers").locate_file("configs")))
    except PackageNotFoundError:
        return []
    return sorted(path for path in folder.glob("*/*.yaml") if path.parent.name != "convert_config")


@pytest.mark.slow
@pytest.mark.parametrize("path", shipped(), ids=lambda path: path.stem)
def test_a_shipped_config_has_an_estimate_or_the_one_thing_that_would_give_it(path: Path) -> None:
    overview = check_job(path)
    assert overview.exit_code() in (ExitCode.OK, ExitCode.FINDINGS)
    assert overview.next
    if overview.estimate is None:
        assert overview.no_estimate_because is not None
        assert overview.no_estimate_hint is not None
    if path.stem == "finetune_qwen3":
        assert overview.estimate is not None


def test_check_says_where_the_sizes_come_from(write: Write, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(write())]) == ExitCode.OK
    assert "assumed: Qwen3-32B (from pretrained_model_dir), 32.8B parameters" in capsys.readouterr().out
    assert main(["check", str(write()), "--model-config", str(model), "--json"]) == ExitCode.OK
    (file,) = json.loads(capsys.readouterr().out)["files"]
    assert file["layers"] == SMALL["num_hidden_layers"]
    assert file["sizes"] == {
        "origin": "model-config",
        "file": str(model / "config.json"),
        "model": None,
        "key": None,
        "parameters": 596049920,
    }
    request = OverviewRequest(DryrunRequest(model_config=model))
    assert check_job(write(), request).estimate == check_job(write(folder=model)).estimate


@pytest.mark.parametrize("command", ["lint", "normalize-recompute"])
def test_other_commands_read_the_file_but_assume_nothing(
    command: str, write: Write, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, str(write()), "--model-config", str(model)]) == ExitCode.OK
    assert str(model / "config.json") in capsys.readouterr().err
    code = main([command, str(write())])
    assert code == (ExitCode.OK if command == "lint" else ExitCode.USAGE)
    assert ("--layers N" in capsys.readouterr().err) == (command != "lint")


@pytest.mark.parametrize("command", ["check", "lint", "normalize-recompute", "dryrun", "fit"])
def test_a_file_that_does_not_read_it_is_refused(
    command: str, tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "legacy.yaml"
    path.write_text(CONFIG.format(folder="''", name="x", sizes="").replace("False", "True"), encoding="utf-8")
    assert main([command, str(path), "--model-config", str(model)]) == ExitCode.USAGE
    assert "use_legacy: False" in capsys.readouterr().err


def test_a_file_that_is_not_a_models_is_refused(write: Write, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        load_job(write(), model_config=tmp_path / "none.json").source  # noqa: B018 - reads it
    overview = check_job(write(), OverviewRequest(DryrunRequest(model_config=write())))
    assert overview.no_estimate_because is not None
    assert overview.no_estimate_because.id == "config.model-json"
