"""Read what trainers print of their job before the first step: devices, samples and tokens, and the model's sizes."""

from __future__ import annotations

import json
import re
from io import BytesIO
from itertools import takewhile
from typing import Any

from ms_tune.facts.query import load
from ms_tune.readers.lines import find_lines, iterate_log_lines, split_rank
from ms_tune.records import Record

# HyperParallel prints its config and the model's (hyper_parallel/trainer/base.py at 0016d837: indented by two spaces).
_TRAINER, _MODEL = b"Trainer config:\n", b"Model config:\n"


class LoggedSettings(Record):
    """The settings of a job in its log; None if they are not printed, or printed with several values."""

    cards: int | None = None  # devices of the whole job
    batch: int | None = None  # samples per step, over all devices
    tokens: int | None = None  # of a sample
    model: dict[str, Any] | None = None  # the model's config.json
    recompute: str | None = None  # HyperParallel's activation_checkpoint.mode; `off` for null


def read_settings(head: bytes) -> LoggedSettings:
    """Read the settings from the beginning of a log."""
    head = head.replace(b"\r\n", b"\n")
    rules = load("step_lines")["settings"]
    lines = [split_rank(text)[1] for _, text, _ in find_lines(head, 1, [word.encode() for word in rules["words"]])]
    found: dict[str, Any] = {}
    for name in ("cards", "batch", "tokens"):
        patterns = [re.compile(rule["line"]) for rule in rules[name]]
        values = {
            int(match[1].replace(",", "")) for line in lines for pattern in patterns if (match := pattern.search(line))
        }
        found[name] = values.pop() if len(values) == 1 else None
    if any(re.search(rule["line"], line) for rule in rules["unequal"] for line in lines):
        found["tokens"] = None
    trainer, model = (_read_printed(head, title) for title in (_TRAINER, _MODEL))
    checkpoint = (trainer or {}).get("activation_checkpoint")
    mode = str(checkpoint.get("mode") or "off") if isinstance(checkpoint, dict) else None
    return LoggedSettings(**found, model=model, recompute=mode)


def _read_printed(head: bytes, title: bytes) -> dict[str, Any] | None:
    # The prefix of a launcher is before each line.
    if head.count(title) != 1:
        return None
    after = iterate_log_lines(BytesIO(head[head.index(title) + len(title) :]))
    try:
        printed = json.loads("\n".join((*takewhile(lambda line: line != "}", after), "}")))
    except (ValueError, RecursionError):  # cut off, or mixed with lines of another process
        return None
    return printed if isinstance(printed, dict) else None
