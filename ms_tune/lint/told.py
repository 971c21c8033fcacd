"""What a config is checked as: by its keys, or because the user says so, and what there is to say about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ms_tune.enums import Dialect
from ms_tune.facts.mindspeed_mm import is_config, is_tools
from ms_tune.job.detect import is_fragment
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ms_tune.diagnostics import Diagnostic
    from ms_tune.job.detect import Recognition
    from ms_tune.job.job import Job
    from ms_tune.source.yaml import SourceFile
    from ms_tune.text import Message


class Told(NamedTuple):
    """What a config is checked as."""

    dialect: Dialect | None  # the dialect; None if it is not checked
    reason: Message | None = None  # why it is not checked
    notes: tuple[Message, ...] = ()  # what the user should know
    fragment: bool = False  # whether it is a part of a config only


def told(job: Job, asked: Dialect | None, *, firmly: bool) -> Told:
    """What a config is checked as.

    Args:
        job: The config's job.
        asked: The dialect that the user names.
        firmly: Whether that holds for files of other programs, too.
    """
    found, values, path = job.recognition, job.whole.data, job.written.path
    if asked in (None, Dialect.MINDSPEED_MM) and _is_multimodal(values, found):
        return Told(Dialect.MINDSPEED_MM)
    if asked is Dialect.MINDSPEED_MM:
        return Told(None, msg("lint.not-multimodal"))
    why_not = found.why_not
    if asked is None or (found.foreign is not None and not firmly):
        if found.dialect is None:
            unknown = msg("lint.ambiguous" if found.evidence else "lint.not-a-config")
            return Told(None, msg("lint.not-checked", reason=why_not) if why_not else unknown)
        unsure = msg("lint.unsure", file=path, dialect=found.dialect.value)
        return _as(path, values, found.dialect, () if found.confident else (unsure,))
    notes: tuple[Message, ...] = ()
    if why_not is not None:
        notes = (msg("lint.overruled", file=path, reason=why_not, dialect=asked.value),)
    return _as(path, values, asked, notes)


def _is_multimodal(values: object, found: Recognition) -> bool:
    """Whether a file is one of MindSpeed-MM's that are checked: an FSDP2 YAML, or a ``tools.json``."""
    if found.dialect is not None:
        return False
    return is_tools(values) or (is_config(values) and found.foreign in (None, Dialect.MINDSPEED_MM.value))


def _as(path: Path, values: object, dialect: Dialect, notes: tuple[Message, ...]) -> Told:
    fragment = is_fragment(values, dialect)
    if fragment:
        notes = (*notes, msg("lint.fragment", file=path, dialect=dialect.value))
    return Told(dialect, None, notes, fragment)


def present(source: SourceFile, findings: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """The findings about what is in a file, and not about what is missing in it."""
    return tuple(one for one in findings if source.position(one.path) is not None)
