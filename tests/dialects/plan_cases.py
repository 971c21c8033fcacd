"""Random plans of every dialect, and what a plan says that every dialect can say."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from ms_tune.dialects import MINDFORMERS, MINDSPEED_MS, LayerPlan
from ms_tune.dialects.mindformers.placement import KEYS, RecomputeInputs, RecomputeValues, SwapValues
from ms_tune.dialects.mindformers.recompute import normalize
from ms_tune.dialects.mindformers_pynative.placement import PynativeInputs
from ms_tune.dialects.mindformers_pynative.recompute import normalize_pynative
from ms_tune.dialects.mindspeed_ms.placement import MindSpeedInputs
from ms_tune.dialects.mindspeed_ms.recompute import normalize_mindspeed_ms
from ms_tune.source.yaml import parse_source
from tests import jobs

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

# Layer -> stage, chunk, kind of recompute, selective, communication.
Essence = list[tuple[int, int, int, str, bool, bool]]


def essence(plan: LayerPlan) -> Essence:
    """What each layer does, but for the names of operators."""
    return [
        (
            layer.layer,
            layer.stage,
            layer.chunk,
            layer.recompute.value,
            bool(layer.select_patterns),
            bool(layer.comm_patterns),
        )
        for layer in plan.layers
    ]


def nested(values: Mapping[str, object]) -> dict[str, Any]:
    """Dotted keys as sections."""
    data: dict[str, Any] = {}
    for key, value in values.items():
        *path, name = key.split(".")
        section = data
        for part in path:
            section = section.setdefault(part, {})
        section[name] = value
    return data


def plan_of(values: Mapping[str, object], dialect: str, version: str | None = None) -> LayerPlan:
    """The plan of a config that has these settings and no others."""
    data = nested(values)
    if dialect == MINDFORMERS:
        return normalize(mindformers_inputs(data))
    source = parse_source(yaml.safe_dump(data), Path("config.yaml"))
    if dialect == MINDSPEED_MS:
        return jobs.mindspeed_plan(source)
    return jobs.dynamic_plan(source, version)


def mindformers_inputs(data: dict[str, Any]) -> RecomputeInputs:
    model = data["model"]["model_config"]
    pipeline = data.get("parallel", {}).get("pipeline_config", {})
    recompute = data.get("recompute_config", {})
    return RecomputeInputs(
        layers=model["num_layers"],
        stages=data["parallel_config"]["pipeline_stage"],
        offset=model["offset"],
        interleave=pipeline.get("pipeline_interleave", False),
        interleave_num=model.get("pp_interleave_num", 1),
        values=RecomputeValues(**{key: recompute.get(key, False) for key in KEYS}),
        swap=SwapValues(**data.get("swap_config", {})),
    )


def random_counts(random: Random, stages: int, chunks: int, *, least: int = 1) -> list[list[int]]:
    """Layers of each cell. The even split must not be so far off that a count is out of reach of an offset."""
    return [[random.randrange(least, 5) for _ in range(stages)] for _ in range(chunks)]


def tables(random: Random, counts: list[list[int]]) -> tuple[Any, Any, Any]:
    """Layers recomputed in full; and behind those, selectively and in communication."""
    full = [[random.randrange(count + 1) if random.random() < 0.5 else 0 for count in row] for row in counts]
    select, comm = (
        [
            [
                random.randrange(count - used + 1) if random.random() < 0.6 else 0
                for count, used in zip(row, uses, strict=True)
            ]
            for row, uses in zip(counts, full, strict=True)
        ]
        for _ in range(2)
    )
    return full, select, comm


def mindspeed_plan(random: Random) -> LayerPlan:
    stages = random.choice((1, 2, 3, 4))
    chunks = random.choice((1, 2, 3)) if stages > 1 else 1
    counts = random_counts(random, stages, chunks)
    names = ("recompute", "select_recompute", "select_comm_recompute")
    lists = {name: rows if chunks > 1 else rows[0] for name, rows in zip(names, tables(random, counts), strict=True)}
    return normalize_mindspeed_ms(
        MindSpeedInputs(
            layers=sum(map(sum, counts)),
            stages=stages,
            chunks=chunks if chunks > 1 else None,
            num_layer_list=(counts if chunks > 1 else counts[0]) if stages > 1 else None,
            recompute_config=lists,
            flash_attention=random.random() < 0.5,
            activation=random.choice(("gelu", "swiglu")),
        )
    )


def mindformers_plan(random: Random) -> LayerPlan:
    stages = random.choice((1, 2, 3, 4))
    chunks = random.choice((1, 2, 3))
    counts = random_counts(random, stages, chunks)
    layers = sum(map(sum, counts))
    base = layers // (stages * chunks)
    full, select, comm = tables(random, counts)
    cumulative = [
        [[used + extra for used, extra in zip(uses, row, strict=True)] for uses, row in zip(full, rows, strict=True)]
        for rows in (select, comm)
    ]
    by_pattern = random.random() < 0.4
    return normalize(
        RecomputeInputs(
            layers=layers,
            stages=stages,
            offset=[[count - base for count in row] for row in counts],
            interleave=True,
            interleave_num=chunks,
            values=RecomputeValues(
                recompute=full,
                select_recompute={r"feed_forward\.mul": cumulative[0]} if by_pattern else cumulative[0],
                select_comm_recompute=cumulative[1] if random.random() < 0.7 else False,
            ),
        )
    )


def pynative_plan(random: Random) -> LayerPlan:
    stages = random.choice((1, 2, 3, 4))
    chunks = random.choice((1, 2, 3)) if stages > 1 else 1
    counts = random_counts(random, stages, chunks)
    flat = [count for row in counts for count in row]
    ends = [sum(flat[: place + 1]) for place in range(len(flat))]
    ranges = [f"{end - count}-{end - 1}" for end, count in zip(ends, flat, strict=True)]
    chosen: dict[str, list[int]] = {"full": [], "select": [], "comm": []}
    orderly = random.random() < 0.6
    for end, count in zip(ends, flat, strict=True):
        for name in chosen:
            first = end - count
            if orderly:
                chosen[name] += range(first, first + random.randrange(count + 1))
            else:
                chosen[name] += [layer for layer in range(first, end) if random.random() < 0.4]
    if orderly:
        _behind_full(chosen, ends, flat)
    full = chosen["full"]
    return normalize_pynative(
        PynativeInputs(
            layers=ends[-1],
            stages=stages,
            chunks=chunks,
            layers_per_stage=[",".join(ranges[stage::stages]) for stage in range(stages)],
            mode="select" if chosen["select"] else "full" if full else "None",
            full_layers=full or None,
            select_module={"self_attention.core_attention": chosen["select"]} if chosen["select"] else None,
            comm=bool(chosen["comm"]),
            comm_module={"mlp.gather": chosen["comm"]} if chosen["comm"] else None,
        )
    )


def _behind_full(chosen: dict[str, list[int]], ends: list[int], flat: list[int]) -> None:
    """Push the layers chosen in other ways behind those that are recomputed in full."""
    full = set(chosen["full"])
    for name in ("select", "comm"):
        pushed: list[int] = []
        for end, count in zip(ends, flat, strict=True):
            behind = [layer for layer in range(end - count, end) if layer not in full]
            pushed += behind[: sum(end - count <= layer < end for layer in chosen[name])]
        chosen[name] = pushed
