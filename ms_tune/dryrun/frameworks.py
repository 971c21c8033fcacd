"""The frameworks of dynamic-graph configs that are installed beside ms-tune."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Framework:
    """A library that reads MindSpeed-Core-MS's YAML configs.

    Attributes:
        package: Where its config module lies; ``config``, ``training``, ... are found from there.
        name: What users call it.
    """

    package: str
    name: str


# MindFormers up to 1.6 holds the library that became MindSpeed-Core-MS r0.1.0; later releases of either read no such
# configs, and lack the file that is looked for.
_MINDSPEED = (
    (Framework("mindspeed_ms", "MindSpeed-Core-MS"), "core/config.py"),
    (
        Framework("mindformers.experimental.parallel_core.pynative", "MindFormers (experimental.parallel_core)"),
        "experimental/parallel_core/pynative/config.py",
    ),
)
_READS_YAML = "def init_configs_from_yaml"


def mindspeed_framework() -> Framework | None:
    """The installed library that trains MindSpeed-Core-MS configs.

    Nothing is imported: that would take seconds, and MindSpore must not be in this process.
    """
    for framework, config in _MINDSPEED:
        folder = package_folder(framework.package.partition(".")[0])
        if folder is not None and _says(folder / config, _READS_YAML):
            return framework
    return None


def package_folder(package: str) -> Path | None:
    """Where a top-level package is installed, if it is."""
    try:
        found = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    places = found.submodule_search_locations if found else None
    return Path(next(iter(places))) if places else None


def _says(file: Path, text: str) -> bool:
    try:
        return text in file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
