"""Provide the environment in which MindSpore's Ascend back end loads, with a real CANN or with stand-ins."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from ms_tune import native as native_compiler
from ms_tune.dryrun.cann_sim.inventory import header_text, source_text, take_inventory, watching_text
from ms_tune.errors import StandInBuildError, UnsupportedError, UsageError, reason_of
from ms_tune.extras import install_line, refuse
from ms_tune.facts.query import installed_version, load
from ms_tune.native import cache_root, cached_folder, compile_library, is_complete
from ms_tune.text import Message, msg

SUPPORTED_SERIES = ("2.7", "2.8", "2.9", "2.10")
_REAL_LIBRARY = Path("lib64") / "libascendcl.so"
_DEFAULT_HOMES = ("/usr/local/Ascend/ascend-toolkit/latest", "/usr/local/Ascend/cann")
_STAND_IN, _WATCHING = "libstandin.so", "libms_tune_watches.so"
# MindSpore takes the path of the library that defines aclrtMalloc, cuts it after its last "cann" (2.7.2 and later) or
# "latest" (2.7.0), and expects CANN's folders there. This path contains both words at its end, and both cuts lead to
# the same folder, so a "cann" further up, as in a user's name, does no harm.
_LIBRARIES = Path("latest") / "lib64"
# MindSpore imports hccl.sys_version when communication is initialised. There must be no package `te` next to it: if it
# can be imported, mindspore.ops imports te.tik too, and fails.
_PYTHON_PACKAGES = Path("opp/built-in/op_impl/ai_core/tbe")
_FRAMEWORKS = ("mindformers", "hyper_parallel")
_FALLBACK_VERSION = "8.5.0"


class Backend(str, Enum):
    """The libraries that MindSpore's Ascend back end is loaded with."""

    CANN = "cann"
    STAND_IN = "cann-stand-in"


@dataclass(frozen=True, slots=True)
class MindSpore:
    """The installed MindSpore: its version and its package folder."""

    version: str
    folder: Path


@dataclass(frozen=True, slots=True)
class Cann:
    """A CANN with its home folder (``ASCEND_HOME_PATH``)."""

    backend: Backend
    home: Path

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of a child process in which the Ascend back end loads."""
        if self.backend is Backend.STAND_IN:
            additions = {"LD_LIBRARY_PATH": [self.home / _LIBRARIES], "PYTHONPATH": [self.home / _PYTHON_PACKAGES]}
            base = {**base, "MS_TUNE_WATCHES": str(self.home / _WATCHING)}  # see child/hook/runtime.py
        else:
            additions = {"LD_LIBRARY_PATH": [self.home / "lib64"]}
        paths = {
            name: os.pathsep.join([*map(str, folders), *filter(None, [base.get(name)])])
            for name, folders in additions.items()
        }
        homes = {"ASCEND_HOME_PATH": str(self.home), "ASCEND_OPP_PATH": str(self.home / "opp")}
        return {**base, **homes, **paths}


def find_mindspore(python: str | None = None) -> MindSpore:
    """Find the MindSpore of an interpreter without importing it."""
    if python is not None:
        return _of_python(python)
    spec, version = importlib.util.find_spec("mindspore"), installed_version("mindspore")
    if (
        spec is None or not spec.submodule_search_locations or version is None
    ):  # or a folder of that name, perhaps a checkout
        refuse("ms-tune dryrun", "dryrun", "mindspore")
    return MindSpore(version, Path(next(iter(spec.submodule_search_locations))))


_ASKS = """
import importlib.metadata, importlib.util, json
spec = importlib.util.find_spec("mindspore")
print(json.dumps([importlib.metadata.version("mindspore"), list(spec.submodule_search_locations)[0]]))
"""
_ANSWER_SECONDS = 60


def _of_python(python: str) -> MindSpore:
    try:
        done = subprocess.run(
            [python, "-c", _ASKS], capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=False
        )
        version, folder = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(msg("launch.python.none", python=python, detail=str(error))) from error
    except (ValueError, IndexError, TypeError) as error:
        last = done.stderr.strip().rpartition("\n")[2]
        raise UsageError(msg("launch.python.no-mindspore", python=python, detail=last)) from error
    return MindSpore(str(version), Path(str(folder)))


def find_real_cann() -> Cann | None:
    """Find the CANN of this machine: ``ASCEND_HOME_PATH``, the library path, then the default folders; None if not found."""
    named = os.environ.get("ASCEND_HOME_PATH") or os.environ.get("ASCEND_TOOLKIT_HOME")
    library_path = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    from_library_path = [Path(folder).parent for folder in library_path if folder.rstrip("/").endswith("lib64")]
    for home in [*([Path(named)] if named else []), *from_library_path, *map(Path, _DEFAULT_HOMES)]:
        if (home / _REAL_LIBRARY).is_file() and not (home / "lib64" / _STAND_IN).exists():
            return Cann(Backend.CANN, home)
    return None


def prepare_cann(mindspore: MindSpore, on_progress: Callable[[Message], None]) -> Cann:
    """Return a CANN for this MindSpore: the machine's own, or stand-ins, built on first use (about ten seconds)."""
    real = find_real_cann()
    if real is not None:
        return real
    check_supported(mindspore)
    folder = _stand_in_folder(mindspore)
    if not is_complete(folder):
        on_progress(msg("dryrun.build.start", version=mindspore.version))
    try:
        cached_folder(
            folder, lambda fresh: _build_cann(mindspore, fresh), on_wait=lambda: on_progress(msg("dryrun.build.wait"))
        )
    except OSError as error:
        raise StandInBuildError(
            msg("dryrun.build.write", folder=folder.parent, detail=reason_of(error)),
            msg("dryrun.cache.unwritable.hint"),
        ) from error
    return Cann(Backend.STAND_IN, folder / "cann")


