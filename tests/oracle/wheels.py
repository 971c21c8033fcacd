"""Provide the wheels of MindFormers releases, downloaded when first needed, from which single sources are read."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from functools import cache
from pathlib import Path

from ms_tune.enums import Dialect
from ms_tune.facts.query import served

RELEASES = {release: f"{release}.0" for release in served(Dialect.MINDFORMERS)}
_SECONDS = 60


def folder() -> Path:
    """Return the folder of the wheels; ``MS_TUNE_ORACLE_WHEELS`` sets another one."""
    given = os.environ.get("MS_TUNE_ORACLE_WHEELS")
    return Path(given) if given else Path(tempfile.gettempdir()) / "ms-tune-oracle-wheels"


@cache
def wheel(version: str) -> Path | str:
    """Return the wheel of a release, or why there is none."""
    release = RELEASES[version]
    found = sorted(folder().glob(f"mindformers-{release}-*.whl"))
    if found:
        return found[0]
    folder().mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check"]
    try:
        subprocess.run(
            [*command, "--timeout", "10", "--retries", "0", "--dest", str(folder()), f"mindformers=={release}"],
            check=True,
            capture_output=True,
            timeout=_SECONDS,
        )
    except (subprocess.SubprocessError, OSError) as error:
        return f"mindformers {release} cannot be downloaded: {type(error).__name__}"
    found = sorted(folder().glob(f"mindformers-{release}-*.whl"))
    return found[0] if found else f"pip did not leave a wheel of mindformers {release}"


@cache
def opened(path: Path) -> zipfile.ZipFile:
    """Return an open wheel, which stays open until the process ends: reading its file list takes longer than reading a file."""
    return zipfile.ZipFile(path)


def source(version: str, path: str) -> str:
    """Return the text of a file below ``mindformers/`` in a release."""
    found = wheel(version)
    assert isinstance(found, Path)
    return opened(found).read(f"mindformers/{path}").decode()


def configs(version: str) -> dict[str, str]:
    """Return the texts of a release's configs, by name."""
    found = wheel(version)
    assert isinstance(found, Path)
    names = sorted(name for name in opened(found).namelist() if name.endswith((".yaml", ".yml")))
    return {name: opened(found).read(name).decode() for name in names}
