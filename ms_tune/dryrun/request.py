"""What the user asks for, and what becomes of it before anything runs."""

from __future__ import annotations

import os
import re
from enum import Enum
from pathlib import PurePath
from types import MappingProxyType

import yaml

from ms_tune.dialects import recomputes
from ms_tune.dialects.stage import StageLayerKind
from ms_tune.enums import LayerKind
from ms_tune.errors import UsageError
from ms_tune.facts.launchers import is_launcher
from ms_tune.planning.schedule import Schedule, in_flight_per_chunk
from ms_tune.records import Record
from ms_tune.source import SCRIPTS
from ms_tune.source.yaml import yaml_text
from ms_tune.text import msg
from ms_tune.units import whole_number
from ms_tune.verdict.limit import Cap
from ms_tune.verdict.outcome import UntracedNeeds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Any

    from ms_tune.diagnostics import KeyPath
    from ms_tune.dialects.job_parts import SettingChange
    from ms_tune.dryrun.job import ChildJob
    from ms_tune.enums import Dialect
    from ms_tune.text import Message

DEFAULT_TEMPLATE = "mindspeed_ms/llama2_7b.yaml"
ENGINES = ("local", "ray")  # where processes run
STEPS = 2  # the second one starts with optimizer state in place, as every later one does

_SHELLS = ("bash", "sh", "dash", "ksh", "zsh")
_OPTION = re.compile(r"(?:--)?[A-Za-z][\w-]*")


class StageChoice(Enum):
    """Pipeline stages that need not be named."""

    ALL = "all"
    WORST = "worst"  # those that no other stage outdoes: the first, the last, and what differs in between


class Setting(Record):
    """A value of the config to be run otherwise."""

    path: KeyPath  # where it stands
    raw: str  # the value as YAML spells it

    @classmethod
    def parse(cls, text: str) -> Setting:
        """``parallel_config.micro_batch_num=8`` as a setting.

        Raises:
            UsageError: It is not of this form, or the value is no YAML.
        """
        name, equals, raw = text.partition("=")
        path: KeyPath = tuple(
            part if (number := whole_number(part)) is None else number for part in name.strip().split(".")
        )
        if not equals or "" in path:
            raise UsageError(msg("stages.set.form", text=text), msg("stages.set.form.hint"))
        raw = raw.strip()
        try:
            yaml.safe_load(raw)
        except (yaml.YAMLError, ValueError):  # the latter: a number of thousands of digits
            raise UsageError(msg("stages.set.value", text=text), msg("stages.set.form.hint")) from None
        return cls(path, raw or "null")

    @property
    def name(self) -> str:
        """The place, as it is spoken of."""
        return ".".join(map(str, self.path))

    def __str__(self) -> str:
        return f"{self.name}={self.raw}"


class OptionSetting(Record):
    """An option of a command's programs to be run otherwise."""

    name: str  # the option
    raw: str | None  # its words; None takes it out

    @classmethod
    def parse(cls, text: str) -> OptionSetting:
        """``num-layers=4`` as a setting; ``true`` is an option without words, ``null`` and ``false`` take it out."""
        name, equals, value = text.partition("=")
        if not equals or not _OPTION.fullmatch(name):
            raise UsageError(msg("launch.set", text=text), msg("launch.set.hint"))
        option = f"--{name.removeprefix('--')}"
        if value in ("null", "false"):
            return cls(option, None)
        return cls(option, "" if value == "true" else value)

    def __str__(self) -> str:
        told = {None: "null", "": "true"}
        return f"{self.name.removeprefix('--')}={told.get(self.raw, self.raw)}"


