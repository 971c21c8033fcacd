"""Test ``ms-tune dryrun`` from its arguments to its output, with a script instead of the training process."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
import yaml

from ms_tune.cli.main import main
from ms_tune.dryrun import machine as check
from ms_tune.dryrun import run
from ms_tune.dryrun.cann_sim.environment import Backend, Cann, MindSpore
from ms_tune.dryrun.request import DryrunRequest, Setting, StageChoice
from ms_tune.enums import MemoryCategory
from ms_tune.extras import refuse
from ms_tune.facts.query import data_folder
from tests.dryrun import fakes
from tests.dryrun.configs import MINDFORMERS
from tests.dryrun.fakes import GIB, good_child

if TYPE_CHECKING:
    Run = Callable[..., tuple[int, str, str]]
    Child = Callable[[str], None]

    from ms_tune.dryrun.result import DryrunResult
    from ms_tune.dryrun.task import Observer

UNSET = ("LC_ALL", "LC_MESSAGES", "LANG", "FORCE_COLOR", "NO_COLOR", "MS_ALLOC_CONF", "MS_SIMULATION_LEVEL", "COLUMNS")


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in UNSET:
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    Path("config.yaml").write_text(yaml.safe_dump(MINDFORMERS), encoding="utf-8")


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Child:
    return lambda code: fakes.install(monkeypatch, tmp_path, code, mindformers=True)


@pytest.fixture
def ms_tune(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str) -> tuple[int, str, str]:
        code = main(["dryrun", *arguments])
        output = capsys.readouterr()
        return code, output.out, output.err

    return call


@pytest.mark.parametrize(
    ("arguments", "changes"),
    [
        ("", {}),
        ("--layers auto", {}),
        ("--layers all", {"fewest_layers": False}),
        ("--no-extrapolate", {"fewest_layers": False, "extrapolate": False}),
        ("--level 0", {"fewest_layers": False, "level": 0}),
        *[(f"--chip {chip}", {"chip": chip}) for chip in ("910B2", "ascend910b4", "A3", "910A")],
        ("--stage 0", {"stages": (0,)}),
        ("--stages all", {"stages": StageChoice.ALL}),
        ("--stages worst", {"stages": StageChoice.WORST}),
        ("--stages 0,3", {"stages": (0, 3)}),
        ("--layers 4 --stage 1 --stage 2", {"layers": 4, "fewest_layers": False, "stages": (1, 2)}),
        (
            "--devices 16 --device-memory 32GB --run-dir out --timeout 60 --jobs 3 --engine ray config.yaml",
            {
                "config": Path("config.yaml"),
                "devices": 16,
                "device_bytes": 32 * GIB,
                "run_folder": Path("out"),
                "timeout": 60,
                "jobs": 3,
                "engine": "ray",
            },
        ),
        (
            "--ranks 0,12 --level 2 --set a.b=1 --set c=[1,2]",
            {"ranks": (0, 12), "level": 2, "settings": (Setting(("a", "b"), "1"), Setting(("c",), "[1,2]"))},
        ),
    ],
)
def test_every_argument_reaches_the_run(
    monkeypatch: pytest.MonkeyPatch, arguments: str, changes: dict[str, Any]
) -> None:
    seen: list[DryrunRequest] = []

    def stop(request: DryrunRequest, _: object) -> NoReturn:
        seen.append(request)
        raise KeyboardInterrupt

    monkeypatch.setattr("ms_tune.cli.dryrun.dryrun_job", stop)
    assert main(["dryrun", *arguments.split()]) == 130
    assert seen == [DryrunRequest(fewest_layers=True)._replace(**changes)]


JSON_KEYS = {
    *(
        "version",
        "run",
        "trace",
        "backend",
        "simulation_level",
        "mindspore",
        "mindformers",
        "config",
        "dialect",
        "model",
    ),
    *("world_size", "rank", "stage", "pipeline_stages", "stages", "layers", "peak_bytes", "footprint_bytes"),
    *("limit_bytes", "device_bytes", "settings", "verdict_about", "full_layers", "skipped_stages", "imbalance"),
    *("extrapolated_peak_bytes", "extrapolated_footprint_bytes", "extrapolated_categories_at_peak"),
    *("extrapolated_from_layers", "bytes_per_layer", "activation_bytes_per_layer", "theory"),
    *("no_verdict_because", "limit_source", "reserve", "assumptions", "contents", "standing"),
    *("verdict", "categories_at_peak", "largest", "changes", "not_included", "warnings", "seconds"),
}


class TestJson:
    def test_standard_output_is_one_object_and_nothing_else(self, ms_tune: Run, child: Child) -> None:
        child(good_child(3 * GIB, 4 * GIB))
        code, out, err = ms_tune("--layers", "4", "--json")
        result = json.loads(out)
        assert code == 0
        assert set(result) == JSON_KEYS
        assert (result["version"], result["simulation_level"], result["backend"]) == (1, 1, "cann-stand-in")
        assert (result["peak_bytes"], result["footprint_bytes"], result["verdict"]) == (3 * GIB, 4 * GIB, "fits")
        stage = result["stages"][0]
        assert (len(result["stages"]), stage["stage"], stage["peak_bytes"], stage["verdict"]) == (1, 0, 3 * GIB, "fits")
        assert list(result["categories_at_peak"]) == [content.value for content in MemoryCategory]
        assert sum(result["categories_at_peak"].values()) == 3 * GIB
        assert result["theory"] == stage["theory"]
        assert stage["theory"]["weights"] == {"bytes": 2143363072, "measured_bytes": 0, "difference": -1.0}
        assert set(result["largest"][0]) == {"bytes", "count", "operator", "category", "where", "name"}
        assert (Path(result["run"]) / "manifest.json").is_file()
        assert "Simulating" in err

    def test_its_sentences_are_in_the_users_language(self, ms_tune: Run, child: Child) -> None:
        child(good_child())
        result = json.loads(ms_tune("--json", "--lang", "zh")[1])
        assert result["model"] == "ms-tune 参考模型"
        assert all(re.search("[\u4e00-\u9fff]", sentence) for sentence in result["not_included"])


class TestText:
    def test_the_verdict_and_its_figures_are_shown(self, ms_tune: Run, child: Child) -> None:
        child(good_child(3 * GIB, 4 * GIB))
        code, out, err = ms_tune("--layers", "4", "--no-extrapolate", "--verbose")
        assert code == 0
        first, job, model, stages = out.splitlines()[:4]
        assert first == (
            "memory: fits. Stage 0 needs 4.4 GiB including fragmentation and reserve, usable 56.8 GiB (52.4 GiB headroom)"
        )
        assert job == (
            "yaml_templates/mindspeed_ms/llama2_7b.yaml on 8 NPUs (from `# devices:`): DP=8 TP=1 PP=1 CP=1 EP=1"
        )
        assert model == "model: ms-tune's reference transformer, MindSpore 2.9.0"
        assert stages == "Stages in GiB with the layers that ran, not of the whole model:"
        assert "validated against MindSpeed-Core-MS r0.1.0" in out
        assert re.search(r"^  peak +3\.00 GiB$", out, re.MULTILINE)
        assert re.search(r"^  with fragmentation +4\.00 GiB ", out, re.MULTILINE)
        assert re.search(r"^  - usable: 56\.8 GiB, .* 910B with 64\.0 GiB", out, re.MULTILINE)
        assert "Sample run: stage 0, rank 0, 4 of 32 layers. The figures below are for the sample." in out
        assert "without CANN (stubs), simulation level 1" in out
        assert "a comparison with a real NPU: none has been made" in out
        assert "next: ms-tune dryrun your_config.yaml" in out
        assert "warning" not in err

    def test_what_lives_for_the_whole_run_is_next_to_theory(self, ms_tune: Run, child: Child) -> None:
        child(good_child())
        out = ms_tune("--layers", "4", "-v")[1]
        assert "Persistent memory, measured vs. expected (stage 0, 4 layers):" in out
        # 4 layers of Llama-2-7B, bfloat16; the invented trace contains none of them
        assert re.search(r"^  weights +0\.0 MiB   expected 2\.00 GiB, difference -100\.000%$", out, re.MULTILINE)

    def test_the_page_for_the_browser_has_theory_too(self, ms_tune: Run, child: Child) -> None:
        child(good_child())
        ms_tune("--layers", "4", "--no-extrapolate", "--html", "report.html")
        page = Path("report.html").read_text("utf-8")
        (section,) = re.findall(r'<section lang="en">.*?</section>', page, re.DOTALL)
        cells = re.findall(r"<td[^>]*>(.*?)</td>", section)
        assert cells[:6] == ["0", "0", "0.0 MiB", "2.00 GiB", "-100.000%", "weights"]
        assert len(cells) == 18  # weights, gradients and optimizer state
        # The page must not show its own estimate from visible weights next to this.
        (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
        assert json.loads(data)["ranks"][0]["theory"] == {"weights_bytes": 0, "parameters": 0}

    @pytest.mark.slow
    def test_where_the_framework_builds_the_model_theory_is_not_known(self, ms_tune: Run, child: Child) -> None:
        child(good_child())
        out = ms_tune("-v", "--layers", "2", "--stage", "0", "config.yaml")[1]
        assert "Expected persistent memory: unknown" in out
        assert json.loads(ms_tune("--stage", "0", "--json", "config.yaml")[1])["stages"][0]["theory"] is None

    def test_chinese_shows_the_same_figures(self, ms_tune: Run, child: Child) -> None:
        child(good_child(3 * GIB, 4 * GIB))
        english = ms_tune("--layers", "4", "-v")[1]
        chinese = ms_tune("--layers", "4", "-v", "--lang", "zh")[1]
        reported = "结论：显存充足。阶段 0 需要 4.4 GiB（含碎片和预留），可用 56.8 GiB，余 52.4 GiB"
        assert chinese.splitlines()[0] == reported
        size = re.compile(r"[\d.]+ GiB")
        assert size.findall(chinese) == size.findall(english)
        assert "peak" not in chinese

    def test_every_shown_share_is_of_the_peak(self, ms_tune: Run, child: Child) -> None:
        child(good_child())
        lines = [line for line in ms_tune("-v")[1].splitlines() if "expected" not in line]
        shares = [float(share) for line in lines for share in re.findall(r"^  \S.* [GM]iB +([\d.]+)%", line)]
        assert len(shares) == len(MemoryCategory)
        assert sum(shares) == pytest.approx(100, abs=0.3)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("arguments", "peak", "hint"),
        [
            (("--layers", "2", "--no-extrapolate", "config.yaml"), GIB, "ms-tune dryrun config.yaml"),
            (
                ("--layers", "2", "--no-extrapolate", "--stage", "3", "config.yaml"),
                GIB,
                "ms-tune dryrun --stage 3 config.yaml",
            ),
            (("--run-dir", "kept", "config.yaml"), GIB, "ms-tune memory kept"),
            (("config.yaml",), 62 * GIB, "ms-tune fit config.yaml"),
            ((), GIB, "ms-tune dryrun your_config.yaml"),
        ],
    )
    def test_the_next_command_is_reported(
        self,
        ms_tune: Run,
        child: Child,
        arguments: tuple[str, ...],
        peak: int,
        hint: str,
    ) -> None:
        child(good_child(peak, peak))
        assert ms_tune(*arguments)[1].splitlines()[-1] == f"next: {hint}"

    @pytest.mark.slow
    @pytest.mark.parametrize(("devices", "hint"), [("1", "ms-tune memory kept"), ("2", "ms-tune fit dynamic.yaml")])
    def test_no_plan_is_pointed_to_where_nothing_is_recomputed(
        self,
        ms_tune: Run,
        monkeypatch: pytest.MonkeyPatch,
        child: Child,
        devices: str,
        hint: str,
    ) -> None:
        text = (data_folder("yaml_templates") / "mindformers_pynative" / "deepseek3_1b_moe.yaml").read_text("utf-8")
        config = yaml.safe_load(text)
        config["parallelism"] = {"data_parallel_shard": int(devices)}
        Path("dynamic.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
        child(good_child(62 * GIB, 62 * GIB))

        def holding(request: DryrunRequest, observer: Observer) -> DryrunResult:
            found = run.dryrun_job(request, observer)
            return replace(found, stages=tuple(replace(stage, layer_activations=GIB) for stage in found.stages))

        monkeypatch.setattr("ms_tune.cli.dryrun.dryrun_job", holding)
        out = ms_tune("--devices", devices, "--layers", "all", "--run-dir", "kept", "-v", "dynamic.yaml")[1]
        assert out.splitlines()[-1] == f"next: {hint}"
        assert ("recomputing it saves that" in out) is (devices == "2")

    @pytest.mark.slow
    def test_changes_are_shown_and_long_values_do_not_fill_the_screen(self, ms_tune: Run, child: Child) -> None:
        config = {**MINDFORMERS, "callbacks": [{"type": "CheckpointMonitor", "prefix": "x" * 500}]}
        Path("config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
        child(good_child())
        out = ms_tune("-v", "--layers", "2", "config.yaml")[1]
        assert "  model.model_config.num_hidden_layers: 64 → 5\n" in out
        assert "  train_dataset_task: removed\n" in out
        assert "callbacks" in out
        assert max(map(len, out.splitlines())) < 160

    def test_markup_in_a_trace_is_shown_as_it_is(self, ms_tune: Run, child: Child) -> None:
        child(good_child().replace("PyNative,Zeros", "PyNative,[bold]Zeros"))
        assert "[bold]Zeros" in ms_tune("-v")[1]


FACTS = ("verdict", "no_verdict_because", "limit_bytes", "limit_source", "reserve")


class TestOneJudge:
    """A run has the same verdict in every command."""

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "case",  # peak and footprint in GiB, options, verdict, exit code
        [
            (3, 4, (), "fits", 0),
            (50, 60, (), "tight", 1),
            (50, 60, ("--allow-tight",), "tight", 0),
            (50, 54, ("--reserve", "4GB"), "tight", 1),
            (58, 58, (), "does-not-fit", 1),
            (58, 58, ("--chip", "A3"), "does-not-fit", 1),
            (57, 57, ("--chip", "A3"), "tight", 1),
            (70, 70, (), None, 2),
            (70, 70, ("--device-memory", "128GB"), "fits", 0),
        ],
    )
    def test_in_every_command(
        self, ms_tune: Run, capsys: pytest.CaptureFixture[str], child: Child, case: tuple[Any, ...]
    ) -> None:
        peak, footprint, options, verdict, code = case
        child(good_child(peak * GIB, footprint * GIB))
        done, out, _ = ms_tune("--json", "--run-dir", "kept", "--no-extrapolate", "--layers", "4", *options)
        shown = {key: json.loads(out)[key] for key in FACTS}
        assert (done, shown["verdict"]) == (code, verdict)
        allowed = [option for option in options if option == "--allow-tight"]
        for command in ("memory", "memory what-if"):
            done = main([*command.split(), "kept", "--json", *allowed])
            again = json.loads(capsys.readouterr().out)
            assert {key: again[key] for key in FACTS} == shown
            assert done == code or (command == "memory what-if" and code == 0)  # where waste of the pool is a finding
        (variant,) = json.loads(
            ms_tune("--json", "--layers", "4", "--no-extrapolate", *options, "--sweep", "training_config.seed=1")[1]
        )["variants"]
        assert {key: variant["result"][key] for key in FACTS} == shown

    def test_also_about_a_whole_model_of_which_few_layers_ran(
        self, ms_tune: Run, capsys: pytest.CaptureFixture[str], child: Child
    ) -> None:
        child(fakes.layered_child(layer=4 * GIB))
        code, out, _ = ms_tune("--json", "--run-dir", "kept", "--stage", "0", "--layers", "4", "config.yaml")
        shown = {key: json.loads(out)[key] for key in FACTS}
        assert (code, shown["verdict"]) == (1, "does-not-fit")
        for command in ("memory", "memory what-if"):
            assert main([*command.split(), "kept", "--json"]) == 1
            again = json.loads(capsys.readouterr().out)
            assert {key: again[key] for key in FACTS} == shown


class TestExitCodes:
    @pytest.mark.parametrize("form", [(), ("--json",)])
    def test_what_does_not_fit_is_1(self, ms_tune: Run, child: Child, form: tuple[str, ...]) -> None:
        child(good_child(9 * GIB, 9 * GIB))
        code, out, _ = ms_tune("--device-memory", "9GB", *form)
        assert code == 1
        assert (
            "does-not-fit"
            if form
            else "memory: exceeds the limit. Stage 0 needs 9.0 GiB, usable 7.7 GiB (over by 1.3 GiB)"
        ) in out

    def test_a_run_that_failed_is_2_with_its_last_error(self, ms_tune: Run, child: Child) -> None:
        child("raise RuntimeError('no such operator')")
        code, out, err = ms_tune("--json")
        assert (code, out) == (2, "")
        assert "error: the simulation ended with exit code 1: " in err
        assert ":1: RuntimeError: no such operator" in err
        assert "log.txt" in err
        assert "Traceback" not in err

    def test_warnings_go_to_standard_error_and_change_nothing(
        self, ms_tune: Run, child: Child, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MS_ALLOC_CONF", "enable_vmm:True")
        child(good_child())
        code, out, err = ms_tune("--json")
        assert code == 0
        assert json.loads(out)["warnings"] == ["environment variables overridden for the simulation: MS_ALLOC_CONF"]
        assert "warning: environment variables overridden for the simulation: MS_ALLOC_CONF" in err


class TestCheck:
    @pytest.fixture
    def ready(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
        monkeypatch.setattr(check, "find_mindspore", lambda *_: MindSpore("2.9.0", tmp_path))
        monkeypatch.setattr(check, "find_real_cann", lambda: None)
        monkeypatch.setattr(check, "check_supported", lambda _: None)
        monkeypatch.setattr(check, "find_built_stand_ins", lambda _: tmp_path / "stand-in")
        monkeypatch.setattr(check, "installed_version", {"mindspore": "2.9.0", "numpy": "1.26.4"}.get)
        return tmp_path

    def json(self, ms_tune: Run) -> tuple[int, dict[str, Any]]:
        code, out, _ = ms_tune("--check", "--json")
        read = json.loads(out)
        assert isinstance(read, dict)
        return code, read

    def test_a_machine_that_is_ready_is_0(self, ms_tune: Run, ready: Path) -> None:
        code, read = self.json(ms_tune)
        assert code == 0
        assert (read["ready"], read["problem"], read["backend"]) == (True, None, "cann-stand-in")
        assert (read["mindspore"], read["mindformers"], read["cann"]) == ("2.9.0", None, str(ready / "stand-in"))
        assert set(read["dynamic_graph"]) == {"mindspeed-ms", "mindformers-pynative"}

    def test_a_real_cann_is_named(self, ms_tune: Run, ready: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(check, "find_real_cann", lambda: Cann(Backend.CANN, ready / "Ascend"))
        code, read = self.json(ms_tune)
        assert (code, read["backend"], read["cann"]) == (0, "cann", str(ready / "Ascend"))

    @pytest.mark.usefixtures("ready")
    def test_a_machine_that_is_not_ready_is_2_and_says_why(self, ms_tune: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        def not_there(*_: object) -> NoReturn:
            refuse("ms-tune dryrun", "dryrun", "mindspore")

        monkeypatch.setattr(check, "find_mindspore", not_there)
        code, read = self.json(ms_tune)
        assert (code, read["ready"], read["backend"]) == (2, False, None)
        assert "MindSpore" in read["problem"]
        code, out, _ = ms_tune("--check")
        assert code == 2
        assert "dryrun does not work on this machine: 'ms-tune dryrun' requires MindSpore" in out

    @pytest.mark.usefixtures("ready")
    @pytest.mark.parametrize(
        ("language", "last"), [("en", "dryrun works on this machine"), ("zh", "dryrun 可以在本机运行")]
    )
    def test_it_is_shown_a_line_a_fact(self, ms_tune: Run, language: str, last: str) -> None:
        code, out, err = ms_tune("--check", "--lang", language)
        lines = out.splitlines()
        assert (code, err) == (0, "")
        assert len(lines) == 11
        assert {"MindSpore: 2.9.0", "MindSpore：2.9.0"} & {*lines}
        assert lines[-1] == last

    def test_it_builds_nothing_and_leaves_nothing(
        self, ms_tune: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("MS_TUNE_CACHE", str(tmp_path / "cache"))
        ms_tune("--check", "--json")
        assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []
        assert not Path("ms-tune-runs").exists()
