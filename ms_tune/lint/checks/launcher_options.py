"""What launchers refuse of their own options, whatever program they start (:mod:`ms_tune.facts.launchers`)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ms_tune.dialects.check_context import Violation
from ms_tune.errors import closest
from ms_tune.facts.megatron import programs
from ms_tune.lint.environment.settings import EnvironmentSource
from ms_tune.source import SCRIPTS
from ms_tune.source.shell.once import launches_in
from ms_tune.source.yaml_nodes import Document

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.dialects.check_context import CheckContext
    from ms_tune.source.shell.read import Launch
    from ms_tune.source.shell.values import Argument

LAUNCHERS = ("msrun", "torchrun", "torch.distributed.launch")
_HELP = ("h", "help")
_SIMILAR = 0.8  # of two names: a letter or a word's ending differs
_WHOLE = re.compile(r"\s*[+-]?\d+(?:_\d+)*\s*", re.ASCII)  # what Python's `int` reads
_ALL, _LOCAL = "worker_num", "local_worker_num"


def refused(context: CheckContext) -> Iterator[Violation]:
    """Options of ``msrun`` and ``torchrun`` that there are not, and values that ``msrun`` refuses.

    Programs of Megatron-LM are left to the checks of their own dialect.
    """
    source = context.source
    if not isinstance(source, EnvironmentSource) or source.path.suffix not in SCRIPTS:
        return
    document = Document(source.text, source.path)
    for launch in launches_in(source.path, source.text).launches:
        if launch.launcher.name not in LAUNCHERS or launch.name in programs() or launch.place.file.path != source.path:
            continue
        for word, message, params in (*_unknown(launch), *_values(launch)):
            place = word.place if word is not None and word.place.file.path == source.path else launch.place
            named = {"launcher": launch.launcher.name, **params}
            yield Violation((), message, named, span=document.span(place.start, place.end))


def unknown(launch: Launch) -> Iterator[tuple[Argument | None, str, str]]:
    """Options that the launcher does not have, as they are written, each with the word behind it and the option that it is nearly."""
    for name, word in launch.options.items():
        if _whole_name(launch, name):
            continue
        similar = closest(name.lstrip("-"), sorted(_known(launch)), _SIMILAR)
        yield word, name if name.startswith("-") else f"--{name}", f"--{similar}" if similar else ""


def _known(launch: Launch) -> set[str]:
    return {*launch.launcher.values, *launch.launcher.switches, *_HELP}


def _whole_name(launch: Launch, name: str) -> str | None:
    """The option that a name stands for, which argparse lets one cut short as long as no other begins like that."""
    known = _known(launch)
    begun = [name] if name in known else [one for one in known if one.startswith(name)]
    return begun[0] if len(begun) == 1 else None


def _unknown(launch: Launch) -> Iterator[tuple[Argument | None, str, dict[str, object]]]:
    for word, written, similar in unknown(launch):
        yield word, "similar" if similar else "default", {"name": written, "similar": similar}


def _values(launch: Launch) -> Iterator[tuple[Argument | None, str, dict[str, object]]]:
    """Values that ``msrun`` does not take (``parallel/cluster/run.py``, ``process_entity/_api.py``, MindSpore 2.9)."""
    for written, word in launch.options.items():
        name, text = _whole_name(launch, written), word.text if word is not None else None
        if text is None or name is None:
            continue
        choices = launch.launcher.choices.get(name)
        if name in launch.launcher.whole and not _WHOLE.fullmatch(text):
            yield word, "number", {"name": f"--{name}", "text": text}
        elif choices and text.strip() not in choices:
            yield word, "choice", {"name": f"--{name}", "text": text, "choices": ", ".join(choices)}
    if launch.launcher.name == "msrun":
        every, local = (_number(launch, name) for name in (_ALL, _LOCAL))
        if every is not None and every < 1:
            yield launch.options[_ALL], "none", {"name": f"--{_ALL}", "text": every}
        elif every is not None and local is not None and local > every:
            yield launch.options.get(_LOCAL) or launch.options.get(_ALL), "more", {"local": local, "every": every}


def _number(launch: Launch, name: str) -> int | None:
    """What ``msrun`` is told, or takes where it is told nothing; None where only a run could tell."""
    if name not in launch.options:
        return int(launch.launcher.values[name] or 0)
    word = launch.options[name]
    text = word.text if word is not None else None
    return int(text) if text is not None and _WHOLE.fullmatch(text) else None
