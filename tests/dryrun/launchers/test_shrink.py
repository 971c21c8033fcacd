"""Test Megatron's programs in simulation: changed arguments, smaller layouts that determine the full one, and the ranks that run."""

from __future__ import annotations

import itertools
import json
import random
import re
import struct
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from ms_tune.dialects.job_parts import SettingChange
from ms_tune.dryrun.launchers.arguments import (
    OptionWords,
    ProgramSplit,
    SimulatedRank,
    choose_ranks,
    first_rank,
    parallel_of,
)
from ms_tune.dryrun.launchers.megatron import EACH_RANK, simulation_arguments, write_data, write_packed, write_tokenizer
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


BASE = (
    "--num-layers 28 --micro-batch-size 1 --global-batch-size 64 --seq-length 128 --train-iters 2000 --padded-vocab-size 999 "
    "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --lr-warmup-iters 500 --lr 1.25e-6 --bf16"
)


def words(line: str, folder: Path, world: int = 8, *settings: tuple[str, str | None]) -> OptionWords:
    return simulation_arguments(line.split(), world, folder, settings)


class TestWords:
    def test_changes_are_reported(self) -> None:
        found = OptionWords(["--load", "my", "model", "--a", "1", "--a", "2", "--b"])
        found.drop(["--load", "--absent"])
        found.put("--a", "3")
        found.put("--b")
        found.put("--c", "x", "y")
        assert found.arguments() == ("--b", "--a", "3", "--c", "x", "y")
        assert found.changes == [
            SettingChange("--load", "my model", None),
            SettingChange("--a", "2", "3"),
            SettingChange("--c", None, "x y"),
        ]


class TestSimulated:
    def test_few_steps_nothing_loaded_or_saved(self, tmp_path: Path) -> None:
        line = f"{BASE} --load your model path --save ckpt --save-interval 10 --tensorboard-dir tb --profile --eval-iters 10"
        found = words(line, tmp_path)
        kept = found.arguments()
        assert not {"--load", "--save", "your", "path", "ckpt", "--tensorboard-dir", "--profile"} & set(kept)
        assert [found.number(f"--{name}") for name in ("train-iters", "global-batch-size", "num-layers")] == [2, 8, 28]
        assert [found.get(f"--{name}") for name in ("eval-iters", "lr-warmup-iters", "lr")] == [
            ["0"],
            ["0"],
            ["1.25e-6"],
        ]
        assert found.get("--no-initialization") == []
        assert {change.key for change in found.changes} >= {
            "--load",
            "--train-iters",
            "--global-batch-size",
            "--profile",
        }

    @pytest.mark.parametrize(
        ("line", "world", "batch"),
        [
            ("", 8, 8),  # two ranks of data, twice the stages
            ("", 4, 4),
            ("--global-batch-size 4", 8, 4),  # no more than the script has
            ("--micro-batch-size 2", 8, 16),
            ("--num-virtual-stages-per-pipeline-rank 2", 8, 12),
            ("--num-layers-per-virtual-pipeline-stage 7", 8, 12),
            ("--context-parallel-size 2", 8, 4),
            ("--pipeline-model-parallel-size 1", 8, 8),
            ("--global-batch-size 7", 8, 7),  # the program itself will refuse it
            ("", 6, 64),
        ],
    )
    def test_micro_batches_for_each_stage(self, tmp_path: Path, line: str, world: int, batch: int) -> None:
        assert words(f"{BASE} {line}", tmp_path, world).number("--global-batch-size") == batch

    def test_the_users_settings_win(self, tmp_path: Path) -> None:
        settings = (
            ("--num-layers", "4"),
            ("--global-batch-size", "16"),
            ("--bf16", None),
            ("--swiglu", ""),
            ("--x", "1 2"),
        )
        found = words(BASE, tmp_path, 8, *settings)
        assert (found.number("--num-layers"), found.number("--global-batch-size"), found.get("--x")) == (
            4,
            16,
            ["1", "2"],
        )
        assert ("--bf16" in found, found.get("--swiglu")) == (False, [])

    def test_data_are_made_up(self, tmp_path: Path) -> None:
        found = words(f"{BASE} --data-path 0.5 a 0.5 b --valid-data-path c --split 90,5,5", tmp_path)
        assert found.get("--data-path") == [str(tmp_path / "data")]
        assert (found.get("--split"), "--valid-data-path" in found) == (["100,0,0"], False)
        assert found.get("--data-cache-path") == [str(tmp_path / EACH_RANK)]
        assert (tmp_path / "data.bin").stat().st_size == 16 * 129 * 4

    def test_one_that_is_not_is_made_up(self, tmp_path: Path) -> None:
        line = f"{BASE} --tokenizer-type Llama2Tokenizer --tokenizer-model your tokenizer.model"
        found = words(line, tmp_path)
        assert found.get("--tokenizer-name-or-path") == [str(tmp_path / "tokenizer")]
        assert (found.get("--tokenizer-type"), "--tokenizer-model" in found) == (["PretrainedFromHF"], False)

    def test_but_not_where_it_shows_the_size_of_the_vocabulary(self, tmp_path: Path) -> None:
        line = BASE.replace("--padded-vocab-size 999", "--tokenizer-name-or-path your path")
        with pytest.raises(UsageError, match="your path does not exist, so the vocabulary size is unknown") as error:
            words(line, tmp_path)
        assert "--set padded-vocab-size=" in str(error.value.hint)


