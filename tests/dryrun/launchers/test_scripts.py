"""Run typical users' scripts unchanged, with a small program instead of the training."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ms_tune.cli.main import main
from ms_tune.dryrun import command as room
from ms_tune.dryrun.cann_sim.environment import Backend, Cann, MindSpore
from tests.dryrun.fakes import GIB, HEADER, STATISTICS, row
from tests.dryrun.launching import hear_signals

if TYPE_CHECKING:
    Script = Callable[..., tuple[int, dict[str, Any], str]]

pytestmark = (
    pytest.mark.slow
)  # each starts bash, launchers and processes; together they take a sixth of the fast tests' time

# Files that one rank of a training writes; its peak grows with its number. Its own arguments make it fail or wait.
TRAINING = (
    "import json, os, sys, time\nfrom pathlib import Path\n"
    "place = Path(os.environ['MS_TUNE_TRACES'])\nrank = int(os.environ['RANK_ID'])\n"
    "print('arguments', json.dumps(sys.argv[1:]))\n"
    "print('variables', json.dumps(dict(os.environ)))\n"
    "if f'--fail-{rank}' in sys.argv: raise RuntimeError('no such data')\n"
    "if '--wait' in sys.argv: Path(f'waits-{rank}').write_text(str(os.getpid())); time.sleep(600)\n"
    f"peak = {GIB} + rank * 2**20\n"
    f"header, first = {HEADER!r}, {row(2, 111111, 111111, 222222)!r}\n"
    "first = first.replace('111111', str(peak)).replace('222222', str(peak))\n"
    "(place / 'memory_block.csv').write_text(header + first)\n"
    f"print({STATISTICS!r}.format(peak=peak // 2**20, actual=(peak) // 2**20))\n"
    '(place / \'process.json\').write_text(\'{"pid": 1, "arguments": [], "ended": true}\')\n'
)
ARGUMENTS = "--pipeline-model-parallel-size 2 --tensor-model-parallel-size 2"


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("LC_ALL", "LC_MESSAGES", "LANG", "COLUMNS", "RANK_ID", "RANK_SIZE", "MS_ALLOC_CONF"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(room, "find_mindspore", lambda *_: MindSpore("2.9.0", tmp_path))
    monkeypatch.setattr(room, "prepare_cann", lambda *_: Cann(Backend.STAND_IN, tmp_path / "cann"))
    Path("train.py").write_text(TRAINING, encoding="utf-8")


@pytest.fixture
def script(capsys: pytest.CaptureFixture[str]) -> Script:
    def run(text: str, *options: str) -> tuple[int, dict[str, Any], str]:
        Path("pretrain.sh").write_text(f"#!/bin/bash\n{text}\n", encoding="utf-8")
        code = main(["dryrun", "--json", *options[: len(options)], "pretrain.sh"])
        output = capsys.readouterr()
        return code, json.loads(output.out) if output.out else {}, output.err

    return run


def run_folder() -> Path:
    (folder,) = Path("ms-tune-runs").iterdir()
    return folder


def read_rank(job: int = 1, rank: int = 0) -> tuple[list[str], dict[str, str]]:
    """Return the arguments and variables that a rank received."""
    log = (run_folder() / "script" / f"job_{job}" / f"rank_{rank}" / "log.txt").read_text("utf-8").splitlines()
    found = {line.partition(" ")[0]: line.partition(" ")[2] for line in log}
    return json.loads(found["arguments"]), json.loads(found["variables"])


def peaks(result: dict[str, Any]) -> dict[tuple[int, int], int]:
    return {(one["job"], one["stage"]): one["peak_bytes"] - GIB for one in result["ranks"]}


class TestMsrun:
    @pytest.mark.parametrize("join", ["True", "False"])
    def test_one_rank_of_each_stage_runs_with_what_the_launcher_would_show(self, script: Script, join: str) -> None:
        code, result, _ = script(
            "export PYTHONPATH=/of/my/own\nARGS=(--worker_num 8 --local_worker_num 4 --node_rank 0)\n"
            f'function launch {{ msrun "${{ARGS[@]}}" --join={join} train.py {ARGUMENTS} "$@"; }}\n'
            'launch --name "two words" $(echo --made) | tee logs/train.log\n'
        )
        assert code == 0
        assert peaks(result) == {(1, 0): 0, (1, 1): 4 * 2**20}
        assert [(one["rank"], one["stage"], one["exit_code"]) for one in result["jobs"][0]["ranks"]] == [
            (0, 0, 0),
            (4, 1, 0),
        ]
        assert result["jobs"][0]["split"] == {"data": 2, "tensor": 2, "pipeline": 2, "context": 1, "expert": 1}
        arguments, variables = read_rank(rank=4)
        assert arguments == [*ARGUMENTS.split(), "--name", "two words", "--made"]
        wanted = {"RANK_ID": "4", "RANK_SIZE": "8", "DEVICE_ID": "0", "MS_SIMULATION_LEVEL": "1", "HF_HUB_OFFLINE": "1"}
        assert {name: variables[name] for name in wanted} == wanted
        assert variables["PYTHONPATH"].split(os.pathsep)[0].endswith("startup")
        assert "/of/my/own" in variables["PYTHONPATH"].split(os.pathsep)
        assert not {"MS_ROLE", "MS_SCHED_PORT", "MS_TUNE_LAUNCH"} & set(variables)
        assert not Path("logs").exists()
        kept = (run_folder() / "script" / "written" / "logs" / "train.log").read_text("utf-8")
        assert ("variables" in kept) is (join == "True")  # only a launcher that waits shows the output of its ranks

    def test_a_rank_that_fails_is_named_and_the_others_have_figures(self, script: Script) -> None:
        code, result, err = script(f"msrun --worker_num 4 --join=False train.py {ARGUMENTS} --fail-2\necho done")
        assert code == 1
        assert result["verdict"] is None
        assert [(one["stage"], one["verdict"]) for one in result["ranks"]] == [(0, "fits")]
        assert result["jobs"][0]["ranks"][1]["exit_code"] == 1
        assert "job 1, rank 2 (stage 1): " in err
        assert "RuntimeError: no such data" in err

    @pytest.mark.parametrize(("join", "goes_on"), [("True", False), ("False", True)])
    def test_set_e_sees_what_the_launcher_would_say(self, script: Script, join: str, *, goes_on: bool) -> None:
        line = f"msrun --worker_num 4 --join={join} train.py {ARGUMENTS}"
        code, result, _ = script(f"set -e\n{line} --fail-0\n{line}")
        assert code == 1
        assert [job["job"] for job in result["jobs"]] == ([1, 2] if goes_on else [1])

    def test_two_jobs_of_a_script_one_in_the_background(self, script: Script) -> None:
        line = f"msrun --worker_num 4 train.py {ARGUMENTS}"
        code, result, _ = script(f"nohup {line} > one.log 2>&1 &\nwait\n{line}")
        assert code == 0
        assert len(peaks(result)) == 4

    def test_what_the_launcher_would_refuse_is_reported(self, script: Script) -> None:
        code, result, err = script("msrun --worker_num four train.py")
        assert code == 2
        assert "msrun did not start anything: invalid --worker_num four" in err
        assert result["verdict"] is None


@pytest.mark.parametrize(
    "line",
    [
        "torchrun --nproc_per_node 4 --nnodes 1",
        "python -m torch.distributed.launch --nproc_per_node 4",
        f"{sys.executable} -m torch.distributed.launch --nproc-per-node=4",
        "env PATH=/usr/bin:/bin bash -c 'torchrun \"$@\"' x --nproc_per_node 4",
    ],
)
def test_torchs_launchers_however_they_are_called(script: Script, line: str) -> None:
    code, result, err = script(f"{line} train.py {ARGUMENTS}")
    assert (code, peaks(result)) == (0, {(1, 0): 0, (1, 1): 2 * 2**20}), err
    arguments, variables = read_rank(rank=2)
    named = ["--local-rank=2"] if "launch" in line else []
    assert arguments == [*named, *ARGUMENTS.split()]
    assert (variables["RANK"], variables["WORLD_SIZE"], variables["LOCAL_RANK"]) == ("2", "4", "2")


def test_a_launcher_that_is_met_only_when_it_has_started(script: Script, tmp_path: Path) -> None:
    """An absolute path bypasses PATH: the Python that runs it becomes the stand-in."""
    launcher = tmp_path / "torchrun"
    launcher.write_text(f"#!{sys.executable}\nraise SystemExit('the real one')\n", encoding="utf-8")
    launcher.chmod(0o755)
    code, result, err = script(f"{launcher} --nproc_per_node 4 train.py {ARGUMENTS}")
    assert (code, len(peaks(result))) == (0, 2), err


@pytest.mark.parametrize("launcher", ["deepspeed", "ray", "ssh"])
def test_other_launchers_are_named_and_not_run(script: Script, launcher: str) -> None:
    code, _, err = script(f"{launcher} start train.py")
    assert code == 2
    assert err.count(f"{launcher} did not start anything: this launcher cannot be simulated") == 1


def test_next_to_a_job_they_are_a_warning(script: Script) -> None:
    code, result, _ = script(f"ray stop\nmsrun --worker_num 4 train.py {ARGUMENTS}")
    assert code == 0
    assert "ray did not start anything: this launcher cannot be simulated" in result["warnings"]


def test_a_program_without_a_pipeline_is_one_rank(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    _, result, _ = script("msrun --worker_num 8 train.py --layers 4")
    assert [(one["rank"], one["stage"]) for one in result["jobs"][0]["ranks"]] == [(0, 0)]
    assert main(["dryrun", "--", "msrun", "--worker_num", "8", "train.py"]) == 0
    assert "the arguments do not set pipeline parallelism, so one rank represents all" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("shell", "line"), [("enable_vmm:False,memory_tracker:False", ""), ("", "export MS_ALLOC_CONF=enable_vmm:False\n")]
)
def test_settings_of_the_allocator_stay_next_to_those_of_the_tracker(
    script: Script, monkeypatch: pytest.MonkeyPatch, shell: str, line: str
) -> None:
    monkeypatch.setenv("MS_ALLOC_CONF", shell)
    code, _, _ = script(f"{line}msrun --worker_num 4 train.py {ARGUMENTS}")
    assert code == 0
    settings = read_rank()[1]["MS_ALLOC_CONF"].split(",")
    assert settings[:2] == ["enable_vmm:False", "memory_tracker:True"]
    assert [one.partition(":")[0] for one in settings[2:]] == ["memory_tracker_path"]


def test_the_script_gets_its_own_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    Path("pretrain.sh").write_text('msrun --worker_num 2 train.py "$@"\n', encoding="utf-8")
    assert main(["dryrun", "pretrain.sh", "--", "--layers", "a b"]) == 0
    assert "job 1: msrun train.py, 2 ranks" in capsys.readouterr().out
    assert read_rank()[0] == ["--layers", "a b"]


def test_a_script_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["absent.sh"], ["--", "bash", "absent.sh"]):
        assert main(["dryrun", *arguments]) == 2
        assert capsys.readouterr().err.splitlines()[0] == "absent.sh: error: no such file"
    assert not Path("ms-tune-runs").exists()


def test_a_defect_of_the_stack_and_options_that_are_not_simulated_are_named(script: Script) -> None:
    text = (
        Path("train.py")
        .read_text("utf-8")
        .replace("RuntimeError('no such data')", "TypeError(\"'bool' object is not callable\")")
    )
    Path("train.py").write_text(text, encoding="utf-8")
    code, result, err = script(f"msrun --worker_num 4 --join=True train.py {ARGUMENTS} --use-ascend-coc --fail-0")
    assert code == 1
    assert "hint: a bug in MSAdapter 0.5.0b1, on real devices too" in err
    assert [warning for warning in result["warnings"] if "--use-ascend-coc" in warning]
    assert not script(f"msrun --worker_num 4 train.py {ARGUMENTS} --use-ascend-coc")[1]["warnings"]


class TestFewerLayers:
    """The peak of this program is 1 GiB, plus 1 MiB per layer of its stage, or 2 MiB for a layer without recomputation."""

    @pytest.fixture(autouse=True)
    def training(self) -> None:
        reported = (
            "word = lambda name, default: int((sys.argv + [name, default])[(sys.argv + [name]).index(name) + 1])\n"
            "own = word('--num-layers', 0) // 2\n"
            "recomputed = word('--recompute-num-layers', 0) if 'block' in sys.argv else 0\n"
            f"peak = {GIB} + (2 * own - min(own, recomputed)) * 2**20\n"
        )
        Path("train.py").write_text(TRAINING.replace(f"peak = {GIB} + rank * 2**20\n", reported), encoding="utf-8")

    LINE = f"msrun --worker_num 4 train.py {ARGUMENTS} --num-layers"

    @pytest.mark.parametrize("layers", ["auto", "2"])
    def test_the_whole_stages_are_derived_and_judged(
        self, script: Script, layers: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        code, result, err = script(f"{self.LINE} 80", "--layers", layers)
        assert code == 0, err
        reported = [
            (one["stage"], one["layers"], one["full_layers"], one["extrapolated_from_layers"])
            for one in result["ranks"]
        ]
        assert reported == [(0, 2, 40, [2, 3]), (1, 2, 40, [2, 3])]
        assert [one["extrapolated_peak_bytes"] for one in result["ranks"]] == [GIB + 80 * 2**20] * 2
        assert [one["peak_bytes"] for one in result["ranks"]] == [GIB + 4 * 2**20] * 2
        assert (result["verdict_about"], result["verdict"]) == ("extrapolated_peak_bytes", "fits")
        (folder,) = Path("ms-tune-runs").iterdir()
        assert main(["memory", "--json", str(folder)]) == 0
        assert json.loads(capsys.readouterr().out)["ranks"][0]["verdict"] == "fits"
        kept = json.loads((folder / "judged.json").read_text("utf-8"))["ranks"]
        assert kept["script/job_1/rank_0"]["whole"]["peak"] == GIB + 80 * 2**20

    def test_what_is_not_followed_is_run_whole_and_reported(self, script: Script) -> None:
        line = f"{self.LINE} 80 --decoder-first-pipeline-num-layers 30"
        code, result, _ = script(line, "--layers", "auto")
        assert (code, result["extrapolated_peak_bytes"]) == (0, None)
        assert result["warnings"] == [
            "run with all layers: layer placement cannot be determined when set by --decoder-first-pipeline-num-layers"
        ]

    def test_a_run_that_fails_leaves_no_verdict(self, script: Script) -> None:
        text = Path("train.py").read_text("utf-8")
        Path("train.py").write_text(text + "if own == 3: raise RuntimeError('too many')\n", encoding="utf-8")
        code, result, err = script(f"{self.LINE} 80", "--layers", "2", "--stages", "0")
        assert (code, result["verdict"]) == (1, None)
        assert "RuntimeError: too many" in err

    @pytest.mark.slow
    def test_a_sweep_compares_variants(self, script: Script, capsys: pytest.CaptureFixture[str]) -> None:
        options = ("--layers", "auto", "--sweep", "num-layers=80,120", "--set", "x=true")
        code, result, err = script(f"{self.LINE} 60", *options)
        assert code == 0, err
        reported = [(one["settings"], one["result"]["extrapolated_peak_bytes"]) for one in result["variants"]]
        assert reported == [
            ({"--x": "", "--num-layers": "80"}, GIB + 80 * 2**20),
            ({"--x": "", "--num-layers": "120"}, GIB + 120 * 2**20),
        ]
        assert main(["dryrun", *options, "pretrain.sh"]) == 0
        out = capsys.readouterr().out
        assert "num-layers=120" in out
        assert "x=true" in out

    def test_it_is_reported_in_words(self, capsys: pytest.CaptureFixture[str]) -> None:
        Path("pretrain.sh").write_text(f"{self.LINE} 80\n", encoding="utf-8")
        assert main(["dryrun", "--verbose", "--layers", "auto", "pretrain.sh"]) == 0
        out = capsys.readouterr().out
        assert "2, 3 → 40" in out
        assert "extrapolated: the stages were run with fewer layers than they have" in out
        assert "rank 0, 2 of 40 layers. The figures below are for the sample." in out


@pytest.mark.slow
def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    Path("pretrain.sh").write_text(f"msrun --worker_num 4 train.py {ARGUMENTS} --wait | tee a.log\n", encoding="utf-8")
    code = (
        "from ms_tune.dryrun import command\n"
        "from ms_tune.dryrun.cann_sim.environment import Backend, Cann, MindSpore\n"
        "from ms_tune.cli.main import main\nfrom pathlib import Path\n"
        f"place = Path({str(tmp_path)!r})\n"
        "command.find_mindspore = lambda *_: MindSpore('2.9.0', place)\n"
        "command.prepare_cann = lambda *_: Cann(Backend.STAND_IN, place / 'cann')\n"
        "raise SystemExit(main(['dryrun', 'pretrain.sh']))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, preexec_fn=hear_signals)  # noqa: PLW1509 - no threads here
    end = time.monotonic() + 60
    while not Path("waits-0").exists() or not Path("waits-0").read_text("utf-8"):
        assert time.monotonic() < end
        time.sleep(0.05)
    pid = int(Path("waits-0").read_text("utf-8"))
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the results so far are in" in err
    assert not Path(f"/proc/{pid}").exists()


def test_what_is_run_otherwise_is_listed(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    line = (
        f"msrun --worker_num 4 train.py {ARGUMENTS} --num-layers 2 --micro-batch-size 1 --train-iters 9 --load my model"
    )
    _, result, _ = script(line, "--set", "seq-length=8")
    changes = {change["key"]: (change["before"], change["after"]) for change in result["jobs"][0]["changes"]}
    assert changes == {
        "--seq-length": (None, "8"),
        "--load": ("my model", None),
        "--train-iters": ("9", "2"),
        "--eval-iters": (None, "0"),
        "--no-initialization": (None, ""),
    }
    assert main(["dryrun", "-v", "pretrain.sh"]) == 0
    out = capsys.readouterr().out
    for text in (
        "--train-iters: 9 → 2 (job 1)",
        "--load: removed, was my model (job 1)",
        "--no-initialization: added",
    ):
        assert text in out
