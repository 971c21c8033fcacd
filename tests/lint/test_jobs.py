"""Test a script, its arguments and the config that it starts together."""

from __future__ import annotations

from pathlib import Path

import pytest

from ms_tune.job.script import ScriptJob
from ms_tune.lint.code_files import load_code
from ms_tune.lint.environment.settings import parse_shell
from ms_tune.text import Message
from tests.lint.code import lint_environment

CONFIG = """
use_parallel: False
runner_config: {batch_size: 4}
trainer: {type: A, model_name: a}
parallel_config: {data_parallel: 2, model_parallel: 2, pipeline_stage: 2}
"""
JOBS = {
    "job-not-evaluable",
    "config-that-is-not-there",
    "processes-unlike-parallel-sizes",
    "setting-overruled-by-an-argument",
    "swap-without-its-variable",
}
MSRUN = "msrun --worker_num {n} --local_worker_num {n} run_mindformer.py --config job.yaml {more}\n"
WHOLE = 'bash scripts/msrun_launcher.sh "run_mindformer.py --config job.yaml {more}" {n}\n'


def lint_job(folder: Path, text: str, config: str = CONFIG) -> list[str]:
    (folder / "configs").mkdir(exist_ok=True)
    (folder / "configs" / "job.yaml").write_text(config, encoding="utf-8")
    (folder / "configs" / "scripts").mkdir(exist_ok=True)
    findings = lint_environment(parse_shell(text, folder / "configs" / "scripts" / "run.sh"))
    return sorted(one.name for one in findings if one.name in JOBS)


@pytest.mark.parametrize("start", [MSRUN, WHOLE])
@pytest.mark.parametrize(
    ("n", "more", "expected"),
    [
        ("4", "", []),  # without use_parallel the sizes do not count
        ("4", "--use_parallel=True", ["processes-unlike-parallel-sizes", "setting-overruled-by-an-argument"]),
        ("8", "--batch_size 4", []),
        ("8", "--batch_size 2", ["setting-overruled-by-an-argument"]),
        ("4", "--options use_parallel=True parallel_config.pipeline_stage=1", ["setting-overruled-by-an-argument"] * 2),
        ("$1", "--use_parallel True", ["job-not-evaluable", "setting-overruled-by-an-argument"]),
        ("$((2*2))", "--use_parallel True", ["processes-unlike-parallel-sizes", "setting-overruled-by-an-argument"]),
    ],
)
def test_arguments_and_processes(tmp_path: Path, start: str, n: str, more: str, expected: list[str]) -> None:
    assert lint_job(tmp_path, start.format(n=n, more=more)) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("./configs/job.yaml", []),
        ("$(pwd)/configs/job.yaml", []),
        ("${ROOT}/job.yaml", ["job-not-evaluable"]),
        ("configs/none.yaml", ["config-that-is-not-there"]),
        ("path/to/your.yaml", []),
        ("model.json", []),
    ],
)
def test_paths(tmp_path: Path, path: str, expected: list[str]) -> None:
    assert (
        lint_job(tmp_path, f"msrun --worker_num 8 --local_worker_num 8 run_mindformer.py --config {path}\n") == expected
    )


@pytest.mark.parametrize("start", [MSRUN, WHOLE])
def test_nothing_is_missing_where_a_script_was_copied_alone(tmp_path: Path, start: str) -> None:
    text = start.format(n="4", more="").replace("job.yaml", "none.yaml")
    assert lint_job(tmp_path, text) == []
    (tmp_path / "run_mindformer.py").write_text("", "utf-8")
    assert lint_job(tmp_path, text) == ["config-that-is-not-there"]


def test_configs_of_others_and_broken_ones(tmp_path: Path) -> None:
    for config in ("a: [", "a: 1\n", "[1]\n", "base_config: x.yaml\n" + CONFIG):
        assert lint_job(tmp_path, MSRUN.format(n="4", more="--use_parallel True"), config) == []
    assert ScriptJob(tmp_path / "a.sh", "echo --config\n").config_jobs == ()
    text = MSRUN.format(n="10" * 40, more="--options parallel_config.data_parallel=" + "9" * 50)
    assert lint_job(tmp_path, text) == ["setting-overruled-by-an-argument"]


def test_sizes_of_the_dynamic_graph(tmp_path: Path) -> None:
    config = """
parallelism: {data_parallel_shard: 2, tensor_parallel: 2}
training: {local_batch_size: 1, global_batch_size: 8, steps: 1}
lr_scheduler: {type: ConstantWarmUpLR, learning_rate: 1.e-5}
"""
    assert lint_job(tmp_path, MSRUN.format(n="8", more=""), config) == ["processes-unlike-parallel-sizes"]
    assert lint_job(tmp_path, MSRUN.format(n="4", more=""), config) == []
    assert lint_job(tmp_path, MSRUN.format(n="8", more=""), config.replace("shard: 2", "shard: -1")) == []


def test_what_a_sourced_file_says_now_holds(tmp_path: Path) -> None:
    """The script is unchanged, but the file that it sources has changed."""
    script = tmp_path / "a.sh"
    script.write_text(". ./sizes.sh\nmsrun --worker_num $DEVICES run_mindformer.py --config a.yaml\n")
    (tmp_path / "a.yaml").write_text("run_mode: train\n")
    for devices in (8, 16):
        (tmp_path / "sizes.sh").write_text(f"DEVICES={devices}\n")
        code = load_code(script, None, named=True, version=None)
        assert not isinstance(code, Message)
        (job,) = ScriptJob(script, code.job.original.text).config_jobs
        assert job.processes == devices
