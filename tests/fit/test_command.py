"""Test ``ms-tune fit CONFIG`` from its arguments to the file it writes, with the real MindSpore."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ms_tune.cli.main import main
from ms_tune.dryrun.request import DryrunRequest
from ms_tune.enums import RecomputeMode
from ms_tune.errors import ExitCode
from ms_tune.facts.query import data_folder
from ms_tune.fit.job import read_job
from ms_tune.source.yaml import load_source
from tests.dryrun import configs
from tests.jobs import normalize_source

MOST = 0.005  # of a peak, that the table's may be off


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a config with two stages of four layers, and a comment to keep."""
    data: dict[str, Any] = yaml.safe_load(yaml.safe_dump(configs.MINDSPEED))
    data["parallel_config"] = {"pipeline_model_parallel_size": 2, "recompute_config": {"recompute": [0, 0]}}
    data["dataset_config"] = {"batch_size": 1, "micro_batch_num": 4}
    data["model_config"] |= {"hidden_size": 512, "ffn_hidden_size": 1536, "seq_length": 1024, "vocab_size": 8000}
    file = tmp_path / "train.yaml"
    file.write_text("# ours\n" + yaml.safe_dump(data), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return file


@pytest.mark.slow
@pytest.mark.mindspore
def test_a_plan_that_fits_is_found_proved_and_written(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = [str(config), "--effort", "quick", "--kinds", "full"]
    assert main(["fit", *options, "--no-verify", "--json", "--device-memory", "8GB"]) == ExitCode.OK
    roomy = json.loads(capsys.readouterr().out)
    assert roomy["verified"] is False
    assert not any(map(any, roomy["plan"]["recompute"]))
    # Devices whose first stage lacks the memory of two of its layers.
    (layer,) = roomy["table"]["layers"]
    missing = layer["recompute"]["none"]["activation_bytes"] * 3
    least = max(roomy["peak_bytes"]) - missing + roomy["reserve_bytes"]
    monkeypatch.setattr("ms_tune.verdict.limit.pool_of", lambda _free: least)

    assert main(["fit", *options, "--json", "--write", "--device-memory", "8GB"]) == ExitCode.OK
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert found["verified"] is True
    assert found["device_limit_bytes"] == least
    for stage in found["stages"]:
        assert abs(stage["error"]) <= MOST
        assert stage["verdict"] == "fits"
        assert stage["footprint_bytes"] + stage["reserve_bytes"] <= least
    assert {stage["stage"] for stage in found["stages"]} == {0, 1}
    assert "2 layers: " not in captured.err  # the small dryruns are not repeated
    text = config.read_text(encoding="utf-8")
    assert text.startswith("# ours\n")
    plan = normalize_source(load_source(config))
    full = [sum(layer.recompute.value == "full" for layer in plan.layers if layer.stage == stage) for stage in (0, 1)]
    assert [full] == found["plan"]["recompute"]
    assert plan.placement == (tuple(4 + more for more in found["plan"]["offset"][0]),)
    assert roomy["time"] <= found["lower_bound"] <= found["time"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "CONFIG"),
        (["train.yaml", "--limit", "5GB"], "--limit"),
        (["train.yaml", "--table", "t.json"], "--table"),
        (["train.yaml", "--stages", "4"], "--stages"),
        (["--table", "t.json", "--write"], "--write"),
        (["--table", "t.json", "--device-memory", "64GB"], "--device-memory"),
        (["train.yaml", "--write", "--diff"], "--diff"),
        (["train.yaml", "--write", "--set", "a.b=1"], "--set"),
        (["train.yaml", "--kinds", "half"], "half"),
        (["nowhere.yaml"], "nowhere.yaml"),
        (["train.yaml", "--device-memory", "64"], "64"),
    ],
)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_mistakes_are_explained(
    config: Path, arguments: list[str], words: str, language: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert config.name == "train.yaml"
    assert main(["fit", *arguments, "--lang", language]) == ExitCode.USAGE
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.out == ""
    assert "Traceback" not in captured.err


class TestExplain:
    @pytest.mark.parametrize("language", ["en", "zh"])
    def test_where_the_time_goes(self, config: Path, language: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["fit", str(config), "--explain", "--lang", language]) == ExitCode.OK
        lines = capsys.readouterr().out.splitlines()
        shares = [float(found[1]) for line in lines if (found := re.match(r" {2,}(\d+\.\d)%  ", line))]
        assert len(shares) == 4
        assert sum(shares) == pytest.approx(100, abs=0.3)

    def test_as_json(self, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
        text = config.read_text(encoding="utf-8").replace("- 0\n    - 0\n", "- 3\n    - 0\n")
        config.write_text(text, encoding="utf-8")
        assert main(["fit", str(config), "--explain", "--json"]) == ExitCode.OK
        found = json.loads(capsys.readouterr().out)
        assert found["cells"] == [{"full": 3, "none": 1}, {"none": 4}]
        assert (found["stages"], found["micro_batches"], found["order"]) == (2, 4, "1f1b")
        assert found["recompute"] > 0
        assert sum(found[name] for name in ("work", "recompute", "fill", "imbalance")) == pytest.approx(1)

    def test_by_a_measured_step(self, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["fit", str(config), "--explain", "--calibrate", "step=10s"]) == ExitCode.OK
        shown = capsys.readouterr().out
        parts = [
            (float(found[1]), float(found[2]))
            for found in re.finditer(r"^ +(\d+\.\d)% +(\d+\.\d{3}) s  ", shown, re.MULTILINE)
        ]
        assert len(parts) == 4
        assert all(seconds == pytest.approx(share / 10, abs=0.006) for share, seconds in parts)

    @pytest.mark.parametrize("option", ["--write", "--diff", "--no-verify", "--html=page.html"])
    def test_nothing_else_goes_with_it(self, config: Path, option: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["fit", str(config), "--explain", option]) == ExitCode.USAGE
        assert option.partition("=")[0] in capsys.readouterr().err


def test_a_config_that_its_framework_refuses(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = config.read_text(encoding="utf-8").replace("- 0\n    - 0\n", "- 0\n    - 0\n    - 0\n")
    assert text.count("- 0") == 3
    config.write_text(text, encoding="utf-8")
    assert main(["fit", str(config)]) == ExitCode.USAGE
    assert str(config.name) in capsys.readouterr().err
    assert config.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("option", [[], ["--explain"]])
def test_a_dynamic_graph_on_one_device_has_nothing_to_plan(
    tmp_path: Path, option: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    data = yaml.safe_load(
        (data_folder("yaml_templates") / "mindformers_pynative" / "deepseek3_1b_moe.yaml").read_text("utf-8")
    )
    data["parallelism"] = {"data_parallel_shard": 1}
    file = tmp_path / "one.yaml"
    file.write_text(yaml.safe_dump(data), encoding="utf-8")
    assert main(["fit", str(file), "--devices", "1", *option]) == ExitCode.USAGE
    output = capsys.readouterr().err
    assert "this job has one device" in output
    assert "--devices N" in output
    alone, two = (read_job(DryrunRequest(config=file, devices=devices)).now for devices in (1, 2))
    assert {layer.recompute for layer in alone.layers} == {RecomputeMode.NONE}
    assert RecomputeMode.FULL in {layer.recompute for layer in two.layers}


@pytest.mark.parametrize("written", ["use_parallel: False", ""])
@pytest.mark.parametrize("lists", ["recompute: True", "recompute: [8, 8, 8, 8]"])
@pytest.mark.parametrize("option", [[], ["--explain"]])
def test_stages_that_do_not_count_are_reported(
    tmp_path: Path, written: str, lists: str, option: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    text = (data_folder("yaml_templates") / "mindformers" / "qwen3_32b.yaml").read_text(encoding="utf-8")
    text = text.replace("use_parallel: True", written).replace("recompute: [[8, 6, 4, 2], [8, 6, 4, 2]]", lists)
    text = text.replace("pp_interleave_num: 2", "pp_interleave_num: 1")
    file = tmp_path / "static.yaml"
    file.write_text(text.replace("pipeline_interleave: True", "pipeline_interleave: False"), encoding="utf-8")
    assert main(["fit", str(file), *option]) == ExitCode.USAGE
    output = capsys.readouterr().err
    assert "use_parallel is off" in output
    assert "pp(1)" not in output
    assert main(["fit", str(file), "--explain", "--set", "use_parallel=True"]) == ExitCode.OK


@pytest.mark.parametrize(
    ("written", "named"),
    [
        (("model_type: deepseek_v3", "model_type: deepseek_v3"), None),
        (("model_type: deepseek_v3", "model_type: our_model"), "our_model"),
        (("architectures: DeepseekV3ForCausalLM", "architectures: ['OurForCausalLM']"), "OurForCausalLM"),
    ],
)
def test_a_model_of_ones_own_is_said_not_to_be_run(tmp_path: Path, written: tuple[str, str], named: str | None) -> None:
    text = (data_folder("yaml_templates") / "mindformers_pynative" / "deepseek3_1b_moe.yaml").read_text("utf-8")
    file = tmp_path / "own.yaml"
    file.write_text(text.replace(*written), encoding="utf-8")
    job = read_job(DryrunRequest(config=file, devices=8))
    reported = [note for note in job.first.not_included if note.id == "pynative.not-included.own-model"]
    assert [note.params["name"] for note in reported] == ([] if named is None else [named])
