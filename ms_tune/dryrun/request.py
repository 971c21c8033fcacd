"""Define the requests for simulated jobs and commands, and the prepared runs that result from them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from enum import Enum
from pathlib import Path, PurePath
from types import MappingProxyType

import yaml

from ms_tune.diagnostics import KeyPath
from ms_tune.dialects import recomputes
from ms_tune.dialects.stage import StageLayerKind
from ms_tune.enums import Dialect, LayerKind
from ms_tune.errors import UsageError
from ms_tune.facts.launchers import is_launcher
from ms_tune.planning.schedule import Schedule, in_flight_per_chunk
from ms_tune.records import Any, Record
from ms_tune.source import SCRIPTS
from ms_tune.source.yaml import yaml_text
from ms_tune.text import Message, msg
from ms_tune.units import whole_number
from ms_tune.verdict.limit import Cap
from ms_tune.verdict.outcome import UntracedNeeds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ms_tune.dialects.job_parts import SettingChange
    from ms_tune.dryrun.job import ChildJob

DEFAULT_TEMPLATE = "mindspeed_ms/llama2_7b.yaml"
ENGINES = ("local", "ray")  # where processes run
STEPS = 2  # the second one starts with optimizer state, like every later one

_SHELLS = ("bash", "sh", "dash", "ksh", "zsh")
_OPTION = re.compile(r"(?:--)?[A-Za-z][\w-]*")


class StageChoice(Enum):
    """Sets of pipeline stages that a user can choose by name."""

    ALL = "all"
    WORST = "worst"  # stages that no other stage exceeds: the first, the last, and differing ones in between


class Setting(Record):
    """A config value to be replaced for the run."""

    path: KeyPath  # its path in the config
    raw: str  # the value as written in YAML

    @classmethod
    def parse(cls, text: str) -> Setting:
        """Parse a setting such as ``parallel_config.micro_batch_num=8``."""
        name, equals, raw = text.partition("=")
        path: KeyPath = tuple(
            part if (number := whole_number(part)) is None else number for part in name.strip().split(".")
        )
        if not equals or "" in path:
            raise UsageError(msg("stages.set.form", text=text), msg("stages.set.form.hint"))
        raw = raw.strip()
        try:
            yaml.safe_load(raw)
        except (yaml.YAMLError, ValueError):  # the latter for a number with thousands of digits
            raise UsageError(msg("stages.set.value", text=text), msg("stages.set.form.hint")) from None
        return cls(path, raw or "null")

    @property
    def name(self) -> str:
        """Return the path with dots, as shown to the user."""
        return ".".join(map(str, self.path))

    def __str__(self) -> str:
        return f"{self.name}={self.raw}"


class OptionSetting(Record):
    """An option of a command's programs to be replaced for the run."""

    name: str  # the option
    raw: str | None  # its words; None removes it

    @classmethod
    def parse(cls, text: str) -> OptionSetting:
        """Parse a setting such as ``num-layers=4``; ``true`` is an option without words, ``null`` and ``false`` remove it."""
        name, equals, value = text.partition("=")
        if not equals or not _OPTION.fullmatch(name):
            raise UsageError(msg("launch.set", text=text), msg("launch.set.hint"))
        option = f"--{name.removeprefix('--')}"
        if value in ("null", "false"):
            return cls(option, None)
        return cls(option, "" if value == "true" else value)

    def __str__(self) -> str:
        words = {None: "null", "": "true"}
        return f"{self.name.removeprefix('--')}={words.get(self.raw, self.raw)}"


class DryrunRequest(Record):
    """A job to simulate.

    Attributes:
        config: The user's config; None for the packaged default.
        layers: Layers in every simulated stage; None for those of the config.
        fewest_layers: Instead of ``layers``, use the smallest number from which each stage can be derived; a stage for which
            this is not cheaper is run in full.
        stage: The stage to prepare (see :func:`ms_tune.dryrun.prepare.prepare_run`).
        stages: The stages to simulate.
        ranks: The ranks to simulate instead, one process each; empty for one rank per stage.
        extrapolate: If ``layers`` is less than in the config, derive the peak of all layers.
        settings: Values that replace those of the config.
        reference: Run ms-tune's reference transformer even if the dynamic-graph config's own framework is installed.
        devices: NPUs in the job; None for the number that the config implies.
        device_bytes: Nominal memory of a device, if the user states it.
        chip: The device's name, if the user names it.
        reserve_bytes: Memory to reserve in addition to HCCL buffers and workspaces.
        run_folder: Where to store the run; None for a new folder in the working folder.
        timeout: Seconds after which a process is stopped.
        level: ``MS_SIMULATION_LEVEL``.
        jobs: Processes at once; None for as many as cores and memory allow.
        engine: Where the processes run: ``local`` or ``ray``.
        model_config: The model's ``config.json``, or its folder, if it is not where the config says.
        data: Prepare a synthetic data set; an estimate needs none, so no column can be in its way.
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
    model_config: Path | None = None
    data: bool = True


class CommandRequest(Record):
    """A command of the user's own to run in simulation.

    Attributes:
        command: The program and its arguments.
        ranks: The ranks to run it as, one process each; if empty, it runs once, with one rank per stage of launched jobs.
        stages: The pipeline stages to run of launched jobs, or those that no other stage exceeds; None for all.
        layers: For a Megatron program, layers per stage to start with, from which the whole stage is derived; None for all.
        fewest_layers: Instead of ``layers``, use the smallest number from which each stage can be derived.
        settings: Options to replace in the programs that it launches.
        python: The interpreter to use for ``python`` in the command, with its own MindSpore; None for the command's own.
        look: Simulate nothing: one rank of each job only reports the modules that it finds, and imports its program.
        devices: NPUs in the job; None for the number from the command's launcher or ``RANK_SIZE``.
        device_bytes, chip, reserve_bytes, run_folder, timeout, level, jobs, engine: As in :class:`DryrunRequest`.
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

    @property
    def launches(self) -> bool:
        """Return whether the command is a script or a launcher, which sets the number of ranks itself."""
        name = PurePath(self.command[0]).name
        return name in _SHELLS or name.endswith(SCRIPTS) or is_launcher(name)