def test_the_data_set_is_read_as_megatron_reads_it(tmp_path: Path) -> None:
    """The file format is that of ``megatron/core/datasets/indexed_dataset.py``, read with NumPy."""
    write_data(tmp_path / "data", 300)
    raw = (tmp_path / "data.idx").read_bytes()
    assert raw[:9] == b"MMIDIDX\x00\x00"
    version, dtype, sequences, documents = struct.unpack("<QBQQ", raw[9:34])
    assert (version, dtype, documents) == (1, 4, sequences + 1)
    lengths = np.frombuffer(raw, np.int32, sequences, 34)
    places = np.frombuffer(raw, np.int64, sequences, 34 + lengths.nbytes)
    ends = np.frombuffer(raw, np.int64, documents, 34 + lengths.nbytes + places.nbytes)
    assert len(raw) == 34 + lengths.nbytes + places.nbytes + ends.nbytes
    tokens = np.fromfile(tmp_path / "data.bin", np.int32)
    assert set(lengths) == {301}
    assert list(places) == [4 * 301 * number for number in range(sequences)]
    assert list(ends) == list(range(documents))
    assert (len(tokens), int(tokens.max())) == (301 * sequences, 99)


def test_the_tokenizer_can_be_read(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="Hugging Face's tokenizers are not installed")
    write_tokenizer(tmp_path / "made")
    assert tokenizers.Tokenizer.from_file(str(tmp_path / "made" / "tokenizer.json")).encode("word7 x").ids == [11, 0]
    settings = json.loads((tmp_path / "made" / "tokenizer_config.json").read_text("utf-8"))
    assert [settings[f"{name}_token"] for name in ("eos", "pad")] == ["</s>", "<pad>"]


def test_data_of_a_tuning(tmp_path: Path) -> None:
    found = words(f"{BASE} --data-path x --is-instruction-dataset", tmp_path)
    assert found.get("--data-path") == [str(tmp_path / "data")]
    names = sorted(path.name for path in tmp_path.glob("data*.bin"))
    assert names == [f"data_packed_{field}_document.bin" for field in ("attention_mask", "input_ids", "labels")]
    tokens = np.fromfile(tmp_path / "data_packed_input_ids_document.bin", np.int32)
    assert (tokens[:128].min(), len(tokens) % 128) == (1, 0)
    assert set(np.fromfile(tmp_path / "data_packed_attention_mask_document.bin", np.int32)) == {1}
    pairs = tmp_path / "both"  # scripts for preference tuning set both, and the data set looks for pairs first
    pairs.mkdir()
    words(f"{BASE} --data-path x --is-instruction-dataset --is-pairwise-dataset", pairs)
    halves = ("chosen_input_ids", "chosen_labels", "rejected_input_ids", "rejected_labels")
    assert sorted(path.name for path in pairs.glob("data*.bin")) == [
        f"data_packed_{one}_document.bin" for one in halves
    ]
    write_packed(tmp_path / "pairs", 8, ["chosen_input_ids", "chosen_labels"])
    labels = np.fromfile(tmp_path / "pairs_packed_chosen_labels_document.bin", np.int32)[:8]
    assert list(labels) == [-100] * 4 + [5, 6, 7, 8]


