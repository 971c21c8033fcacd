"""Detection of MindSpeed-MM files by their content."""

from __future__ import annotations

_YAML = ("fsdp_plan", "fully_shard_parallel_size", "ulysses_parallel_size", "ring_attention_size")
_TOOLS = ("memory_profile", "sorafeature")
# Features that 26.0 reads under `model` or `parallel`, later releases under `features`.
FEATURE_SECTIONS = {
    "parallel": ("recompute", "recompute_plan"),
    "model": (
        *(
            "recompute",
            "recompute_plan",
            "loss_cfg",
            "enable_chunk_loss",
            "chunkloss_plan",
            "enable_activation_offload",
        ),
        *("activation_offload_plan", "enable_chunk_mbs", "chunkmbs_plan", "enable_dynamic_chunk_loss"),
    ),
}
_BEFORE_FEATURES = "26.0"


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


def release_of(data: dict[str, object]) -> str | None:
    """Return the release that reads a config's features at their place, if that is not the default: all are where 26.0 has them."""
    sections = {name: data.get(name) for name in FEATURE_SECTIONS}
    is_old = any(
        section.get(key)
        for name, section in sections.items()
        if isinstance(section, dict)
        for key in FEATURE_SECTIONS[name]
    )
    return _BEFORE_FEATURES if is_old and "features" not in data else None
