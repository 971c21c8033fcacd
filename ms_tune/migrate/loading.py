"""The new file before the real classes of MindFormers, where they are installed."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from ms_tune.frameworks.releases import installed_version
from ms_tune.migrate.result import Verdict
from ms_tune.texts import msg

_SECONDS = 300
_PROGRAM = (
    "import sys; from mindformers.pynative.config import config; config.TrainConfig.load_from_yaml(sys.argv[1]); print('loaded')"
)


def load_real(text: str, release: str) -> Verdict:
    """Whether ``TrainConfig`` (``pynative/config/config.py``) of an installed release takes the file, in a process of its own.

    Args:
        text: The file.
        release: The release that it is for.
    """
    if not f"{installed_version('mindformers') or ''}.".startswith(f"{release}."):
        return Verdict("loads", None, msg("migrate.proof.loads-not", release=release))
    with tempfile.TemporaryDirectory(prefix="ms-tune-migrate-") as folder:
        file = Path(folder) / "migrated.yaml"
        file.write_text(text, encoding="utf-8")
        command = [sys.executable, "-c", _PROGRAM, str(file)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, cwd=folder, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return Verdict("loads", None, msg("migrate.proof.loads-refused", text=type(error).__name__))
    if done.returncode == 0 and done.stdout.strip().endswith("loaded"):
        return Verdict("loads", True, msg("migrate.proof.loads"))
    lines = done.stderr.strip().splitlines()
    return Verdict("loads", False, msg("migrate.proof.loads-refused", text=lines[-1] if lines else done.returncode))