def untraced_needs(request: DryrunRequest | CommandRequest) -> UntracedNeeds:
    """Return the memory needs of a run that are not in its trace."""
    size = os.environ.get("HCCL_BUFFSIZE", "")
    return UntracedNeeds(
        workspaces_traced=request.level > 1,
        buffer_mib=int(size) if size.isascii() and size.isdigit() and int(size) else None,
        reserve_bytes=request.reserve_bytes,
    )


class Split(Record):
    """The number of ranks in each dimension of a job; their product without ``expert`` is the number of devices."""

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1

    @property
    def communicators(self) -> int:
        """Return the minimum number of communicators per rank: the world's and one for each dimension that is split."""
        ways = (self.data, self.tensor, self.pipeline, self.context, self.expert)
        return 1 + sum(one > 1 for one in ways)


class Pipeline(Record):
    """The flow of a job's micro-batches through its stages."""

    # Their order; None if the schedule is not supported.
    schedule: Schedule | None = Schedule.ONE_FORWARD_ONE_BACKWARD
    stages: int = 1  # pipeline stages
    chunks: int = 1  # chunks per stage
    micro_batches: int = 1  # micro-batches per step, from the config
    splits: int = 1  # parts of each sequence, that follow each other through the stages (SeqPipe)

    def in_flight(self, stage: int) -> tuple[int, ...] | None:
        """Return the largest number of micro-batches in flight on a stage, per chunk; None if unknown.

        With split sequences, ``SeqpipeScheduler`` of MindSpore warms up with ``stages - 1 - stage + splits - 1`` parts.
        """
        if self.schedule is None and self.chunks == 1 < self.splits:
            parts = min(self.stages - stage + self.splits - 1, self.micro_batches * self.splits)
            return (-(-parts // self.splits),)
        if self.schedule is None:
            return None
        return in_flight_per_chunk(self.schedule, stage, self.stages, self.chunks, self.micro_batches)


class PreparedRun(Record):
    """A run that is ready to start."""

    job: ChildJob  # the work of the child process
    dialect: Dialect  # the config's dialect
    config_name: str  # the config's name as shown to the user
    packaged: bool  # whether it is the packaged default
    configs: Mapping[str, dict[str, Any]]  # configs that the child process needs, by file name
    world_size: int  # ranks of the simulated job
    rank: int  # the rank that is simulated
    stage: int  # its pipeline stage, of `stages`
    stages: int
    layers: int  # layers of that stage as simulated
    shrunk: bool  # whether the config sets another number of layers for the stage
    model: Message  # the code that is run: the user's framework or ms-tune's own transformer
    max_device_memory: int | None  # limit of the pool, in bytes, if the config or its framework sets one
    changes: tuple[SettingChange, ...]  # differences from the config
    not_included: tuple[Message, ...]  # memory that the figures do not include
    warnings: tuple[Message, ...]  # notes for the user about the config itself
    # Layers of the simulated stage by kind, to derive full stages from shrunk ones; empty if the kinds are unknown.
    kinds: Mapping[StageLayerKind, int] = MappingProxyType({})
    # Bytes of weights, gradients and optimizer state by theory, if known.
    theory: Mapping[str, int] = MappingProxyType({})
    limited_by: Cap = Cap.CONFIG  # the source of `max_device_memory`
    split: Split = Split()  # how the job's devices are split
    # The source of the number of devices.
    devices_source: Message = msg("stages.devices.config")
    pipeline: Pipeline = Pipeline()  # the flow of its micro-batches through the stages
    # Validations of such jobs against the framework's own code; empty if that code itself is run.
    standing: tuple[Message, ...] = ()
    unproved: tuple[Message, ...] = ()  # parts that were not validated in this way

    @property
    def files(self) -> dict[str, str]:
        """Return the texts of these configs."""
        return {name: yaml_text(values) for name, values in self.configs.items()}

    @property
    def recomputes(self) -> bool:
        """Return whether its framework reads recomputation settings."""
        return recomputes(self.dialect.value, self.world_size)

    @property
    def layer_counts(self) -> Mapping[StageLayerKind, int]:
        """Return the layers by kind; all of one kind if the kinds are unknown."""
        return self.kinds or {StageLayerKind(LayerKind.UNKNOWN): self.layers}

    @property
    def in_flight(self) -> tuple[int, ...] | None:
        """Return the largest number of micro-batches in flight (between forward and backward pass) on the stage, per chunk."""
        return self.pipeline.in_flight(self.stage)