class DryrunRequest(Record):
    """What a simulated job is to be.

    Attributes:
        config: The user's config; None for the packaged default.
        layers: Layers in every simulated stage; None for as many as the config says.
        fewest_layers: In place of ``layers``, the smallest number from which each stage can be derived; a stage that
            would not take less that way is run whole.
        stage: The stage that one preparation is for (see :func:`ms_tune.dryrun.prepare.prepare_run`).
        stages: The stages to simulate.
        ranks: The ranks to simulate instead, one process each; empty for one rank a stage.
        extrapolate: Where ``layers`` is less than the config says, derive the peak of all layers.
        settings: Values to be run otherwise than the config says.
        reference: Run ms-tune's reference transformer even where the dynamic-graph config's own framework is installed.
        devices: NPUs in the job; None for what the config implies.
        device_bytes: Memory of a device as sold, if the user names it.
        chip: The device's name, if the user names it.
        reserve_bytes: What to set aside beside HCCL buffers and workspaces.
        run_folder: Where to keep the run; None for a new folder in the working folder.
        timeout: Seconds after which a process is stopped.
        level: ``MS_SIMULATION_LEVEL``.
        jobs: Processes at once; None for what cores and memory allow.
        engine: Where the processes run: ``local`` or ``ray``.
        real: Run on devices, without simulation.
    """

    config: Path | None = None
    layers: int | None = None
    fewest_layers: bool = False
    stage: int = 0
    stages: StageChoice | tuple[int, ...] = StageChoice.ALL
    ranks: tuple[int, ...] = ()
    extrapolate: bool = True
    settings: tuple[Setting, ...] = ()
    reference: bool = False
    devices: int | None = None
    device_bytes: int | None = None
    chip: str | None = None
    reserve_bytes: int = 0
    run_folder: Path | None = None
    timeout: float = 3600.0
    level: int = 1
    jobs: int | None = None
    engine: str = "local"
    real: bool = False


class CommandRequest(Record):
    """A command of the user's own to be run in simulation, or with the tracker on a device.

    Attributes:
        command: The program and its arguments.
        ranks: The ranks to run it as, one process each; none for one process, of whose jobs one rank of each stage runs.
        stages: Of jobs that the command launches only these pipeline stages, or those that no other outdoes; None for all.
        layers: Of a Megatron program, layers of every stage to begin with, the whole of which is derived; None for all.
        fewest_layers: In place of ``layers``, the smallest number from which each stage can be derived.
        settings: Options for the programs that it launches.
        python: The interpreter that ``python`` in the command means, with its own MindSpore; None for the command's.
        look: Nothing is simulated: one rank of each job only looks what its program would find, and imports it.
        devices: NPUs in the job; None for what the command's launcher or ``RANK_SIZE`` says.
        device_bytes, chip, reserve_bytes, run_folder, timeout, level, jobs, engine, real: As in :class:`DryrunRequest`.
    """

    command: tuple[str, ...]
    ranks: tuple[int, ...] = ()
    stages: StageChoice | tuple[int, ...] | None = None
    layers: int | None = None
    fewest_layers: bool = False
    settings: tuple[OptionSetting, ...] = ()
    python: str | None = None
    look: bool = False
    devices: int | None = None
    device_bytes: int | None = None
    chip: str | None = None
    reserve_bytes: int = 0
    run_folder: Path | None = None
    timeout: float = 3600.0
    level: int = 1
    jobs: int | None = None
    engine: str = "local"
    real: bool = False

    @property
    def launches(self) -> bool:
        """Whether the command is a script or a launcher, which says by itself how many ranks there are."""
        name = PurePath(self.command[0]).name
        return name in _SHELLS or name.endswith(SCRIPTS) or is_launcher(name)


def untraced_needs(request: DryrunRequest | CommandRequest) -> UntracedNeeds:
    """What no trace of such a run shows."""
    size = os.environ.get("HCCL_BUFFSIZE", "")
    return UntracedNeeds(
        simulated=not request.real,
        workspaces_traced=request.level > 1,
        buffer_mib=int(size) if size.isascii() and size.isdigit() and int(size) else None,
        reserve_bytes=request.reserve_bytes,
    )


