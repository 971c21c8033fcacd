"""``ms-tune dryrun`` from its arguments to its output, with a script in the place of the training process."""

from __future__ import annotations

import json
import re
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
    from collections.abc import Callable

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
def child(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    return lambda code: fakes.install(monkeypatch, tmp_path, code, mindformers=True)


def ms_tune(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["dryrun", *arguments])
    output = capsys.readouterr()
    return code, output.out, output.err


class TestArguments:
    @pytest.fixture
    def request_of(self, monkeypatch: pytest.MonkeyPatch) -> Callable[..., DryrunRequest]:
        """The request that a command line makes."""
        seen: list[DryrunRequest] = []

        def stop(request: DryrunRequest, _: object) -> NoReturn:
            seen.append(request)
            raise KeyboardInterrupt

        def ask(*arguments: str) -> DryrunRequest:
            assert main(["dryrun", *arguments]) == 130
            return seen[-1]

        monkeypatch.setattr("ms_tune.cli.dryrun.dryrun_job", stop)
        return ask

    def test_without_any_the_packaged_model_runs_with_the_fewest_layers_that_tell(
        self, request_of: Callable[..., DryrunRequest]
    ) -> None:
        assert request_of() == request_of("--layers", "auto") == DryrunRequest(fewest_layers=True)

    @pytest.mark.parametrize("arguments", [["--layers", "all"], ["--no-extrapolate"], ["--level", "0"], ["--real"]])
    def test_where_the_whole_model_is_asked_for_it_runs_whole(
        self, request_of: Callable[..., DryrunRequest], arguments: list[str]
    ) -> None:
        made = request_of(*arguments)
        assert (made.layers, made.fewest_layers) == (None, False)

    def test_all_of_them_reach_the_run(self, request_of: Callable[..., DryrunRequest]) -> None:
        arguments = "--layers 4 --stage 3 --devices 16 --device-memory 32GB --run-dir out --timeout 60 config.yaml"
        assert request_of(*arguments.split()) == DryrunRequest(
            config=Path("config.yaml"),
            layers=4,
            stages=(3,),
            devices=16,
            device_bytes=32 * GIB,
            run_folder=Path("out"),
            timeout=60,
        )

    @pytest.mark.parametrize("chip", ["910B2", "ascend910b4", "A3", "910A"])
    def test_a_chip_is_handed_on(self, request_of: Callable[..., DryrunRequest], chip: str) -> None:
        assert request_of("--chip", chip).chip == chip

    def test_stage_0_may_be_named(self, request_of: Callable[..., DryrunRequest]) -> None:
        assert request_of("--stage", "0").stages == (0,)

    @pytest.mark.parametrize(
        ("arguments", "stages"),
        [
            ("--stages all", StageChoice.ALL),
            ("--stages worst", StageChoice.WORST),
            ("--stages 0,3", (0, 3)),
            ("--stage 1 --stage 2", (1, 2)),
        ],
    )
    def test_stages_are_named_in_several_ways(
        self, request_of: Callable[..., DryrunRequest], arguments: str, stages: object
    ) -> None:
        assert request_of(*arguments.split()).stages == stages

    def test_how_it_is_run_is_chosen(self, request_of: Callable[..., DryrunRequest]) -> None:
        arguments = "--ranks 0,12 --level 2 --jobs 3 --engine ray --no-extrapolate --set a.b=1 --set c=[1,2]"
        request = request_of(*arguments.split())
        assert (request.ranks, request.level, request.jobs, request.engine) == ((0, 12), 2, 3, "ray")
        assert not request.extrapolate
        assert request.settings == (Setting(("a", "b"), "1"), Setting(("c",), "[1,2]"))

    @pytest.mark.parametrize(
        "arguments", [("--stages", "first"), ("--stages", "0,"), ("--ranks", "-1"), ("--set", "a.b"), ("--sweep", "a")]
    )
    def test_what_cannot_be_understood_is_a_usage_error(
        self, capsys: pytest.CaptureFixture[str], arguments: tuple[str, str]
    ) -> None:
        code, out, err = ms_tune(capsys, *arguments)
        assert (code, out) == (2, "")
        assert arguments[1] in err
        assert "Traceback" not in err


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
    *(
        "world_size",
        "rank",
        "stage",
        "pipeline_stages",
        "stages",
        "layers",
        "peak_bytes",
        "footprint_bytes",
        "limit_bytes",
        "device_bytes",
    ),
    *("settings", "verdict_about", "full_layers", "skipped_stages", "imbalance"),
    *("extrapolated_peak_bytes", "extrapolated_footprint_bytes", "extrapolated_categories_at_peak"),
    *("extrapolated_from_layers", "bytes_per_layer", "activation_bytes_per_layer", "theory"),
    *("no_verdict_because", "limit_source", "reserve", "assumptions", "contents", "standing"),
    *("verdict", "categories_at_peak", "largest", "changes", "not_included", "warnings", "seconds"),
}


