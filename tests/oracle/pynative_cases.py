"""Generate random settings for the dynamic graph of MindFormers 2.x, valid and invalid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.oracle.cases import SETTINGS, junk, pick

if TYPE_CHECKING:
    from random import Random

_PATTERNS: list[Any] = SETTINGS["patterns_dynamic"]
_ODD_SPECS: list[Any] = SETTINGS["odd_layers"]
_ODD: tuple[Any, ...] = (
    True,
    0,
    5,
    "0-3",
    "x",
    {},
    {"0": 1},
    [],
    (),
    None,
    [[0]],
    {"mlp": "0-1"},
    {"mlp": 3},
    {1: ["0"]},
)
_SCALARS: tuple[Any, ...] = (True, 1, 0, "1", None, 1.5, [], "full", "select", "None", "none")


def random_config(random: Random, version: str) -> tuple[dict[str, Any], int, int]:
    """Return one config, its layers and its prediction layers; the framework accepts about half of them."""
    sound = random.random() < 0.55
    stages = pick(random, (1, 1, 1, 2, 2, 3, 4))
    chunks = pick(random, (1, 1, 2, 3)) if stages > 1 or random.random() < 0.1 else 1
    cells = stages * chunks if stages > 1 else 1
    layers = random.randrange(cells, 4 * cells + 3)
    mtp = pick(random, (0, 0, 0, 1, 2))
    even = layers % cells == 0 and random.random() < 0.5
    parallel: dict[str, Any] = {"pipeline_parallel": stages, "pipeline_parallel_interleave_num": chunks}
    if not even:
        parallel["pipeline_parallel_layers_per_stage"] = texts(random, layers, stages, chunks)
    if random.random() < 0.2:
        parallel["pipeline_parallel_schedule"] = pick(random, ("1f1b", "1F1B", "gpipe", "", "gpipe"))
    total = layers + mtp
    config: dict[str, Any] = {"parallelism": parallel}
    if random.random() < 0.85:
        config["recompute"] = recompute(random, total, version)
    if random.random() < 0.4:
        config["recompute_comm"] = {"enable": random.random() < 0.8, "select_module": modules(random, total)}
    if random.random() < (0.5 if stages == 1 else 0.05):
        config["swap"] = swap(random, total)
    config = dict(random.sample(list(config.items()), len(config)))
    if not sound:
        for _ in range(random.choice((1, 1, 2))):
            spoil(random, config)
    if random.random() < 0.1:
        spoil_wildly(random, config)
    return config, layers, mtp


def spoil_wildly(random: Random, config: dict[str, Any]) -> None:
    """Set one place to any value."""
    name, key = random.choice((
        ("parallelism", "pipeline_parallel_layers_per_stage"),
        ("parallelism", "pipeline_parallel_schedule"),
        ("recompute", "full_recompute_layer"),
        ("recompute", "select_module"),
        ("recompute", "exclude_op"),
        ("recompute_comm", "select_module"),
        ("swap", "layer_swap"),
        ("swap", "op_swap"),
        ("swap", "default_prefetch"),
    ))  # fmt: skip
    section = config.get(name)
    if isinstance(section, dict):
        value: Any = section.get(key)
        if isinstance(value, (list, dict)) and value and random.random() < 0.5:
            place = random.choice(list(value) if isinstance(value, dict) else range(len(value)))
            value[place] = junk(random)
        else:
            section[key] = junk(random)


def texts(random: Random, layers: int, stages: int, chunks: int) -> Any:  # noqa: ANN401
    """Return ranges that cover the model."""
    if stages == 1:
        return random.choice(("auto", None, ["0-1"]))
    counts = [1] * (stages * chunks)
    for _ in range(layers - len(counts)):
        counts[random.randrange(len(counts))] += 1
    ends = [sum(counts[: place + 1]) for place in range(len(counts))]
    ranges = [
        f"{end - count}-{end - 1}" if count > 1 or random.random() < 0.3 else str(end - 1)
        for end, count in zip(ends, counts, strict=True)
    ]
    return [random.choice((",", ", ")).join(ranges[stage::stages]) for stage in range(stages)]


def specs(random: Random, total: int) -> list[Any]:
    """Return layers in ascending order."""
    found: list[Any] = []
    place = random.randrange(0, 2)
    while place < total and random.random() < 0.8:
        last = min(total - 1, place + random.randrange(3))
        found.append(random.choice((place, str(place))) if last == place else f"{place}-{last}")
        place = last + 1 + random.randrange(3)
    return found


def modules(random: Random, total: int) -> dict[Any, Any]:
    """Return layers by pattern."""
    return {pattern: specs(random, total) for pattern in random.sample(_PATTERNS[:-1], random.randrange(1, 5))}


def recompute(random: Random, total: int, version: str) -> dict[str, Any]:
    """Return the section for recomputation."""
    section: dict[str, Any] = {"mode": random.choice(("None", "full", "select", "select"))}
    if section["mode"] == "full" or random.random() < 0.4:
        section["full_recompute_layer"] = specs(random, total) or [0]
    if section["mode"] == "select" or random.random() < 0.2:
        section["select_module"] = modules(random, total)
    if random.random() < 0.3:
        section["exclude_op"] = ["matmul", "AllGather"] if version == "2.0" else modules(random, total)
    return section


def swap(random: Random, total: int) -> dict[str, Any]:
    """Return the section for swap."""
    section: dict[str, Any] = {"enable": random.random() < 0.9}
    if random.random() < 0.5:
        section["default_prefetch"] = pick(random, (1, 1, 2, total - 1))
    reach = max(total - section.get("default_prefetch", 1), 1)
    if random.random() < 0.7:
        section["layer_swap"] = [{"layers": specs(random, reach)} for _ in range(random.choice((1, 1, 2)))]
        if random.random() < 0.2:
            section["layer_swap"][0]["backward_prefetch"] = 3
    if random.random() < 0.6:
        names = random.choices(_PATTERNS[:-1], k=random.randrange(3))
        section["op_swap"] = [{"op_name": name, "layers": specs(random, reach)} for name in names]
    return section


def spoil(random: Random, config: dict[str, Any]) -> None:
    """Insert one wrong setting."""
    chance = random.random()
    name = pick(random, list(config))
    section = config[name]
    if chance < 0.07:
        config[name] = pick(random, (None, True, [], "x", {}))
        return
    if not isinstance(section, dict):
        return
    if name == "parallelism":
        spoil_parallel(random, section)
    elif chance < 0.12:
        section["unknown"] = 1
    elif chance < 0.3:
        section[one_of(random, section, "mode", "enable", "default_prefetch")] = pick(random, _SCALARS)
    elif chance < 0.55:
        spoil_specs(random, section)
    elif chance < 0.8:
        keys = ("select_module", "full_recompute_layer", "exclude_op", "layer_swap", "op_swap")
        section[one_of(random, section, *keys)] = pick(random, _ODD)
    else:
        spoil_entry(random, section)


def one_of(random: Random, section: dict[str, Any], *keys: str) -> str:
    """Return one of a section's keys, or else the first of the given ones."""
    return random.choice([key for key in keys if key in section] or [keys[0]])


