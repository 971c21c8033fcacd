"""Run the GitHub Action and the commands of the pre-commit hooks."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from ms_tune.cli import check, lint
from ms_tune.facts.query import data_folder
from ms_tune.text import Language

ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
HOOKS = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
BAD = "run_mode: train\ntrainer: {type: CausalLanguageModelingTrainer}\nprofile: True\n"
OLD = '{"schema_version": 1, "files": {}}'
BASH, GIT = shutil.which("bash"), shutil.which("git")


def run_action(folder: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run the last step of the action like a runner: ``bash -eo pipefail``, inputs in the environment."""
    step = ACTION["runs"]["steps"][-1]
    given = {name: str(value["default"]) for name, value in ACTION["inputs"].items()} | inputs
    environment = {name: given[text.split("inputs.")[1].rstrip(" }")] for name, text in step["env"].items()}
    command = folder / "bin" / "ms-tune"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m ms_tune "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    environment["GITHUB_STEP_SUMMARY"] = str(folder / "summary.md")
    environment["GITHUB_ACTION_PATH"] = str(ROOT)
    search = {"PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [str(BASH), "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        cwd=folder,
        env=os.environ | environment | search | {"LC_ALL": "C"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("one", "two", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.yaml").write_text(BAD, encoding="utf-8")
    return tmp_path


@pytest.mark.slow
@pytest.mark.skipif(BASH is None, reason="the action runs in bash")
@pytest.mark.parametrize("paths", ["one two", "one\ntwo\n"])
def test_the_action_annotates_the_lines_of_every_path(folder: Path, paths: str) -> None:
    done = run_action(folder, paths=paths)
    assert done.returncode == 1
    assert [line.partition(",")[0] for line in done.stdout.splitlines() if line] == [
        "::warning file=one/train.yaml",
        "::warning file=two/train.yaml",
    ]


@pytest.mark.slow
@pytest.mark.skipif(BASH is None, reason="the action runs in bash")
def test_the_action_writes_sarif_where_there_is_no_folder_yet(folder: Path) -> None:
    done = run_action(folder, sarif="results/ms-tune.sarif", arguments="--exit-zero --ignore MST310", paths="one")
    assert (done.returncode, done.stderr) == (0, "")
    (run,) = json.loads((folder / "results" / "ms-tune.sarif").read_text(encoding="utf-8"))["runs"]
    assert [result["ruleId"] for result in run["results"]] == ["MST509"]


@pytest.mark.skipif(BASH is None, reason="the action runs in bash")
def test_what_a_workflow_passes_in_is_no_script(folder: Path) -> None:
    done = run_action(folder, paths="one; touch owned", arguments="$(touch owned)")
    assert done.returncode == 2
    assert not (folder / "owned").exists()


@pytest.mark.slow
@pytest.mark.skipif(BASH is None or GIT is None, reason="the action runs in bash, and compares commits of git")
def test_settings_that_a_pull_request_brings_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_BASE_REF", "main")
    files = {"train.yaml": BAD, "pyproject.toml": "[project]\n", "kept/ms-tune.toml": ""}
    brought = {
        "ms-tune.toml": 'ignore = ["MST5"]\nbaseline = "old.txt"\n',
        "a/ms-tune.toml": 'exclude = ["*"]\n',
        "old.txt": OLD,
    }
    brought |= {"pyproject.toml": "[tool.other]\n", "a/pyproject.toml": '[tool.ms-tune]\nignore = ["all"]\n'}
    own = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "base"], ["tag", "origin/main"], ["add", "."]):
        for name, text in ({} if words == ["init", "-q"] else files).items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text, encoding="utf-8")
        files |= brought if words[0] == "tag" else {}
        subprocess.run([str(GIT), "-C", str(tmp_path), *own, *words], check=True)
    named = {}
    for command in ("lint", "check"):
        shutil.rmtree(tmp_path / "bin", ignore_errors=True)
        shown = run_action(tmp_path, command=command, paths="train.yaml").stdout.splitlines()
        named[command] = {
            re.sub(r".*file=(.*?),.*", r"\1", line) for line in shown if "changes what ms-tune reports" in line
        }
    assert named["lint"] == named["check"] == {*brought} - {"pyproject.toml"}


