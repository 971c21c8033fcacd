"""Test the layers of a Megatron program, and the smaller sets of arguments that determine the full stage."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

import pytest

from ms_tune.dryrun.launchers.arguments import OptionWords
from ms_tune.dryrun.launchers.shrink import AUTO, kinds_of, layout_of, sizes_of
from ms_tune.enums import RecomputeMode
from ms_tune.errors import UsageError
from tests.kinds import labels
from tests.oracle.make_megatron_layers import FILE
from tests.oracle.megatron_cases import ALWAYS

FULL = "--recompute-granularity full"
BY_RANK = f"{FULL} --recompute-method block --recompute-num-layers 3 --enable-recompute-layers-per-pp-rank"


def kinds(text: str, stage: int = 0) -> dict[str, int]:
    words = OptionWords(text.split())
    return labels(kinds_of(layout_of(words), stage))


@pytest.mark.parametrize(
    ("arguments", "stage", "wanted"),
    [
        ("--num-layers 28", 0, {"dense": 28}),
        ("--num-layers 28 --pipeline-model-parallel-size 2", 1, {"dense": 14}),
        (
            f"--num-layers 8 {FULL} --recompute-method uniform --recompute-num-layers 1",
            0,
            {"dense, full recompute": 8},
        ),
        (
            f"--num-layers 6 --noop-layers 5 {FULL} --recompute-method uniform --recompute-num-layers 3",
            0,
            {"dense + dense + dense, full recompute": 1, "dense + dense, full recompute": 1},
        ),
        (
            f"--num-layers 8 {FULL} --recompute-method block --recompute-num-layers 3",
            0,
            {"dense, full recompute": 3, "dense": 5},
        ),
        ("--num-layers 8 --recompute-granularity selective", 0, {"dense": 8}),
        ("--num-layers 9 --pipeline-model-parallel-size 2 --num-layer-list 4,5", 1, {"dense": 5}),
        ("--num-layers 6 --num-experts 4", 0, {"moe": 6}),
        ("--num-layers 6 --num-experts 4 --first-k-dense-replace 2 --moe-layer-freq 1", 0, {"dense": 2, "moe": 4}),
        ("--num-layers 6 --num-experts 4 --first-k-dense-replace -1 --moe-layer-freq -1", 0, {"moe": 6}),
        ("--num-layers 8 --num-experts 4 --first-k-dense-replace 1 --moe-layer-freq 3", 0, {"dense": 6, "moe": 2}),
        (
            "--num-layers 8 --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 2 --noop-layers 6,7",
            1,
            {"chunk 0, dense": 2},
        ),
        (
            f"--num-layers 8 --pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 {BY_RANK}",
            0,
            {"chunk 0, dense, full recompute": 2, "chunk 1, dense, full recompute": 1, "chunk 1, dense": 1},
        ),
    ],
)
def test_kinds_of_layers(arguments: str, stage: int, wanted: dict[str, int]) -> None:
    assert kinds(arguments, stage) == wanted


@pytest.mark.parametrize(
    "arguments",
    [
        "--num-layers 7 --pipeline-model-parallel-size 2",
        "--num-layers 0",
        "--num-layers 1000000000000000000",
        "--hidden-size 8",
        "--num-layers 8 --pipeline-model-parallel-size 2 --num-layer-list 3,4",
        "--num-layers 8 --pipeline-model-parallel-size 2 --num-layer-list 8",
        "--num-layers 8 --pipeline-model-parallel-size 2 --num-layer-list 4,x",
        "--num-layers 8 --noop-layers 8",
        "--num-layers 8 --noop-layers x",
        "--num-layers 8 --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 3",
        "--num-layers 8 --pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 0",
        "--num-layers 8 --swap-attention",
        "--num-layers 8 --num-experts 2 --moe-layer-freq ([0]*4+[1]*4)",
        f"--num-layers 8 {FULL}",
        f"--num-layers 8 {FULL} --recompute-method uniform",
        f"--num-layers 7 {FULL} --recompute-method uniform --recompute-num-layers 3",
        "--num-layers 8 --pipeline-model-parallel-size 4 --num-experts 2 --first-k-dense-replace 3 --moe-layer-freq 1",
    ],
)
def test_what_is_not_followed_is_refused_and_run_whole(arguments: str) -> None:
    with pytest.raises(UsageError):
        kinds(arguments)
    found = sizes_of(arguments.split(), 0, AUTO)
    assert (found.layers, found.factors, [run.arguments for run in found.runs]) == (
        None,
        (),
        [tuple(arguments.split())],
    )
    assert found.reason is not None
    assert sizes_of(arguments.split(), 0, None).reason is None


def test_the_fewest_layers_and_more() -> None:
    arguments = ["--num-layers", "28", "--pipeline-model-parallel-size", "2"]
    found = sizes_of(arguments, 0, AUTO)
    assert (found.layers, [run.layers for run in found.runs], found.factors) == (
        14,
        [2, 3],
        (Fraction(-11), Fraction(12)),
    )
    assert sizes_of(arguments, 0, 5).factors == (Fraction(-8), Fraction(9))
    assert sizes_of(arguments, 0, 14).factors == ()
    whole = sizes_of(arguments, 0, 13)
    reason = "no smaller number of layers is enough to extrapolate the whole stage"
    assert (whole.factors, str(whole.reason)) == ((), reason)
    with pytest.raises(UsageError, match="--layers 15 exceeds the 14 layers of the stage"):
        sizes_of(arguments, 0, 15)


def drawn(draw: random.Random) -> str:
    """Draw random arguments with several spellings of the same setting."""
    stages, size, chunks = draw.choice([1, 2, 4]), draw.randint(1, 12), 1
    if stages > 1:
        chunks = draw.choice([1, 1, 2, 3])
    count = stages * size * chunks
    found = [f"--num-layers {count} --pipeline-model-parallel-size {stages}"]
    if chunks > 1:
        found.append(
            draw.choice(
                [f"--num-layers-per-virtual-pipeline-stage {size}", f"--num-virtual-stages-per-pipeline-rank {chunks}"]
            )
        )
    noop = draw.random() < 0.3
    if chunks == 1 and stages > 1 and not noop and draw.random() < 0.3:
        found.append("--num-layer-list " + ",".join([str(size)] * stages))
    if noop:
        idle = draw.sample(range(count), draw.randint(1, max(1, count // 4)))
        found.append("--noop-layers " + ",".join(map(str, idle)))
    if draw.random() < 0.5:
        found.append("--num-experts 8")
        if draw.random() < 0.7:
            found.append(
                f"--first-k-dense-replace {draw.randint(-1, size * chunks - 1)} --moe-layer-freq {draw.choice([-1, 1, 2])}"
            )
    if draw.random() < 0.6:
        method = draw.choice(["uniform", "block"])
        number = draw.choice([one for one in range(1, size + 1) if method == "block" or size % one == 0])
        found.append(f"{FULL} --recompute-method {method} --recompute-num-layers {number}")
        if draw.random() < 0.3:
            found.append("--enable-recompute-layers-per-pp-rank")
    return " ".join(found)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(150))
def test_what_is_derived_adds_up_to_the_whole_stage(seed: int) -> None:
    draw = random.Random(f"shrink-{seed}")  # noqa: S311 - examples
    text = drawn(draw)
    words = OptionWords(text.split())
    layout = layout_of(words)
    stage = draw.randrange(layout.inputs.stages)
    full = kinds_of(layout, stage)
    doing = sum(layout.layers(one) for one in range(layout.inputs.stages))
    assert doing == layout.inputs.layers - len(layout.arguments.noop)
    found = sizes_of(text.split(), stage, AUTO)
    assert found.layers == layout.layers(stage)
    if not found.factors:
        assert [run.arguments for run in found.runs] == [tuple(text.split())]
        return
    assert sum(found.factors) == 1
    for kind in full:
        assert (
            sum(run.kinds.get(kind, 0) * factor for run, factor in zip(found.runs, found.factors, strict=True))
            == full[kind]
        )
    for run in found.runs:  # the reported settings of a run are those of its arguments
        made = OptionWords(run.arguments)
        assert dict(kinds_of(layout_of(made), stage)) == dict(run.kinds)
        assert layout_of(made).layers(stage) == run.layers < found.layers
    assert all(isinstance(factor, Fraction) for factor in found.factors)


def recorded() -> Iterator[tuple[str, list[str], Counter[tuple[int, int, str, bool]]]]:
    """Return arguments and the layers that the frameworks built from them: stage, chunk, kind, whether fully recomputed."""
    for row in json.loads(FILE.read_text("utf-8")):
        found: Counter[tuple[int, int, str, bool]] = Counter()
        for line in row["layers"]:
            match = re.fullmatch(r"(?:(\d+) x )?(\d+)\.(\d+) (dense|experts|prediction|noop)(.*)", line)
            if match is None:
                break
            if match[4] in ("dense", "experts"):
                found[int(match[2]), int(match[3]), match[4], " full" in match[5]] += int(match[1] or 1)
        else:
            yield row["release"], row["arguments"], found


def test_a_stage_has_the_layers_that_the_frameworks_own_code_builds() -> None:
    """The expansion here and ``dialects/megatron`` (for all releases) are compared with the same recorded results."""
    followed = 0
    for release, arguments, real in recorded():
        words = OptionWords([*ALWAYS, *arguments])
        try:
            layout = layout_of(words)
            stages = [kinds_of(layout, stage) for stage in range(layout.inputs.stages)]
        except UsageError:
            continue
        own: Counter[tuple[int, int, str, bool]] = Counter()
        for stage, kinds in enumerate(stages):
            for kind, count in kinds.items():
                for make in (kind.make, *kind.together):
                    own[stage, kind.cell[0], make.value, kind.recompute is RecomputeMode.FULL] += count
        assert own == real, (release, arguments)
        followed += 1
    assert followed > 25
