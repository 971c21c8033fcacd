"""Match the words in which frameworks, drivers and operating systems report a failed allocation (``data/out_of_memory.json``).

A form is a regular expression in which ``{wanted}`` matches a size with the name `wanted`: ``3.00 GiB``, ``4096``,
``58M``. Names are `wanted`, `free`, `used` (by tensors), that of the framework's reserved bytes, `cached` (reserved, not used),
`limit`, `allowed` (a fraction that the user set), `event` (waiting for an event), `total` and `unused` (of the device at start).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from ms_tune.facts.query import load
from ms_tune.records import Record
from ms_tune.units import GIB, KIB, MIB

_UNITS = {"K": KIB, "M": MIB, "G": GIB, "T": 1024**4, "P": 1024**5, "E": 1024**6}
_NAMES = re.compile(r"\{(wanted|free|used|held|cached|limit|allowed|event|total|unused)(\d?)\}")
_SIZE = r"(?P<NAME>(?!0x)\d{1,18}(?:\.\d{1,6})?(?: ?(?:[KMGTPE]i?B?|kB|bytes|B)\b)?)"
_SIZE_PARTS = re.compile(r"([\d.]+) ?([a-zA-Z]?)")


class Form(Record):
    """A wording of a failed allocation, or of figures that complete it."""

    framework: str
    words: tuple[str, ...]  # one of them is in the text, regardless of case
    also: tuple[str, ...]  # one of these, too, if there are any: the words are frequent
    pattern: re.Pattern[str]
    cause: str  # the cause that the words themselves report; empty if the figures decide
    unit: str  # of sizes without one
    sizes: Mapping[str, int]  # bytes that the words imply
    all_free: bool  # whether nothing cached by the framework could have served the request
    parts: tuple[re.Pattern[str], ...]  # figures anywhere in the text, which may continue on later lines
    is_guess: bool  # whether the words only suggest a failed allocation


class Match(Record):
    """A form that a text matches."""

    form: Form
    start: int  # where the words begin
    sizes: dict[str, int]  # bytes by name
    labels: dict[str, str]  # `operator`, `device`, `rank`: those that the text has


def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(_NAMES.sub(lambda name: _SIZE.replace("NAME", name[1] + name[2]), pattern))


@cache
def load_forms(kind: str = "forms") -> tuple[Form, ...]:
    """Return the forms of failed allocations, the most specific first, or the ``figures`` that complete them."""
    data = load("out_of_memory")
    parts = {name: tuple(map(_compile, patterns)) for name, patterns in data["parts"].items()}
    return tuple(
        Form(
            one.get("framework", ""),
            tuple(word.lower() for word in one["words"]),
            tuple(one.get("also", ())),
            _compile(one["pattern"]),
            one.get("cause", ""),
            one.get("unit", ""),
            one.get("sizes", {}),
            one.get("all_free", False),
            parts.get(one.get("parts", ""), ()),
            one.get("guess", False),
        )
        for one in data[kind]
    )


@cache
def list_words() -> Mapping[tuple[str, ...], tuple[str, ...]]:
    """Return the words of which a line that matches a form has one, by the further words (``also``) of which it has one, too."""
    found: dict[tuple[str, ...], dict[str, None]] = {}
    for form in (*load_forms(), *load_forms("figures")):
        found.setdefault(form.also, {}).update(dict.fromkeys(form.words))
    return {also: tuple(words) for also, words in found.items()}


def _has_words(form: Form, low: str) -> bool:
    return any(word in low for word in form.words) and (not form.also or any(word in low for word in form.also))


def match_failure(text: str) -> Match | None:
    """Return the first form of a failed allocation that a text matches; None if there is none."""
    low = text.lower()
    for form in load_forms():
        if _has_words(form, low) and (match := read_form(form, text)) is not None:
            return None if re.search("|".join(load("out_of_memory")["harmless"]), text) else match
    return None


def match_figures(text: str) -> Match | None:
    """Return the figures in a text that complete a failed allocation reported elsewhere."""
    low = text.lower()
    for form in load_forms("figures"):
        if _has_words(form, low) and (match := read_form(form, text)) is not None:
            return match
    return None


def read_form(form: Form, text: str) -> Match | None:
    """Return the figures of one form in a text; None if it does not match."""
    found = form.pattern.search(text)
    if found is None:
        return None
    groups = found.groupdict()
    for part in form.parts:
        if match := part.search(text, found.start()):
            groups.update(match.groupdict())
    sizes, labels = dict(form.sizes), {}
    for name, value in groups.items():
        if value and name in ("operator", "device", "rank"):
            labels[name] = value
        elif value:
            number, own = _SIZE_PARTS.findall(value)[0]
            sizes[name.rstrip("0123456789")] = round(float(number) * _UNITS.get((own or form.unit)[:1].upper(), 1))
    return Match(form, found.start(), sizes, labels)


def find_job(said: str) -> str:
    """Return the framework of the job that wrote a log; empty if unknown."""
    return next(
        (job["name"] for job in load("out_of_memory")["jobs"] if any(mark in said for mark in job["marks"])), ""
    )


def is_inference(job: str, frames: Iterable[str]) -> bool:
    """Return whether a job runs a model without training it, by its framework or the files of its stack."""
    data = load("out_of_memory")
    known = any(one["name"] == job and one.get("inference") for one in data["jobs"])
    return known or any(mark in frame for frame in frames for mark in data["inference"])


class Remedy(Record):
    """A way to avoid a failed allocation."""

    name: str
    how: str  # the setting, in the words of the job's framework; empty without a single one
    is_set: bool  # whether the log shows that it is set already


def find_phase(said: str) -> str:
    """Return the work of a job apart from training, by the files and functions of its stack: `loading`, `saving`, `evaluation`."""
    return next((name for name, marks in load("out_of_memory")["phases"].items() if re.search(marks, said)), "")


def choose_remedies(
    causes: Sequence[str], keys: Sequence[str], said: str, *, training: bool, phase: str
) -> tuple[Remedy, ...]:
    """Return the remedies for some causes that a job's framework allows.

    ``keys`` are names of the job's framework and of its device, the most specific first; ``said`` is what the log says of the
    job's settings; for a ``phase`` apart from training (`find_phase`) the needs of a step do not matter.
    """
    said = re.sub("|".join(load("out_of_memory")["advice"]), "", said)
    found = []
    for one in load("out_of_memory")["remedies"]:
        how = next((one["how"][key] for key in (*keys, "*") if key in one["how"]), None)
        if (
            how is None
            or not (how or one.get("keyless"))
            or one.get("training", training) is not training
            or one.get("phase", phase) != phase
            or (one.get("running") and phase)
        ):
            continue
        if any(cause in one["causes"] for cause in causes) and _is_allowed(one, said):
            value, is_set = _choose_value(one, said)
            found.append(Remedy(one["name"], how.replace("{}", value), is_set))
    return tuple(found)


def _choose_value(one: Mapping[str, Any], said: str) -> tuple[str, bool]:
    # The value after the one in the log, such as twice as many cards; whether the log has all that can be had.
    if "now" not in one:
        return "", "set" in one and re.search(one["set"], said) is not None
    found = re.search(one["now"], said)
    if found is None:
        return one["unset"], False
    step = one.get("step", 0)
    value = round(float(found[1]) * one.get("times", 1) + step, 2)
    is_last = value < one["last"] if step < 0 else value > one["last"]
    return found[1] if is_last else f"{value:g}", is_last


def _is_allowed(remedy: Mapping[str, Any], said: str) -> bool:
    if "only" in remedy and not re.search(remedy["only"], said):
        return False
    return "unless" not in remedy or not re.search(remedy["unless"], said)
