"""Test the length of call chains in ms-tune, and that nothing about a job is computed twice."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

import ms_tune
from ms_tune.cli.main import main
from ms_tune.facts.query import data_folder
from tests.dryrun import fakes
from tests.dryrun.configs import MINDFORMERS

if TYPE_CHECKING:
    from types import FrameType

PACKAGE = str(Path(ms_tune.__file__).parent)
TEMPLATES = data_folder("yaml_templates")
ONE_EACH = (
    "mindformers/qwen3_30b_a3b.yaml",
    "mindformers_pynative/deepseek3_1b_moe.yaml",
    "mindspeed_ms/llama2_13b_vpp.yaml",
)
MISSPELT = "use_parallel: True\nparallel_config: {data_paralel: 2, pipeline_stage: 1}\nrunner_config: {batch_size: 1}\n"


class Walk:
    """The functions of ms-tune that a command enters: how often, and by which calls.

    A function is called ``folder/module.function``; code in angle brackets, such as a comprehension, belongs to the
    function around it.
    """

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.ways: dict[
            str, list[str]
        ] = {}  # the functions from the command to the first call of each, itself the last

    def run(self, arguments: Sequence[str]) -> int:
        """Run a command, and return its exit code."""
        before = sys.getprofile()
        sys.setprofile(self._look)
        try:
            return main(arguments)
        finally:
            sys.setprofile(before)

    def _look(self, frame: FrameType, event: str, _: object) -> None:
        name = name_of(frame) if event == "call" else None
        if name is None:
            return
        self.calls[name] += 1
        if name not in self.ways:
            way: list[str | None] = []
            here: FrameType | None = frame
            while here is not None:
                way.append(name_of(here))
                here = here.f_back
            self.ways[name] = [one for one in reversed(way) if one is not None]


def name_of(frame: FrameType) -> str | None:
    """Return the name of a frame's function; None for another package, and for a part of a function."""
    code = frame.f_code
    if not code.co_filename.startswith(PACKAGE) or code.co_name.startswith("<"):
        return None
    module = code.co_filename[len(PACKAGE) + 1 :].removesuffix(".py").replace("\\", "/")
    return f"{module}.{code.co_name}"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("misspelt.yaml").write_text(MISSPELT, encoding="utf-8")
    Path("config.yaml").write_text(yaml.safe_dump(MINDFORMERS), encoding="utf-8")
    Path("memory_block.csv").write_text(fakes.trace(), encoding="utf-8")


class TestWays:
    """Longer call chains are harder to read: state the reason here when a chain becomes longer."""

    def test_from_a_key_to_a_finding(self) -> None:
        walk = Walk()
        assert walk.run(["lint", "misspelt.yaml"]) == 1
        assert walk.ways["lint/check_keys.misspelt"] == [
            *("cli/main.main", "cli/main._run_command", "cli/lint.run"),
            *("lint/runner.lint_files", "lint/runner.check_files", "lint/runner.check_file", "lint/runner.report"),
            *("lint/engine.run_checks", "lint/engine._run_check", "lint/check_keys.misspelt"),
        ]

    def test_from_a_list_of_recompute_to_a_line_of_the_table(self) -> None:
        walk = Walk()
        assert walk.run(["normalize-recompute", "config.yaml"]) == 0
        assert walk.ways["dialects/mindformers/recompute.set_layer"] == [
            *(
                "cli/main.main",
                "cli/main._run_command",
                "cli/normalize.run",
                "normalize/run.normalize_recompute",
                "job/__init__.plan",
            ),
            *("dialects/mindformers/read.plan_layers", "dialects/mindformers/recompute.normalize"),
            *("dialects/mindformers/recompute._set_layers", "dialects/mindformers/recompute.set_layer"),
        ]
        assert walk.ways["report/normalize_text._write_layers"] == [
            *("cli/main.main", "cli/main._run_command", "cli/normalize.run", "cli/normalize._show_plan"),
            *("report/normalize_text.write_plan", "report/normalize_text._write_layers"),
        ]

    def test_from_a_row_of_a_trace_to_its_peak(self) -> None:
        walk = Walk()
        assert walk.run(["memory", "memory_block.csv"]) == 0
        assert walk.ways["footprint/curve.compute_curve"] == [
            *("cli/main.main", "cli/main._run_command", "cli/memory.run", "cli/memory._run_with_numpy"),
            "cli/memory_run._show_trace",
            *("footprint/report.analyse_memory", "footprint/report.analyse_rank", "footprint/curve.compute_curve"),
        ]

    @pytest.mark.slow
    def test_from_a_config_to_the_verdict_of_a_dryrun(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        fakes.install(monkeypatch, tmp_path, fakes.good_child(), mindformers=True)
        walk = Walk()
        assert walk.run(["dryrun", "config.yaml", "--layers", "2"]) == 0
        assert walk.ways["dryrun/judge.judge_stage"] == [
            *(
                "cli/main.main",
                "cli/main._run_command",
                "cli/dryrun.run",
                "cli/dryrun._simulate",
                "dryrun/run.dryrun_job",
            ),
            *("dryrun/run._judge_job", "dryrun/run._judge_stages", "dryrun/run._judge_stage"),
            "dryrun/judge.judge_stage",
        ]


@pytest.mark.parametrize("name", ONE_EACH)
@pytest.mark.parametrize("command", ["lint", "normalize-recompute"])
def test_nothing_of_a_config_is_worked_out_twice(name: str, command: str) -> None:
    walk = Walk()
    assert walk.run([command, str(TEMPLATES / name)]) in (0, 1)
    plans = {call: count for call, count in walk.calls.items() if call.startswith("dialects/") and ".normalize" in call}
    assert list(plans.values()) == [1]
    for once in ("source/yaml.parse_source", "job/detect.recognise"):
        assert walk.calls[once] == 1, once
    assert walk.calls["facts/models.model_of"] <= 1


@pytest.mark.parametrize("name", ONE_EACH)
def test_a_check_reads_the_file_once(name: str) -> None:
    walk = Walk()
    assert walk.run(["check", str(TEMPLATES / name)]) in (0, 1)
    for once in ("source/yaml.load_source", "job/detect.recognise", "lint/runner.lint_files"):
        assert walk.calls[once] == 1, once
    assert walk.calls["source/yaml.yaml_text"] == 0  # texts of runs are made where a run is written


@pytest.mark.parametrize(("command", "times"), [("lint", 1), ("normalize-recompute", 1), ("check", 2)])
def test_a_script_is_read_once(command: str, times: int) -> None:
    """``check`` reads it a second time: for its findings, and for its screen."""
    Path("run.sh").write_text("msrun --worker_num 8 pretrain_gpt.py --num-layers 8 --bf16\n", encoding="utf-8")
    walk = Walk()
    assert walk.run([command, "run.sh"]) in (0, 1)
    assert walk.calls["source/shell/read.read_launches"] == times
