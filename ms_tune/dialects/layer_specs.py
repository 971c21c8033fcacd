"""Lists of layers as the dynamic graph of MindFormers 2.0 and 2.1 writes them: ``5``, ``'5'``, ``'0-3'``.

The rules are those of ``_validate_layer_specs`` and ``_parse_layer_ids`` in
``mindformers/pynative/distributed/activation_checkpoint.py``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ms_tune.dialects.plan_result import stop

if TYPE_CHECKING:
    from collections.abc import Iterable

_SPEC = re.compile(r"(\d+)(?:-(\d+))?")
MOST_LAYERS = 100_000  # a range is spread out only up to here


def check_specs(specs: Any, label: str, layers: int, prefetch: int = 0) -> None:  # noqa: ANN401 - as the config has it
    """Check a list of layers, in order and without overlap, and write the plain texts back into it.

    Args:
        specs: The list; written into, as the framework does, so that what cannot be written into fails here.
        label: What the framework calls it.
        layers: Layers of the model, those of multi-token prediction included.
        prefetch: If not 0, no layer may be so close to the last one that this many layers on there is none.

    Raises:
        FrameworkStop: The framework raises.
    """
    if not specs:
        return
    previous = -1
    try:
        for index, spec in enumerate(specs):
            text, first, last = _check_spec(f"{label}[{index}]", spec, layers)
            specs[index] = text
            if first <= previous:
                stop(
                    "ValueError",
                    f"{label}: layer specs must be in strictly ascending order; spec[{index}] '{text}' starts at "
                    f"{first} but previous spec ends at {previous}",
                )
            previous = last
    except (TypeError, RuntimeError) as error:
        # Not a list: a text cannot be written into, a mapping grows while it is walked.
        stop(type(error).__name__, str(error))
    if prefetch and previous + prefetch >= layers:
        stop(
            "ValueError",
            f"{label}: max layer id {previous} plus prefetch {prefetch} exceeds num_layers ({layers}); "
            f"max allowed layer id is {layers - prefetch - 1}",
        )


def _check_spec(label: str, spec: object, layers: int) -> tuple[str, int, int]:
    text = str(spec).strip()
    match = _SPEC.fullmatch(text)
    if not match:
        stop(
            "ValueError",
            f"{label}: invalid layer spec {spec!r}; expected one non-negative integer or 'start-end' "
            "(e.g. '5', '0-19')",
        )
    try:
        first, last = int(match[1]), int(match[2] or match[1])
    except ValueError as error:  # thousands of digits
        stop("ValueError", str(error))
    if first > last:
        stop("ValueError", f"{label}: range start must be <= end, got {spec!r}")
    if last >= layers:
        stop("ValueError", f"{label}: layer id {last} out of range [0, {layers - 1}], got {spec!r}")
    return text, first, last


def parse_specs(specs: Any) -> list[int]:  # noqa: ANN401 - as the config has it
    """The layers of a list that may not have been checked, in ascending order.

    Raises:
        FrameworkStop: The framework raises.
    """
    found: set[int] = set()
    for spec in specs or ():
        first, last = _parse_spec(str(spec).strip())
        # Layers that no model has are dropped later, so there is no need to count up to them.
        found.update(range(max(first, -MOST_LAYERS), min(last, MOST_LAYERS) + 1))
    return sorted(found)


def _parse_spec(text: str) -> tuple[int, int]:
    first, dash, last = text.partition("-")
    try:
        return int(first.strip()), int((last if dash else first).strip())
    except ValueError as error:
        stop("ValueError", str(error))


def write_specs(layers: Iterable[int]) -> list[str]:
    """The shortest list for these layers: ``[0, 1, 2, 5]`` is ``['0-2', '5']``."""
    runs: list[list[int]] = []
    for layer in sorted(set(layers)):
        if runs and layer == runs[-1][1] + 1:
            runs[-1][1] = layer
        else:
            runs.append([layer, layer])
    return [str(first) if first == last else f"{first}-{last}" for first, last in runs]