class TestJson:
    def test_standard_output_is_one_object_and_nothing_else(
        self, capsys: pytest.CaptureFixture[str], child: Callable[[str], None]
    ) -> None:
        child(good_child(3 * GIB, 4 * GIB))
        code, out, err = ms_tune(capsys, "--layers", "4", "--json")
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
        assert "simulating" in err

    def test_its_sentences_are_in_the_users_language(
        self, capsys: pytest.CaptureFixture[str], child: Callable[[str], None]
    ) -> None:
        child(good_child())
        result = json.loads(ms_tune(capsys, "--json", "--lang", "zh")[1])
        assert result["model"] == "ms-tune 参考模型"
        assert all(re.search("[\u4e00-\u9fff]", sentence) for sentence in result["not_included"])

    def test_changes_of_a_mindformers_config_are_listed(
        self, capsys: pytest.CaptureFixture[str], child: Callable[[str], None]
    ) -> None:
        child(good_child())
        result = json.loads(ms_tune(capsys, "--json", "--layers", "2", "--stage", "1", "config.yaml")[1])
        assert {"key": "model.model_config.num_hidden_layers", "before": 64, "after": 5} in result["changes"]
        assert (result["stage"], result["pipeline_stages"], result["rank"], result["world_size"]) == (1, 4, 8, 32)
        assert (result["mindformers"], result["dialect"]) == ("1.9.0", "mindformers")


