"""Read a launch script once for all users: the programs it starts, the configs it names, and the surrounding repository.

A job of MindFormers consists of the config, command-line overrides and the number of processes. ``run_mindformer.py`` (1.6 to
2.1) reads ``--config``, then ``--options a.b=c``, then a few arguments that are keys of the config themselves.
``scripts/msrun_launcher.sh`` takes the whole command as one word, then the number of processes. HyperParallel's Trainer takes
the config as its first word, then ``--a.b=value`` (``config/manager.py`` at 643fe63c).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import yaml

from ms_tune.dialects.megatron.arguments import ProgramArguments, command_of
from ms_tune.dialects.megatron.detect import release_taking
from ms_tune.dialects.megatron.read import SERVED
from ms_tune.enums import Dialect
from ms_tune.errors import ConfigError
from ms_tune.facts.query import release_for
from ms_tune.job.checkout import Checkout
from ms_tune.job.detect import find_repository, recognise
from ms_tune.source.shell.commands import Started
from ms_tune.source.shell.read import (
    MAX_BYTES,
    Launch,
    Launches,
    find_above,
    has_folder_above,
    is_to_be_filled_in,
    read_launches,
)
from ms_tune.source.shell.syntax import File, ScriptPlace
from ms_tune.source.shell.values import Argument, Pieces, text_of
from ms_tune.source.yaml import SourceFile, load_source, read_text
from ms_tune.text import msg

_LAUNCHER = "msrun_launcher.sh"
_PROCESSES = 8  # the default of msrun_launcher.sh
_RUNNER = ("epochs", "batch_size", "gradient_accumulation_steps", "sink_mode", "num_samples")
_TOP = (
    *("run_mode", "do_eval", "load_checkpoint", "src_strategy_path_or_dir", "auto_trans_ckpt", "transform_process_num"),
    *("only_save_strategy", "resume_training", "remote_save_url", "seed", "use_parallel", "profile", "output_dir"),
)
_HERE = ("pwd", "`pwd`", "$(pwd)")  # the folder in which the script is started
_UNKNOWN = "\0"


@dataclass(frozen=True)
class TrainingJob:
    """One program that a script starts with a config."""

    script: File = field(repr=False)
    config: Argument  # the word that names the config
    path: Path | None  # the file; None if it does not exist, or is only known at run time
    unknown: str  # the unknown that config or number of processes depends on; empty if both are known
    processes: int | None  # the number of processes on all machines; None if only known at run time
    # The config values that the command line overrides, by key path, with the place of the override.
    overrides: Mapping[tuple[str, ...], tuple[object, Argument]]
    environment: Mapping[str, Pieces]  # those variables of the program that the script sets
    place: ScriptPlace  # the location of the command

    def source(self) -> SourceFile | None:
        """Return the config; None if it cannot be read, which is reported when the config itself is checked."""
        try:
            small = self.path is not None and self.path.stat().st_size <= MAX_BYTES
            return load_source(self.path) if self.path is not None and small else None
        except (ConfigError, OSError):
            return None

    def value(self, source: SourceFile, dotted: str, default: object = None) -> object:
        """Return the effective value: the command line's, or the config's, or the default."""
        path = tuple(dotted.split("."))
        if path in self.overrides:
            return self.overrides[path][0]
        value = source.get(path)
        return default if value is None else value

    def variable(self, name: str) -> str | None:
        """Return a variable's value; None if the script does not set it, or it is only known at run time."""
        pieces = self.environment.get(name)
        return text_of(pieces) if pieces is not None else None


def _of_launch(script: File, launch: Launch) -> TrainingJob | None:
    if launch.program is None:
        return None
    words = [(_text(word), word) for word in launch.arguments]
    count = launch.options.get("worker_num")
    unsure = count.unknown.name if count is not None and count.unknown is not None else ""
    known = launch.processes if launch.launcher.counts else 1
    return _job(script, launch, _text(launch.program), words, known, unsure)


def _of_launcher(script: File, one: Started) -> TrainingJob | None:
    """Return the job that ``bash scripts/msrun_launcher.sh "run_mindformer.py ..." 8`` starts."""
    at = next((number for number, word in enumerate(one.words[:3]) if _text(word).endswith(_LAUNCHER)), None)
    if at is None or at + 1 >= len(one.words):
        return None
    order, rest = one.words[at + 1], one.words[at + 2 :]
    text = _text(order)
    words = [(match[0], order) for match in re.finditer(r"\S+", text)]
    count = rest[0] if rest else None
    number = count.text if count is not None else str(_PROCESSES)
    unsure = count.unknown.name if count is not None and count.unknown is not None else ""
    processes = int(number) if number and number.isascii() and number.isdigit() and len(number) < 7 else None  # noqa: PLR2004
    return _job(script, one, text.partition(" ")[0], words, processes, unsure)


def _text(word: Argument) -> str:
    r"""Return the text of a word, with ``\0`` for each unknown part and a dot for the folder of the start."""
    return "".join(
        piece.text if piece.unknown is None else "." if piece.unknown.name.strip() in _HERE else _UNKNOWN
        for piece in word.pieces
    )


