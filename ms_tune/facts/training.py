"""Find the installed frameworks that train dynamic-graph configs."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from ms_tune.facts.query import installed_version
from ms_tune.text import Message, msg


@dataclass(frozen=True, slots=True)
class Framework:
    """A library that trains dynamic-graph configs."""

    package: str  # the package that contains its modules `config`, `training`, ...
    name: str  # the name for users


# MindFormers up to 1.6 contains the library that became MindSpeed-Core-MS r0.1.0; later releases of either do not read such
# configs and lack the file that is searched for.
_MINDSPEED = (
    (Framework("mindspeed_ms", "MindSpeed-Core-MS"), "core/config.py"),
    (
        Framework("mindformers.experimental.parallel_core.pynative", "MindFormers (experimental.parallel_core)"),
        "experimental/parallel_core/pynative/config.py",
    ),
)
_READS_YAML = "def init_configs_from_yaml"
# MindFormers 2.0 and 2.1: the trainer, whose earlier form is in 1.9, and the modules of HyperParallel that it imports first.
# The HyperParallel with version number 0.1.0 has neither of the two modules.
_TRAINER, _TRAINS_BY_BACKWARD = "pynative/trainer/trainer.py", "enable_mindspore_backward_compat"
_OF_HYPER_PARALLEL = ("core/dtensor/dtensor.py", "platform/mindspore/autograd_compat.py")


def mindspeed_framework() -> Framework | None:
    """Return the installed library that trains MindSpeed-Core-MS configs.

    Nothing is imported: that would take seconds, and MindSpore must not be in this process.
    """
    for framework, config in _MINDSPEED:
        folder = package_folder(framework.package.partition(".")[0])
        if folder is not None and _contains(folder / config, _READS_YAML):
            return framework
    return None


def pynative_framework() -> Framework | Message:
    """Return the installed library that trains MindFormers' dynamic-graph configs, or what is missing. Nothing is imported."""
    mindformers, hyper_parallel = package_folder("mindformers"), package_folder("hyper_parallel")
    if mindformers is None:
        return msg("pynative.no-mindformers")
    name = f"MindFormers {installed_version('mindformers') or ''}".rstrip()
    if not _contains(mindformers / _TRAINER, _TRAINS_BY_BACKWARD):
        return msg("pynative.no-trainer", mindformers=name)
    if hyper_parallel is None:
        return msg("pynative.no-hyper-parallel", mindformers=name)
    lacking = next((module for module in _OF_HYPER_PARALLEL if not (hyper_parallel / module).is_file()), None)
    if lacking is not None:
        return msg("pynative.other-hyper-parallel", mindformers=name, module=f"hyper_parallel/{lacking}")
    return Framework("mindformers.pynative", name)


def package_folder(package: str) -> Path | None:
    """Return the folder of a top-level package; None if it is not installed."""
    try:
        found = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    places = found.submodule_search_locations if found else None
    return Path(next(iter(places))) if places else None


def _contains(file: Path, text: str) -> bool:
    try:
        return text in file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
