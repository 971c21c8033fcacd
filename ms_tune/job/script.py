"""A launch script, read once for all that asks: the programs that it starts, the configs that it names, the repository around it.

A job of MindFormers is put together by the config, what the command line says over it, and the number of processes: ``run_mindformer.py`` (MindFormers 1.6 to 2.1) reads ``--config``, then ``--options a.b=c``, then a few arguments that are keys of
the config themselves. ``scripts/msrun_launcher.sh`` takes the whole command as one word and the number of processes behind it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import yaml

from ms_tune.dialects.megatron.arguments import command_of
from ms_tune.dialects.megatron.detect import release_taking
from ms_tune.dialects.megatron.read import SERVED
from ms_tune.enums import Dialect
from ms_tune.errors import ConfigError
from ms_tune.facts.query import release_for
from ms_tune.job.checkout import Checkout
from ms_tune.job.detect import find_repository
from ms_tune.source.shell.read import (
    MAX_BYTES,
    content,
    find_above,
    has_folder_above,
    is_to_be_filled_in,
    read_launches,
)
from ms_tune.source.shell.values import Argument, text_of
from ms_tune.source.yaml import load_source
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from ms_tune.dialects.megatron.arguments import ProgramArguments
    from ms_tune.source.shell.commands import Started
    from ms_tune.source.shell.read import Launch, Launches
    from ms_tune.source.shell.syntax import File, ScriptPlace
    from ms_tune.source.shell.values import Pieces
    from ms_tune.source.yaml import SourceFile

_LAUNCHER = "msrun_launcher.sh"
_PROCESSES = 8  # what msrun_launcher.sh starts if nobody says another number
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
    path: Path | None  # where it is; None if it is nowhere, or only a run could tell
    unknown: str  # what would have to be known to tell the config, or the number of processes; empty if both are
    processes: int | None  # how many processes run on all machines together; None if only a run could tell
    # What the command line says over the config, by key path, with where it says so.
    overrides: Mapping[tuple[str, ...], tuple[object, Argument]]
    environment: Mapping[str, Pieces]  # the variables that the program sees of those that the script sets
    place: ScriptPlace  # where the command stands

    def source(self) -> SourceFile | None:
        """The config; None if it cannot be read, which is told where it is checked itself."""
        try:
            small = self.path is not None and self.path.stat().st_size <= MAX_BYTES
            return load_source(self.path) if self.path is not None and small else None
        except (ConfigError, OSError):
            return None

    def value(self, source: SourceFile, dotted: str, default: object = None) -> object:
        """What holds in the end: the command line's value, or the config's, or the default."""
        path = tuple(dotted.split("."))
        if path in self.overrides:
            return self.overrides[path][0]
        value = source.get(path)
        return default if value is None else value

    def variable(self, name: str) -> str | None:
        """A variable's value; None if it is not set by the script, or only a run could tell."""
        pieces = self.environment.get(name)
        return text_of(pieces) if pieces is not None else None


def _of_launch(script: File, launch: Launch) -> TrainingJob | None:
    if launch.program is None:
        return None
    words = [(_text(word), word) for word in launch.arguments]
    count = launch.options.get("worker_num")
    unsure = count.unknown.name if count is not None and count.unknown is not None else ""
    known = launch.processes if launch.launcher.counts else 1
    return _job(script, launch, words, known, unsure)


def _of_launcher(script: File, one: Started) -> TrainingJob | None:
    """What ``bash scripts/msrun_launcher.sh "run_mindformer.py ..." 8`` starts."""
    at = next((number for number, word in enumerate(one.words[:3]) if _text(word).endswith(_LAUNCHER)), None)
    if at is None or at + 1 >= len(one.words):
        return None
    order, behind = one.words[at + 1], one.words[at + 2 :]
    text = _text(order)
    words = [(match[0], order) for match in re.finditer(r"\S+", text)]
    count = behind[0] if behind else None
    number = count.text if count is not None else str(_PROCESSES)
    unsure = count.unknown.name if count is not None and count.unknown is not None else ""
    processes = int(number) if number and number.isascii() and number.isdigit() and len(number) < 7 else None  # noqa: PLR2004
    return _job(script, one, words, processes, unsure)


def _text(word: Argument) -> str:
    """The letters of a word; what is unknown in it is one letter that no path has, and the folder of the start is a dot."""
    return "".join(
        piece.text if piece.unknown is None else "." if piece.unknown.name.strip() in _HERE else _UNKNOWN
        for piece in word.pieces
    )


def _job(
    script: File, started: Launch | Started, words: Sequence[tuple[str, Argument]], processes: int | None, unsure: str
) -> TrainingJob | None:
    given = dict(_options(words))
    if "config" not in given:
        return None
    text, word = given["config"][0]
    if not text.endswith((".yaml", ".yml")) and _UNKNOWN not in text:
        return None
    unknown = ""
    if _UNKNOWN in text:
        unknown = next((piece.unknown.name for piece in word.pieces if piece.unknown is not None), "?")
    path = None if unknown else find_above(script.path, text)
    if path is None and not (unknown or is_to_be_filled_in(text) or has_folder_above(script.path, text)):
        unknown = text  # not even its folder is here: the script stands alone
    overrides = dict(_overrides(given))
    return TrainingJob(script, word, path, unknown or unsure, processes, overrides, started.environment, started.place)


def _options(words: Sequence[tuple[str, Argument]]) -> Iterator[tuple[str, list[tuple[str, Argument]]]]:
    """The options of a command, each with the words behind it; ``--a=b`` is ``--a b``."""
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
    """A value as it is read: numbers and words for yes and no as what they are."""
    lowered = text.lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    try:
        return yaml.safe_load(text) if len(text) < 100 and not text.startswith(("&", "*", "!")) else text  # noqa: PLR2004
    except yaml.YAMLError:
        return text


class ScriptJob:
    """A launch script, read for one release of MindSpeed-LLM; nothing of it is run.

    Args:
        path: The script.
        text: Its text, where that is known.
        version: The release, where the user says so.

    Raises:
        ConfigError: It cannot be read.
    """

    def __init__(self, path: Path, text: str | None = None, *, version: str | None = None) -> None:
        self.path, self.version = path, version
        self.text = content(path) if text is None else text

    @cached_property
    def launches(self) -> Launches:
        """What it starts."""
        return read_launches(self.path, self.text)

    @cached_property
    def config_jobs(self) -> tuple[TrainingJob, ...]:
        """The jobs that it starts with configs."""
        if "--config" not in self.text:
            return ()
        found = self.launches
        jobs = [_of_launch(found.file, one) for one in found.launches]
        jobs += [_of_launcher(found.file, one) for one in found.others]
        return tuple(one for one in jobs if one is not None)

    def config_job(self) -> TrainingJob | None:
        """The first of them whose config is there."""
        return next((job for job in self.config_jobs if job.path is not None and job.path.is_file()), None)

    @cached_property
    def checkout(self) -> Checkout | None:
        """The repository that it lies in; None where there is none."""
        repository = find_repository(self.path)
        return Checkout(*repository) if repository else None

    @cached_property
    def release(self) -> str:
        """The release named by the user, that of the sources in which it lies, or else the one that takes the most of its arguments.

        Raises:
            ConfigError: What it does with layers is not known.
            UnsupportedError: There is none.
        """
        checkout = self.checkout
        if checkout is not None and checkout.own_parser is not None:
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
        """The programs of MindSpeed-LLM that it starts, with their arguments, in order."""
        found = (command_of(launch, self.release) for launch in self.launches.launches)
        return tuple(command for command in found if command is not None)