def _job(  # noqa: PLR0913, PLR0917 - the parts of a command
    script: File,
    started: Launch | Started,
    program: str,
    words: Sequence[tuple[str, Argument]],
    processes: int | None,
    unsure: str,
) -> TrainingJob | None:
    given = dict(_options(words))
    if "config" not in given:
        return _job_of_trainer(script, started, words, given, processes) if isinstance(started, Launch) else None
    text, word = given["config"][0]
    if not text.endswith((".yaml", ".yml")) and _UNKNOWN not in text:
        return None
    unknown = ""
    if _UNKNOWN in text:
        unknown = next((piece.unknown.name for piece in word.pieces if piece.unknown is not None), "?")
    path = None if unknown else find_above(script.path, text)
    # A name without a folder is in that of the program.
    has_folder = "/" in text.removeprefix("./")
    is_near = has_folder_above(script.path, text) if has_folder else find_above(script.path, program) is not None
    if path is None and not (unknown or is_to_be_filled_in(text) or is_near):
        unknown = text  # not even its folder or its program is here: the script is separate from its repository
    overrides = dict(_overrides(given))
    return TrainingJob(script, word, path, unknown or unsure, processes, overrides, started.environment, started.place)


def _job_of_trainer(
    script: File,
    started: Launch,
    words: Sequence[tuple[str, Argument]],
    given: Mapping[str, list[tuple[str, Argument]]],
    processes: int | None,
) -> TrainingJob | None:
    # The job of HyperParallel's Trainer; None for another program that takes a YAML.
    text, word = words[0] if words else ("", None)
    path = find_above(script.path, text) if text.endswith((".yaml", ".yml")) else None
    if word is None or path is None:
        return None
    values = ((name, *found[0]) for name, found in given.items() if "." in name and _UNKNOWN not in found[0][0])
    overrides = {tuple(name.split(".")): (_value(value), given_as) for name, value, given_as in values}
    job = TrainingJob(script, word, path, "", processes, overrides, started.environment, started.place)
    source = job.source()
    return job if source is not None and recognise(source.data).dialect is Dialect.HYPER_PARALLEL else None


def _options(words: Sequence[tuple[str, Argument]]) -> Iterator[tuple[str, list[tuple[str, Argument]]]]:
    """Yield the options of a command with the words after each; ``--a=b`` is ``--a b``."""
    name, values = "", list[tuple[str, Argument]]()
    for text, word in words:
        if text.startswith("--"):
            if name and values:
                yield name, values
            name, equals, rest = text[2:].partition("=")
            values = [(rest, word)] if equals else []
        elif name:
            values.append((text, word))
    if name and values:
        yield name, values


def _overrides(
    given: Mapping[str, list[tuple[str, Argument]]],
) -> Iterator[tuple[tuple[str, ...], tuple[object, Argument]]]:
    for text, word in given.get("options", ()):
        key, equals, value = text.partition("=")
        if equals and _UNKNOWN not in text:
            yield tuple(key.split(".")), (_value(value), word)
    for name, values in given.items():
        text, word = values[0]
        if _UNKNOWN in text:
            continue
        if name in _TOP:
            yield (name,), (_value(text), word)
        elif name in _RUNNER:
            yield ("runner_config", name), (_value(text), word)


def _value(text: str) -> object:
    """Parse a value as the program does: numbers and booleans get their types."""
    lowered = text.lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    try:
        return yaml.safe_load(text) if len(text) < 100 and not text.startswith(("&", "*", "!")) else text  # noqa: PLR2004
    except yaml.YAMLError:
        return text


class ScriptJob:
    """A launch script, read for one release of MindSpeed-LLM; it is never run."""

    def __init__(self, path: Path, text: str | None = None, *, version: str | None = None) -> None:
        self.path, self.version = path, version
        self.text = read_text(path) if text is None else text

    @cached_property
    def launches(self) -> Launches:
        """Return the programs that the script starts."""
        return read_launches(self.path, self.text)

    @cached_property
    def config_jobs(self) -> tuple[TrainingJob, ...]:
        """Return the jobs that it starts with configs."""
        if "--config" not in self.text and ".y" not in self.text:
            return ()
        found = self.launches
        jobs = [_of_launch(found.file, one) for one in found.launches]
        jobs += [_of_launcher(found.file, one) for one in found.others]
        return tuple(one for one in jobs if one is not None)

    def config_job(self) -> TrainingJob | None:
        """Return the first job whose config exists."""
        return next((job for job in self.config_jobs if job.path is not None and job.path.is_file()), None)

    @cached_property
    def checkout(self) -> Checkout | None:
        """Return the repository that contains the script, or None."""
        repository = find_repository(self.path)
        return Checkout(*repository) if repository else None

    @cached_property
    def release(self) -> str:
        """Return the release that the user named, that of the surrounding sources, or the one that knows most of the arguments."""
        checkout = self.checkout
        if self.version is None and checkout is not None and checkout.own_parser is not None:
            raise ConfigError(msg("megatron_layers.own-parser", parser=checkout.own_parser), path=self.path)
        if self.version is None:
            around = checkout.releases_of("MindSpeed-LLM") if checkout else ()
            release = release_taking(self.launches, [one for one in around if one in SERVED] or around or SERVED)
        else:
            release = release_for(Dialect.MEGATRON, self.version).version
        if release not in SERVED:
            served = ", ".join(SERVED)
            raise ConfigError(msg("megatron_layers.release", release=release, served=served), path=self.path)
        return release

    @cached_property
    def commands(self) -> tuple[ProgramArguments, ...]:
        """Return the programs of MindSpeed-LLM that it starts, with their arguments, in order."""
        found = (command_of(launch, self.release) for launch in self.launches.launches)
        return tuple(command for command in found if command is not None)
