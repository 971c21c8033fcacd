"""Generate random configs of MindSpeed-Core-MS r0.1.0, valid and invalid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.oracle.cases import junk, pick

if TYPE_CHECKING:
    from random import Random

_KINDS = ("recompute", "select_recompute", "select_comm_recompute")
_ODD: tuple[Any, ...] = (None, True, False, 1.0, 0.5, "1", "x", [], [1], -1, 2**70, 1.5, {"a": 1})
_ODD_LISTS: tuple[Any, ...] = (
    [[]],
    [[], []],
    [[1], [1, 2]],
    [1, [2]],
    ["1"],
    [1, "a"],
    [None, 1],
    [True],
    {},
    0,
    3,
    "[",
)
_SIZES: tuple[Any, ...] = (0, -1, True, "2", 1.0, None, [1])
_TEXTS = ("True", "1", "(", "[1, 1", "{1: 2}", "'ab'", "f(1)", "[a]", "", " [1]", "[[1]]", "()")


def random_config(random: Random) -> dict[str, Any]:
    """Return one config; the framework accepts about two thirds of them."""
    sound = random.random() < 0.6
    stages = pick(random, (1, 2, 2, 3, 4, 4, 5, 8))
    chunks = pick(random, (None, None, None, 1, 2, 2, 3)) if stages > 1 else random.choice((None, None, 1))
    rows = chunks if chunks and chunks > 1 else 1
    standalone = stages > 1 and random.random() < 0.2
    layers = random.randrange(stages * rows, 5 * stages * rows + 3)
    columns = stages - standalone
    parallel: dict[str, Any] = {"pipeline_model_parallel_size": stages}
    if chunks is not None:
        parallel["virtual_pipeline_model_parallel_size"] = chunks
    if standalone:
        parallel["standalone_embedding_stage"] = True
    counts = even_cells(layers, columns, rows)
    if random.random() < 0.5:
        counts = random_cells(random, layers, columns, rows)
        parallel["num_layer_list"] = squeeze(counts, rows)
    model: dict[str, Any] = {"num_layers": layers, "use_flash_attention": random.random() < 0.5}
    add_recompute(random, parallel, counts, rows)
    if standalone and random.random() < 0.7:
        clear_last(parallel)
    add_model(random, model, layers)
    config = {"parallel_config": parallel, "model_config": model}
    if random.random() < 0.05:
        config["moe_config"] = {"num_experts": random.choice((1, 8))}
    if not sound:
        spoil(random, parallel, model)
    if random.random() < 0.08:
        spoil_wildly(random, parallel, model)
    return config


def spoil_wildly(random: Random, parallel: dict[str, Any], model: dict[str, Any]) -> None:
    """Set one place to any value."""
    chance = random.random()
    lists = parallel.setdefault("recompute_config", {})
    if chance < 0.4 and isinstance(lists, dict):
        lists[random.choice(_KINDS)] = junk(random)
    elif chance < 0.5:
        parallel["recompute_config"] = junk(random)
    elif chance < 0.7:
        parallel["num_layer_list"] = junk(random)
    elif chance < 0.85:
        parallel[random.choice(_KINDS)] = random.choice((junk(random), repr(junk(random))))
    else:
        keys = ("recompute_num_layers", "recompute_method", "recompute_granularity", "use_flash_attention")
        model[random.choice(keys)] = junk(random)


def squeeze(table: list[list[int]], rows: int) -> list[Any]:
    return list(table if rows > 1 else table[0])


def even_cells(layers: int, columns: int, rows: int) -> list[list[int]]:
    """Split layers evenly like the framework; written independently of the package."""

    def share(total: int, parts: int) -> list[int]:
        counts = [total // parts] * parts
        for place in range(total % parts):
            counts[parts - 2 - place] += 1
        return counts

    return [share(row, columns) for row in share(layers, rows)]


def random_cells(random: Random, layers: int, columns: int, rows: int) -> list[list[int]]:
    flat = [1] * (columns * rows)
    for _ in range(layers - len(flat)):
        flat[random.randrange(len(flat))] += 1
    return [flat[start : start + columns] for start in range(0, len(flat), columns)]


def add_recompute(random: Random, parallel: dict[str, Any], counts: list[list[int]], rows: int) -> None:
    chance = random.random()
    if chance < 0.15:
        return
    full = [[random.randrange(count + 1) if random.random() < 0.6 else 0 for count in row] for row in counts]
    tables: dict[str, Any] = {"recompute": squeeze(full, rows)}
    for kind in _KINDS[1:]:
        behind = [
            [random.randrange(count - used + 1) for count, used in zip(row, uses, strict=True)]
            for row, uses in zip(counts, full, strict=True)
        ]
        tables[kind] = squeeze(behind, rows)
    for kind in _KINDS:
        if random.random() < 0.25:
            tables.pop(kind)
    lists = {kind: table for kind, table in tables.items() if chance < 0.7 or random.random() < 0.5}
    if lists or random.random() < 0.5:
        parallel["recompute_config"] = lists
    for kind, table in tables.items():
        if kind not in lists or random.random() < 0.05:
            parallel[kind] = str(table)


def clear_last(parallel: dict[str, Any]) -> None:
    """Set zero for the last stage, which a separate stage for the embedding requires."""
    for value in (parallel.get("recompute_config") or {}).values():
        for row in value if value and isinstance(value[0], list) else [value]:
            if row:
                row[-1] = 0


def add_model(random: Random, model: dict[str, Any], layers: int) -> None:
    if random.random() < 0.25:
        model["recompute_granularity"] = pick(random, ("selective", "full", "full"))
    if random.random() < 0.2:
        model["recompute_method"] = pick(random, ("uniform", "block"))
    if random.random() < 0.2:
        model["recompute_num_layers"] = random.randrange(1, layers + 1)
    for key in ("select_recompute", "select_comm_recompute", "recompute_activations"):
        if random.random() < 0.06:
            model[key] = random.random() < 0.7


def spoil(random: Random, parallel: dict[str, Any], model: dict[str, Any]) -> None:  # noqa: C901 - one case after the other
    """Insert one or two wrong settings."""
    for _ in range(random.choice((1, 1, 2))):
        chance = random.random()
        if chance < 0.35:
            spoil_list(random, parallel)
        elif chance < 0.5:
            spoil_table(random, parallel)
        elif chance < 0.6:
            parallel[random.choice(_KINDS)] = pick(random, (*_TEXTS, [1, 1], True, 3))
        elif chance < 0.68:
            parallel["num_layer_list"] = pick(random, (*_ODD_LISTS, *_TEXTS))
        elif chance < 0.76:
            key = pick(random, ("pipeline", "virtual_pipeline", "tensor"))
            parallel[f"{key}_model_parallel_size"] = pick(random, (*_SIZES, 1, 2, 3, 6))
        elif chance < 0.84:
            key = pick(random, ("recompute_num_layers", "recompute_method", "recompute_granularity", "num_layers"))
            model[key] = pick(random, (0, 1, 3, 10**4, True, "full", "block", "x", 1.0))
        elif chance < 0.9:
            key = pick(random, ("encoder_num_layers", "decoder_num_layers", "select_recompute", "use_flash_attention"))
            model[key] = pick(random, (0, 1, True, "x", None))
        elif chance < 0.95:
            parallel["recompute_config"] = pick(
                random,
                ([], False, True, {"full_recompute_list": [1]}, {"recompute": True}, {"select_recompute": 2}, {}),
            )
        else:
            parallel["standalone_embedding_stage"] = True
    if not isinstance(model.get("num_layers"), int) and model.get("num_layers") is None:
        model["num_layers"] = 4


def lists_of(parallel: dict[str, Any]) -> list[list[Any]]:
    """Return every list of numbers that can be changed in place."""
    section = parallel.get("recompute_config")
    values = list(section.values()) if isinstance(section, dict) else []
    found = []
    for value in (*values, parallel.get("num_layer_list")):
        if isinstance(value, list) and value:
            found += [row for row in value if isinstance(row, list)] or [value]
    return [row for row in found if row]


def spoil_list(random: Random, parallel: dict[str, Any]) -> None:
    rows = lists_of(parallel)
    if not rows:
        return
    row = pick(random, rows)
    chance = random.random()
    place = random.randrange(len(row))
    if chance < 0.35:
        row[place] = pick(random, (99, 0, -1, random.randrange(6)))
    elif chance < 0.55:
        row[place] = pick(random, _ODD)
    elif chance < 0.7:
        row[:] = [bool(item) for item in row]
    elif chance < 0.8:
        row[:] = [float(item) if isinstance(item, int) else item for item in row]
    elif chance < 0.9:
        row.pop()
    else:
        row.append(random.choice((0, 1)))


def spoil_table(random: Random, parallel: dict[str, Any]) -> None:
    section = parallel.get("recompute_config")
    if isinstance(section, dict) and section:
        kind = pick(random, list(section))
        value = section[kind]
        section[kind] = pick(random, ([value], _ODD_LISTS[random.randrange(len(_ODD_LISTS))], False, None, []))
