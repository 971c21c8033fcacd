"""Provide fixtures and markers for all tests."""

from __future__ import annotations

import gc
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from tests import scratch

# Machines are shared: the time of one example is not significant. Every run uses the same examples, so that only code
# changes the result; `--hypothesis-profile random` draws new ones.
settings.register_profile("shared-machine", deadline=None, derandomize=True)
settings.register_profile("random", deadline=None)
settings.load_profile("shared-machine")

# xdist's processes set it; they would wrap texts to that width.
os.environ.pop("COLUMNS", None)


_LONG_ROOMS = {"oracle", "fuzz", "browser"}  # they try thousands of random inputs
_BUILT = ("wheel", "playground")  # fixtures that take seconds
_READERS = {
    "test_structure.py",
    "test_texts.py",
    "test_extras.py",
    "test_data.py",
}  # of all the package's sources, which are parsed once in each process


def pytest_configure() -> None:
    """Stop garbage collection during test collection: all objects stay alive, and searching them takes a fifth of the time."""
    gc.disable()


def pytest_unconfigure() -> None:
    """Remove the files that the tests of this process shared."""
    scratch.remove()


def pytest_collection_finish() -> None:
    """Start garbage collection for objects that tests create."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in a hook of the same name
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark fast tests; with several processes (``-n 2 --dist loadgroup``) also group tests that must share a process.

    Runs of the real MindSpore are shared by the tests of a folder: in two processes each would run twice.
    """
    left = pytest.mark.skip(reason="another case of what other tests try: MS_TUNE_TEST_MORE=1 runs it")
    for item in items:
        if item.get_closest_marker("more") and "MS_TUNE_TEST_MORE" not in os.environ:
            item.add_marker(left)
        group = next((name for name in _BUILT if name in getattr(item, "fixturenames", ())), "")
        if not group and item.get_closest_marker("mindspore"):
            group = f"mindspore in {item.path.parent.name}"
        elif not group and item.path.name in _READERS:
            group = "sources"
        if group and config.pluginmanager.hasplugin("xdist"):
            item.add_marker(pytest.mark.xdist_group(group))
        slow = item.get_closest_marker("mindspore") or item.get_closest_marker("slow") or group in _BUILT
        random = getattr(getattr(item, "function", None), "is_hypothesis_test", False)
        if not slow and not random and not _LONG_ROOMS & {*item.path.parts}:
            item.add_marker("fast")


@pytest.fixture(scope="session")
def playground(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the page of `site/playground`."""
    folder = tmp_path_factory.mktemp("page") / "playground"
    make = runpy.run_path(str(Path(__file__).resolve().parents[1] / "site" / "playground" / "make.py"))
    try:
        make["install_pyodide"]()
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"npm is not installed, or has no Pyodide and no network: {error}")
    make["main"](folder)
    return folder


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    checkout = Path(__file__).resolve().parent.parent
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", str(folder), str(checkout)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return next(folder.glob("ms_tune-*.whl"))
