"""Test which files are linted, in how many processes, and what is kept of the checklists."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ms_tune.errors import MsTuneError, UsageError
from ms_tune.facts.query import data_folder
from ms_tune.job.script import ScriptJob
from ms_tune.lint import runner
from ms_tune.lint.checklist import read_checks
from ms_tune.lint.code_files import load_code
from ms_tune.lint.environment.settings import parse_shell
from ms_tune.lint.result import FileReport, LintRequest, Skipped
from ms_tune.lint.runner import STDIN, LintRun, check_files, discover
from ms_tune.lint.settings import ProjectSettings
from ms_tune.text import Message
from tests.lint.code import lint_environment
from tests.lint.few import make_only_few

ENTRY = "{id: MST901, name: a, test: {path: a.b, equals: 2.5}, title: {zh: 数}}"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MS_TUNE_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "list.yaml"
    path.write_text(f"checks: [{ENTRY}]\n", encoding="utf-8")
    return path


def cached_files(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache").rglob("*.json"))


def read(file: Path) -> list[tuple[str, object, object]]:
    return [(check.id, check.tests[0]["cases"][0][1], check.entry.get("title")) for check in read_checks(file)]


def test_checks_are_kept_and_read_again(file: Path, tmp_path: Path) -> None:
    wanted = read(file)
    assert wanted == [("MST901", ["not", ["in", ["name", "value"], ["value", [2.5]]]], {"zh": "数"})]
    (one,) = cached_files(tmp_path)
    assert read(file) == wanted
    one.write_text(one.read_text(encoding="utf-8").replace("2.5", "7.5"), encoding="utf-8")
    assert read(file)[0][1] == ["not", ["in", ["name", "value"], ["value", [7.5]]]]  # its source


def test_a_changed_file_is_read_again(file: Path) -> None:
    read(file)
    file.write_text("checks: []\n")
    assert read(file) == []
    os.utime(file, ns=(1, 1))
    assert read(file) == []


@pytest.mark.parametrize("content", ["", "[]", '{{"key": 1}}', "\0", '{{"key": [], "rows": 1}}', "{rows}"])
def test_what_cannot_be_used_is_ignored(file: Path, tmp_path: Path, content: str) -> None:
    wanted = read(file)
    (one,) = cached_files(tmp_path)
    one.write_text(content.format(rows=one.read_text(encoding="utf-8").split("\n")[0]), encoding="utf-8")
    assert read(file) == wanted


def test_values_that_json_would_change_are_not_kept(file: Path, tmp_path: Path) -> None:
    file.write_text(f"checks: [{ENTRY.replace('2.5', '2024-01-01')}]\n")
    assert read(file) == read(file)
    assert cached_files(tmp_path) == []


def test_without_a_folder_it_works_too(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    for folder in (str(tmp_path / "file"), "relative"):
        monkeypatch.setenv("MS_TUNE_CACHE", folder)
        assert read(file)[0][0] == "MST901"
    assert cached_files(tmp_path) == []


CHECKLISTS = [
    path for path in sorted(data_folder("checklists").rglob("*.yaml")) if path.parent.name in ("checklists", "code")
]


@pytest.mark.drawn(4)
@pytest.mark.parametrize("path", CHECKLISTS, ids=lambda path: path.stem)
def test_checks_that_are_kept_are_those_of_the_file(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MS_TUNE_CACHE", str(tmp_path))
    copy = Path(shutil.copy(path, tmp_path))  # a copy without the pre-parsed rows of an installation
    first, again = read_checks(copy), read_checks(copy)
    assert has_cache(tmp_path)
    assert [(one._row, one.entry) for one in first] == [(one._row, one.entry) for one in again]


def has_cache(folder: Path) -> bool:
    return bool([*folder.rglob("*.json")])


TRAINED = "trainer: {}\nprofile: True\n"
IN_B = ("broken.yaml", "compose.yaml", "other.sh", "other.yml", "run.sh", "setup.py", "template.yaml", "train.py")
EXCLUDING = ProjectSettings(None, Path("/"), exclude=("skipped",))


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_only_few(monkeypatch)
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "train.yaml": TRAINED,
        "b/other.yml": TRAINED,
        "b/compose.yaml": "services: {}\n",
        "b/broken.yaml": "trainer: {}\nparallel_config:\n\tx: 1\n",
        "b/template.yaml": "{% if a %}\n",
        "b/notes.txt": "",
        "b/run.sh": "export MS_ALLOC_CONF=enable_vmm=True\n",
        "b/other.sh": "export A=1\n",
        "b/setup.py": "import setuptools\n",
        "b/train.py": "import mindspore\n",
        ".hidden/train.yaml": TRAINED,
        "__pycache__/train.yaml": TRAINED,
        "venv/pyvenv.cfg": "",
        "venv/train.yaml": TRAINED,
        "skipped/train.yaml": TRAINED,
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "loop").symlink_to(tmp_path)
    return tmp_path


def names(*words: str, settings: ProjectSettings = EXCLUDING) -> list[str]:
    return [str(target.path) for target in discover(words, settings)[0]]


def test_folders(tree: Path) -> None:
    assert names(".") == ["train.yaml", *(f"b/{name}" for name in IN_B)]
    _, skipped = discover([str(tree / "skipped")], EXCLUDING)
    assert [one.path for one in skipped] == [tree / "skipped" / "train.yaml"]


def test_what_is_named_is_taken(tree: Path) -> None:
    assert names("skipped/train.yaml", "b/notes.txt", "missing.yaml") == [
        "skipped/train.yaml",
        "b/notes.txt",
        "missing.yaml",
    ]
    assert names("b", str(tree / "b" / "other.yml"), "b/other.yml") == [f"b/{name}" for name in IN_B]
    assert discover(["-"], EXCLUDING)[0][0].path == STDIN
    targets, skipped = discover(["skipped/train.yaml", "train.yaml", "-"], EXCLUDING, trusted=False)
    assert [(str(target.path), target.named) for target in targets] == [("train.yaml", False), ("-", False)]
    assert [str(one.path) for one in skipped] == ["skipped/train.yaml"]


@pytest.mark.usefixtures("tree")
def test_globs() -> None:
    assert "b/other.yml" in names("**/*.yml")
    assert names("b/*") == [f"b/{name}" for name in sorted((*IN_B, "notes.txt"))]
    Path("odd[1].yaml").write_text(TRAINED)
    assert names("odd[1].yaml") == ["odd[1].yaml"]
    with pytest.raises(UsageError, match=r"no file matches '\*\.json'"):
        names("*.json")


@pytest.mark.usefixtures("tree")
def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "MAX_FILES", 2)
    with pytest.raises(UsageError, match="more than 2 files"):
        names(".")


@pytest.mark.usefixtures("tree")
def test_what_a_folder_holds_besides_is_reported() -> None:
    outcomes = check_files(discover(["."], EXCLUDING)[0], LintRun(settings=EXCLUDING))
    reports = [str(one.path) for one in outcomes if isinstance(one, FileReport)]
    skipped = {str(one.path): one.reason.id for one in outcomes if isinstance(one, Skipped)}
    errors = [str(one) for one in outcomes if isinstance(one, MsTuneError)]
    assert reports == ["train.yaml", "b/other.yml", "b/run.sh", "b/train.py"]
    assert skipped == {
        "b/compose.yaml": "lint.not-a-config",
        "b/other.sh": "lint.not-an-environment",
        "b/setup.py": "lint.not-training-code",
        "b/template.yaml": "lint.skipped.unreadable",
    }
    assert len(errors) == 1
    assert errors[0].startswith("b/broken.yaml:3:1: ")


_LINT = """
import multiprocessing, sys
if __name__ == "__main__":
    multiprocessing.set_start_method(sys.argv[1])
    from ms_tune.cli.main import main
    sys.exit(main(["lint", "."]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])  # forkserver is Linux's default from Python 3.14 on
