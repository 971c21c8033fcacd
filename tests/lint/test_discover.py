from __future__ import annotations

from pathlib import Path

import pytest

from ms_tune.errors import MsTuneError, UsageError
from ms_tune.lint import runner
from ms_tune.lint.result import FileReport, LintRequest, Skipped
from ms_tune.lint.runner import STDIN, LintRun, check_files, discover
from ms_tune.lint.settings import ProjectSettings
from tests.lint.few import make_only_few

CONFIG = "trainer: {}\nprofile: True\n"
IN_B = ("broken.yaml", "compose.yaml", "other.sh", "other.yml", "run.sh", "setup.py", "template.yaml", "train.py")
EXCLUDING = ProjectSettings(None, Path("/"), exclude=("skipped",))


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_only_few(monkeypatch)
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "train.yaml": CONFIG,
        "b/other.yml": CONFIG,
        "b/compose.yaml": "services: {}\n",
        "b/broken.yaml": "trainer: {}\nparallel_config:\n\tx: 1\n",
        "b/template.yaml": "{% if a %}\n",
        "b/notes.txt": "",
        "b/run.sh": "export MS_ALLOC_CONF=enable_vmm=True\n",
        "b/other.sh": "export A=1\n",
        "b/setup.py": "import setuptools\n",
        "b/train.py": "import mindspore\n",
        ".hidden/train.yaml": CONFIG,
        "__pycache__/train.yaml": CONFIG,
        "venv/pyvenv.cfg": "",
        "venv/train.yaml": CONFIG,
        "skipped/train.yaml": CONFIG,
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
    Path("odd[1].yaml").write_text(CONFIG)
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


@pytest.mark.slow
def test_many_files_in_several_processes(tmp_path: Path) -> None:
    for number in range(60):
        (tmp_path / f"{number:03}.yaml").write_text(CONFIG if number % 7 else "trainer: [\nparallel_config:\n")
    job = LintRun(settings=ProjectSettings(None, tmp_path))
    targets, _ = discover([str(tmp_path)], job.settings)
    one, two = (check_files(targets, job._replace(request=LintRequest(processes=count))) for count in (1, 2))
    assert [str(outcome) for outcome in two] == [str(outcome) for outcome in one]
    assert [outcome for outcome in two if isinstance(outcome, FileReport)] == [
        outcome for outcome in one if isinstance(outcome, FileReport)
    ]
    assert [outcome.findings for outcome in two if isinstance(outcome, FileReport)]
