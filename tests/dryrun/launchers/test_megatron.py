"""Test the changed arguments of Megatron's programs in simulation, and that every change is reported."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from ms_tune.dialects.job_parts import SettingChange
from ms_tune.dryrun.launchers.arguments import OptionWords
from ms_tune.dryrun.launchers.megatron import EACH_RANK, simulation_arguments, write_data, write_packed, write_tokenizer
from ms_tune.errors import UsageError

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
