"""What the user asks for, and what becomes of it before anything runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from ms_tune.config.dialects.recognise import Dialect
    from ms_tune.dryrun.job import MindFormersJob, ReferenceJob
    from ms_tune.texts import Message

DEFAULT_TEMPLATE = "mindspeed_ms/llama2_7b.yaml"
DEFAULT_TEMPLATE_DEVICES = 8
STEPS = 2  # the second one starts with optimizer state in place, as every later one does


@dataclass(frozen=True, slots=True)
class DryrunRequest:
    """A wish for a simulated run.

    Attributes:
        config: The user's config; None for the packaged default.
        layers: Layers in the simulated stage; None for as many as the config says.
        stage: Pipeline stage to simulate.
        devices: NPUs in the job; None for what the config implies.
        device_bytes: Memory of a device, if the user names it.
        run_folder: Where to keep the run; None for a new folder in the working folder.
        timeout: Seconds after which the run is stopped.
    """

    config: Path | None = None
    layers: int | None = None
    stage: int = 0
    devices: int | None = None
    device_bytes: int | None = None
    run_folder: Path | None = None
    timeout: float = 3600.0


@dataclass(frozen=True, slots=True)
class Change:
    """Something that is not run as the config says it.

    Attributes:
        key: Dotted path in the config.
        before: What the config says.
        after: What is run.
    """

    key: str
    before: object
    after: object


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A run that is ready to start.

    Attributes:
        job: What the child process does.
        dialect: The config's dialect.
        config_name: The config's name as shown to the user.
        packaged: It is the packaged default.
        config_text: The config as its author wrote it.
        files: Further files that the child process needs, by name.
        world_size: Ranks of the simulated job.
        rank: The rank that is simulated.
        stage: Its pipeline stage, of ``stages``.
        layers: Layers of that stage as simulated.
        shrunk: Whether the config gives the stage another number of layers.
        model: What is run: the user's framework or ms-tune's own transformer.
        max_device_memory: The config's own limit in bytes, if it names one.
        changes: What is not run as the config says.
        not_included: What the figures leave out.
        warnings: What the user should know about the config itself.
    """

    job: ReferenceJob | MindFormersJob
    dialect: Dialect
    config_name: str
    packaged: bool
    config_text: str
    files: dict[str, str]
    world_size: int
    rank: int
    stage: int
    stages: int
    layers: int
    shrunk: bool
    model: Message
    max_device_memory: int | None
    changes: tuple[Change, ...]
    not_included: tuple[Message, ...]
    warnings: tuple[Message, ...]
