"""Test MindFormers configs: sizes of the job, changes for the run, and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ms_tune.dryrun.job import Column, MindFormersJob
from ms_tune.dryrun.request import STEPS, DryrunRequest, PreparedRun
from ms_tune.dryrun.shrink import mindformers
from ms_tune.enums import Dialect
from ms_tune.errors import ConfigError, MsTuneError, UnsupportedError, UsageError
from ms_tune.job import Job
from ms_tune.units import GIB
from tests.dryrun.configs import MINDFORMERS, edited, prepare_mindformers, source_of, without
from tests.dryrun.fuzz import VALUES, paths, replaced
from tests.kinds import labels


def job(run: PreparedRun) -> MindFormersJob:
    assert isinstance(run.job, MindFormersJob)
    return run.job


def written(run: PreparedRun) -> dict[str, Any]:
    """Return the rewritten config that the child process reads."""
    read = yaml.safe_load(run.files[job(run).config_file])
    assert isinstance(read, dict)
    return read


def changes(run: PreparedRun) -> dict[str, tuple[object, object]]:
    assert len({change.key for change in run.changes}) == len(run.changes)
    return {change.key: (change.before, change.after) for change in run.changes}


@pytest.fixture(scope="module")
def run() -> PreparedRun:
    return prepare_mindformers(MINDFORMERS, DryrunRequest(layers=2))


def test_the_stage_gets_the_layers_and_every_other_one(run: PreparedRun) -> None:
    assert (run.layers, run.shrunk, labels(run.kinds)) == (2, True, {"dense, full recompute": 2})
    assert written(run)["model"]["model_config"]["num_hidden_layers"] == 5
    assert changes(run)["model.model_config.num_hidden_layers"] == (64, 5)
    assert changes(run)["model.model_config.offset"] == ([1, 0, 0, -1], [1, 0, 0, 0])


def test_the_surroundings_are_taken_out_and_listed(run: PreparedRun) -> None:
    config = written(run)
    assert "train_dataset_task" not in config
    assert config["callbacks"] == []
    assert config["runner_config"]["epochs"] == 1
    assert config["load_checkpoint"] == ""
    assert config["auto_trans_ckpt"] is False
    assert config["output_dir"] == "./output"
    assert set(changes(run)) == {
        "model.model_config.num_hidden_layers",
        "model.model_config.offset",
        "train_dataset",
        "train_dataset_task",
        "callbacks",
        "runner_config.epochs",
        "load_checkpoint",
        "auto_trans_ckpt",
        "output_dir",
    }


_LOADER = "train_dataset.data_loader"
_ACCUMULATION = "runner_config.gradient_accumulation_steps"
_MEGATRON = {"type": "BlendedMegatronDatasetDataLoader", "sizes": [8000, 0, 0], "config": {"data_path": ["1", "/data"]}}
_PACKED = {"type": "HFDataLoader", "path": "json", "handler": [{"type": "PackingHandler", "seq_length": 4096}]}


def test_the_other_name_of_the_layer_count_is_known() -> None:
    config = edited(without(MINDFORMERS, "model.model_config.num_hidden_layers"), "model.model_config.num_layers", 32)
    prepared = prepare_mindformers(config, DryrunRequest(layers=1))
    assert written(prepared)["model"]["model_config"]["num_layers"] == 4
    assert "num_hidden_layers" not in written(prepared)["model"]["model_config"]


@pytest.mark.parametrize(("stage", "rank"), [(0, 0), (1, 8), (3, 24)])
def test_the_rank_is_the_first_of_its_stage(stage: int, rank: int) -> None:
    prepared = prepare_mindformers(MINDFORMERS, DryrunRequest(layers=1, stage=stage))
    assert (prepared.world_size, prepared.stages) == (32, 4)
    assert (prepared.stage, prepared.rank) == (stage, rank)
    assert prepared.not_included == ()


@pytest.mark.parametrize("devices", [8, 31, 64])
def test_another_number_of_devices_than_the_config_has_is_refused(devices: int) -> None:
    with pytest.raises(UsageError) as caught:
        prepare_mindformers(MINDFORMERS, devices=devices)
    assert caught.value.message.params == {"devices": devices, "size": 32}


def test_without_use_parallel_one_device_holds_the_whole_model() -> None:
    prepared = prepare_mindformers(edited(MINDFORMERS, "use_parallel", value=False), DryrunRequest(layers=2))
    assert (prepared.world_size, prepared.layers, labels(prepared.kinds)) == (1, 2, {"dense, full recompute": 2})
    parallel = written(prepared)["parallel_config"]
    assert parallel == dict.fromkeys(MINDFORMERS["parallel_config"], 1)


@pytest.mark.parametrize(
    ("edits", "size"),
    [
        pytest.param({}, 16, id="batch x micro-batches"),
        pytest.param({"parallel_config.pipeline_stage": 1}, 2, id="no pipeline, no micro-batches"),
        pytest.param({"parallel.full_batch": True}, 16, id="a strategy outweighs full_batch"),
        pytest.param({"parallel.dataset_strategy": "full_batch"}, 32, id="whole batches: of all data-parallel ranks"),
        pytest.param(
            {"parallel.dataset_strategy": None}, 32, id="whole batches where nothing is said, full_batch or not"
        ),
        pytest.param({"parallel.dataset_strategy": None, _LOADER: _MEGATRON}, 16, id="a Megatron data set is cut"),
        pytest.param({"parallel.dataset_strategy": None, _LOADER: _PACKED}, 16, id="so are packed samples"),
        pytest.param({"use_parallel": False, _ACCUMULATION: 4}, 2, id="no accumulation on one device"),
        pytest.param({"parallel.parallel_mode": 0, _ACCUMULATION: 4}, 2, id="nor where operators are not split"),
        pytest.param({"micro_batch_interleave_num": 2}, 32, id="interleaved micro-batches"),
        pytest.param({"runner_config.batch_size": 1}, 8, id="batch of one"),
        pytest.param({"runner_config.gradient_accumulation_steps": 4}, 16, id="no accumulation beside a pipeline"),
        pytest.param(
            {"runner_config.gradient_accumulation_steps": 4, "parallel_config.pipeline_stage": 1},
            8,
            id="accumulation without a pipeline",
        ),
    ],
)
def test_a_batch_holds_all_micro_batches_of_a_step(edits: dict[str, object], size: int) -> None:
    config = MINDFORMERS
    for path, value in edits.items():
        config = edited(config, path, value)
    assert job(prepare_mindformers(config)).batch_size == size


def test_the_data_set_has_the_configs_columns_and_length() -> None:
    config = edited(MINDFORMERS, "train_dataset.input_columns", ["input_ids", "loss_mask", "attention_mask"])
    config = edited(config, "use_legacy", value=False)
    made = job(prepare_mindformers(edited(config, "model.model_config.seq_length", 128)))
    assert made.batches == STEPS
    assert made.columns == (
        Column("input_ids", (128,), "int32"),
        Column("loss_mask", (128,), "int32"),
        Column("attention_mask", (1, 128, 128), "int32"),
    )


@pytest.mark.parametrize(
    ("edits", "names"),
    [
        pytest.param({}, ["input_ids"], id="older models take the tokens"),
        pytest.param({"use_legacy": False}, ["input_ids", "labels", "loss_mask", "position_ids"], id="newer ones all"),
        pytest.param(
            {"train_dataset.data_loader": {"type": "BlendedMegatronDatasetDataLoader", "config": {}}},
            ["input_ids", "labels", "loss_mask", "position_ids"],
            id="a Megatron data set",
        ),
        pytest.param(
            {"use_legacy": False, "train_dataset.data_loader": {"type": "HFDataLoader", "create_attention_mask": True}},
            ["input_ids", "labels", "loss_mask", "position_ids", "attention_mask"],
            id="an attention mask",
        ),
    ],
)
def test_without_a_list_of_columns_there_are_those_of_the_data_loader(
    edits: dict[str, object], names: list[str]
) -> None:
    config = without(MINDFORMERS, "train_dataset.input_columns")
    for path, value in edits.items():
        config = edited(config, path, value)
    assert [column.name for column in job(prepare_mindformers(config)).columns] == names


def test_a_compressed_mask_is_left_for_mindformers_to_switch_on() -> None:
    config = without(edited(MINDFORMERS, "use_legacy", value=False), "train_dataset.input_columns")
    loader = {**_MEGATRON, "config": {"create_compressed_eod_mask": True, "eod_pad_length": 32}}
    prepared = prepare_mindformers(edited(config, "train_dataset.data_loader", loader))
    assert job(prepared).columns[-1] == Column("actual_seq_len", (32,), "int32")
    left = written(prepared)["train_dataset"]["data_loader"]
    assert left["config"] == {"create_compressed_eod_mask": True}


@pytest.mark.parametrize(
    ("kind", "columns", "sliced", "length"),
    [
        ("LlamaForCausalLM", ["input_ids"], True, 129),
        ("LlamaForCausalLM", ["input_ids", "labels"], False, 129),
        ("LlamaForCausalLM", ["input_ids", "labels"], True, 128),
        ("ChatGLM2ForConditionalGeneration", ["input_ids", "labels"], False, 128),
    ],
)
def test_the_older_llama_reads_one_token_more_for_the_labels(
    kind: str, columns: list[str], length: int, *, sliced: bool
) -> None:
    config = edited(edited(MINDFORMERS, "model.arch.type", kind), "model.model_config.seq_length", 128)
    config = edited(
        edited(config, "train_dataset.input_columns", columns), "model.model_config.input_sliced_sig", sliced
    )
    assert {column.shape for column in job(prepare_mindformers(config)).columns} == {(length,)}


def test_what_mindformers_reads_of_the_data_set_before_it_builds_it_stays() -> None:
    """Columns, how they are split and whether one rank reads for others are then decided by MindFormers itself."""
    config = edited(MINDFORMERS, "train_dataset.construct_args_key", ["input_ids", "labels"])
    megatron = written(prepare_mindformers(edited(config, _LOADER, _MEGATRON)))
    names = ["input_ids", "labels", "loss_mask", "position_ids"]
    # enough for two steps of 8 micro-batches of 2 samples on each of 32 ranks
    assert megatron["train_dataset"] == {
        "data_loader": {"type": "BlendedMegatronDatasetDataLoader", "config": {}, "sizes": [1024, 0, 0]},
        "input_columns": names,
        "construct_args_key": ["input_ids", "labels"],
    }
    packed = written(prepare_mindformers(edited(MINDFORMERS, _LOADER, {**_PACKED, "use_broadcast_data": False})))
    assert packed["train_dataset"] == {
        "data_loader": {"type": "HFDataLoader", "use_broadcast_data": False, "handler": [{"type": "PackingHandler"}]},
        "input_columns": names,
    }
    assert packed["parallel"] == MINDFORMERS["parallel"]


def test_what_waits_writes_or_reads_files_is_taken_out() -> None:
    config = MINDFORMERS
    for path, value in _IN_THE_WAY.items():
        config = edited(config, path, value)
    prepared = prepare_mindformers(config)
    assert {path: changes(prepared)[path] for path in _IN_THE_WAY} == {
        path: (value, _LEFT.get(path)) for path, value in _IN_THE_WAY.items()
    }


_IN_THE_WAY: dict[str, object] = {
    "checkpoint": {"load_path": "/data/weights", "save_path": "/data/new"},
    "tensorboard": {"tensorboard_dir": "/data/board"},
    "data_skip_steps": 100,
    "context.save_graphs": True,
    "context.affinity_cpu_list": {"device0": ["0-3"]},
    "parallel.strategy_ckpt_load_file": "/data/strategy.ckpt",
    "runner_config.stop_step": 1,
    "runner_config.sink_size": 10,
    "model.model_config.checkpoint_name_or_path": "llama2_7b",
}
_LEFT: dict[str, object] = {
    "context.save_graphs": False,
    "runner_config.sink_size": 1,
    "model.model_config.checkpoint_name_or_path": "",
}


def test_a_model_without_a_name_is_refused() -> None:
    nameless = without(edited(MINDFORMERS, "use_legacy", value=False), "model.model_config.model_type")
    with pytest.raises(ConfigError) as caught:
        prepare_mindformers(nameless)
    assert caught.value.message.id == "dryrun.no-model-type"
    with pytest.raises(ConfigError) as caught:
        prepare_mindformers(edited(nameless, "pretrained_model_dir", "/nowhere"))
    assert caught.value.message.id == "dryrun.no-model-folder"
    assert prepare_mindformers(edited(nameless, "use_legacy", value=True)).layers == 17


_NEWER = edited(MINDFORMERS, "use_legacy", value=False)


def test_a_model_folder_that_is_not_there_is_reported_where_the_config_can_do_without() -> None:
    prepared = prepare_mindformers(edited(_NEWER, "pretrained_model_dir", "/nowhere"))
    assert [warning.id for warning in prepared.warnings] == ["dryrun.warning.no-model-folder"]
    assert "pretrained_model_dir" not in written(prepared)


def test_columns_that_cannot_be_made_up_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedError) as caught:
        prepare_mindformers(edited(MINDFORMERS, "train_dataset.input_columns", ["input_ids", "pixel_values"]))
    assert caught.value.message.params["columns"] == "pixel_values"


def test_the_columns_that_leave_the_data_set_count() -> None:
    config = edited(MINDFORMERS, "train_dataset.output_columns", ["input_ids", "labels"])
    assert [column.name for column in job(prepare_mindformers(config)).columns] == ["input_ids", "labels"]
    with pytest.raises(UnsupportedError) as caught:
        prepare_mindformers(edited(config, "train_dataset.eod_reset", value=True))
    assert caught.value.message.id == "dryrun.eod-reset"


@pytest.mark.parametrize("mode", ["predict", "eval", "export", 3])
def test_what_is_no_training_is_refused(mode: object) -> None:
    with pytest.raises(UnsupportedError) as caught:
        prepare_mindformers(edited(MINDFORMERS, "run_mode", mode))
    assert caught.value.message.params["mode"] == mode


def test_a_config_without_a_layer_count_is_reported_what_to_add() -> None:
    with pytest.raises(ConfigError) as caught:
        prepare_mindformers(without(MINDFORMERS, "model.model_config.num_hidden_layers"))
    assert caught.value.message.id == "dryrun.no-layer-count"
    assert caught.value.hint is not None
    assert caught.value.location() == "config.yaml"


def test_sizes_come_from_the_models_own_folder(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    sizes = {
        "num_hidden_layers": 32,
        "hidden_size": 64,
        "seq_length": 7,
        "quantization_config": {"quant_method": "fp8"},
    }
    (tmp_path / "model" / "config.json").write_text(json.dumps(sizes), encoding="utf-8")
    config = without(_NEWER, "model.model_config.num_hidden_layers")
    config = edited(config, "pretrained_model_dir", "model")
    config_of_job = mindformers.prepare_config(
        Job(source_of(config, tmp_path / "config.yaml"), dialect=Dialect.MINDFORMERS), None
    )
    prepared = mindformers.prepare_mindformers(config_of_job, "config.yaml", DryrunRequest())
    model = written(prepared)["model"]["model_config"]
    assert (model["num_hidden_layers"], model["hidden_size"], model["seq_length"]) == (32, 64, 4096)
    assert "pretrained_model_dir" not in written(prepared)
    assert changes(prepared)["model.model_config.hidden_size"] == (None, 64)
    assert "quantization_config" not in model  # which MindFormers heeds in the YAML only


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, '"text"'])
def test_a_model_folder_with_something_else_is_reported(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    config = edited(_NEWER, "pretrained_model_dir", str(tmp_path))
    with pytest.raises(ConfigError) as caught:
        prepare_mindformers(config)
    assert caught.value.location() == str(tmp_path / "config.json")


def test_a_model_folder_that_is_not_here_matters_only_if_sizes_are_missing() -> None:
    config = edited(_NEWER, "pretrained_model_dir", "/nowhere/model")
    assert "pretrained_model_dir" not in written(prepare_mindformers(config))
    with pytest.raises(ConfigError) as caught:
        prepare_mindformers(without(config, "model.model_config.num_hidden_layers"))
    assert caught.value.message.params["folder"] == "/nowhere/model"
    assert caught.value.hint is not None


def interleaved(chunks: int) -> dict[str, Any]:
    pipeline = {"pipeline_interleave": True, "pipeline_scheduler": "1f1b"}
    config = edited(MINDFORMERS, "parallel.pipeline_config", pipeline)
    return edited(edited(config, "model.model_config.pp_interleave_num", chunks), "model.model_config.offset", 0)


@pytest.mark.parametrize(("layers", "chunks", "served"), [(4, 2, True), (3, 2, True), (4, 4, True), (3, 4, False)])
def test_no_chunk_of_a_stage_is_left_empty(layers: int, chunks: int, *, served: bool) -> None:
    if served:
        assert prepare_mindformers(interleaved(chunks), DryrunRequest(layers=layers)).layers == layers
        return
    with pytest.raises(UsageError) as caught:
        prepare_mindformers(interleaved(chunks), DryrunRequest(layers=layers))
    assert caught.value.message.params == {"layers": layers, "chunks": chunks}


@pytest.mark.parametrize(
    ("key", "before", "after", "kinds"),
    [
        pytest.param("recompute", True, None, {"dense, full recompute": 3}, id="everything"),
        pytest.param("recompute", [5, 0, 10, 17], [1, 0, 2, 1], {"dense": 1, "dense, full recompute": 2}, id="counts"),
        pytest.param(
            "select_recompute",
            {r"feed_forward\.mul": [3, 0, 4, 0]},
            {r"feed_forward\.mul": [1, 0, 1, 0]},
            {r"dense, select recompute feed_forward\.mul": 1, "dense": 2},
            id="patterns",
        ),
    ],
)
def test_a_cut_stage_keeps_its_kinds_of_layers(key: str, before: object, after: object, kinds: dict[str, int]) -> None:
    base = edited(edited(MINDFORMERS, "recompute_config", {}), "model.model_config.offset", 0)
    prepared = prepare_mindformers(edited(base, f"recompute_config.{key}", before), DryrunRequest(layers=3, stage=2))
    assert changes(prepared).get(f"recompute_config.{key}") == (None if after is None else (before, after))
    assert labels(prepared.kinds) == kinds


def test_dense_layers_at_the_front_stay_dense_and_the_others_keep_their_experts() -> None:
    config = edited(edited(MINDFORMERS, "use_legacy", value=False), "model.model_config.model_type", "deepseek_v3")
    config = edited(config, "model.model_config.n_routed_experts", 8)
    config = edited(edited(config, "recompute_config", {}), "model.model_config.offset", 0)
    config = edited(config, "model.model_config.first_k_dense_replace", 3)
    first = prepare_mindformers(config, DryrunRequest(layers=2, stage=0))
    assert labels(first.kinds) == {"dense": 1, "moe": 1}
    assert written(first)["model"]["model_config"]["first_k_dense_replace"] == 1
    last = prepare_mindformers(config, DryrunRequest(layers=2, stage=3))
    assert labels(last.kinds) == {"moe": 2}
    assert written(last)["model"]["model_config"]["first_k_dense_replace"] == 1


LISTS = st.one_of(
    st.booleans(),
    st.lists(st.integers(0, 17), min_size=4, max_size=4),
    st.dictionaries(
        st.sampled_from([r"feed_forward\.mul", "attention"]), st.lists(st.integers(0, 17), min_size=4, max_size=4)
    ),
)


@pytest.mark.slow
@given(
    recompute=st.one_of(st.booleans(), st.lists(st.integers(0, 17), min_size=4, max_size=4)),
    select=LISTS,
    layers=st.integers(1, 17),
    stage=st.integers(0, 3),
)
def test_layers_that_stay_do_what_they_did(recompute: object, select: object, layers: int, stage: int) -> None:
    """In the smaller config, read by the framework's rules, every kind of layer corresponds to one of the full config."""
    config = edited(edited(MINDFORMERS, "recompute_config.recompute", recompute), "use_legacy", value=True)
    config = edited(config, "recompute_config.select_recompute", select)
    full = prepare_mindformers(config, DryrunRequest(stage=stage))
    cut = prepare_mindformers(config, DryrunRequest(stage=stage, layers=layers))
    assert sum(cut.kinds.values()) == cut.layers == layers
    assert cut.kinds.keys() <= full.kinds.keys()
    if layers >= len(full.kinds):
        assert cut.kinds.keys() == full.kinds.keys()