class Split(Record):
    """Over how many ranks each of a job's dimensions is split; their product without ``expert`` is the job's devices."""

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1

    @property
    def communicators(self) -> int:
        """How many a rank needs at least: the world's and one for each dimension that is split."""
        ways = (self.data, self.tensor, self.pipeline, self.context, self.expert)
        return 1 + sum(one > 1 for one in ways)


class Pipeline(Record):
    """How a job's micro-batches go through its stages."""

    # In which order; None where it is one that is not followed.
    schedule: Schedule | None = Schedule.ONE_FORWARD_ONE_BACKWARD
    stages: int = 1  # pipeline stages
    chunks: int = 1  # chunks of each stage
    micro_batches: int = 1  # micro-batches of a step, as the config says

    @classmethod
    def of_megatron(cls, stages: int, chunks: int, micro_batches: int) -> Pipeline:
        """As Megatron-LM sends them through (``core/pipeline_parallel/schedules.py``); with one chunk that is 1F1B."""
        return cls(Schedule.INTERLEAVED_FULL_WARM_UP, stages, chunks, micro_batches)

    def in_flight(self, stage: int) -> tuple[int, ...] | None:
        """Micro-batches that a stage holds when it holds most, for each chunk; None where nothing tells."""
        if self.schedule is None:
            return None
        return in_flight_per_chunk(self.schedule, stage, self.stages, self.chunks, self.micro_batches)


class PreparedRun(Record):
    """A run that is ready to start."""

    job: ChildJob  # what the child process does
    dialect: Dialect  # the config's dialect
    config_name: str  # the config's name as shown to the user
    packaged: bool  # it is the packaged default
    configs: Mapping[str, dict[str, Any]]  # configs that the child process needs, by the names of their files
    world_size: int  # ranks of the simulated job
    rank: int  # the rank that is simulated
    stage: int  # its pipeline stage, of `stages`
    stages: int
    layers: int  # layers of that stage as simulated
    shrunk: bool  # whether the config gives the stage another number of layers
    model: Message  # what is run: the user's framework or ms-tune's own transformer
    max_device_memory: int | None  # what limits the pool, in bytes, if the config or its framework names a limit
    changes: tuple[SettingChange, ...]  # what is not run as the config says
    not_included: tuple[Message, ...]  # what the figures leave out
    warnings: tuple[Message, ...]  # what the user should know about the config itself
    # Layers of the simulated stage by kind; empty where nothing tells them apart. Full stages are derived from shrunk ones with it.
    kinds: Mapping[StageLayerKind, int] = MappingProxyType({})
    # Bytes of weights, gradients and optimizer state by arithmetic, where that can tell.
    theory: Mapping[str, int] = MappingProxyType({})
    limited_by: Cap = Cap.CONFIG  # what names `max_device_memory`
    split: Split = Split()  # how the job's devices are split
    # What says how many there are.
    devices_source: Message = msg("stages.devices.config")
    pipeline: Pipeline = Pipeline()  # how its micro-batches go through the stages
    # What was held to the framework's own code for such a job, and what was not; empty where that code itself is run.
    standing: tuple[Message, ...] = ()
    unproved: tuple[Message, ...] = ()  # of what is left out and of this: what nothing held to the framework's own code

    @property
    def files(self) -> dict[str, str]:
        """The texts of these configs."""
        return {name: yaml_text(values) for name, values in self.configs.items()}

    @property
    def recomputes(self) -> bool:
        """Whether its framework looks at settings of recompute."""
        return recomputes(self.dialect.value, self.world_size)

    @property
    def layer_counts(self) -> Mapping[StageLayerKind, int]:
        """Layers by kind; all of one kind where nothing is known about them."""
        return self.kinds or {StageLayerKind(LayerKind.UNKNOWN): self.layers}

    @property
    def in_flight(self) -> tuple[int, ...] | None:
        """Micro-batches between their forward and their backward pass when the stage holds most, for each chunk."""
        return self.pipeline.in_flight(self.stage)
