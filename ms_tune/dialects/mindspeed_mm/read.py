"""Read MindSpeed-MM jobs for checks: launch scripts with the JSON files that they name, and YAML settings.

Paths are relative to the folder where the script is started, usually the repository root: a file counts as present if
it is in the script's folder or in a parent of it. Nothing is run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, wraps
from typing import TYPE_CHECKING

from ms_tune.diagnostics import KeyPath, Location
from ms_tune.dialects.check_context import CheckContext, Violation
from ms_tune.dialects.megatron.arguments import command_in, value_of
from ms_tune.dialects.megatron.commands import LaunchSource, arguments_of, spell_argument
from ms_tune.errors import ConfigError
from ms_tune.facts.mindspeed_mm import SECTIONS, MultimodalSetting, ever, settings
from ms_tune.facts.models import UNKNOWN
from ms_tune.source.shell.read import MAX_BYTES, Launch, Launches, assignments, find_above, is_to_be_filled_in
from ms_tune.source.shell.values import Argument
from ms_tune.source.yaml import SourceFile, load_source
from ms_tune.units import whole_number

if TYPE_CHECKING:
    from pathlib import Path

TENSOR, PIPELINE = "--tensor-model-parallel-size", "--pipeline-model-parallel-size"
CONTEXT, FSDP2 = "--context-parallel-size", "--fsdp2-config-path"
_FILES = ("--mm-model", "--mm-data", "--mm-tool", FSDP2)
_TRAINERS = ("fsdp/train/trainer.py", "pretrain_transformers.py")  # programs whose first argument may be a YAML
_ENDINGS = (".json", ".yaml", ".yml")
_ARGUMENTS_OF = "26.1"  # release of MindSpeed-LLM whose Megatron options are used here


class MultimodalSource(LaunchSource):
    """One command of a script, which starts a program of MindSpeed-MM."""

    @cached_property
    def variables(self) -> dict[str, str]:
        """Map the script's plain-text variables to their last values."""
        return {one.assignment.name: one.text for one in assignments(self.script.text) if one.text is not None}

    def value_of(self, name: str) -> str | None:
        """Return the value of an option; None if it is missing or only known at run time."""
        given = self.command.last_of(name)
        return given.values[0].text if given is not None and given.values else None

    def integer(self, name: str, default: int | None = None) -> int | None:
        """Return an option's whole number or its default; None if it is only known at run time."""
        if self.command.last_of(name) is None:
            return None if self.command.open else default
        text = self.value_of(name)
        return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 10 else None  # noqa: PLR2004

    def look_up(self, name: str) -> tuple[object, KeyPath | None]:
        """Return the value and key path of a name, including ``launch.variable.X`` and ``file.OPTION.x``."""
        room, _, rest = name.partition(".")
        option, _, path = rest.partition(".")
        if room == "file":
            found = self.file(option if option == "config" else spell_argument(option))
            if found is None:
                return UNKNOWN, None
            return (found.get(tuple(path.split("."))) if path else found.path.name), None
        if option == "variable":
            text = self.variables.get(path)
            number = None if text is None else whole_number(text)
            return (UNKNOWN if text is None else text if number is None else number), None
        given = self.command.last_of(spell_argument(rest))
        if room == "launch" or given is None:
            return super().look_up(name)
        first = given.values[: given.nargs]  # later values do not count
        return value_of(replace(given, values=first)), (given.name,)

    def files(self) -> Iterator[tuple[str, Argument, Path | None]]:
        """Yield each file that the program is given: its option, its word, and its path (None if not found).

        Placeholders and names that are only known at run time are left out.
        """
        named = [(one.name, one.values[0]) for one in self.command.items if one.name in _FILES and one.values]
        if takes_yaml(self.command.launch):
            named += [("config", one) for one in self.command.launch.arguments[:1]]
        for name, word in named:
            text = word.text
            if text is None and word.pieces[-1].text.startswith("/"):  # below a folder that the script computes
                rest = word.pieces[-1].text[1:]
                path = find_above(self.path, rest) if rest.endswith(_ENDINGS) else None
                yield from [(name, word, path)] if path is not None else []
            elif text and text.endswith(_ENDINGS) and not is_to_be_filled_in(text):
                yield name, word, find_above(self.path, text)

    def file(self, name: str) -> SourceFile | None:
        """Return the content of the file that an option names; None if it cannot be read."""
        if name not in self._read:
            path = next((path for option, _, path in self.files() if option == name), None)
            try:
                is_read = path is not None and path.stat().st_size <= MAX_BYTES
                self._read[name] = load_source(path) if path is not None and is_read else None
            except (ConfigError, OSError):
                self._read[name] = None
        return self._read[name]

    @cached_property
    def _read(self) -> dict[str, SourceFile | None]:
        return {}


