"""Provide fixtures and markers for all tests."""

from __future__ import annotations

import gc
import os
import runpy
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from hypothesis import settings

from tests import scratch

# Machines are shared: the time of one example is not significant. Every run uses the same examples, so that only code
# changes the result; `--hypothesis-profile random` draws new ones.
_EXAMPLES = 300 if "MS_TUNE_TEST_MORE" in os.environ else 100
settings.register_profile("shared-machine", deadline=None, derandomize=True, max_examples=_EXAMPLES)
settings.register_profile("random", deadline=None, max_examples=_EXAMPLES)
settings.load_profile("shared-machine")

# xdist's processes set it; they would wrap texts to that width.
os.environ.pop("COLUMNS", None)
# Else each child process would compile the package again, and each run the tests: half the time of their collection.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Each process of xdist has a core; threads of NumPy's library wait for one another, and matrices of plans are small.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


_LONG_ROOMS = {"oracle", "fuzz", "browser"}  # they try thousands of random inputs
_BUILT = ("wheel", "playground")  # fixtures that take seconds
_LEFT = pytest.mark.skip(reason="another case of what other tests try: MS_TUNE_TEST_MORE=1 runs it")
_SEED = os.environ.get("MS_TUNE_TEST_SEED", "47")  # which cases `drawn` draws
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
    """Start garbage collection for objects that tests create: seldom, as trees of sources and configs are large and have no cycles."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    gc.enable()


def pytest_make_parametrize_id(val: object) -> str | None:
    """Shorten the names of cases: xdist sends and prints all of them, and hostile texts have up to four million characters."""
    return f"{val[:80]!r}, {len(val)} long" if isinstance(val, (str, bytes)) and len(val) > 200 else None


def _leave_out(items: list[pytest.Item]) -> None:
    """Skip what is left to ``MS_TUNE_TEST_MORE=1``: tests marked ``more``, and the cases that ``drawn`` does not draw.

    A case is what is in brackets, so that all tests of one parameter run or none; otherwise the test's name.
    """
    cases: dict[tuple[str, int], dict[str, list[pytest.Item]]] = {}
    for item in items:
        if item.get_closest_marker("more"):
            item.add_marker(_LEFT)
            continue
        for node, mark in item.iter_markers_with_node("drawn"):
            name = item.name.partition("[")[2] or item.name
            cases.setdefault((node.nodeid.partition("[")[0], mark.args[0]), {}).setdefault(name, []).append(item)
    for (where, count), named in cases.items():
        draw = Random(f"{_SEED} {where}")  # noqa: S311 - a choice of tests
        for name in sorted(named, key=lambda _: draw.random())[count:]:
            for item in named[name]:
                item.add_marker(_LEFT)


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in a hook of the same name
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark fast tests; with several processes (``-n 2 --dist loadgroup``) also group tests that should share a process.

    What the tests of a file share would be made twice in two processes: fixtures, what is parsed, a framework that is loaded from
    its wheel. Runs of the real MindSpore are shared by the tests of a folder, a release of a framework by all oracles.
    """
    if "MS_TUNE_TEST_MORE" not in os.environ:
        _leave_out(items)
    for item in items:
        group = next((name for name in _BUILT if name in getattr(item, "fixturenames", ())), "")
        if not group and item.get_closest_marker("mindspore"):
            group = f"mindspore in {item.path.parent.name}"
        elif not group and item.path.name in _READERS:
            group = "sources"
        release = getattr(item, "callspec", None) and item.callspec.params.get("framework")  # type: ignore[attr-defined]
        group = group or f"framework {release}" * bool(release) or "/".join(item.path.parts[-2:])
        if config.pluginmanager.hasplugin("xdist"):
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
