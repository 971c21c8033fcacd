"""Which release of MindSpeed-LLM a script is written for, as far as its arguments tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.dialects.megatron.arguments import command_of, refused
from ms_tune.enums import Dialect
from ms_tune.facts.megatron import unregistered
from ms_tune.facts.releases import release_for, served

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ms_tune.dialects.megatron.arguments import ProgramArguments
    from ms_tune.source.shell.read import Launches


def release_taking(found: Launches, among: Sequence[str] | None = None) -> str:
    """The release whose parser refuses the fewest of the arguments that a script gives; the default, or else the newest, if none refuses fewer.

    Of several other releases, it is the newest.

    Args:
        found: What the script starts.
        among: The releases that come into question, the oldest first; all that are served if none are given.
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
    """How many arguments a release refuses, in all commands of a script."""
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