@pytest.mark.parametrize("files", [60, 2_000])
def test_processes_end_with_lint_however_they_are_started(method: str, files: int, tmp_path: Path) -> None:
    (tmp_path / "run.py").write_text(_LINT)
    for number in range(files):
        (tmp_path / f"{number}.yaml").write_text("parallel_config:\n  data_parallel: 2\n" * 20)
    command = [sys.executable, "run.py", method]
    lint = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if files == 60:
        _, err = lint.communicate(timeout=120)
        assert (lint.returncode, "internal" in err) == (1, False), err
        return
    children = Path(f"/proc/{lint.pid}/task/{lint.pid}/children")
    while not children.read_text():
        time.sleep(0.05)
    lint.kill()
    lint.communicate(timeout=60)  # the pipe ends when no process has it any more


@pytest.mark.slow
def test_many_files_in_several_processes(tmp_path: Path) -> None:
    for number in range(60):
        (tmp_path / f"{number:03}.yaml").write_text(TRAINED if number % 7 else "trainer: [\nparallel_config:\n")
    job = LintRun(settings=ProjectSettings(None, tmp_path))
    targets, _ = discover([str(tmp_path)], job.settings)
    one, two = (check_files(targets, job._replace(request=LintRequest(processes=count))) for count in (1, 2))
    assert [str(outcome) for outcome in two] == [str(outcome) for outcome in one]
    assert [outcome for outcome in two if isinstance(outcome, FileReport)] == [
        outcome for outcome in one if isinstance(outcome, FileReport)
    ]
    assert [outcome.findings for outcome in two if isinstance(outcome, FileReport)]


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