class TestText:
    def test_the_verdict_and_its_figures_are_shown(
        self, capsys: pytest.CaptureFixture[str], child: Callable[[str], None]
    ) -> None:
        child(good_child(3 * GIB, 4 * GIB))
        code, out, err = ms_tune(capsys, "--layers", "4", "--no-extrapolate", "--verbose")
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
        assert "next: ms-tune dryrun config.yaml" in out
        assert "warning" not in err

    def test_what_lives_for_the_whole_run_stands_beside_theory(
        self, capsys: pytest.CaptureFixture[str], child: Callable[[str], None]
    ) -> None:
        child(good_child())
        out = ms_tune(capsys, "--layers", "4", "-v")[1]
        assert "Persistent memory, measured vs. expected (stage 0, 4 layers):" in out
        # 4 layers of Llama-2-7B, bfloat16; the made-up trace holds none of them
        assert re.search(r"^  weights +0\.0 MiB   expected 2\.00 GiB, difference -100\.000%$", out, re.MULTILINE)

    def test_the_page_for_the_browser_has_theory_too(
        self, capsys: pytest.CaptureFixture[str], child: Callable[[str], None]
    ) -> None:
        child(good_child())
        ms_tune(capsys, "--layers", "4", "--no-extrapolate", "--html", "report.html")
        page = Path("report.html").read_text("utf-8")
        (section,) = re.findall(r'<section lang="en">.*?</section>', page, re.DOTALL)
        cells = re.findall(r"<td[^>]*>(.*?)</td>", section)
        assert cells[:6] == ["0", "0", "0.0 MiB", "2.00 GiB", "-100.000%", "weights"]
        assert len(cells) == 18  # weights, gradients and optimizer state
        # What the page would guess from the weights that it sees is not shown beside it.
        (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
        assert json.loads(data)["ranks"][0]["theory"] == {"weights_bytes": 0, "parameters": 0}

    def test_where_the_framework_builds_the_model_theory_is_not_known(
        self, capsys: pytest.CaptureFixture[str], child: Callable[[str], None]
    ) -> None:
        child(good_child())
        out = ms_tune(capsys, "-v", "--layers", "2", "--stage", "0", "config.yaml")[1]
        assert "Expected persistent memory: unknown" in out
        assert json.loads(ms_tune(capsys, "--stage", "0", "--json", "config.yaml")[1])["stages"][0]["theory"] is None

    def test_chinese_shows_the_same_figures(
        self, capsys: pytest.CaptureFixture[str], child: Callable[[str], None]
    ) -> None:
        child(good_child(3 * GIB, 4 * GIB))
        english = ms_tune(capsys, "--layers", "4", "-v")[1]
        chinese = ms_tune(capsys, "--layers", "4", "-v", "--lang", "zh")[1]
        told = "结论：显存充足。阶段 0 需要 4.4 GiB（含碎片和预留），可用 56.8 GiB，余 52.4 GiB"
        assert chinese.splitlines()[0] == told
        size = re.compile(r"[\d.]+ GiB")
        assert size.findall(chinese) == size.findall(english)
        assert "peak" not in chinese

    def test_every_shown_share_is_of_the_peak(
        self, capsys: pytest.CaptureFixture[str], child: Callable[[str], None]
    ) -> None:
        child(good_child())
        lines = [line for line in ms_tune(capsys, "-v")[1].splitlines() if "expected" not in line]
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
            ((), GIB, "ms-tune dryrun config.yaml"),
        ],
    )
    def test_the_next_command_is_told(
        self,
        capsys: pytest.CaptureFixture[str],
        child: Callable[[str], None],
        arguments: tuple[str, ...],
        peak: int,
        hint: str,
    ) -> None:
        child(good_child(peak, peak))
        assert ms_tune(capsys, *arguments)[1].splitlines()[-1] == f"next: {hint}"

    @pytest.mark.slow
    @pytest.mark.parametrize(("devices", "hint"), [("1", "ms-tune memory kept"), ("2", "ms-tune fit dynamic.yaml")])
    def test_no_plan_is_pointed_to_where_nothing_is_recomputed(
        self,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
        child: Callable[[str], None],
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
        out = ms_tune(capsys, "--devices", devices, "--layers", "all", "--run-dir", "kept", "-v", "dynamic.yaml")[1]
        assert out.splitlines()[-1] == f"next: {hint}"
        assert ("recomputing it saves that" in out) is (devices == "2")

    @pytest.mark.slow
    def test_changes_are_shown(self, capsys: pytest.CaptureFixture[str], child: Callable[[str], None]) -> None:
        child(good_child())
        out = ms_tune(capsys, "-v", "--layers", "2", "config.yaml")[1]
        assert "  model.model_config.num_hidden_layers: 64 → 5\n" in out
        assert "  train_dataset_task: removed\n" in out

    @pytest.mark.slow
    def test_a_long_config_value_does_not_fill_the_screen(
        self, capsys: pytest.CaptureFixture[str], child: Callable[[str], None]
    ) -> None:
        config = {**MINDFORMERS, "callbacks": [{"type": "CheckpointMonitor", "prefix": "x" * 500}]}
        Path("config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
        child(good_child())
        out = ms_tune(capsys, "-v", "--layers", "2", "config.yaml")[1]
        assert "callbacks" in out
        assert max(map(len, out.splitlines())) < 160

    def test_markup_in_a_trace_is_shown_as_it_is(
        self, capsys: pytest.CaptureFixture[str], child: Callable[[str], None]
    ) -> None:
        child(good_child().replace("PyNative,Zeros", "PyNative,[bold]Zeros"))
        assert "[bold]Zeros" in ms_tune(capsys, "-v")[1]


FACTS = ("verdict", "no_verdict_because", "limit_bytes", "limit_source", "reserve")


class TestOneJudge:
    """One run gets one verdict, whichever command is asked."""

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
        self, capsys: pytest.CaptureFixture[str], child: Callable[[str], None], case: tuple[Any, ...]
    ) -> None:
        peak, footprint, options, verdict, code = case
        child(good_child(peak * GIB, footprint * GIB))
        done, out, _ = ms_tune(capsys, "--json", "--run-dir", "kept", "--no-extrapolate", "--layers", "4", *options)
        told = {key: json.loads(out)[key] for key in FACTS}
        assert (done, told["verdict"]) == (code, verdict)
        allowed = [option for option in options if option == "--allow-tight"]
        for command in ("memory", "memory what-if"):
            done = main([*command.split(), "kept", "--json", *allowed])
            again = json.loads(capsys.readouterr().out)
            assert {key: again[key] for key in FACTS} == told
            assert done == code or (command == "memory what-if" and code == 0)  # where waste of the pool is a finding
        (variant,) = json.loads(
            ms_tune(
                capsys, "--json", "--layers", "4", "--no-extrapolate", *options, "--sweep", "training_config.seed=1"
            )[1]
        )["variants"]
        assert {key: variant["result"][key] for key in FACTS} == told

    def test_also_about_a_whole_model_of_which_few_layers_ran(
        self, capsys: pytest.CaptureFixture[str], child: Callable[[str], None]
    ) -> None:
        child(fakes.layered_child(layer=4 * GIB))
        code, out, _ = ms_tune(capsys, "--json", "--run-dir", "kept", "--stage", "0", "--layers", "4", "config.yaml")
        told = {key: json.loads(out)[key] for key in FACTS}
        assert (code, told["verdict"]) == (1, "does-not-fit")
        for command in ("memory", "memory what-if"):
            assert main([*command.split(), "kept", "--json"]) == 1
            again = json.loads(capsys.readouterr().out)
            assert {key: again[key] for key in FACTS} == told

    @pytest.mark.parametrize(
        "arguments",
        [
            ("dryrun", "--device-memory", "64"),
            ("dryrun", "--reserve", "1"),
            ("memory", "--device-memory", "64", "run"),
            ("memory", "--reserve", "2", "run"),
            ("memory", "what-if", "--max-memory", "58", "run"),
            ("memory", "what-if", "--device-memory", "58", "run"),
            ("memory", "plan", "--capacity", "1", "run"),
        ],
    )
    def test_a_size_without_a_unit_is_refused_before_anything_runs(
        self, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
    ) -> None:
        assert main(list(arguments)) == 2
        assert "(expected a number with a unit" in capsys.readouterr().err
        assert not Path("ms-tune-runs").exists()


class TestExitCodes:
    @pytest.mark.parametrize("form", [(), ("--json",)])
    def test_what_does_not_fit_is_1(
        self, capsys: pytest.CaptureFixture[str], child: Callable[[str], None], form: tuple[str, ...]
    ) -> None:
        child(good_child(9 * GIB, 9 * GIB))
        code, out, _ = ms_tune(capsys, "--device-memory", "9GB", *form)
        assert code == 1
        assert (
            "does-not-fit"
            if form
            else "memory: exceeds the limit. Stage 0 needs 9.0 GiB, usable 7.7 GiB (over by 1.3 GiB)"
        ) in out

    def test_a_run_that_failed_is_2_with_its_last_error(
        self, capsys: pytest.CaptureFixture[str], child: Callable[[str], None]
    ) -> None:
        child("raise RuntimeError('no such operator')")
        code, out, err = ms_tune(capsys, "--json")
        assert (code, out) == (2, "")
        assert "error: the simulation ended with exit code 1: " in err
        assert ":1: RuntimeError: no such operator" in err
        assert "log.txt" in err
        assert "Traceback" not in err

    def test_without_mindspore_it_is_2_and_says_what_to_install(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def not_there(*_: object) -> NoReturn:
            refuse("ms-tune dryrun", "dryrun", "mindspore")

        monkeypatch.setattr(run, "find_mindspore", not_there)
        code, out, err = ms_tune(capsys, "--lang", "zh")
        assert (code, out) == (2, "")
        assert err.startswith("错误：'ms-tune dryrun' 需要 MindSpore")
        assert "pip install" in err
        assert "[dryrun]'" in err

    def test_a_config_that_is_not_there_is_2(
        self, capsys: pytest.CaptureFixture[str], child: Callable[[str], None]
    ) -> None:
        child(good_child())
        code, _, err = ms_tune(capsys, "nowhere.yaml")
        assert code == 2
        assert err.startswith("nowhere.yaml: error: ")
        assert not Path("ms-tune-runs").exists()

    def test_warnings_go_to_standard_error_and_change_nothing(
        self, capsys: pytest.CaptureFixture[str], child: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MS_ALLOC_CONF", "enable_vmm:True")
        child(good_child())
        code, out, err = ms_tune(capsys, "--json")
        assert code == 0
        assert json.loads(out)["warnings"] == ["environment variables overridden for the simulation: MS_ALLOC_CONF"]
        assert "warning: environment variables overridden for the simulation: MS_ALLOC_CONF" in err

    @pytest.mark.slow
    def test_progress_is_plain_lines_where_there_is_no_terminal(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], child: Callable[[str], None]
    ) -> None:
        monkeypatch.setattr("ms_tune.cli.dryrun_progress._SILENCE", 0.4)
        child("import time; time.sleep(0.5)\n" + good_child())
        err = ms_tune(capsys, "--layers", "all")[2]
        assert len([line for line in err.splitlines() if "starting MindSpore" in line]) == 1
        assert "\r" not in err
        assert "\033" not in err


class TestCheck:
    @pytest.fixture
    def ready(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
        monkeypatch.setattr(check, "find_mindspore", lambda *_: MindSpore("2.9.0", tmp_path))
        monkeypatch.setattr(check, "find_real_cann", lambda: None)
        monkeypatch.setattr(check, "check_supported", lambda _: None)
        monkeypatch.setattr(check, "stand_ins_built", lambda _: tmp_path / "stand-in")
        monkeypatch.setattr(check, "installed_version", {"mindspore": "2.9.0", "numpy": "1.26.4"}.get)
        return tmp_path

    def json(self, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
        code, out, _ = ms_tune(capsys, "--check", "--json")
        read = json.loads(out)
        assert isinstance(read, dict)
        return code, read

    def test_a_machine_that_is_ready_is_0(self, capsys: pytest.CaptureFixture[str], ready: Path) -> None:
        code, read = self.json(capsys)
        assert code == 0
        assert (read["ready"], read["problem"], read["backend"]) == (True, None, "cann-stand-in")
        assert (read["mindspore"], read["mindformers"], read["cann"]) == ("2.9.0", None, str(ready / "stand-in"))
        assert set(read["dynamic_graph"]) == {"mindspeed-ms", "mindformers-pynative"}

    def test_a_real_cann_is_named(
        self, capsys: pytest.CaptureFixture[str], ready: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(check, "find_real_cann", lambda: Cann(Backend.CANN, ready / "Ascend"))
        code, read = self.json(capsys)
        assert (code, read["backend"], read["cann"]) == (0, "cann", str(ready / "Ascend"))

    @pytest.mark.usefixtures("ready")
    def test_a_machine_that_is_not_ready_is_2_and_says_why(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def not_there(*_: object) -> NoReturn:
            refuse("ms-tune dryrun", "dryrun", "mindspore")

        monkeypatch.setattr(check, "find_mindspore", not_there)
        code, read = self.json(capsys)
        assert (code, read["ready"], read["backend"]) == (2, False, None)
        assert "MindSpore" in read["problem"]
        code, out, _ = ms_tune(capsys, "--check")
        assert code == 2
        assert "dryrun does not work on this machine: 'ms-tune dryrun' requires MindSpore" in out

    @pytest.mark.usefixtures("ready")
    @pytest.mark.parametrize(
        ("language", "last"), [("en", "dryrun works on this machine"), ("zh", "dryrun 可以在本机运行")]
    )
    def test_it_is_shown_a_line_a_fact(self, capsys: pytest.CaptureFixture[str], language: str, last: str) -> None:
        code, out, err = ms_tune(capsys, "--check", "--lang", language)
        lines = out.splitlines()
        assert (code, err) == (0, "")
        assert len(lines) == 11
        assert {"MindSpore: 2.9.0", "MindSpore：2.9.0"} & {*lines}
        assert lines[-1] == last

    def test_it_builds_nothing_and_leaves_nothing(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("MS_TUNE_CACHE", str(tmp_path / "cache"))
        ms_tune(capsys, "--check", "--json")
        assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []
        assert not Path("ms-tune-runs").exists()
