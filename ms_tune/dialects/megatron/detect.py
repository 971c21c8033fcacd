"""Detection of MindSpeed-LLM programs in scripts, and of the release for which a script is written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ms_tune.dialects.megatron.arguments import ProgramArguments, command_of, refused
from ms_tune.enums import Dialect
from ms_tune.errors import closest
from ms_tune.facts.megatron import names, parts_of, unregistered
from ms_tune.facts.query import release_for, served

if TYPE_CHECKING:
    from ms_tune.source.shell.read import Launches

# Words that occur only in scripts for MindSpore, and those only for PyTorch.
_MINDSPORE = re.compile(r"mindspore|msadapter|mindformer|\bmsrun\b|\bMS_[A-Z]", re.IGNORECASE)
_PYTORCH = re.compile(r"\btorch\.distributed\b|\b(?:PY)?TORCH_[A-Z]|torch_npu")
_PYTORCH_PROGRAMS = (
    "torchrun",
    "deepspeed",
    "accelerate",
)  # in other commands, such as `pkill -f torchrun`, they are words
# Words that occur in scripts for Ascend, and those for other devices (Transformer Engine, NCCL).
_ASCEND = re.compile(r"mindspeed|ascend|(?<![a-z])npu(?![a-z])|hccl|\bcann\b", re.IGNORECASE)
_OTHER_DEVICES = re.compile(r"nvidia|\bNVTE_|\bNCCL_|\btransformer_engine\b|\bCUDA_VISIBLE_DEVICES\b", re.IGNORECASE)
_SIMILAR = 0.8  # similarity of two names that differ in a letter or an ending
_COMMENT = re.compile(r"^\s*#.*$", re.MULTILINE)


def release_taking(found: Launches, among: Sequence[str] | None = None) -> str:
    """Return the release whose parser refuses the fewest arguments of a script.

    Among equals the default release wins, then the newest.
    """
    default, candidates = release_for(Dialect.MEGATRON).version, tuple(among or served(Dialect.MEGATRON))
    best = default if default in candidates else candidates[-1]
    least = _refused(found, best)
    for release in reversed(candidates):
        if not least:
            break
        count = _refused(found, release)
        if count < least:
            least, best = count, release
    return best


def _refused(found: Launches, release: str) -> int:
    commands = [command_of(launch, release) for launch in found.launches]
    given = [command for command in commands if command is not None]
    framework = any(launch.launcher.name == "msrun" for launch in found.launches) or any(
        command.value("ai_framework") == "mindspore" for command in given
    )
    return sum(len(list(refused(command))) + _left_out(command, with_mindspore=framework) for command in given)


def _left_out(command: ProgramArguments, *, with_mindspore: bool) -> int:
    """Count arguments that the parser would leave out, for a release whose parser was never queried.

    Up to 2.1 it accepts MindSpeed-LLM's own definitions (``parse_args_decorator``, ``process_args`` of
    ``mindspeed_llm/training/arguments.py``) and leaves out the rest of MindSpeed's. A script for MindSpore is probably
    for 2.2 or later: use the arguments left out by the oldest queried release, otherwise arguments removed later would
    count as evidence for the old release.
    """
    if unregistered(command.release):
        return 0
    if with_mindspore:
        oldest = next(one for one in served(Dialect.MEGATRON) if unregistered(one))
        return sum(one.name in unregistered(oldest) for one in command.items)
    return sum({row.part for row in one.definitions} == {"MindSpeed"} for one in command.items)


def starts_pytorch(found: Launches) -> bool:
    """Return whether a script starts a program of PyTorch, or mentions it, and does not mention MindSpore."""
    text = _COMMENT.sub("", found.file.text)
    started = {one.launcher.name for one in found.launches} | {one.words[0].text for one in found.others if one.words}
    names = {(name or "").rpartition("/")[2] for name in started}
    is_pytorch = bool(_PYTORCH.search(text)) or not names.isdisjoint(_PYTORCH_PROGRAMS)
    return is_pytorch and not _MINDSPORE.search(text)


def has_another_parser(text: str, command: ProgramArguments) -> bool:
    """Return whether a program is Megatron-LM's own or uses MindSpeed without MindSpeed-LLM: same names, other parsers."""
    return _is_of_megatron_alone(text, command) or _is_of_mindspeed_alone(text, command)


def _is_of_mindspeed_alone(text: str, command: ProgramArguments) -> bool:
    """Return whether a program is Megatron-LM's with MindSpeed but without MindSpeed-LLM.

    True if an argument of MindSpeed is given that MindSpeed-LLM's parser rejects, and neither an argument of
    MindSpeed-LLM's own nor any word of MindSpore occurs.
    """
    given = [one.name for one in command.items]
    if _MINDSPORE.search(_COMMENT.sub("", text)) or any(parts_of(name) == {"MindSpeed-LLM"} for name in given):
        return False
    left_out = (name for name, framework in unregistered(command.release).items() if not framework)
    return not set(given).isdisjoint(left_out)


def _is_of_megatron_alone(text: str, command: ProgramArguments) -> bool:
    """Return whether a program is Megatron-LM's own, which has another parser but shares its name with MindSpeed-LLM's.

    True if the script mentions neither Ascend nor MindSpore, no argument is MindSpeed's only, and it mentions other
    devices or has an argument unknown to all releases of MindSpeed-LLM.
    """
    words = _COMMENT.sub("", text)
    if _ASCEND.search(words) or _MINDSPORE.search(words):
        return False
    parts = {one.name: parts_of(one.name) for one in command.items}
    if any(found and "Megatron-LM" not in found for found in parts.values()):
        return False
    known = names(command.release)
    strange = (name for name, found in parts.items() if not found)
    return bool(_OTHER_DEVICES.search(words)) or any(not closest(name, known, _SIMILAR) for name in strange)
