"""How a rule says that the framework stops: its own words, the file that has them, and why."""

from __future__ import annotations

from typing import NoReturn

from ms_tune.dialects.plan_result import stop
from ms_tune.facts.query import load
from ms_tune.text import msg


def fail(name: str, /, **values: object) -> NoReturn:
    """The framework raises.

    Args:
        name: Which of ``facts/data/megatron_refusals.json``: where in its sources, which exception with which text, and the last
            part of a text ``megatron_layers.why.*``, which says what is to be done, if that is not the name.
        values: What the words are about.
    """
    one = load("megatron_refusals")["refusals"][name]
    why = msg(f"megatron_layers.why.{one.get('why', name)}")
    file = one["file"].format(**values)
    stop(
        one["error"].format(**values), one["text"].format(**values), msg("megatron_layers.in-file", file=file, why=why)
    )


def require(holds: object, name: str, /, **values: object) -> None:
    """What has to hold, or else the framework stops as in :func:`fail`."""
    if not holds:
        fail(name, **values)
