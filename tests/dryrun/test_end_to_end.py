"""Test the real MindSpore in simulation, from the command line to the verdict."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from ms_tune.facts.devices import free_of_card, pool_of
from ms_tune.facts.query import data_folder
from ms_tune.report.words import size_text
from ms_tune.units import gib, short_gib
from tests.cli.test_dryrun import JSON_KEYS
from tests.dryrun.machine import needs_mindformers, needs_mindspore

if TYPE_CHECKING:
    from tests.dryrun.conftest import RealRun

pytestmark = [pytest.mark.mindspore, needs_mindspore]

MIB = 1024**2
GIB = 1024**3
LAYERS = 4


def rows(run: RealRun) -> list[dict[str, str]]:
    """Read the trace without code of ms-tune."""
    (path,) = run.folder.glob("rank_*/**/memory_block.csv")
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def largest_use(run: RealRun) -> int:
    return max(int(row["actual_used_memory"]) for row in rows(run))


def swept_peak(run: RealRun) -> int:
    """Return the largest sum of the sizes of live blocks."""
    changes = []
    for row in rows(run):
        changes += [(int(row["start_time_stamp"]), int(row["size"])), (int(row["end_time_stamp"]), -int(row["size"]))]
    used = peak = 0
    for _, change in sorted(changes):
        used += change
        peak = max(peak, used)
    return peak


def memory_report(run: RealRun, *command: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "ms_tune", "memory", *command, str(run.folder), "--json"],
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def logged_peak(run: RealRun) -> int:
    """Return the peak from the log in MiB."""
    found = re.findall(r"Used peak memory usage \(without fragments\): (\d+)M", run.log)
    assert found, run.log[-2000:]
    return int(found[-1])


def logged_footprint(run: RealRun) -> int:
    """Return the footprint from the log in MiB."""
    return int(re.findall(r"Actual peak memory usage \(with fragments\): (\d+)M", run.log)[-1])


@pytest.fixture(scope="module")
def template() -> dict[str, Any]:
    text = (data_folder("yaml_templates") / "mindspeed_ms" / "llama2_7b.yaml").read_text("utf-8")
    read = yaml.safe_load(text)
    assert isinstance(read, dict)
    return read


@pytest.fixture(scope="module")
def parameters(template: dict[str, Any]) -> int:
    """Return the number of parameters of the packaged model with four layers: untied embeddings, SwiGLU, RMSNorm, no biases."""
    model = template["model_config"]
    hidden, wide, words = model["hidden_size"], model["ffn_hidden_size"], model["vocab_size"]
    layer = 4 * hidden * hidden + 3 * hidden * wide + 2 * hidden
    return int(2 * words * hidden + LAYERS * layer + hidden)


class TestPackagedModel:
    def test_it_ends_well_and_says_what_it_does(self, packaged_run: RealRun) -> None:
        assert packaged_run.code == 1, packaged_run.err  # on a card with 64 GB
        assert set(packaged_run.json) == JSON_KEYS
        # A short run writes one line of progress: whichever is the first.
        begins = ("first run: building stubs", "Simulating 4, 5 of 32 layers on stage 0")
        assert packaged_run.err.startswith(begins), packaged_run.err

    def test_it_ran_on_stand_ins_without_a_warning(self, packaged_run: RealRun) -> None:
        result = packaged_run.json
        assert (result["backend"], result["simulation_level"]) == ("cann-stand-in", 1)
        assert result["warnings"] == []
        assert len(result["not_included"]) >= 3
        assert (result["world_size"], result["rank"], result["layers"]) == (8, 0, LAYERS)
        assert result["model"] == "ms-tune's reference transformer"

    def test_a_path_with_stray_words_does_no_harm(self, packaged_run: RealRun, stray_cache: Path) -> None:
        manifest = json.loads((packaged_run.folder / "manifest.json").read_text("utf-8"))
        home = manifest["environment"]["ASCEND_HOME_PATH"]
        assert home.startswith(str(stray_cache))
        assert home.count("cann") > 1
        assert packaged_run.json["verdict"] == "does-not-fit"  # of all 32 layers, on a card with 64 GB

    def test_the_peak_is_that_of_mindspores_own_log(self, packaged_run: RealRun) -> None:
        assert packaged_run.json["peak_bytes"] // MIB == logged_peak(packaged_run)
        assert packaged_run.json["footprint_bytes"] // MIB == logged_footprint(packaged_run)

    def test_the_peak_is_that_of_the_trace(self, packaged_run: RealRun) -> None:
        assert packaged_run.json["peak_bytes"] == largest_use(packaged_run) == swept_peak(packaged_run)

    def test_the_categories_add_up_to_the_peak(self, packaged_run: RealRun, parameters: int) -> None:
        categories = packaged_run.json["categories_at_peak"]
        assert sum(categories.values()) == packaged_run.json["peak_bytes"]
        assert all(size >= 0 for size in categories.values())
        # With few layers the peak is the moment when the new weights of all ranks are gathered while the old ones are
        # live.
        assert categories["temporaries"] >= 2 * parameters

    def test_theory_is_reported_next_to_what_was_measured(self, packaged_run: RealRun, parameters: int) -> None:
        theory = packaged_run.json["theory"]
        assert {name: pair["bytes"] for name, pair in theory.items()} == {
            "weights": 2 * parameters,
            "gradients": pytest.approx(4 * parameters, rel=1e-6),
            "optimizer_state": pytest.approx(12 * parameters / 8, rel=1e-6),
        }
        for name, pair in theory.items():
            assert pair["measured_bytes"] == packaged_run.json["categories_at_peak"][name]
            assert 0 <= pair["difference"] < 0.001

    def test_the_limit_is_that_of_a_device_and_not_of_the_simulator(self, packaged_run: RealRun) -> None:
        assert packaged_run.json["limit_bytes"] == 58166 * MIB
        assert "910B" in packaged_run.json["limit_source"]
        assert "MindSpore Used memory size: 61430M" in packaged_run.log

    @pytest.mark.parametrize("command", ["memory", "memory what-if"])
    def test_every_command_gives_the_verdict_of_the_run(self, packaged_run: RealRun, command: str) -> None:
        """The trace contains four layers, which fit; the verdict is about the whole model, as reported by dryrun."""
        done = subprocess.run(
            [sys.executable, "-m", "ms_tune", *command.split(), str(packaged_run.folder), "--json"],
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        shown, before = json.loads(done.stdout), packaged_run.json
        assert done.returncode == packaged_run.code == 1
        for key in ("verdict", "no_verdict_because", "limit_bytes", "limit_source", "reserve"):
            assert shown[key] == before[key], key

    def test_the_whole_model_is_taken_apart(self, packaged_run: RealRun) -> None:
        (stage,) = packaged_run.json["stages"]
        assert sum(stage["contents"].values()) == packaged_run.json["extrapolated_peak_bytes"]
        assert max(stage["phases"].values()) == packaged_run.json["extrapolated_peak_bytes"]
        assert stage["kinds"] == {"dense, full recompute": LAYERS}
        assert (stage["micro_batches_in_flight"], stage["layer_activation_bytes"]) == (1, 0)
        assert packaged_run.json["assumptions"] == {
            "devices": 8,
            "devices_source": "from `# devices:`",
            "data": 8,
            "tensor": 1,
            "pipeline": 1,
            "context": 1,
            "expert": 1,
        }

    def test_the_largest_holders_are_named(self, packaged_run: RealRun) -> None:
        largest = packaged_run.json["largest"]
        assert [holder["bytes"] for holder in largest] == sorted((h["bytes"] for h in largest), reverse=True)
        assert all(re.search(r"\.py:\d+$", holder["where"]) for holder in largest)
        assert largest[0]["category"] == "gradients"

    def test_the_whole_model_is_derived_from_a_second_run(self, packaged_run: RealRun, parameters: int) -> None:
        result = packaged_run.json
        assert (result["full_layers"], result["extrapolated_from_layers"]) == (32, [LAYERS, LAYERS + 1])
        whole = result["extrapolated_categories_at_peak"]
        assert sum(whole.values()) == pytest.approx(result["extrapolated_peak_bytes"], abs=16)
        layer = (parameters - 2 * 32000 * 4096 - 4096) // LAYERS
        assert whole["weights"] == pytest.approx(2 * (parameters + (32 - LAYERS) * layer), rel=0.001)
        assert (packaged_run.folder / f".layers_{LAYERS + 1}" / "rank_0" / "log.txt").is_file()


class TestDerivedModel:
    def test_the_whole_model_needs_what_was_derived(self, derived_runs: tuple[RealRun, RealRun]) -> None:
        derived, whole = (run.json for run in derived_runs)
        assert (derived["layers"], whole["layers"]) == (2, 6)
        assert whole["extrapolated_peak_bytes"] is None
        assert derived["extrapolated_peak_bytes"] == pytest.approx(whole["peak_bytes"], rel=0.001)

    def test_so_does_every_category(self, derived_runs: tuple[RealRun, RealRun]) -> None:
        derived, whole = (run.json for run in derived_runs)
        for category, amount in whole["categories_at_peak"].items():
            assert derived["extrapolated_categories_at_peak"][category] == pytest.approx(amount, rel=0.001, abs=MIB)

    def test_memory_shows_the_whole_model(self, derived_runs: tuple[RealRun, RealRun]) -> None:
        derived, whole = (memory_report(run) for run in derived_runs)
        assert (derived["layers"], derived["full_layers"], derived["extrapolated_from_layers"]) == (6, 6, [2, 4])
        assert whole["extrapolated_from_layers"] is None
        for key in (
            *("peak_bytes", "categories_at_peak", "peak_by_phase", "phase_at_peak", "rows", "largest"),
            *("by_layer", "activations_by_layer", "held_at_peak", "theory", "padding_at_peak", "verdict"),
        ):
            assert derived[key] == whole[key], key
        assert derived["footprint_bytes"] == pytest.approx(whole["footprint_bytes"], rel=0.001)
        assert whole["remedies"]
        assert derived["remedies"] == whole["remedies"]

    def test_what_if_replays_the_whole_model(self, derived_runs: tuple[RealRun, RealRun]) -> None:
        derived, whole = (memory_report(run, "what-if") for run in derived_runs)
        assert derived["extrapolated_from_layers"] == [2, 4]
        for key in ("used_bytes", "actual_bytes", "reserved_bytes"):
            assert derived["recorded"][key] == pytest.approx(whole["recorded"][key], rel=0.001)
        assert [one["used_bytes"] for one in derived["scenarios"]] == [one["used_bytes"] for one in whole["scenarios"]]


class TestCommand:
    def test_the_peak_is_that_of_log_and_trace(self, command_run: RealRun) -> None:
        assert command_run.json["peak_bytes"] // MIB == logged_peak(command_run)
        assert command_run.json["peak_bytes"] == largest_use(command_run) == swept_peak(command_run)

    def test_its_tensors_are_distinguished(self, command_run: RealRun) -> None:
        categories = command_run.json["categories_at_peak"]
        weight = 1024 * 512 * 4
        assert categories["weights"] == pytest.approx(weight, rel=0.001)
        assert categories["optimizer_state"] == pytest.approx(2 * weight, rel=0.001)
        assert all(re.search(r"/train\.py:\d+$", holder["where"]) for holder in command_run.json["largest"])


class TestSmallDevice:
    def test_chinese_text_shows_the_figures_of_the_json(self, packaged_run: RealRun, small_device_run: RealRun) -> None:
        result, text = packaged_run.json, small_device_run.out
        usable = pool_of(free_of_card(8 * GIB))
        assert re.search(rf"^  峰值 +{re.escape(gib(result['peak_bytes']))}$", text, re.MULTILINE)
        assert f"可用 {short_gib(usable)}" in text
        missing = re.escape(short_gib(result["peak_bytes"] - usable))
        assert re.search(rf"^结论：显存不足。阶段 0 需要 .*，超出 {missing}$", text, re.MULTILINE)
        for amount in result["categories_at_peak"].values():
            assert size_text(amount) in text


@pytest.fixture(scope="module")
def model(qwen3_config: Path) -> dict[str, Any]:
    read = yaml.safe_load(qwen3_config.read_text("utf-8"))
    assert isinstance(read, dict)
    return read


@pytest.fixture(scope="module")
def rank_parameters(model: dict[str, Any]) -> int:
    """Return the parameters of one rank of stage 0 with one layer: embedding and layer, split over the tensor-parallel ranks."""
    shape, ranks = model["model"]["model_config"], model["parallel_config"]["model_parallel"]
    hidden, size = shape["hidden_size"], shape["head_dim"]
    heads, groups = shape["num_attention_heads"], shape["num_key_value_heads"]
    attention = hidden * size * (heads + 2 * groups) + heads * size * hidden
    feed_forward = 3 * hidden * shape["intermediate_size"]
    split = shape["vocab_size"] * hidden + attention + feed_forward
    norms = 2 * hidden + 2 * size  # every rank has them whole
    return int(split // ranks + norms)


@needs_mindformers
class TestMindFormers:
    def test_the_published_config_runs(self, qwen3_run: RealRun, model: dict[str, Any]) -> None:
        assert qwen3_run.code == 0, qwen3_run.err
        result = qwen3_run.json
        parallel = model["parallel_config"]
        assert (result["pipeline_stages"], result["stage"], result["rank"]) == (parallel["pipeline_stage"], 0, 0)
        assert result["world_size"] == (
            parallel["pipeline_stage"] * parallel["model_parallel"] * parallel["data_parallel"]
        )
        assert (result["layers"], result["dialect"]) == (1, "mindformers")
        assert result["mindformers"] is not None
        assert result["warnings"] == []

    def test_the_peak_is_that_of_log_and_trace(self, qwen3_run: RealRun) -> None:
        peak = qwen3_run.json["peak_bytes"]
        assert peak // MIB == logged_peak(qwen3_run)
        assert peak == largest_use(qwen3_run) == swept_peak(qwen3_run)
        assert qwen3_run.json["footprint_bytes"] // MIB == logged_footprint(qwen3_run)
        assert sum(qwen3_run.json["categories_at_peak"].values()) == peak

    def test_what_lives_all_along_is_that_of_theory(self, qwen3_run: RealRun, rank_parameters: int) -> None:
        # float32: weights, accumulated gradients and two moments
        persistent = sum(int(row["size"]) for row in rows(qwen3_run) if row["type"] == "Weight")
        assert persistent == pytest.approx(16 * rank_parameters, rel=0.001)

    @pytest.mark.parametrize(
        ("category", "size_of", "least"),
        [("weights", 4, False), ("optimizer_state", 8, False), ("gradients", 4, True)],
    )
    def test_categories_are_those_of_theory(
        self, qwen3_run: RealRun, rank_parameters: int, category: str, size_of: int, *, least: bool
    ) -> None:
        size = qwen3_run.json["categories_at_peak"][category]
        expected = size_of * rank_parameters
        if least:  # besides the accumulated gradients, those of the last micro-batch are live
            assert size >= expected
        else:
            assert size == pytest.approx(expected, rel=0.001)

    def test_the_configs_own_limit_counts(self, qwen3_run: RealRun, model: dict[str, Any]) -> None:
        assert model["context"]["max_device_memory"] == "58GB"
        assert qwen3_run.json["limit_bytes"] == 58 * GIB
