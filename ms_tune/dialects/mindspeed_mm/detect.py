"""Detection of MindSpeed-MM files by their content."""

from __future__ import annotations

_YAML = ("fsdp_plan", "fully_shard_parallel_size", "ulysses_parallel_size", "ring_attention_size")
_TOOLS = ("memory_profile", "sorafeature")


def is_config(data: object) -> bool:
    """Return whether the values are an FSDP2 YAML of MindSpeed-MM; MindSpeed-LLM's have other sections."""
    if not isinstance(data, dict):
        return False
    parallel = data.get("parallel")
    inside = isinstance(parallel, dict) and any(name in parallel for name in _YAML)
    return inside and any(isinstance(data.get(name), dict) for name in ("training", "features", "tools", "data"))


def is_tools(data: object) -> bool:
    """Return whether the values are a ``tools.json`` (``mindspeed_mm/tools/tools.json``)."""
    if not isinstance(data, dict) or any(name in data for name in ("parallel", "training", "model")):
        return False
    profile = data.get("profile")
    static = isinstance(profile, dict) and "profile_type" in profile
    return static or all(isinstance(data.get(name), dict) for name in ("profile", _TOOLS[0]))