def test_a_config_that_mindformers_refuses_is_refused_with_its_error() -> None:
    config = edited(MINDFORMERS, "model.model_config.offset", 1)
    config = edited(config, "model.model_config.num_hidden_layers", 63)
    with pytest.raises(ConfigError) as caught:
        prepare_mindformers(config)
    assert "ValueError: The sum of `offset`" in str(caught.value)


def test_what_swaps_goes_on_swapping() -> None:
    swap = {"swap": True, "layer_swap": [{"backward_prefetch": 1, "layers": [0, 1, 17]}]}
    config = edited(edited(MINDFORMERS, "swap_config", swap), "recompute_config", {"recompute": [2, 3, 20]})
    cut = prepare_mindformers(edited(config, "use_legacy", value=True), DryrunRequest(layers=4))
    assert {"swap" in kind.remark for kind in cut.kinds} == {False, True}
    assert sum(cut.kinds.values()) == 4
    assert written(cut)["swap_config"]["layer_swap"] == [{"backward_prefetch": 1, "layers": [0, 4]}]


@pytest.mark.parametrize(("text", "size"), [("58GB", 58 * GIB), ("31.5GB", 63 * GIB // 2), (None, None)])
def test_the_configs_own_memory_limit_is_read(text: str | None, size: int | None) -> None:
    config = edited(MINDFORMERS, "context.max_device_memory", text)
    assert prepare_mindformers(config).max_device_memory == size


@pytest.mark.parametrize("value", ["a lot", "0GB", True, []])
def test_a_memory_limit_that_is_no_size_is_reported(value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        prepare_mindformers(edited(MINDFORMERS, "context.max_device_memory", value))
    assert caught.value.message.params["key"] == "context.max_device_memory"


@pytest.mark.parametrize("value", [0, -1, "4", 2.0, True, [4]])
@pytest.mark.parametrize("key", ["pipeline_stage", "data_parallel", "model_parallel", "micro_batch_num"])
def test_a_size_that_is_no_whole_number_above_zero_is_reported(key: str, value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        prepare_mindformers(edited(MINDFORMERS, f"parallel_config.{key}", value))
    assert caught.value.message.params["key"] == f"parallel_config.{key}"


JSON_KEY = "context.ascend_config.parallel_speed_up_json_path"


@pytest.mark.parametrize("beside", ["the config", "the working folder"])
def test_the_speed_up_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: str) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    place = there if beside == "the config" else here
    (place / "speed.json").write_text("{}", encoding="utf-8")
    monkeypatch.chdir(here)
    source = source_of(edited(MINDFORMERS, JSON_KEY, "./speed.json"), there / "config.yaml")
    prepared = mindformers.prepare_mindformers(
        mindformers.prepare_config(Job(source, dialect=Dialect.MINDFORMERS), None), "config.yaml", DryrunRequest()
    )
    found = written(prepared)["context"]["ascend_config"]["parallel_speed_up_json_path"]
    assert Path(found).samefile(place / "speed.json")
    assert Path(found).is_absolute()


def test_a_speed_up_file_that_is_not_there_is_left_out_and_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    prepared = prepare_mindformers(edited(MINDFORMERS, JSON_KEY, "./nowhere.json"))
    assert "parallel_speed_up_json_path" not in written(prepared)["context"]["ascend_config"]
    assert changes(prepared)[JSON_KEY] == ("./nowhere.json", None)


@pytest.mark.slow
@given(st.sampled_from(list(paths(MINDFORMERS))), VALUES)
def test_no_value_anywhere_makes_it_fail_in_another_way_than_it_says(
    path: tuple[str | int, ...], value: object
) -> None:
    _prepare_or_refuse(replaced(MINDFORMERS, path, value))


def _prepare_or_refuse(config: dict[str, Any]) -> None:
    outcome: PreparedRun | MsTuneError
    try:
        outcome = prepare_mindformers(config, DryrunRequest(layers=2))
    except MsTuneError as error:
        outcome = error
    assert str(outcome) if isinstance(outcome, MsTuneError) else written(outcome)


@pytest.mark.parametrize("chunks", [1, 2])
@pytest.mark.parametrize(("legacy", "expected"), [(False, True), (True, False)])
def test_that_experts_get_even_shares_is_reported(*, legacy: bool, expected: bool, chunks: int) -> None:
    """Older models reserve a fixed number of tokens per expert, regardless of the router."""
    made = interleaved(chunks) if chunks > 1 else MINDFORMERS
    config = edited(edited(made, "use_legacy", value=legacy), "model.model_config.model_type", "qwen3_moe")
    ids = [message.id for message in prepare_mindformers(config).not_included]
    assert ("dryrun.not-included.uneven-experts" in ids) is expected
    dense = prepare_mindformers(edited(MINDFORMERS, "use_legacy", value=False)).not_included
    assert dense == ()
