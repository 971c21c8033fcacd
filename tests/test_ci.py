"""Test CI: the README's test command, on all supported Python versions."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import yaml

from ms_tune import extras
from ms_tune.cli import COMMANDS

ROOT = Path(__file__).resolve().parent.parent
WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
CLASSIFIERS = re.findall(r'Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def pythons(job: str) -> list[str]:
    """Return the Python versions of a job."""
    found: list[str] = WORKFLOW["jobs"][job]["strategy"]["matrix"]["python"]
    return found


def script(job: str) -> str:
    """Return the script of a job, with the Python of its matrix."""
    *setup, last = WORKFLOW["jobs"][job]["steps"]
    assert last["env"] == {"PYTHON": "python"}
    assert setup[-1]["with"]["python-version"] == "${{ matrix.python }}"
    return str(last["run"])


def test_every_python_that_is_served_is_run() -> None:
    with_wheels = [f"{major}.{minor}" for major, minor in extras._MINDSPORE_PYTHONS]
    assert (script("all"), pythons("all")) == (".ci/run", with_wheels)
    assert script("base") == ".ci/base"
    assert [*with_wheels, *pythons("base")] == CLASSIFIERS


def test_the_scripts_can_be_run_and_take_the_python_they_are_given() -> None:
    for name in ("run", "base"):
        path = ROOT / ".ci" / name
        assert os.access(path, os.X_OK)
        assert '"${PYTHON:-python3}" -m venv' in path.read_text(encoding="utf-8")


def base_tests() -> tuple[list[str], list[str]]:
    """Return the files and folders that test the base install, and the excluded ones."""
    text = (ROOT / ".ci" / "base").read_text(encoding="utf-8").replace("\\\n", "")
    words = re.search(r"-m pytest.* -m 'not mindspore' (.*)", text)
    assert words is not None
    done = subprocess.run(["bash", "-c", f"echo {words[1]}"], capture_output=True, text=True, check=True)
    return done.stdout.split(), re.findall(r"--ignore (\S+)", text)


def test_the_files_that_the_base_install_is_tested_with_exist() -> None:
    taken, left_out = base_tests()
    assert [name for name in [*taken, *left_out] if not (ROOT / name).exists()] == []


# A process in which no package of the extras can be imported.
WITHOUT_EXTRAS = """
import sys, pytest
EXTRAS = {"numpy", "polars", "scipy", "mindspore", "mindformers", "elftools", "ray", "argcomplete", "selenium"}
class Without:
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in EXTRAS else self.finder.find_spec(name, path, target)
sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
sys.exit(pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", "-m", "not mindspore", *sys.argv[1:]]))
"""


@pytest.mark.slow
def test_no_test_of_the_base_install_imports_what_it_does_not_bring() -> None:
    taken, left_out = base_tests()
    options = [f"--ignore={name}" for name in left_out]
    command = [sys.executable, "-c", WITHOUT_EXTRAS, *options, *taken]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr


def test_both_readmes_have_two_commands_of_which_the_second_tests() -> None:
    blocks = [
        re.findall(r"^```sh\n(.*?)^```$", (ROOT / name).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
        for name in ("README.md", "README.zh.md")
    ]
    assert blocks[0] == blocks[1]
    main, tests = blocks[0]
    assert "ms-tune dryrun" in main
    assert "-m pytest" in tests


@pytest.mark.slow
@pytest.mark.skipif(
    pytest.version_tuple >= (9, 2), reason="no pytest of the extra `test`; see there, in pyproject.toml"
)
def test_one_process_runs_a_group(tmp_path: Path) -> None:
    """If xdist ignores groups, this costs minutes without any failure."""
    pytest.importorskip("xdist")
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text("utf-8"), "utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  mindspore: x\n  slow: x\n  fast: x\n", "utf-8")
    code = """
    import os, pathlib, pytest, time
    @pytest.mark.mindspore
    @pytest.mark.parametrize("number", range(8))
    def test_in_a_group(number):
        time.sleep(0.05)
        pathlib.Path(f"process-{os.environ['PYTEST_XDIST_WORKER']}").touch()
    """
    (tmp_path / "test_some.py").write_text(textwrap.dedent(code), "utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},  # of conftest.py
        capture_output=True,
        text=True,
        check=False,
    )
    assert "8 passed" in done.stdout, done.stdout + done.stderr
    assert len(list(tmp_path.glob("process-*"))) == 1


def test_a_release_is_tried_on_every_python_before_a_person_approves_it() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8"))["jobs"]
    assert jobs["try"]["strategy"]["matrix"]["python"] == CLASSIFIERS
    assert [jobs[name]["needs"] for name in ("try", "publish", "notes")] == ["build", "try", "publish"]
    assert (jobs["publish"]["environment"], jobs["publish"]["permissions"]) == ("pypi", {"id-token": "write"})
    assert any(step.get("run") == '.ci/release "${GITHUB_REF_NAME#v}"' for step in jobs["build"]["steps"])


def test_commands_of_issue_templates_are_there() -> None:
    for file in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*_*.yml"):
        text = file.read_text(encoding="utf-8")
        fields = [one for one in yaml.safe_load(text)["body"] if one["type"] != "markdown"]
        assert all(re.search("[\u4e00-\u9fff]", str(one["attributes"])) for one in fields), file.name
        assert len({one["id"] for one in fields}) == len(fields)
        assert set(re.findall(r"`ms-tune ([a-z]\S*)", text)) <= COMMANDS.keys()
