"""The environment of simulated processes, of the same on a real device, and of a script whose launchers are to be met."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune.dryrun.launchers.arguments import MSRUN, TORCHRUN
from ms_tune.facts.query import load

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ms_tune.dryrun.cann_sim.environment import Cann

LEVELS = (0, 1, 2, 3)

# Left over from a real launch, these would make the process look for a scheduler, another rank or a device; and a
# module's own log level may hide the statistics that MindSpore logs as a warning.
_DROPPED = re.compile(
    r"MS_(?:ROLE|SCHED_\w+|WORKER_NUM|NODE_ID|CLUSTER_\w+|SUBMODULE_LOG_v)|RANK_TABLE_FILE|RANK_TABLE|OMPI_\w+"
)

ALLOCATOR = "MS_ALLOC_CONF"
# Of MindSpore itself; where the user has set one, ours must win.
_TRACKED = {
    ALLOCATOR: "memory_tracker:True",
    "MS_MEMORY_STATISTIC": "1",
    "GLOG_v": "2",  # warnings: the statistics at exit are one
}
_SIMULATION = {
    "MS_SIMULATION_LEVEL": "1",
    **_TRACKED,
    # Launch from the thread that runs the script: otherwise the tracker's Python stacks end in MindSpore's worker.
    "MS_DEV_LAUNCH_BLOCKING": "1",
    "DEVICE_ID": "0",
}
# MindSpore splits MS_ALLOC_CONF at these (``runtime/memory/mem_pool/mem_env.cc``); such a path cannot be handed over.
_SEPARATORS = re.compile(r"[,:]")


def simulation_environment(  # noqa: PLR0913 - what tells one simulated process from another
    base: Mapping[str, str], cann: Cann, rank: int, world_size: int, *, level: int = 1, trace: Path | None = None
) -> dict[str, str]:
    """The environment in which MindSpore simulates a rank and writes what its allocator did, to its working folder if not to ``trace``."""
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


def real_environment(base: Mapping[str, str], trace: Path | None) -> dict[str, str]:
    """The environment of a run on devices: the user's own with the tracker on and no simulation.

    Launch blocking is left off: it would make a real run slow, and a run of the same shape with it is at hand, the
    simulated one.
    """
    kept = {name: value for name, value in base.items() if name != "MS_SIMULATION_LEVEL"}
    return {**kept, **_TRACKED, ALLOCATOR: _tracker_settings(trace), "PYTHONUNBUFFERED": "1"}


def _tracker_settings(trace: Path | None) -> str:
    # ``MS_ALLOC_CONF`` with the memory tracker on and told where to write, where MindSpore can be told.
    settings = _TRACKED[ALLOCATOR]
    if trace is None or _SEPARATORS.search(str(trace)):
        return settings
    return f"{settings},memory_tracker_path:{trace}"


def allocator_settings(own: str, needed: str) -> str:
    """``MS_ALLOC_CONF`` of a command: the user's own settings, as a device would have them, and what the tracker needs."""
    kept = [setting for setting in own.split(",") if setting and not setting.startswith("memory_tracker")]
    return ",".join([*kept, needed])


def overridden_variables(base: Mapping[str, str]) -> tuple[str, ...]:
    """Names of MindSpore's variables that the user has set to something else than a simulation needs."""
    return tuple(
        name for name, value in _SIMULATION.items() if name.startswith("MS_") and base.get(name, value) != value
    )


BIN = "bin"  # in the command's folder
LOOK = "MS_TUNE_LOOK"  # the variable with which a program ends where it would import MindSpore
_STAND_IN = str(Path(__file__).resolve().parent / "launchers" / "stand_in.py")
_PYTHONS = ("python", "python3")
_TEE = "tee"
_KEPT = ("PYTHONPATH", "LD_LIBRARY_PATH")  # what a script may set anew, and simulation cannot do without

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
    """What is to be simulated of the jobs that a command launches."""

    # Only these pipeline stages; `worst` for those that no other outdoes; None for all.
    stages: tuple[int, ...] | str | None = None
    ranks: tuple[int, ...] = ()  # these ranks and no others, if any
    devices: int | None = None  # ranks of the job; None for what the launcher is told
    jobs: int = 1  # ranks at once
    python: str | None = None  # the Python that runs the ranks; None for the command's own
    # Options of the launched programs with their words; None takes one out.
    settings: tuple[tuple[str, str | None], ...] = ()
    # Layers of a stage to begin with; `auto` for the fewest from which the whole can be derived; None for all.
    layers: int | str | None = None
    look: bool = False  # nothing is to be simulated: a rank of each job only looks what it would find, and imports it


def stand_in_programs() -> dict[str, str]:
    """Shell scripts by name: launchers become ms-tune's stand-in, and ``python`` the next one of PATH."""
    restores = "".join(_RESTORES.format(name=name) for name in _KEPT)
    names = (MSRUN, TORCHRUN, _TEE, *load("launchers")["others"])
    return {
        **{name: _BECOMES_STAND_IN.format(name=name) for name in names},
        **{name: _BECOMES_PYTHON.format(name=name, restores=restores) for name in _PYTHONS},
    }


def launch_environment(  # noqa: PLR0913, PLR0917 - what a command's process and its launchers need
    environment: Mapping[str, str], folder: Path, cann: Cann, level: int, startup: str, wanted: LaunchPlan
) -> dict[str, str]:
    """Variables of a command whose launchers are to be met."""
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
    # bash takes these for functions, which it finds before it looks into PATH: a script may put other folders first.
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