def multimodal_commands(found: Launches, text: str) -> tuple[MultimodalSource, ...]:
    """Return the MindSpeed-MM programs that a script starts, each with its arguments."""
    if "--mm-" not in text and not any(one in text for one in _TRAINERS):
        return ()
    return tuple(
        arguments_of(found, number, command_in(launch, _ARGUMENTS_OF), MultimodalSource)
        for number, launch in enumerate(found.launches)
        if _is_multimodal(launch)
    )


def _is_multimodal(launch: Launch) -> bool:
    return takes_yaml(launch) or any((word.text or "").startswith("--mm-") for word in launch.arguments)


def takes_yaml(launch: Launch) -> bool:
    """Return whether a program's first argument is its YAML, perhaps one that is only known at run time."""
    program = launch.program.text if launch.program is not None else None
    first = launch.arguments[0].text if launch.arguments else ""  # None if it is known at run time only: "$1"
    return (program or "").endswith(_TRAINERS) and (first is None or first.endswith(_ENDINGS))


def of_scripts(
    check: Callable[[MultimodalSource], Iterator[Violation]],
) -> Callable[[CheckContext], Iterator[Violation]]:
    """Limit a check to the commands of scripts; it skips all other files of this dialect."""

    @wraps(check)
    def check_script(context: CheckContext) -> Iterator[Violation]:
        if isinstance(context.source, MultimodalSource):
            yield from check(context.source)

    return check_script


def violation_at(
    source: MultimodalSource, option: str, params: Mapping[str, object] | None = None, *, span: Location | None = None
) -> Violation:
    """Build a violation located at an option, or else at the program."""
    given = source.command.last_of(option)
    if span is None and given is not None:
        span = source.span_of(given.values[0] if given.values else given.word)
    if span is None and source.command.launch.program is not None:
        span = source.span_of(source.command.launch.program)
    return Violation((option,), params=params or {}, span=span)


def iterate_settings(context: CheckContext) -> Iterator[tuple[tuple[str, ...], object]]:
    """Yield every key of the sections with declared keys, with its path; keys below an unknown one are left out."""
    for section in SECTIONS:
        yield from _below((section,), context.source.data.get(section))


def _below(path: tuple[str, ...], values: object) -> Iterator[tuple[tuple[str, ...], object]]:
    for key, value in values.items() if isinstance(values, dict) else ():
        here = (*path, str(key))
        yield here, value
        dotted = ".".join(here)
        if any(one.startswith(f"{dotted}.") for one in ever()):
            yield from _below(here, value)


def declared_settings(context: CheckContext) -> Iterator[tuple[tuple[str, ...], object, MultimodalSetting]]:
    """Yield every key that the release declares, with its path, value and declaration."""
    release = context.version
    model = (((("model", str(key)), value)) for key, value in context.mapping("model").items())
    for path, value in (*iterate_settings(context), *model):
        setting = settings(release).get(".".join(path))
        if setting is not None:
            yield path, value, setting
