"""Test other releases of MindSpore, each in a separate virtual environment.

Not in the default run: each one is a download of a gigabyte. ``MS_TUNE_TEST_MINDSPORE=2.7.2,2.10.0`` selects them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
VERSIONS = [version for version in os.environ.get("MS_TUNE_TEST_MINDSPORE", "").split(",") if version]
DEPENDENCIES = ("numpy<2", "pyyaml", "jsonschema", "pyelftools", "ziglang")
# The packaged model with four layers, on every release that was tried: 2.7.2, 2.9.0.
PEAK = 10_220_126_720


@pytest.mark.mindspore
@pytest.mark.skipif(not VERSIONS, reason="MS_TUNE_TEST_MINDSPORE names no further release")
@pytest.mark.parametrize("version", VERSIONS)
def test_the_packaged_model_has_the_same_peak_on_other_releases(version: str, tmp_path: Path) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    install = [str(python), "-m", "pip", "install", "--quiet"]
    subprocess.run([*install, f"mindspore=={version}", *DEPENDENCIES], check=True)
    subprocess.run([*install, "--no-deps", str(CHECKOUT)], check=True)
    environment = {**os.environ, "MS_TUNE_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [str(python), "-m", "ms_tune", "dryrun", "--layers", "4", "--json"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["mindspore"], result["peak_bytes"]) == (version, PEAK)
