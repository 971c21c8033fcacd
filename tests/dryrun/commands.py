"""Run commands of ms-tune in a folder like a user."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def ms_tune(folder: Path, *arguments: str) -> dict[str, Any]:
    """Return the JSON output of a command."""
    done = subprocess.run(
        [sys.executable, "-m", "ms_tune", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report
