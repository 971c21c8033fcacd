"""Build the environment of simulated processes, and of scripts whose launchers are replaced."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune.dryrun.launchers.arguments import MSRUN, TORCHRUN
from ms_tune.facts.query import load

if TYPE_CHECKING:
    from ms_tune.dryrun.cann_sim.environment import Cann

LEVELS = (0, 1, 2, 3)

# Left over from a real launch, these variables would make the process look for a scheduler, another rank or a device; a
# module's own log level may hide the statistics that MindSpore logs as a warning.
_DROPPED = re.compile(
    r"MS_(?:ROLE|SCHED_\w+|WORKER_NUM|NODE_ID|CLUSTER_\w+|SUBMODULE_LOG_v)|RANK_TABLE_FILE|RANK_TABLE|OMPI_\w+"
)

ALLOCATOR = "MS_ALLOC_CONF"
# Variables of MindSpore itself; ours override the user's.
_TRACKED = {
    ALLOCATOR: "memory_tracker:True",
    "MS_MEMORY_STATISTIC": "1",
    "GLOG_v": "2",  # warnings: the statistics at exit are one
}
_SIMULATION = {
    "MS_SIMULATION_LEVEL": "1",
    **_TRACKED,
    # Launch from the thread that runs the script: otherwise the Python stacks in the trace end in MindSpore's worker.
    "MS_DEV_LAUNCH_BLOCKING": "1",
    "DEVICE_ID": "0",
}
# MindSpore splits MS_ALLOC_CONF at these (``runtime/memory/mem_pool/mem_env.cc``); a path with them cannot be passed.
_SEPARATORS = re.compile(r"[,:]")


def simulation_environment(  # noqa: PLR0913 - the properties of a simulated process
    base: Mapping[str, str], cann: Cann, rank: int, world_size: int, *, level: int = 1, trace: Path | None = None
) -> dict[str, str]:
    """Return the environment in which MindSpore simulates a rank and writes its trace to ``trace`` or the working folder."""
    kept = {name: value for name, value in base.items() if not _DROPPED.fullmatch(name)}
    own = {
        **_SIMULATION,
        "MS_SIMULATION_LEVEL": str(level),
        ALLOCATOR: _tracker_settings(trace),
        "RANK_ID": str(rank),
        "RANK_SIZE": str(world_size),
        "PYTHONUNBUFFERED": "1",
    }
    return {**cann.environment(kept), **own}


def _tracker_settings(trace: Path | None) -> str:
    # ``MS_ALLOC_CONF`` with the memory tracker on, and its output path, if MindSpore can accept it.
    settings = _TRACKED[ALLOCATOR]
    if trace is None or _SEPARATORS.search(str(trace)):
        return settings
    return f"{settings},memory_tracker_path:{trace}"


def allocator_settings(own: str, needed: str) -> str:
    """Return ``MS_ALLOC_CONF`` of a command: the user's settings, as on a device, and those that the tracker needs."""
    kept = [setting for setting in own.split(",") if setting and not setting.startswith("memory_tracker")]
    return ",".join([*kept, needed])


