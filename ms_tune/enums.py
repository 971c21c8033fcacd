"""The families of configs that ms-tune reads."""

from __future__ import annotations

from enum import Enum


class Dialect(str, Enum):
    """A family of configs read by one framework."""

    MINDFORMERS = "mindformers"
    MINDFORMERS_PYNATIVE = "mindformers-pynative"
    MINDSPEED_MS = "mindspeed-ms"
    MEGATRON = "megatron"  # arguments in launch scripts, and no YAML
    MINDSPEED_MM = "mindspeed-mm"  # PyTorch on Ascend: checked, not simulated


YAML_DIALECTS = tuple(one for one in Dialect if one not in (Dialect.MEGATRON, Dialect.MINDSPEED_MM))
CHECKED_DIALECTS = (*YAML_DIALECTS, Dialect.MINDSPEED_MM)  # those whose files can only be checked among them
