"""Which program a script starts, MindSpeed-LLM's or another one, and which release it is written for, as far as its words tell."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ms_tune.dialects.megatron.arguments import command_of, refused
from ms_tune.enums import Dialect
from ms_tune.errors import closest
from ms_tune.facts.megatron import names, parts_of, unregistered
from ms_tune.facts.query import release_for, served

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ms_tune.dialects.megatron.arguments import ProgramArguments
    from ms_tune.source.shell.read import Launches

# What only stands in scripts around MindSpore, and what only stands in those around PyTorch.
_MINDSPORE = re.compile(r"mindspore|msadapter|mindformer|\bmsrun\b|\bMS_[A-Z]", re.IGNORECASE)
_PYTORCH = re.compile(
    r"\btorchrun\b|\btorch\.distributed\b|\bdeepspeed\b|\baccelerate\b|\b(?:PY)?TORCH_[A-Z]|torch_npu"
)
# What stands in scripts for Ascend, and what in those for other devices (Transformer Engine, NCCL).
_ASCEND = re.compile(r"mindspeed|ascend|(?<![a-z])npu(?![a-z])|hccl|\bcann\b", re.IGNORECASE)
_OTHER_DEVICES = re.compile(r"nvidia|\bNVTE_|\bNCCL_|\btransformer_engine\b|\bCUDA_VISIBLE_DEVICES\b", re.IGNORECASE)
_SIMILAR = 0.8  # of two names: a letter or a word's ending differs
_COMMENT = re.compile(r"^\s*#.*$", re.MULTILINE)


def release_taking(found: Launches, among: Sequence[str] | None = None) -> str:
    """The release whose parser refuses the fewest of the arguments that a script gives; the default, or else the newest, if none refuses fewer.

    Of several other releases, it is the newest.
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
    """How many arguments the parser would leave out that are in the sources, of a release whose parser was never asked.

    Until 2.1 it takes what MindSpeed-LLM itself defines (``parse_args_decorator``, ``process_args`` of
    ``mindspeed_llm/training/arguments.py``) and leaves out the rest of MindSpeed's. A script for MindSpore is most likely for 2.2 and
    later: there it is taken to leave out what the oldest one leaves out that was asked, else whatever a later release does not
    take any more would speak for it.
    """
    if unregistered(command.release):
        return 0
    if with_mindspore:
        oldest = next(one for one in served(Dialect.MEGATRON) if unregistered(one))
        return sum(one.name in unregistered(oldest) for one in command.given)
    return sum({row.part for row in one.definitions} == {"MindSpeed"} for one in command.given)


def is_pytorch(text: str) -> bool:
    """Whether something in a script is about PyTorch, and nothing about MindSpore."""
    words = _COMMENT.sub("", text)
    return bool(_PYTORCH.search(words)) and not _MINDSPORE.search(words)


def has_another_parser(text: str, command: ProgramArguments) -> bool:
    """Whether a program is Megatron-LM's own, or has MindSpeed without MindSpeed-LLM: their parsers are others, and the names the same."""
    return _is_of_megatron_alone(text, command) or _is_of_mindspeed_alone(text, command)


def _is_of_mindspeed_alone(text: str, command: ProgramArguments) -> bool:
    """Whether a program is Megatron-LM's with MindSpeed, but without MindSpeed-LLM, whose parser leaves arguments of MindSpeed out.

    An argument of MindSpeed is given that the parser of MindSpeed-LLM does not take, none that is MindSpeed-LLM's own, and nothing is
    of MindSpore, for which there is nothing else.
    """
    given = [one.name for one in command.given]
    if _MINDSPORE.search(_COMMENT.sub("", text)) or any(parts_of(name) == {"MindSpeed-LLM"} for name in given):
        return False
    left_out = (name for name, framework in unregistered(command.release).items() if not framework)
    return not set(given).isdisjoint(left_out)


def _is_of_megatron_alone(text: str, command: ProgramArguments) -> bool:
    """Whether a program is Megatron-LM's own, whose parser is another: MindSpeed-LLM's have the same names.

    Nothing in the script is about Ascend or MindSpore, no argument is one that only MindSpeed has, and something is of
    other devices, or is an argument that no release of MindSpeed-LLM has.
    """
    words = _COMMENT.sub("", text)
    if _ASCEND.search(words) or _MINDSPORE.search(words):
        return False
    parts = {one.name: parts_of(one.name) for one in command.given}
    if any(found and "Megatron-LM" not in found for found in parts.values()):
        return False
    known = names(command.release)
    strange = (name for name, found in parts.items() if not found)
    return bool(_OTHER_DEVICES.search(words)) or any(not closest(name, known, _SIMILAR) for name in strange)