def spoil_parallel(random: Random, section: dict[str, Any]) -> None:
    """Change the pipeline's settings."""
    chance = random.random()
    key = "pipeline_parallel_layers_per_stage"
    value = section.get(key)
    if chance < 0.5 and isinstance(value, list) and value:
        place = random.randrange(len(value))
        value[place] = pick(
            random, ("x", "3-1", "0-1-2", "1,2", "-1", "", "1_0", 3, [1], "0-0", "99", f"{value[place]},5")
        )
    elif chance < 0.6 and isinstance(value, list) and value:
        value.pop()
    elif chance < 0.75:
        section[key] = pick(random, (None, "01", "xx", "auto", ["0", "1"], [[0], [1]], [["0"]], 3, True, []))
    elif chance < 0.9:
        name = pick(random, ("pipeline_parallel", "pipeline_parallel_interleave_num"))
        section[name] = pick(random, (*_SCALARS[:6], 2, 3, 0))
    else:
        section["pipeline_parallel_schedule"] = pick(random, ("interleaved_1f1b", "zb", None, 1, "1F1B"))


def lists_of(value: Any) -> list[list[Any]]:  # noqa: ANN401
    """Return every list of layers inside a setting."""
    if isinstance(value, dict):
        return [found for item in value.values() for found in lists_of(item)]
    if isinstance(value, list):
        nested = [found for item in value for found in lists_of(item)]
        return nested or [value]
    return []


def spoil_specs(random: Random, section: dict[str, Any]) -> None:
    """Insert an impossible layer."""
    found = lists_of(section)
    if not found:
        return
    target = pick(random, found)
    if target and random.random() < 0.5:
        target[random.randrange(len(target))] = pick(random, _ODD_SPECS)
    else:
        target.insert(random.randrange(len(target) + 1), pick(random, (*_ODD_SPECS, 0, 1, "0-1")))


def spoil_entry(random: Random, section: dict[str, Any]) -> None:
    """Insert an impossible module or entry."""
    for key in ("select_module", "exclude_op"):
        value = section.get(key)
        if isinstance(value, dict) and random.random() < 0.6:
            value[random.choice(("", " ", 1, "mlp(", "mlp"))] = pick(random, ([0], "0", None, ["0-1"]))
    for key in ("layer_swap", "op_swap"):
        value = section.get(key)
        if isinstance(value, list) and random.random() < 0.6:
            value.append(
                pick(
                    random, (3, {}, {"layers": "0"}, {"layers": True}, {"op_name": "mlp"}, {"op_name": 1, "layers": []})
                )
            )
