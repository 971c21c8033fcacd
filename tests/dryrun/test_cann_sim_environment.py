"""Test the choice of CANN, the content of built stand-ins, and unsupported systems."""

from __future__ import annotations

import errno
import importlib.metadata
import importlib.util
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

from ms_tune.dryrun.cann_sim import environment, inventory
from ms_tune.dryrun.cann_sim.environment import (
    Backend,
    Cann,
    MindSpore,
    find_built_stand_ins,
    find_mindspore,
    find_real_cann,
    prepare_cann,
)
from ms_tune.errors import MissingExtraError, StandInBuildError, UnsupportedError
from ms_tune.text import Language, Message, render
from tests.dryrun.machine import needs_c_compiler, needs_elftools
from tests.dryrun.test_cann_sim_inventory import small_wheel

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

__all__ = ["small_wheel"]  # a fixture

NAMES = ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "LD_LIBRARY_PATH", "PYTHONPATH")


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide all CANN installations except those that a test creates, and use a separate cache."""
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(environment, "_DEFAULT_HOMES", (str(tmp_path / "default"),))
    monkeypatch.setenv("MS_TUNE_CACHE", str(tmp_path / "cache"))


def install_cann(home: Path, *others: str) -> Path:
    (home / "lib64").mkdir(parents=True)
    for name in ("libascendcl.so", *others):
        (home / "lib64" / name).write_bytes(b"\x7fELF")
    return home


class TestRealCann:
    def test_none_is_found_on_a_bare_machine(self) -> None:
        assert find_real_cann() is None

    @pytest.mark.parametrize(
        ("place", "variables"),
        [
            ("Ascend", {"ASCEND_HOME_PATH": "{}"}),
            ("Ascend", {"ASCEND_TOOLKIT_HOME": "{}"}),
            ("Ascend", {"LD_LIBRARY_PATH": "/nowhere/lib64:{}/lib64:/usr/lib"}),
            ("Ascend", {"LD_LIBRARY_PATH": "/nowhere/lib64:{}/lib64/:/usr/lib"}),
            ("default", {}),
            ("default", {"ASCEND_HOME_PATH": "/nowhere"}),
        ],
    )
    def test_it_is_found(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str, variables: dict[str, str]
    ) -> None:
        home = install_cann(tmp_path / place)
        for name, value in variables.items():
            monkeypatch.setenv(name, value.format(home))
        assert find_real_cann() == Cann(Backend.CANN, home)

    def test_the_named_one_comes_before_others(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        install_cann(tmp_path / "default")
        named = install_cann(tmp_path / "named")
        monkeypatch.setenv("LD_LIBRARY_PATH", str(install_cann(tmp_path / "other") / "lib64"))
        monkeypatch.setenv("ASCEND_HOME_PATH", str(named))
        assert find_real_cann() == Cann(Backend.CANN, named)

    def test_our_own_stand_in_is_not_taken_for_it(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        ours = install_cann(tmp_path / "cann", "libstandin.so")
        (ours / "latest").symlink_to(".")
        inside = Cann(Backend.STAND_IN, ours).environment({})
        for name in NAMES[:3]:
            if name in inside:
                monkeypatch.setenv(name, inside[name])
        assert os.environ["ASCEND_HOME_PATH"] == str(ours)
        assert find_real_cann() is None

    def test_it_is_used_without_building_or_asking_about_the_machine(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        home = install_cann(tmp_path / "Ascend")
        monkeypatch.setenv("ASCEND_HOME_PATH", str(home))
        monkeypatch.setattr(platform, "machine", lambda: "aarch64")
        said: list[Message] = []
        assert prepare_cann(MindSpore("2.99.0", tmp_path), said.append) == Cann(Backend.CANN, home)
        assert said == []
        assert not (tmp_path / "cache").exists()


class TestEnvironment:
    def test_the_stand_ins_come_before_what_is_there(self, tmp_path: Path) -> None:
        base = {"LD_LIBRARY_PATH": "/opt/a:/opt/b", "PYTHONPATH": "/opt/python", "HOME": "/home/me"}
        made = Cann(Backend.STAND_IN, tmp_path).environment(base)
        assert made["LD_LIBRARY_PATH"] == f"{tmp_path}/latest/lib64:/opt/a:/opt/b"
        first, *rest = made["PYTHONPATH"].split(":")
        assert first.startswith(str(tmp_path))
        assert rest == ["/opt/python"]
        assert made["HOME"] == "/home/me"

    @pytest.mark.parametrize("backend", Backend)
    def test_the_home_is_named_and_the_base_is_left_as_it_was(self, tmp_path: Path, backend: Backend) -> None:
        base = {"ASCEND_HOME_PATH": "/old", "LD_LIBRARY_PATH": "/opt"}
        made = Cann(backend, tmp_path).environment(base)
        assert made["ASCEND_HOME_PATH"] == str(tmp_path)
        assert made["ASCEND_OPP_PATH"] == f"{tmp_path}/opp"
        assert base == {"ASCEND_HOME_PATH": "/old", "LD_LIBRARY_PATH": "/opt"}


class TestWhoIsServed:
    @pytest.mark.parametrize("version", ["2.6.0", "2.1.0", "2.11.0", "2.70.0", "3.0.0", "1.10.1"])
    def test_other_versions_are_not_and_are_reported_which_are(
        self, version: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(platform, "system", lambda: "Linux")
        monkeypatch.setattr(platform, "machine", lambda: "x86_64")
        with pytest.raises(UnsupportedError) as caught:
            prepare_cann(MindSpore(version, tmp_path), lambda _: None)
        assert version in str(caught.value)
        assert "2.10" in str(caught.value)
        assert caught.value.hint is not None

    @pytest.mark.parametrize(
        ("system", "machine"), [("Linux", "aarch64"), ("Darwin", "arm64"), ("Windows", "AMD64"), ("Linux", "i686")]
    )
    def test_other_machines_are_not(
        self, system: str, machine: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(platform, "system", lambda: system)
        monkeypatch.setattr(platform, "machine", lambda: machine)
        with pytest.raises(UnsupportedError) as caught:
            prepare_cann(MindSpore("2.9.0", tmp_path), lambda _: None)
        assert machine in str(caught.value)
        assert machine in render(caught.value.message, Language.ZH)
        assert caught.value.hint is not None

    def test_a_folder_that_happens_to_be_called_mindspore_is_not_an_installed_one(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # `python -m ms_tune` next to a checkout of MindSpore's sources.
        def a_plain_folder(name: str) -> ModuleSpec | None:
            return real(name)

        real = importlib.util.find_spec
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name: a_plain_folder("tests" if name == "mindspore" else name)
        )
        monkeypatch.setattr(environment, "installed_version", lambda _: None)
        with pytest.raises(MissingExtraError):
            find_mindspore()

    def test_finding_mindspore_does_not_import_it(self) -> None:
        code = (
            "import sys\nfrom ms_tune.dryrun.cann_sim.environment import find_mindspore\n"
            "try:\n    find_mindspore()\nexcept Exception:\n    pass\nprint('mindspore' in sys.modules)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == "False"


@needs_c_compiler
@needs_elftools
class TestBuild:
    """A complete build, for the small plug-in of the inventory's tests."""

    @pytest.fixture
    def mindspore(self, small_wheel: Path, monkeypatch: pytest.MonkeyPatch) -> MindSpore:
        class Installed:
            def read_text(self, name: str) -> str:
                return f"{name} of {small_wheel}"

        monkeypatch.setattr(importlib.metadata, "distribution", lambda _: Installed())
        monkeypatch.setattr(platform, "system", lambda: "Linux")
        monkeypatch.setattr(platform, "machine", lambda: "x86_64")
        return MindSpore("2.9.0", small_wheel)

    @pytest.fixture
    def home(self, mindspore: MindSpore) -> Path:
        cann = prepare_cann(mindspore, lambda _: None)
        assert cann.backend is Backend.STAND_IN
        return cann.home

    @pytest.mark.slow
    def test_hccl_can_be_imported_and_te_cannot(self, home: Path) -> None:
        path = Cann(Backend.STAND_IN, home).environment({})["PYTHONPATH"]
        code = (
            "import importlib.util\nfrom hccl import sys_version\n"
            "print(sys_version.__sys_version__, importlib.util.find_spec('te'))"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == ["8.5.0", "None"]

    def test_both_cuts_that_mindspore_makes_lead_to_its_folders(self, home: Path) -> None:
        # MindSpore cuts the path of libascendcl.so after its last "cann" (2.7.2 and later) or "latest" (2.7.0).
        library = Cann(Backend.STAND_IN, home).environment({})["LD_LIBRARY_PATH"]
        for word in ("cann", "latest"):
            cut = Path(library[: library.rindex(word) + len(word)])
            assert cut.resolve() == home.resolve()
            assert (cut / "opp_kernel").is_dir()
            assert (cut / "compiler" / "version.info").read_text("utf-8") == "Version=8.5.0\n"

    def test_whoever_asks_for_news_gets_the_function_that_waits(self, home: Path) -> None:
        """A library loaded later, like MindSpore's plug-in, finds names here first."""
        code = (
            "import ctypes\nfrom ms_tune.dryrun.child.hook import runtime\nruntime.let_watch()\n"
            f"print(getattr(ctypes.CDLL(None), {inventory._REPORTS!r})(5))"
        )
        own = Cann(Backend.STAND_IN, home).environment({**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])})
        done = subprocess.run([sys.executable, "-c", code], env=own, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "0"
        del own["MS_TUNE_WATCHES"]
        done = subprocess.run([sys.executable, "-c", code], env=own, capture_output=True, text=True, check=False)
        assert "undefined symbol" in done.stderr

    def test_it_is_announced_once_and_kept(self, mindspore: MindSpore) -> None:
        said: list[Message] = []
        assert find_built_stand_ins(mindspore) is None
        first = prepare_cann(mindspore, said.append)
        again = prepare_cann(mindspore, said.append)
        assert first == again
        assert [message.id for message in said] == ["dryrun.build.start"]
        assert find_built_stand_ins(mindspore) == first.home.parent

    def test_another_build_of_mindspore_gets_stand_ins_of_its_own(
        self, mindspore: MindSpore, home: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "mindspore").symlink_to(mindspore.folder)
        record = tmp_path / "mindspore-2.9.0.dist-info" / "RECORD"
        record.parent.mkdir()
        record.write_text("mindspore/lib/plugin/libmindspore_ascend.so.2,sha256=other,1\n", encoding="utf-8")
        assert prepare_cann(MindSpore("2.9.0", tmp_path / "mindspore"), lambda _: None).home != home

    def test_the_version_is_that_of_the_wheels_own_operators(self, tmp_path: Path) -> None:
        info = tmp_path / "lib" / "plugin" / "ascend" / "custom_ascendc_910b" / "version.info"
        info.parent.mkdir(parents=True)
        info.write_text("custom_opp_compiler_version=8.2.0\n", encoding="utf-8")
        assert environment._cann_version(tmp_path) == "8.2.0"

    def test_a_full_disk_is_reported(self, mindspore: MindSpore, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(*_: object) -> NoReturn:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(environment, "compile_library", full)
        with pytest.raises(StandInBuildError, match="no space left on the disk"):
            prepare_cann(mindspore, lambda _: None)
        assert find_built_stand_ins(mindspore) is None
