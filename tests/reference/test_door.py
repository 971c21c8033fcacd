"""Test ms-tune without its own transformer: the folder can be deleted when the frameworks can be installed with pip."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import ms_tune
from ms_tune.facts.query import data_folder
from tests.reference.configs import CASES

PACKAGE = Path(ms_tune.__file__).parent


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the package without that folder, with a config of the dynamic graph."""
    made = tmp_path_factory.mktemp("without")
    shutil.copytree(PACKAGE, made / "ms_tune", ignore=shutil.ignore_patterns("reference", "__pycache__"))
    for name in ("checklists", "yaml_templates"):
        shutil.copytree(data_folder(name), made / name)
    (made / "config.yaml").write_text(yaml.safe_dump(CASES["Qwen3"].config), encoding="utf-8")
    return made


def ms_tune_without(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-P",
        "-c",
        f"import sys; sys.path.insert(0, {str(folder)!r}); import ms_tune.cli.main as m",
    ]
    command[-1] += "; m.entry_point()"
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "LC_ALL": "C.UTF-8", "PYTHONSAFEPATH": "1"}
    return subprocess.run(
        [*command, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [("--help",), ("lint", "config.yaml"), ("dryrun", "--help"), ("memory", "--help"), ("rule", "MST778")]
)
def test_the_rest_works_without_it(arguments: tuple[str, ...], folder: Path) -> None:
    done = ms_tune_without(folder, *arguments)
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_what_is_missing_is_said(folder: Path) -> None:
    done = ms_tune_without(folder, "dryrun", "config.yaml", "--devices", "4")
    assert done.returncode == 2, done.stderr
    assert "reference" in done.stderr
    assert "Traceback" not in done.stderr
