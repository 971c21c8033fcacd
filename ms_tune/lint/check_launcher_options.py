"""What launchers refuse of their own options, whatever program they start (:mod:`ms_tune.facts.launchers`)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ms_tune.dialects.check_context import Violation
from ms_tune.facts.megatron import programs
from ms_tune.lint.environment.settings import EnvironmentSource

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.dialects.check_context import CheckContext
    from ms_tune.source.shell.read import Launch
    from ms_tune.source.shell.values import Argument

LAUNCHERS = ("msrun", "torchrun", "torch.distributed.launch")
_WHOLE = re.compile(r"\s*[+-]?\d+(?:_\d+)*\s*", re.ASCII)  # what Python's `int` reads
_ALL, _LOCAL = "worker_num", "local_worker_num"


def refused(context: CheckContext) -> Iterator[Violation]:
    """Options of ``msrun`` and ``torchrun`` that there are not, and values that ``msrun`` refuses.

    Programs of Megatron-LM are left to the checks of their own dialect.
    """
    source = context.source
    if not isinstance(source, EnvironmentSource) or source.script is None:
        return
    for launch in source.script.launches.launches:
        if launch.launcher.name not in LAUNCHERS or launch.name in programs() or launch.place.file.path != source.path:
            continue
        for word, message, params in (*_unknown(launch), *_values(launch)):
            place = word.place if word is not None and word.place.file.path == source.path else launch.place
            named = {"launcher": launch.launcher.name, **params}
            yield Violation((), message, named, span=source.lines.span(place.start, place.end))


def _unknown(launch: Launch) -> Iterator[tuple[Argument | None, str, dict[str, object]]]:
    for word, written, similar in launch.unknown_options():
        yield word, "similar" if similar else "default", {"name": written, "similar": similar}


def _values(launch: Launch) -> Iterator[tuple[Argument | None, str, dict[str, object]]]:
    """Values that ``msrun`` does not take (``parallel/cluster/run.py``, ``process_entity/_api.py``, MindSpore 2.9)."""
    for written, word in launch.options.items():
        name, text = launch.option_named(written), word.text if word is not None else None
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
