"""Numbers of layers that stand under a name which the model's class does not use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.facts.models import ModelConfig


def second_names(model: ModelConfig) -> Iterator[Diagnostic]:
    """Second names for a number of layers that the class has in any case: the framework stops when it converts the model's config.

    It has placed nothing by then, so that what layers would do is told all the same. Seen in 1.7 to 2.1 of MindFormers
    (``parallel_core/config_converter.py``): 'Mapping Conflicts', up to 1.8 'Multiple Config'.

    Args:
        model: The model of a config of MindFormers.
    """
    for name in ("num_layers", "mtp_num_layers"):
        for own, field in model.clashes_of(name):
            second = (field.path or (field.name,))[-1]
            message = msg("normalize.second-name", own=own, second=second)
            yield Diagnostic("second-name", Severity.ERROR, message, msg("normalize.second-name.hint", own=own))
