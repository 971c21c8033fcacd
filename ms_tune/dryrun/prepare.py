"""Turn a request into runs that are ready to start: read the config, shrink it, and choose how to run it."""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path

from ms_tune.dialects.mindformers_pynative.read import read_shards
from ms_tune.dryrun.request import DEFAULT_TEMPLATE, DryrunRequest, PreparedRun, Split, untraced_needs
from ms_tune.dryrun.settings import with_settings
from ms_tune.dryrun.shrink import mindformers
from ms_tune.dryrun.shrink.mindformers_layers import PreparedConfig
from ms_tune.enums import CHECKED_ONLY, Dialect
from ms_tune.errors import ConfigError, UnsupportedError, UsageError
from ms_tune.facts.keys import BASE
from ms_tune.facts.query import data_folder
from ms_tune.job import Job, ModelFile, no_model_config, not_simulated
from ms_tune.job.includes import find_named_model, with_bases
from ms_tune.records import Record
from ms_tune.source.files import near_path, read_source_text
from ms_tune.source.yaml import SourceFile, load_source, parse_source, yaml_text
from ms_tune.text import Message, msg
from ms_tune.units import MIB
from ms_tune.verdict.limit import Cap, Limit, device_of, limit_of
from ms_tune.verdict.outcome import reserve_of

# A separate comment line above the first key: the job's devices, for a config whose keys do not determine them.
_COMMENT = r"(?m)^#[ \t]*devices:[ \t]*(\d{1,7})[ \t\r]*$"
_HEAD = 4096  # characters that are searched for it
_MOST_SCRIPTS, _MOST_BYTES = 64, MIB
_PER_NODE, _NODES = "per-node", "nodes"
_VALUE = r"[ \t]*[= \t][ \t]*[\"']?(?P<value>\d{1,7})\b"
# Options and variables with a job's size for msrun, torchrun and MindFormers' scripts/msrun_launcher.sh; literals only.
_SIZES = (
    ("whole", rf"(?:--worker_num|\bWORLD_SIZE|\bRANK_SIZE|\bWORKER_NUM){_VALUE}"),
    ("whole", r"msrun_launcher\.sh[ \t]+(?:\"[^\"\n]*\"|'[^'\n]*')[ \t]+(?P<value>\d{1,7})\b"),
    (_PER_NODE, rf"(?:--nproc_per_node|\bNPUS_PER_NODE|\bGPUS_PER_NODE|\bNPROC_PER_NODE){_VALUE}"),
    (_NODES, rf"(?:--nnodes|\bNNODES){_VALUE}"),
)


class Devices(Record):
    """The number of devices of a job."""

    npus: int | None  # their number; None to derive it from the config's keys or its split
    source: Message  # the source of this number


def _devices_of(source: SourceFile, dialect: Dialect, asked: int | None, path: Path) -> Devices:
    # Determine the devices of a config's job; the same rule for the packaged default and the user's config.
    if asked is not None:
        return Devices(asked, msg("stages.devices.option"))
    if dialect is Dialect.MINDFORMERS or read_shards(source):
        return Devices(None, msg("stages.devices.config"))
    comment = re.search(_COMMENT, source.text[:_HEAD])
    if comment and int(comment[1]):
        return Devices(int(comment[1]), msg("stages.devices.comment"))
    for script in _find_sibling_scripts(path):
        count = _size_in(script, path.name)
        if count:
            return Devices(count, msg("stages.devices.script", file=script.name))
    return Devices(None, msg("stages.devices.fewest"))


def _find_sibling_scripts(path: Path) -> list[Path]:
    try:
        found = sorted(path.absolute().parent.glob("*.sh"))[:_MOST_SCRIPTS]
        return [one for one in found if one.is_file() and one.stat().st_size <= _MOST_BYTES]
    except OSError:
        return []


def _size_in(script: Path, config: str) -> int | None:
    lines = read_source_text(script).splitlines()
    text = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    if config not in text:
        return None
    found: dict[str, int] = {}
    for name, pattern in _SIZES:
        match = re.search(pattern, text)
        if match and name not in found:
            found[name] = int(match["value"])
    if "whole" in found:
        return found["whole"]
    return found[_PER_NODE] * found.get(_NODES, 1) if _PER_NODE in found else None


def limit_before(request: DryrunRequest, run: PreparedRun) -> tuple[Limit, int]:
    """Return the usable memory of a stage's device, and the bytes of it that are reserved, before the stage is run."""
    return limit_of_script(request, run.split, run.max_device_memory, run.limited_by)


