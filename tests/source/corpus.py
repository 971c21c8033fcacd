"""Return the example configs of the installed MindFormers wheel."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

# The variable names another environment's site-packages, so that the tests can run without MindSpore.
SITE_PACKAGES = Path(os.environ.get("MS_TUNE_SITE_PACKAGES") or sysconfig.get_path("purelib"))


def wheel_configs() -> list[Path]:
    """Return the configs; empty if MindFormers is not installed."""
    if not list(SITE_PACKAGES.glob("mindformers-*.dist-info")):
        return []
    return sorted((SITE_PACKAGES / "configs").rglob("*.yaml"))