def overridden_variables(base: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of MindSpore's variables that the user has set to another value than a simulation needs."""
    return tuple(
        name for name, value in _SIMULATION.items() if name.startswith("MS_") and base.get(name, value) != value
    )


BIN = "bin"  # folder of the stand-in programs, in the folder of the command
LOOK = "MS_TUNE_LOOK"  # the variable that ends a program at its import of MindSpore
_STAND_IN = str(Path(__file__).resolve().parent / "launchers" / "stand_in.py")
_PYTHONS = ("python", "python3")
_TEE = "tee"
_KEPT = ("PYTHONPATH", "LD_LIBRARY_PATH")  # a script may overwrite these, and simulation needs them

_BECOMES_STAND_IN = '#!/bin/sh\nexec "$MS_TUNE_PYTHON" -I -S "$MS_TUNE_STAND_IN" {name} "$@"\n'
_RESTORES = """\
case "${name}" in
"$MS_TUNE_{name}"*) ;;
*) {name}="$MS_TUNE_{name}${{{name}:+:${name}}}"; export {name} ;;
esac
"""
_BECOMES_PYTHON = """\
#!/bin/sh
# The next {name} of PATH, in an environment that still has what simulation needs.
{restores}
if [ -n "$MS_TUNE_CHOSEN_PYTHON" ]; then exec "$MS_TUNE_CHOSEN_PYTHON" "$@"; fi
before=$IFS; IFS=:
for folder in $PATH; do
    if [ "$folder" != "$MS_TUNE_BIN" ] && [ -f "$folder/{name}" ] && [ -x "$folder/{name}" ]; then
        IFS=$before
        exec "$folder/{name}" "$@"
    fi
done
echo "{name}: not found" >&2
exit 127
"""


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """The parts of a command's launched jobs to simulate."""

    # Only these pipeline stages; `worst` for those that no other stage exceeds; None for all.
    stages: tuple[int, ...] | str | None = None
    ranks: tuple[int, ...] = ()  # only these ranks, if any
    devices: int | None = None  # ranks of the job; None for the launcher's own number
    jobs: int = 1  # ranks that run at once
    python: str | None = None  # the Python that runs the ranks; None for the command's own
    # Options of the launched programs with their words; None removes an option.
    settings: tuple[tuple[str, str | None], ...] = ()
    # Layers of a stage to start with; `auto` for the fewest from which the whole stage can be derived; None for all.
    layers: int | str | None = None
    look: bool = False  # only check, per job, that one rank can import its program


def stand_in_programs() -> dict[str, str]:
    """Return shell scripts by name: launchers run ``stand_in.py``, and ``python`` runs the next one in PATH."""
    restores = "".join(_RESTORES.format(name=name) for name in _KEPT)
    names = (MSRUN, TORCHRUN, _TEE, *load("launchers")["others"])
    return {
        **{name: _BECOMES_STAND_IN.format(name=name) for name in names},
        **{name: _BECOMES_PYTHON.format(name=name, restores=restores) for name in _PYTHONS},
    }


def launch_environment(  # noqa: PLR0913, PLR0917 - all needed by a command and its launchers
    environment: Mapping[str, str], folder: Path, cann: Cann, level: int, startup: str, wanted: LaunchPlan
) -> dict[str, str]:
    """Return the variables of a command whose launchers are replaced."""
    facts, bin_folder = load("launchers"), str(folder / BIN)
    plan = {
        **asdict(wanted),
        "chosen_python": wanted.python,
        "folder": str(folder),
        "backend": cann.backend.value,
        "home": str(cann.home),
        "level": level,
        "startup": startup,
        "python": sys.executable,
        "stand_in": _STAND_IN,
        "modules": {**facts["modules"], **facts["other_modules"]},
        "programs": [MSRUN, TORCHRUN, *facts["others"]],
    }
    # bash imports these as functions, which take precedence over PATH: a script may put other folders first.
    functions = {
        f"BASH_FUNC_{name}%%": f'() {{ "$MS_TUNE_BIN/{name}" "$@"; }}' for name in (MSRUN, TORCHRUN, *_PYTHONS)
    }
    return {
        "PATH": os.pathsep.join(filter(None, [bin_folder, environment.get("PATH", os.defpath)])),
        "MS_TUNE_LAUNCH": json.dumps(plan),
        "MS_TUNE_PYTHON": sys.executable,
        "MS_TUNE_STAND_IN": _STAND_IN,
        "MS_TUNE_BIN": bin_folder,
        "MS_TUNE_CHOSEN_PYTHON": wanted.python or "",
        **({LOOK: "1"} if wanted.look else {}),
        **{f"MS_TUNE_{name}": environment.get(name, "") for name in _KEPT},
        **functions,
    }