def find_built_stand_ins(mindspore: MindSpore) -> Path | None:
    """Return the folder of this MindSpore's stand-ins; None if they are not built yet."""
    folder = _stand_in_folder(mindspore)
    return folder if is_complete(folder) else None


def simulated_by() -> str:
    """Return an identifier of the software that determines a simulation's figures: frameworks and CANN."""
    mindspore = find_mindspore()
    real = find_real_cann()
    cann = str(real.home) if real is not None else _stand_in_folder(mindspore).name
    releases = [f"{name}-{version}" for name in _FRAMEWORKS if (version := installed_version(name)) is not None]
    return " ".join([mindspore.version, cann, *releases])


def check_supported(mindspore: MindSpore) -> None:
    """Raise :class:`UnsupportedError` unless this machine and this MindSpore can use stand-ins."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        raise UnsupportedError(
            msg("dryrun.platform", system=platform.system(), machine=platform.machine()), msg("dryrun.platform.hint")
        )
    series = ".".join(mindspore.version.split(".")[:2])
    if series not in SUPPORTED_SERIES:
        raise UnsupportedError(
            msg("dryrun.version", version=mindspore.version, supported=", ".join(SUPPORTED_SERIES)),
            msg("dryrun.version.hint", line=install_line("dryrun")[0]),
        )


def _stand_in_folder(mindspore: MindSpore) -> Path:
    # Named by MindSpore's version and a hash of its files and our sources. A wheel's RECORD lists the SHA-256 of every
    # installed file, so hashing RECORD covers the content without reading hundreds of megabytes again.
    records = sorted(mindspore.folder.parent.glob(f"mindspore-{mindspore.version}*.dist-info/RECORD"))
    record = records[0].read_text("utf-8") if records else mindspore.version
    ours = [*Path(__file__).parent.glob("*.py"), *Path(native_compiler.__file__).parent.glob("*.py")]
    sources = header_text() + watching_text() + "".join(path.read_text("utf-8") for path in sorted(ours))
    digest = hashlib.sha256((record + sources).encode()).hexdigest()[:16]
    return cache_root() / "stand-in" / f"{mindspore.version}-{digest}"


def _build_cann(mindspore: MindSpore, folder: Path) -> None:
    try:
        inventory = take_inventory(mindspore.folder)
    except FileNotFoundError as error:
        raise StandInBuildError(msg("dryrun.build.no-plugin", path=error.args[0])) from error
    home = folder / "cann"
    libraries = home / "lib64"
    libraries.mkdir(parents=True)
    scratch = folder / "scratch"
    scratch.mkdir()
    source = scratch / "standin.c"
    source.write_text(source_text(inventory.symbols), encoding="utf-8")
    compiler = compile_library(source, libraries / _STAND_IN, dict(os.environ))
    watching = scratch / "watching.c"
    watching.write_text(watching_text(), encoding="utf-8")
    compile_library(watching, home / _WATCHING, dict(os.environ))
    (folder / "compiler.txt").write_text(compiler.name, encoding="utf-8")
    for name in inventory.libraries:
        # One file under every name: the dynamic linker loads it once.
        (libraries / name).symlink_to(_STAND_IN)
    version = _cann_version(mindspore.folder)
    package = home / _PYTHON_PACKAGES / "hccl"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("", encoding="utf-8")
    (package / "sys_version.py").write_text(f"__sys_version__ = {version!r}\n", encoding="utf-8")
    # CANN's own Python package; programs use only the chip's name, the same as aclrtGetSocName's.
    acl = home / _PYTHON_PACKAGES / "acl"
    acl.mkdir()
    (acl / "__init__.py").write_text(
        f"def get_soc_name():\n    return {load('cann_sim')['soc_name']!r}\n", encoding="utf-8"
    )
    (home / "compiler").mkdir()
    (home / "compiler" / "version.info").write_text(f"Version={version}\n", encoding="utf-8")
    (home / "opp_kernel").mkdir()  # 2.7.0 checks that it exists
    (home / "latest").symlink_to(".")
    shutil.rmtree(scratch)


def _cann_version(mindspore: Path) -> str:
    # Return the CANN version that the wheel's own custom operators were built for; MindSpore compares it and warns.
    info = mindspore / "lib" / "plugin" / "ascend" / "custom_ascendc_910b" / "version.info"
    match = re.search(r"=\s*(\d+(?:\.\d+)+)", info.read_text("utf-8", "replace")) if info.is_file() else None
    return match[1] if match else _FALLBACK_VERSION