@pytest.mark.slow
@pytest.mark.skipif(BASH is None, reason="the action runs in bash")
def test_a_job_that_would_run_out_of_memory_does_not_pass(tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples" / "out_of_memory.yaml", tmp_path)
    given = {"command": "check", "paths": "out_of_memory.yaml", "comment": "true"}
    done = run_action(tmp_path, **given, arguments="--device-memory 30GB")
    assert done.returncode == 1
    assert re.search("::error .*Stage 0 needs .*over by", done.stdout)
    summary = (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert "| `out_of_memory.yaml` | **estimated to exceed** |" in summary
    assert "no comment" in done.stderr  # this is not a pull request
    shutil.rmtree(tmp_path / "bin")
    assert run_action(tmp_path, **given, arguments="--device-memory 64GB").returncode == 0


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook["id"])
def test_a_hook_is_a_command_that_there_is(hook: dict[str, str]) -> None:
    program, command, *options = shlex.split(hook["entry"])
    assert (program, command) in {("ms-tune", "lint"), ("ms-tune", "check")}
    parser = (lint if command == "lint" else check).build_parser(Language.EN)
    assert parser.parse_args([*options, "a.yaml", "b.sh"]).skip_unknown
    assert hook["id"] in (ROOT / "docs" / f"{command}.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.skipif(BASH is None or GIT is None, reason="the action runs in bash, and compares commits of git")
def test_the_action_shows_what_a_pull_request_does_to_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_BASE_REF", "main")
    file = tmp_path / "train.yaml"
    shutil.copy(data_folder("yaml_templates") / "mindspeed_ms" / "llama2_7b.yaml", file)
    own = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["add", "train.yaml"], ["commit", "-q", "-m", "base"], ["tag", "origin/main"]):
        subprocess.run([str(GIT), "-C", str(tmp_path), *own, *words], check=True)
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("num_layers: 32", "num_layers: 34").replace("[32]", "[34]"), encoding="utf-8")
    line = text[: text.index("num_layers: 32")].count("\n") + 1
    done = run_action(tmp_path, command="check", arguments="--device-memory 66GiB")
    assert (done.returncode, done.stderr) == (1, "")
    first = done.stdout.splitlines()[0]
    assert first.startswith(f"::error file=train.yaml,line={line},title=ms-tune check::")
    assert re.search(
        r"makes stage 0 exceed the limit \(estimated\): needs .*GiB, usable .*GiB before \(\d+\.\d GiB more\)", first
    )


@pytest.mark.slow
@pytest.mark.skipif(BASH is None or GIT is None, reason="the action runs in bash, and compares commits of git")
@pytest.mark.parametrize("language", Language)
def test_what_the_action_cannot_read_is_an_annotation_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, language: Language
) -> None:
    monkeypatch.delenv("GITHUB_BASE_REF", raising=False)
    (tmp_path / "train.yaml").write_text("a: 1\nb: [1,\n", encoding="utf-8")
    for command in ("check", "lint"):
        shutil.rmtree(tmp_path / "bin", ignore_errors=True)
        done = run_action(tmp_path, command=command, paths="train.yaml", arguments=f"--lang {language.value}")
        assert done.returncode == 2
        assert done.stdout.startswith(f"::error file=train.yaml,line=3,title=ms-tune {command}::")


@pytest.mark.slow
@pytest.mark.skipif(BASH is None or GIT is None, reason="the action runs in bash, and compares commits of git")
@pytest.mark.parametrize("language", Language)
def test_a_checkout_without_the_base_is_reported_what_to_fetch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, language: Language
) -> None:
    monkeypatch.setenv("GITHUB_BASE_REF", "main")
    subprocess.run([str(GIT), "-C", str(tmp_path), "init", "-q"], check=True)
    done = run_action(tmp_path, command="check", arguments=f"--lang {language.value}")
    assert (done.returncode, done.stdout) == (2, "")
    assert "origin/main" in done.stderr
    assert "fetch-depth: 0" in done.stderr
