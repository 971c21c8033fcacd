"""Generate random recompute and swap settings, valid and invalid."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import yaml

from ms_tune.dialects.mindformers.placement import KEYS, RecomputeInputs, RecomputeValues, SwapValues
from tests.files import read_data

if TYPE_CHECKING:
    from random import Random


# By section or kind of network, settings with the values to draw from.
SETTINGS: dict[str, Any] = read_data("random_settings.yaml")
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PATTERNS: list[Any] = SETTINGS["patterns_counted"]
_WILD_PATTERNS: list[Any] = SETTINGS["patterns_wild"]
_BAD_PATTERNS = ("feed_forward(", r"mlp\.[a-")
_ODD: tuple[Any, ...] = (None, 1.0, 2.5, "1", "x", {"a": 1}, [], [[1]], 2, 0, -1)
_ODD_IDS: tuple[Any, ...] = (
    *(None, 1, "x", ["x"], [[1]], (0, 1), {}, [None]),
    *({"a": True}, {"a": False}, {1: [0]}, {"a": (1,)}),
)
_OFFSETS: list[Any] = SETTINGS["odd_offsets"]


def text_of(config: Any) -> str:  # noqa: ANN401 - sound or not
    """Return the config as YAML; shared objects stay shared."""
    return yaml.dump(config, Dumper=_DUMPER, sort_keys=False)


def as_read(config: dict[str, Any]) -> dict[str, Any]:
    """Return the config as a framework reads it from its file."""
    data: dict[str, Any] = yaml.load(text_of(config), Loader=_LOADER)  # noqa: S506 - one of the safe loaders
    return data


def pick(random: Random, choices: Sequence[Any]) -> Any:  # noqa: ANN401 - what the list holds
    """Return a copy of one of several values: it may be changed."""
    return copy.deepcopy(random.choice(choices))


def junk(random: Random, depth: int = 0) -> Any:  # noqa: ANN401 - anything at all
    """Return any value that a config can contain, with some nesting."""
    if depth < 3 and random.random() < 0.45:
        items = [junk(random, depth + 1) for _ in range(random.randrange(4))]
        kind = random.randrange(5)
        if kind == 0:
            return tuple(items)
        if kind == 1:
            return {random.choice((*_PATTERNS, *_WILD_PATTERNS, 1, None, True)): item for item in items}
        return [items[0]] * len(items) if items and kind == 2 else items
    return random.choice((
        *(None, True, False, 0, 1, 2, 3, -1, -(2**40), 2**31 - 1, 2**31, 2**40, 10**30),
        *(0.0, 1.0, -0.5, 2.5, 1e300, math.nan, math.inf, "", "1", " 2 ", "0x3", "1_0", "\u4e00", "\u0663"),
        *_WILD_PATTERNS,
    ))  # fmt: skip


def _spoilt(random: Random, inputs: RecomputeInputs) -> RecomputeInputs:
    """Return a case with one or two unlikely values."""
    for _ in range(random.choice((1, 1, 2))):
        chance = random.random()
        key = random.choice(KEYS)
        if chance < 0.5:
            inputs = inputs._replace(values=inputs.values._replace(**{key: junk(random)}))
        elif chance < 0.6:
            value = getattr(inputs.values, key)
            patterns = {random.choice(_WILD_PATTERNS): value, **(value if isinstance(value, dict) else {})}
            inputs = inputs._replace(values=inputs.values._replace(**{key: patterns}))
        elif chance < 0.7:
            inputs = inputs._replace(values=inputs.values._replace(**{key: _as_tuples(getattr(inputs.values, key))}))
        elif chance < 0.85:
            inputs = inputs._replace(offset=junk(random))
        elif chance < 0.92:
            # Lists for the configured number of chunks, without an interleave setting that would create them.
            inputs = inputs._replace(interleave=False, scheduler="1f1b")
        else:
            name = random.choice(("swap", "layer_swap", "op_swap", "default_prefetch"))
            inputs = inputs._replace(swap=inputs.swap._replace(**{name: junk(random)}))
    return inputs


def _as_tuples(value: Any) -> Any:  # noqa: ANN401 - sound or not
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


def random_case(random: Random, version: str = "1.9") -> RecomputeInputs:
    """Return one case; the framework accepts about two thirds of them, and one in four uses swap."""
    inputs = _random_case(random, version)
    # With use_legacy: False, zero_bubble_v is checked before LayerSetting reads it.
    checked = inputs.zero_bubble and not inputs.legacy
    return _spoilt(random, inputs) if random.random() < 0.1 and not checked else inputs


def _random_case(random: Random, version: str) -> RecomputeInputs:
    sound = random.random() < 0.6
    legacy = random.random() < 0.6
    stages = random.choice((1, 1, 2, 2, 3, 4, 4, 5, 8, 16))
    chunks: int | None = random.choice((1, 1, 2, 2, 2, 3, 4))
    interleave = random.random() < 0.75
    scheduler = "1f1b"
    if interleave and chunks == 2 and (legacy or stages > 1) and random.random() < 0.25:
        scheduler = "zero_bubble_v"
    if not sound and random.random() < 0.02 and scheduler == "1f1b":
        chunks = random.choice((0, -1, None))
    real_chunks = chunks if interleave and chunks and chunks > 0 else 1
    layers = random.randrange(1, 4 * stages * real_chunks + 8)
    if random.random() < 0.03:
        layers = random.choice((0, 1, stages - 1, 997, 1000))
    stage_num = random.choice((0, 0, 0, stages)) if legacy and scheduler == "1f1b" else 0
    swap = SwapValues()
    core_swap = SwapValues()
    values = _values(random, stages, real_chunks, sound=sound)
    core_bubble = scheduler == "zero_bubble_v" and not legacy
    if core_bubble:
        # The checks of such a model's config are tested elsewhere; here it passes them.
        rows = [_row(random, stages, sound=sound) for _ in range(2)]
        values = values._replace(recompute=random.choice((True, False, rows)))
    elif random.random() < 0.25:
        swap = _swap(random, layers, on=random.random() < 0.9, sound=sound)
        if random.random() < 0.9 and swap.swap is True:
            values = _values_by_id(random, layers, values, sound=sound)
    if not legacy and version != "1.6" and random.random() < 0.1:
        core_swap = _swap(random, layers, on=random.random() < 0.9, sound=sound)._replace(default_prefetch=1)
    return RecomputeInputs(
        layers=layers,
        stages=stages,
        offset=random_offset(random, layers, stages, real_chunks, sound=sound),
        interleave=interleave,
        interleave_num=chunks,
        scheduler=scheduler,
        legacy=legacy,
        stage_num=stage_num,
        start_stage=random.randrange(4) if stage_num else 0,
        mtp_layers=int(not legacy and random.random() < 0.4),
        micro_batches=2 * stages if core_bubble else 1,
        values=values,
        swap=swap,
        core_swap=core_swap,
        version=version,
    )


def _values_by_id(random: Random, layers: int, counts: RecomputeValues, *, sound: bool) -> RecomputeValues:
    """Return values as written with swap on: lists contain layer numbers."""
    values: dict[str, Any] = {}
    for key in KEYS[:3]:
        chance = random.random()
        if chance < 0.3:
            values[key] = random.random() < 0.3
        elif chance < 0.6 or key == "recompute":
            values[key] = _ids(random, layers, sound=sound)
        else:
            values[key] = {name: _ids(random, layers, sound=sound) for name in random.sample(_PATTERNS, 2)}
        if not sound and random.random() < 0.1:
            values[key] = random.choice(_ODD_IDS)
    return counts._replace(**values)


def _ids(random: Random, layers: int, *, sound: bool) -> list[Any]:
    ids: list[Any] = sorted(random.sample(range(layers), min(layers, random.randrange(4))))
    if not sound and random.random() < 0.2:
        ids.append(random.choice((layers, -1, 99, True, 0)))
    return ids


def _swap(random: Random, layers: int, *, on: bool, sound: bool) -> SwapValues:
    values: dict[str, Any] = {"swap": on}
    if random.random() < 0.4:
        values["default_prefetch"] = random.choice((1, 2, 10) if sound else (1, 0, -1, "Auto", True, None, 1.5))
    for key in ("layer_swap", "op_swap"):
        if random.random() < 0.3:
            continue
        entries = [_entry(random, layers, key, sound=sound) for _ in range(random.randrange(4))]
        values[key] = entries[0] if entries and random.random() < 0.2 else entries
        if not sound and random.random() < 0.05:
            values[key] = random.choice((1, "x", True, [1], ["x"], [None], [[]], {}))
    if not sound and random.random() < 0.02:
        values["swap"] = random.choice((1, None, "True"))
    return SwapValues(**values)


def _entry(random: Random, layers: int, key: str, *, sound: bool) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "backward_prefetch": random.choice((1, 1, 2, 20)),
        "layers": _ids(random, layers, sound=True) if random.random() < 0.9 else random.random() < 0.6,
    }
    if key == "op_swap":
        name = random.choice(_PATTERNS)
        entry["op_name"] = [name, "attention"] if random.random() < 0.2 else name
    if sound or random.random() < 0.7:
        return entry
    chance = random.random()
    if chance < 0.3:
        entry["backward_prefetch"] = random.choice((0, "Auto", True, None, -1, 1.5, "x"))
    elif chance < 0.6:
        entry["layers"] = random.choice((None, [[0, 1], [2]], [True], (0, 1), "x", 3, [0.5], []))
    elif chance < 0.8:
        entry["op_name"] = random.choice((None, 1, ["a", 1], ("a",), [], ""))
    else:
        entry.pop(random.choice(list(entry)))
    return entry


def random_offset(random: Random, layers: int, stages: int, chunks: int, *, sound: bool) -> Any:  # noqa: ANN401 - sound or not
    chance = 1 if sound else random.random()
    if chance < 0.05:
        return random.choice(_OFFSETS)
    rest = layers % (stages * chunks)
    if chance < 0.15:
        return random.choice((0, rest))
    flat: list[Any] = [0] * (stages if chunks == 1 and random.random() < 0.7 else stages * chunks)
    if chance < 0.20:
        flat = [0] * stages
    for _ in range(rest):
        flat[random.randrange(len(flat))] += 1
    for _ in range(random.choice((0, 0, 0, 1) if sound else (0, 1, 3))):
        flat[random.randrange(len(flat))] += 1
        flat[random.randrange(len(flat))] -= 1
    if 0.2 < chance < 0.24:
        flat[random.randrange(len(flat))] += random.choice((-1, 1, 0.5))
    if 0.24 < chance < 0.26:
        flat.append(0)
    if len(flat) == stages and random.random() < 0.8:
        return flat
    return [flat[start : start + stages] for start in range(0, len(flat), stages)]


def _values(random: Random, stages: int, chunks: int, *, sound: bool) -> RecomputeValues:
    shared = [_row(random, stages, sound=sound) for _ in range(chunks)]  # like the result of a YAML alias
    values: dict[str, Any] = {}
    for key in KEYS:
        if key.endswith("exclude") and random.random() < 0.6:
            values[key] = False
        elif key != "recompute" and random.random() < 0.4:
            names = random.sample(_PATTERNS if sound else (*_PATTERNS, *_BAD_PATTERNS), random.randrange(4))
            values[key] = {name: _value(random, stages, chunks, shared, sound=sound) for name in names}
            if not sound and random.random() < 0.03:
                values[key][random.choice((1, None, True))] = True
        else:
            values[key] = _value(random, stages, chunks, shared, sound=sound)
    return RecomputeValues(**values)


def _value(random: Random, stages: int, chunks: int, shared: list[Any], *, sound: bool) -> Any:  # noqa: ANN401 - sound or not
    chance = random.random()
    if chance < 0.35:
        return random.random() < 0.4
    if chance < 0.40:
        return random.sample(_PATTERNS, random.randrange(4))
    if chance < 0.42 and not sound:
        return random.choice(_ODD)
    if chance < 0.66:
        size = stages if sound else random.choice((stages, stages, stages, max(stages - 1, 0), stages + 1))
        return _row(random, size, sound=sound)
    if chance < 0.70:
        return shared
    rows: list[Any] = [_row(random, stages, sound=sound) for _ in range(chunks)]
    if not sound:
        _spoil(random, rows, stages, shared)
    return rows


def _spoil(random: Random, rows: list[Any], stages: int, shared: list[Any]) -> None:
    """Occasionally add, remove, shorten or lengthen a row, or remove all."""
    chance = random.random()
    if chance < 0.06:
        rows[random.randrange(len(rows))] = random.random() < 0.5
    elif chance < 0.08:
        rows.append(random.choice(([], _row(random, stages, sound=True), [False] * stages, False, True)))
    elif chance < 0.10:
        rows.pop()
    elif chance < 0.12:
        rows[random.randrange(len(rows))] = _row(random, random.choice((max(stages - 1, 0), stages + 1)), sound=True)
    elif chance < 0.14:
        rows[random.randrange(len(rows))] = random.choice(_ODD)
    elif chance < 0.16:
        rows[random.randrange(len(rows))] = shared[0]
    elif chance < 0.17:
        rows[random.randrange(len(rows))] = tuple(_row(random, stages, sound=True))


def _row(random: Random, size: int, *, sound: bool) -> list[Any]:
    row: list[Any] = [random.choice((0, 0, 0, 1, 1, 2, 3)) for _ in range(size)]
    if sound:
        # One layer fits almost everywhere; more may not, and rows that must be cut do not always go well.
        row = [min(count, random.choice((1, 1, 1, 3))) for count in row]
    for position in range(size):
        chance = random.random()
        if chance < 0.01:
            row[position] = random.random() < 0.5
        elif not sound and chance < 0.02:
            row[position] = random.choice((99, 10**12))
        elif not sound and chance < 0.023:
            row[position] = random.choice((*_ODD, -1, -3, -1))
    if row and not sound and random.random() < 0.01:
        row[random.randrange(size)] = random.choice((-1, -7))
    return row