def stages_of(world: int, parallel: ProgramSplit) -> list[list[int]]:
    """Return the ranks of each stage, by counting through the dimensions in order, the first one fastest."""
    data = world // (parallel.tensor * parallel.pipeline * parallel.context)
    sizes = {"t": parallel.tensor, "c": parallel.context, "d": data, "p": parallel.pipeline}
    order = "tcpd" if parallel.pipeline_before_data else "tcdp"
    found: list[list[int]] = [[] for _ in range(parallel.pipeline)]
    for rank, place in enumerate(itertools.product(*(range(sizes[name]) for name in reversed(order)))):
        found[dict(zip(reversed(order), place, strict=True))["p"]].append(rank)
    return found


def test_the_first_rank_of_a_stage() -> None:
    draw = random.Random(14)  # noqa: S311 - no secret
    for _ in range(300):
        sizes = [draw.choice((1, 2, 3, 4, 8)) for _ in range(4)]
        parallel = ProgramSplit(sizes[0], sizes[1], sizes[2], pipeline_before_data=draw.random() < 0.5)
        world = sizes[0] * sizes[1] * sizes[2] * sizes[3]
        ranks = stages_of(world, parallel)
        assert [first_rank(stage, world, parallel) for stage in range(parallel.pipeline)] == [one[0] for one in ranks]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("--num-layers 4", None),
        ("--pipeline-model-parallel-size 4", ProgramSplit(pipeline=4)),
        ("--pipeline-model-parallel-size=4 --tensor-model-parallel-size 2", ProgramSplit(2, 4)),
        ("--pipeline-model-parallel-size 4 --pipeline-model-parallel-size 2", ProgramSplit(pipeline=2)),
        ("--pipeline-model-parallel-size four", None),
        ("--pipeline-model-parallel-size", None),
        ("--pipeline-model-parallel-size 0", None),
        (
            "--pipeline-model-parallel-size 2 --context-parallel-size 4 --expert-model-parallel-size 8 --use-tp-pp-dp-mapping",
            ProgramSplit(1, 2, 4, 8, pipeline_before_data=True),
        ),
    ],
)
def test_the_split_that_the_programs_arguments_name(line: str, found: ProgramSplit | None) -> None:
    assert parallel_of(line.split()) == found


def test_one_rank_of_each_stage() -> None:
    parallel = ProgramSplit(tensor=2, pipeline=2)
    assert choose_ranks(8, parallel) == (SimulatedRank(0, 0), SimulatedRank(4, 1))
    assert choose_ranks(8, parallel, stages=(1, 1)) == (SimulatedRank(4, 1),)
    assert choose_ranks(8, parallel, ranks=(3, 5, 3)) == (SimulatedRank(3, None), SimulatedRank(5, None))
    assert choose_ranks(8, None) == (SimulatedRank(0, 0),)
    assert choose_ranks(1, parallel) == (SimulatedRank(0, 0),)  # the program itself will refuse it


@pytest.mark.parametrize(
    ("stages", "ranks", "says"),
    [((2,), (), "stage 2 does not exist: the job has 2 stages"), (None, (8,), "rank 8 does not exist")],
)
def test_what_there_is_not_is_refused(stages: tuple[int, ...] | None, ranks: tuple[int, ...], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        choose_ranks(8, ProgramSplit(pipeline=2), stages, ranks)
