"""Sentences about a job at a glance that text and annotations share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.text import Message, msg
from ms_tune.units import gib

if TYPE_CHECKING:
    from ms_tune.report.console import Console
    from ms_tune.workflows.check.result import Matter, MemoryDifference, Overview

_LONGEST = 40  # characters of a value


def sentence(matter: Matter, console: Console) -> str:
    """What is the matter, in the user's language."""
    return console.say(matter.text) if isinstance(matter.text, Message) else matter.text.say(console.language)


def against(difference: MemoryDifference, console: Console) -> str:
    """What a change did to the memory, and the key that did it."""
    more = difference.after_bytes - difference.before_bytes
    estimated = console.text("check.base.estimated") if difference.estimated else ""
    sizes = {
        "after": gib(difference.after_bytes),
        "before": gib(difference.before_bytes),
        "more": gib(more),
        "limit": gib(difference.limit_bytes),
    }
    text = console.text(f"check.base.{difference.outcome}", stage=difference.stage, estimated=estimated, **sizes)
    if difference.estimated and difference.outcome == "over" and difference.before_bytes > difference.limit_bytes:
        text += console.text("check.base.unsure")
    blame = difference.blame
    if blame is None:
        return text
    key = ".".join(map(str, blame.path)) or console.text("check.base.line", line=blame.line)
    share = f"{blame.share:.0%}" if blame.share is not None else ""
    id_ = "check.base.key" if share else "check.base.changed" if blame.alone else "check.base.among"
    id_ = "check.base.together" if share and blame.together else id_
    others = ", ".join(".".join(map(str, path)) for path in blame.together)
    old, new = _short(blame.old, console), _short(blame.new, console)
    what = console.text(id_, key=key, old=old, new=new, share=share, others=others)
    return console.text("check.base.and", told=text, what=what)


def memory(overview: Overview) -> Message | None:
    """The sentence about a job's memory: the judge's where there was a dryrun, else the estimate."""
    worst = overview.worst
    if worst is not None:
        count = len({one.stage for one in overview.stages})
        return msg("check.verdict", stage=worst.stage, stages=count, sentence=worst.verdict.sentence)
    found = overview.estimate
    if found is not None:
        sizes = {"peak": gib(found.fullest.peak_bytes), "limit": gib(found.limit.bytes)}
        return msg(f"check.estimate.{found.outlook.value}", stage=found.fullest.stage, **sizes)
    reason = overview.no_estimate_because
    return None if reason is None else msg("check.estimate.none", reason=reason)


def _short(value: object, console: Console) -> str:
    text = console.text("check.base.absent") if value is None else str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