def limit_of_script(
    request: DryrunRequest, split: Split, cap_bytes: int | None = None, cap: Cap = Cap.CONFIG
) -> tuple[Limit, int]:
    """Return the usable memory of a program's device, and the bytes of it that are reserved."""
    limit, outside = limit_of(device_of(request.chip, request.device_bytes), cap_bytes, cap), untraced_needs(request)
    if split.communicators > 1:
        outside = outside._replace(communicators=split.communicators, counted=False)
    return limit, sum(item.bytes for item in reserve_of(outside, limit))


class LoadedConfig(Record):
    """A config with the user's settings, ready to be prepared."""

    original: SourceFile  # as its author wrote it, merged with its `base_config`, if any
    job: Job  # with the user's `--set`; of a dialect that can be run
    name: str  # its name as shown to the user
    devices: Devices  # NPUs in the job, and the source of this number

    @property
    def source(self) -> SourceFile:
        """Return the config with the user's ``--set``."""
        return self.job.original

    @property
    def dialect(self) -> Dialect:
        """Return the config's dialect."""
        return self.job.dialect

    @property
    def why_not_simulated(self) -> UnsupportedError | None:
        """Return why a static-graph config cannot be simulated for any size of its model; None if it can."""
        try:
            self.prepared_config  # noqa: B018 - raises the error
        except UnsupportedError as error:
            return error
        except (ConfigError, UsageError):  # such as a launcher's number of devices that the config contradicts
            return None
        return None

    @cached_property
    def prepared_config(self) -> PreparedConfig:
        """Return the common part of all stages of a static-graph config of MindFormers."""
        return mindformers.prepare_config(self.job, self.devices.npus)

    def with_source(self, source: SourceFile) -> LoadedConfig:
        """Return the same config with another text."""
        return self._replace(job=self.job.for_text(source))


def load_config(request: DryrunRequest, known: Job | None = None) -> LoadedConfig:
    """Read the config of a request and apply its settings."""
    path = request.config or data_folder("yaml_templates") / DEFAULT_TEMPLATE
    sizes = ModelFile(request.model_config, assumes=True)
    known = known or Job(load_source(path), sizes_from=sizes)
    original = _flatten_bases(known.original)
    dialect = known.dialect
    if dialect in CHECKED_ONLY:
        raise not_simulated(dialect, path)
    name = f"yaml_templates/{DEFAULT_TEMPLATE}" if request.config is None else near_path(path)
    source = with_settings(original, request.settings, dialect)
    as_it_is = source is known.original and known.dialect is dialect and known.is_self_contained
    as_it_is = as_it_is and (known.sizes_from == sizes or find_named_model(source) is None)
    job = known if as_it_is else Job(source, dialect=dialect, version=known.version, sizes_from=sizes)
    if request.model_config is not None and not job.reads_model_config:
        raise no_model_config(path)
    job.source  # noqa: B018 - raises the error of a `config.json` that cannot be read
    return LoadedConfig(original, job, name, _devices_of(source, dialect, request.devices, path))


def prepare_run(request: DryrunRequest, loaded: LoadedConfig | None = None) -> PreparedRun:
    """Prepare a run of the stage ``request.stage`` with ``request.layers`` layers."""
    config = loaded or load_config(request)
    if config.dialect is Dialect.MINDFORMERS:
        run = mindformers.prepare_mindformers(config.prepared_config, config.name, request)
    else:
        try:
            from ms_tune.dryrun import dynamic  # noqa: PLC0415 - ms_tune.reference may be removed
        except ModuleNotFoundError as error:
            if "reference" not in str(error.name).split("."):
                raise
            raise UnsupportedError(msg("reference.gone"), msg("reference.gone.hint")) from None
        run = dynamic.prepare_dynamic(config.job, config.name, request, config.devices.npus)
    run = run._replace(devices_source=config.devices.source)
    notes = (msg("normalize.read-from", file=file) for file in config.job.source.read_from)
    return run._replace(warnings=(*notes, *run.warnings))


def _flatten_bases(source: SourceFile) -> SourceFile:
    # Merge a config with its bases for the run; its lines then differ from those of the author's file.
    whole = with_bases(source)
    if whole is source:
        return source
    flat = parse_source(yaml_text(whole.data), source.path.with_name(f"{source.path.name}+{BASE}"))
    return flat.replace(read_from=whole.read_from)
