"""Test messages about missing optional packages: the command, and a working install line."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path

import pip
import pytest

from ms_tune import extras
from ms_tune.errors import MissingExtraError, UnsupportedError
from ms_tune.text import Language, render
from tests.sources import modules, nodes

CHECKOUT = Path(__file__).resolve().parent.parent
Origin = dict[str, object]


@pytest.fixture
def installed_from(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Origin | None], None]:
    """Create an installation with this recorded origin; None: no record, as for an index."""

    def install(origin: Origin | None) -> None:
        info = tmp_path / "site" / "ms_tune-0.1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ms-tune\nVersion: 0.1.0\n", encoding="utf-8")
        if origin is not None:
            (info / "direct_url.json").write_text(json.dumps(origin), encoding="utf-8")
        monkeypatch.syspath_prepend(tmp_path / "site")
        monkeypatch.setattr(extras, "_CHECKOUT", tmp_path / "site")

    return install


def source(extra: str = "report") -> list[str]:
    """Return the argument of pip."""
    line, known = extras.install_line(extra)
    assert known
    words = shlex.split(line)
    return words[words.index("install") + 1 :]


class TestInstallLine:
    def test_a_checkout_is_installed_from_where_it_lies(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(extras, "_record", lambda: None)
        assert source() == [f"{CHECKOUT}[report]"]
        monkeypatch.setattr(extras, "_record", lambda: {"dir_info": {"editable": True}, "url": CHECKOUT.as_uri()})
        assert source("dryrun") == ["-e", f"{CHECKOUT}[dryrun]"]

    @pytest.mark.parametrize("name", ["ms-tune", "a folder's (copy)", "ms_tune-0.1.0-py3-none-any.whl"])
    def test_a_folder_or_wheel_is_given_again(
        self, installed_from: Callable[[Origin | None], None], tmp_path: Path, name: str
    ) -> None:
        place = tmp_path / name
        place.mkdir()
        installed_from({"url": place.as_uri(), "dir_info": {}})
        assert source() == [f"{place}[report]"]

    def test_where_it_is_gone_the_line_is_one_for_a_checkout(
        self, installed_from: Callable[[Origin | None], None], tmp_path: Path
    ) -> None:
        installed_from({"url": (tmp_path / "gone").as_uri(), "dir_info": {}})
        line, known = extras.install_line("report")
        assert (shlex.split(line)[-1], known) == (".[report]", False)
        with pytest.raises(MissingExtraError) as caught:
            extras.refuse("ms-tune memory", "report", "numpy")
        assert caught.value.hint is not None
        assert render(caught.value.hint, Language.EN).startswith("in a checkout of ms-tune, run: ")

    def test_what_was_never_installed_is_reported_the_line_for_a_checkout(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        def not_there(name: str) -> object:
            raise importlib.metadata.PackageNotFoundError(name)

        monkeypatch.setattr(importlib.metadata, "distribution", not_there)
        monkeypatch.setattr(extras, "_CHECKOUT", tmp_path)
        assert extras.install_line("report")[1] is False

    @pytest.mark.parametrize(
        ("origin", "named"),
        [
            (
                {
                    "url": "https://host/r.git",
                    "vcs_info": {"vcs": "git", "requested_revision": "v1", "commit_id": "abc"},
                    "subdirectory": "tool",
                },
                " @ git+https://host/r.git@v1#subdirectory=tool",
            ),
            (
                {"url": "file:///some/repository", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
                " @ git+file:///some/repository@abc",
            ),
            ({"url": "https://host/ms_tune.whl", "archive_info": {}}, " @ https://host/ms_tune.whl"),
            (None, ""),  # an index is named only if the package came from one
        ],
    )
    def test_where_it_came_from_is_named(
        self, installed_from: Callable[[Origin | None], None], origin: Origin | None, named: str
    ) -> None:
        installed_from(origin)
        assert source() == [f"ms-tune[report]{named}"]

    def test_it_is_for_this_python(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        other = tmp_path / "python"
        other.write_text("#!/bin/sh\n", encoding="utf-8")
        other.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        assert shlex.split(extras.install_line("report")[0])[:3] == [sys.executable, "-m", "pip"]
        monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
        assert shlex.split(extras.install_line("report")[0])[0] == "python"

    def test_without_pip_it_is_uvs(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        (tmp_path / "uv").write_text("#!/bin/sh\n", encoding="utf-8")
        (tmp_path / "uv").chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
        assert shlex.split(extras.install_line("report")[0])[:5] == ["uv", "pip", "install", "--python", sys.executable]


Version = namedtuple("Version", "major minor micro releaselevel serial")  # noqa: PYI024 - stands for sys.version_info


class TestPythonsOfMindSpore:
    @pytest.mark.parametrize("minor", [13, 14])
    def test_a_python_without_wheels_is_reported_which_have_them(
        self, monkeypatch: pytest.MonkeyPatch, minor: int
    ) -> None:
        monkeypatch.setattr(sys, "version_info", Version(3, minor, 0, "final", 0))
        monkeypatch.setattr("platform.python_version", lambda: f"3.{minor}.0")
        with pytest.raises(UnsupportedError) as caught:
            extras.refuse("ms-tune dryrun", "dryrun", "mindspore")
        for language in Language:
            message = render(caught.value.message, language)
            assert all(word in message for word in ("ms-tune dryrun", "MindSpore", f"3.{minor}.0", "3.10", "3.12"))
            assert caught.value.hint is not None
            assert "python3.12 -m venv" in render(caught.value.hint, language)
        with pytest.raises(MissingExtraError):
            extras.refuse("ms-tune memory", "report", "numpy")

    def test_the_markers_of_the_extra_say_the_same(self) -> None:
        text = (CHECKOUT / "pyproject.toml").read_text(encoding="utf-8")
        first, last = extras._MINDSPORE_PYTHONS[0], extras._MINDSPORE_PYTHONS[-1]
        marker = f"; python_version < '{last[0]}.{last[1] + 1}'"
        for package in ("mindspore", "mindformers", "numpy", "datasets"):
            assert re.search(rf'"{package}[^";]*{re.escape(marker)}"', text)
        assert f'requires-python = ">={first[0]}.{first[1]}"' in text


@pytest.mark.slow
def test_no_text_names_an_index_of_its_own() -> None:
    """`pip install ms-tune` does not work while ms-tune is on no index: only this module makes install lines."""
    found = [
        f"{module.name}:{node.lineno}: {node.value}"
        for module in modules()
        if module.name != "ms_tune.extras"
        for node in nodes(module)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "ms-tune[" in node.value
    ]
    assert found == []


# A real environment without extras: pip's own record, pip's own idea of the line.


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """Return the ``bin`` folder of an environment with ms-tune from a wheel and its requirements, without extras."""
    folder = tmp_path_factory.mktemp("base") / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, capture_output=True)
    # The pip of this session takes a tenth of the time of a new one.
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "pip").symlink_to(Path(pip.__file__).parent)
    install = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    done = subprocess.run([*install, str(wheel)], capture_output=True, text=True, check=False)
    if "No matching distribution" in done.stderr or "connection" in done.stderr.lower():
        pytest.skip("no index is reached")
    assert done.returncode == 0, done.stderr
    return folder / "bin"


def call(base: Path, *arguments: str, cwd: Path, language: str = "C.UTF-8") -> subprocess.CompletedProcess[str]:
    """Run the installed command without this session's environment."""
    environment = {"PATH": f"{base}:/usr/bin:/bin", "HOME": str(cwd), "LC_ALL": language}
    command = [str(base / "ms-tune"), *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


COMMANDS = [
    ("ms-tune dryrun", "dryrun", ["dryrun", "x.yaml"]),
    ("ms-tune dryrun", "dryrun", ["dryrun", "--", "true"]),
    ("ms-tune memory", "report", ["memory", "."]),
    ("ms-tune memory diff", "report", ["memory", "diff", ".", "."]),
    ("ms-tune memory export", "report", ["memory", "export", ".", "--perfetto", "p"]),
    ("ms-tune memory what-if", "report", ["memory", "what-if", "."]),
    ("ms-tune memory plan", "report", ["memory", "plan", "."]),
    ("ms-tune memory import-memlog", "report", ["memory", "import-memlog", "x"]),
]


@pytest.mark.parametrize("case", COMMANDS, ids=lambda case: " ".join(case[2]))
def test_the_base_install_names_the_command_and_the_line(
    base: Path, wheel: Path, tmp_path: Path, case: tuple[str, str, list[str]]
) -> None:
    command, extra, arguments = case
    (tmp_path / "x.yaml").write_text("training: {}\n", encoding="utf-8")
    done = call(base, *arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    if extra == "dryrun" and sys.version_info[:2] not in extras._MINDSPORE_PYTHONS:
        assert f"'{command}' requires MindSpore, which has no wheel for this Python" in done.stderr
    else:
        assert f"'{command}' requires NumPy, which is not installed" in done.stderr
        assert f"python -m pip install '{wheel}[{extra}]'" in done.stderr
    assert command in call(base, *arguments, cwd=tmp_path, language="zh_CN.UTF-8").stderr


API = ["ms_tune.analyse_memory('.')", "ms_tune.fit_config(None)", "dryrun_job(DryrunRequest(Path('x.yaml')))"]


def test_the_python_api_says_the_same_as_an_error_of_its_own(base: Path, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("training: {}\n", encoding="utf-8")
    code = (
        "from pathlib import Path\nimport ms_tune\nfrom ms_tune import DryrunRequest, MsTuneError, dryrun_job\n"
    ) + "".join(f"try:\n    {call}\nexcept MsTuneError as error:\n    print(error)\n" for call in API)
    done = subprocess.run(
        [str(base / "python"), "-I", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    said = done.stdout.splitlines()
    assert len(said) == len(API)
    assert all(re.match("'ms(-tune |_tune.)[a-z_]+' requires (NumPy|MindSpore), which", line) for line in said)


def test_the_line_of_the_base_install_is_one_that_pip_takes(base: Path, tmp_path: Path) -> None:
    hint = call(base, "memory", ".", cwd=tmp_path).stderr.partition("run: ")[2].strip()
    words = shlex.split(hint)
    environment = {**os.environ, "PATH": f"{base}:{os.environ['PATH']}"}
    done = subprocess.run(
        [*words, "--dry-run", "--quiet", "--report", "-"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    names = {package["metadata"]["name"].lower() for package in json.loads(done.stdout)["install"]}
    assert {"numpy", "polars"} <= names


def test_what_needs_no_extra_runs_in_the_base_install(base: Path, tmp_path: Path) -> None:
    assert call(base, "init", "llama2_7b", cwd=tmp_path).returncode == 0
    for arguments in (["lint"], ["check"], ["normalize-recompute"]):
        done = call(base, *arguments, "llama2_7b.yaml", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert "MST101" in call(base, "rule", "MST101", cwd=tmp_path).stdout
    assert json.loads(call(base, "schema", "--dialect", "mindformers", cwd=tmp_path).stdout)
    assert call(base, "dryrun", "--check", cwd=tmp_path).returncode == 2
