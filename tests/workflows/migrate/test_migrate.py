"""Test migration of a static-graph config to the dynamic graph: every key has one fate and its intended value."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from hypothesis import given, settings, strategies

from ms_tune.cli.main import main
from ms_tune.dryrun.request import DryrunRequest
from ms_tune.dryrun.task import Observer
from ms_tune.errors import ConfigError, UnsupportedError, UsageError
from ms_tune.source.yaml import load_source, parse_source
from ms_tune.workflows.migrate import memory
from ms_tune.workflows.migrate.draft import list_leaves
from ms_tune.workflows.migrate.result import Fate, Migration
from ms_tune.workflows.migrate.run import parse_target
from ms_tune.workflows.migrate.write import list_comments
from tests.jobs import migrate_source

SOURCE = (Path(__file__).parents[2] / "data" / "migrated_config.yaml").read_text("utf-8")


def migrated(text: str = SOURCE, target: str = "2.1", *, check: bool = False) -> Migration:
    return migrate_source(parse_source(textwrap.dedent(text), Path("train.yaml")), target, version="1.9", check=check)


def fates(found: Migration) -> dict[str, Fate]:
    return {one.name: one.fate for one in found.entries}


def data(found: Migration) -> Any:  # noqa: ANN401 - YAML values have any type
    return yaml.safe_load(found.text)


def at(found: Migration, dotted: str) -> Any:  # noqa: ANN401 - as above
    value = data(found)
    for name in dotted.split("."):
        value = value[name]
    return value


def untold(found: Migration) -> list[str]:
    """Return keys that are reported as translated, but whose value is not at the reported place of the new file."""
    missing = object()
    lost = []
    for one in found.entries:
        value = data(found)
        for name in one.to:
            value = value.get(name, missing) if isinstance(value, dict) else missing
        if one.fate is Fate.TRANSLATED and value != one.new:
            lost.append(one.name)
    return lost


@pytest.mark.slow
@pytest.mark.parametrize("target", ["2.0", "2.1"])
def test_what_is_reported_to_be_translated_is_in_the_file(target: str) -> None:
    swap = "cpu_offloading: True\n    op_swap: [{op_name: mlp, backward_prefetch: 1, layers: [0]}]"
    for text in (
        SOURCE,
        SOURCE.replace("use_seq_parallel: True", "use_seq_parallel: False"),
        SOURCE.replace("vocab_size: 1024", f"vocab_size: 1024\n    {swap}"),
        SOURCE.replace("pipeline_stage: 2", "pipeline_stage: 1").replace("[1, -1]", "0").replace("[2, 1]", "[3]"),
    ):
        assert untold(migrated(text, target)) == []


@pytest.mark.slow
def test_a_whole_config_is_proved() -> None:
    found = migrated(check=True)
    assert found.questions == ()
    assert {one.name: one.holds for one in found.proof} == {
        "loads": None,
        "lints": True,
        "layers": True,
        "batch": True,
        "fields": True,
        "weights": True,
    }
    assert found.exit_code == 0


def test_what_several_keys_decide_together() -> None:
    found = migrated()
    assert at(found, "training.global_batch_size") == 8  # 1 sample, 4 micro-batches, 2 ranks
    assert at(found, "training.steps") == 1600  # 6400 samples / 8, two epochs
    assert at(found, "training.max_norm") == 1e9  # the wrapper has no setting for clipping
    assert at(found, "parallelism.pipeline_parallel_layers_per_stage") == ["0-3", "4-5"]
    # Two layers of the first stage, one of the second; the prediction layer behaves like the last one.
    assert at(found, "recompute.full_recompute_layer") == ["0-1", "4"]
    assert at(found, "parallelism.data_parallel_shard") == -1
    assert at(found, "optimizer.betas") == [0.9, 0.999]
    assert at(found, "lr_scheduler.learning_rate") == 2e-6  # YAML 1.1 reads `2e-6` as a text
    assert at(found, "checkpoint.save_path") == "./out/checkpoint"
    assert at(found, "train_dataset.dataloader.column_names") == ["input_ids", "labels", "loss_mask", "position_ids"]


def test_comments_travel_with_their_keys() -> None:
    text = migrated().text
    for line in (
        *("  seed: 7  # 随机种子", "  # two in a million\n  learning_rate:", "      - 6400  # samples"),
        *("  save_interleaved_steps: 50  # 每 50 步保存", "# how it is trained\ntraining:"),
    ):
        assert line in text, line


def test_every_comment_is_in_the_new_file() -> None:
    text = SOURCE.replace("  eps: 1.e-8", "  eps: 1.e-8\n  # between\n\n# alone")
    text = text.replace(
        "run_mode: 'train'",
        "run_mode: 'train'  # 不需要写出\nnote: 'no # comment'\nplain: a#b\nmore: |  # head\n  # text\n  x # y",
    )
    above = "".join(f"  # above {number}\n" for number in range(30))  # more than go along with a key
    text = text.replace("  mode: 0", f"{above}  mode: 0  # graph # not the other")
    comments = list(list_comments(parse_source(text, Path("train.yaml"))))
    assert len(comments) == 40
    assert "# graph # not the other" in [comment for _, comment in comments]
    assert not any("comment'" in comment or comment in {"#b", "# text", "# y"} for _, comment in comments)
    new = migrated(text).text
    lines = [line.strip() for line in new.splitlines()]
    for _, comment in comments:
        assert any(line == comment or line.endswith(f" {comment}") for line in lines), comment
    number = 1 + text.splitlines().index("  # between")
    assert f"#   {number}: # between" in new
    assert "\n# alone\nlr_scheduler:\n" in new
    assert new.count("# how it is trained") == 1


@pytest.mark.slow
@pytest.mark.parametrize("end", ["\r", "\r\n", "\x85", "\u2028", "\u2029"])
def test_a_comment_ends_with_its_line(end: str) -> None:
    """All of YAML's line ends end a comment: the text after it is not part of it, and not copied."""
    text = SOURCE.replace("epochs: 2\n", f"epochs: 2  # two{end}  # 轮{end}  stop_step: 5{end}  # below{end}")
    found = migrated(text.replace("\n", end) if end == "\r" else text)
    assert yaml.safe_load(found.text)["training"]["steps"] == 5
    assert "stop_step" not in "".join(line for line in found.text.splitlines() if not line.lstrip().startswith("#"))
    assert all(f"# {word}" in found.text for word in ("two", "轮", "below", "随机种子", "samples", "每 50 步保存"))
    line = SOURCE[: SOURCE.index("epochs")].count("\n") + 2
    assert (f"#   {line}: # 轮" in found.text) == (end in "\r\n")


def test_values_of_yaml_that_json_has_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "train.yaml"
    config.write_text(
        f"{SOURCE}when: 2020-01-01\nraw: !!binary aGVsbG8=\nsome: !!set {{a}}\npairs: !!omap [a: 2020-01-02]\nmost: [.inf]\n"
    )
    main(["migrate", str(config), "--json", "--no-check"])

    def refuse(word: str) -> None:
        pytest.fail(f"{word} is no JSON")

    keys = json.loads(capsys.readouterr().out, parse_constant=refuse)["keys"]
    values = {one["key"]: one["value"] for one in keys}
    assert values["when"] == "2020-01-01"
    assert values["raw"] == "b'hello'"
    assert values["some"] == "{'a'}"
    assert values["pairs"] == [["a", "2020-01-02"]]
    assert values["most"] == ["inf"]


@pytest.mark.parametrize(
    ("loader", "place"),
    [
        ("{type: BlendedMegatronDatasetDataLoader, config: {seq_length: 512}}", ("config",)),
        ("{type: BlendedMegatronDatasetDataLoader}", ("config",)),
        ("{type: HFDataLoader, path: json}", ()),
    ],
)
def test_whether_attention_ends_with_each_document_is_always_written(loader: str, place: tuple[str, ...]) -> None:
    """The static graph uses False by default; the dynamic graph's trainer stops without the key."""
    head, _, rest = SOURCE.partition("  data_loader:\n")
    found = migrated(f"{head}  data_loader: {loader}\n{rest[rest.index('train_dataset_task') :]}")
    values = yaml.safe_load(found.text)["train_dataset"]["dataloader"]
    for name in place:
        values = values[name]
    assert values["create_compressed_eod_mask"] is False


def test_every_key_has_one_fate() -> None:
    found = migrated()
    keys = [".".join(map(str, path)) for path, _ in list_leaves(parse_source(SOURCE, Path("a.yaml")).data)]
    assert [one.name for one in found.entries] == keys
    assert len(set(keys)) == len(keys)
    assert fates(found)["train_dataset_task.dataset_config.data_loader.type"] is Fate.DEFAULT
    assert fates(found)["context.max_device_memory"] is Fate.NONE
    assert all(one.why is not None for one in found.entries if one.fate is not Fate.TRANSLATED)


def test_lists_by_pattern_are_translated() -> None:
    text = SOURCE.replace(
        "  recompute: [2, 1]",
        "  recompute: False\n  select_recompute:\n    'self_attention\\.core_attention': [2, 1]\n    input_layernorm: True",
    )
    found = migrated(text)
    assert found.questions == ()
    for name in (r"self_attention\.core_attention", "input_layernorm"):
        assert fates(found)[f"recompute_config.select_recompute.{name}"] is Fate.TRANSLATED
    assert at(found, "recompute.select_module") == {
        "self_attention.core_attention": ["0-1", "4"],
        "input_layernorm": ["0-5"],
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lists", "changes", "asked"),
    [
        ("select_comm_recompute: True", {}, "recompute_config.select_comm_recompute"),
        ("select_comm_recompute: False", {}, ""),
        (
            r"select_comm_recompute_exclude: {'self_attention\.linear_proj\.matmul': True}",
            {},
            r"recompute_config.select_comm_recompute_exclude.self_attention\.linear_proj\.matmul",
        ),
        # The dynamic graph multiplies where the static graph's fused activation does all.
        (r"select_recompute: {'mlp\.mul': True}", {}, ""),
        (
            r"select_recompute: {'mlp\.mul': True}",
            {"moe_grouped_gemm: True": "moe_grouped_gemm: True\n    hidden_act: fusedswiglu"},
            r"recompute_config.select_recompute.mlp\.mul",
        ),
    ],
)
def test_what_is_not_quite_the_same_is_asked(lists: str, changes: dict[str, str], asked: str) -> None:
    text = SOURCE.replace("recompute: [2, 1]", f"recompute: [2, 1]\n  {lists}")
    for old, new in changes.items():
        text = text.replace(old, new)
    found = migrated(text, check=True)
    assert [one.name for one in found.questions] == ([asked] if asked else [])
    assert {one.name: one.holds for one in found.proof}["layers"] is (None if asked else True)


def test_the_prefetch_of_swap_is_asked() -> None:
    text = SOURCE.replace("pipeline_stage: 2", "pipeline_stage: 1").replace("offset: [1, -1]", "offset: 0")
    text = text.replace("recompute: [2, 1]", "recompute: False")
    swap = "[{backward_prefetch: 1, layers: [0, 1]}]"
    text = text.replace("vocab_size: 1024", f"vocab_size: 1024\n    cpu_offloading: True\n    layer_swap: {swap}")
    found = migrated(text, check=True)
    assert fates(found)["model.model_config.cpu_offloading"] is Fate.TRANSLATED
    assert [one.name for one in found.questions] == ["model.model_config.layer_swap"]
    assert at(found, "swap.layer_swap") == [{"layers": ["0-1"]}]
    assert {one.name: one.holds for one in found.proof}["layers"] is None


def test_swap_that_the_static_graph_does_not_hand_over() -> None:
    found = migrated(SOURCE + "swap_config:\n  swap: True\n  layer_swap: [{backward_prefetch: 1, layers: [0, 1]}]\n")
    assert fates(found)["swap_config.layer_swap"] is Fate.DEFAULT
    assert "swap" not in data(found)


def test_swap_that_cannot_be_said_is_asked() -> None:
    swap = "op_swap: [{op_name: 'mlp', backward_prefetch: 1, layers: [0]}]"
    found = migrated(SOURCE.replace("vocab_size: 1024", f"vocab_size: 1024\n    cpu_offloading: True\n    {swap}"))
    assert {"model.model_config.cpu_offloading", "model.model_config.op_swap"} <= {one.name for one in found.questions}
    assert "op_swap" not in data(found)["model"]


def test_unknown_keys_are_asked_where_they_belong() -> None:
    found = migrated(
        SOURCE.replace("  total_steps: -1", "  total_steps: -1\n  # 自定义\n  my_rate: 3") + "my_key: {a: 1}\n"
    )
    assert fates(found)["lr_schedule.my_rate"] is fates(found)["my_key.a"] is Fate.ASK
    head, _, rest = found.text.partition("lr_scheduler:\n")
    assert "my_rate" not in head
    section = rest.partition("\n\n")[0]
    assert "  # 自定义\n  # DECIDE: lr_schedule.my_rate: 3:" in section
    assert found.exit_code == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "old"),
    [
        ("lr_schedule.learning_rate", "learning_rate: 2e-6"),
        ("optimizer.eps", "eps: 1.e-8"),
        ("model.model_config.rope_theta", "vocab_size: 1024"),
        ("runner_wrapper.max_grad_norm", "type: MFTrainOneStepCell"),
    ],
)
@pytest.mark.parametrize("value", [".nan", "-.inf", "1.0e+400", "[1.0, .inf]"])
def test_numbers_that_are_none_are_asked(key: str, old: str, value: str) -> None:
    name = key.rpartition(".")[2]
    line = old if old.startswith("type") else "vocab_size: 1024" if old.startswith("vocab") else ""
    indent = "\n    " if old.startswith("vocab") else "\n  "
    clip = f"{indent}use_clip_grad: True" if old.startswith("type") else ""
    found = migrated(SOURCE.replace(old, f"{line}{clip}{indent if line else ''}{name}: {value}"))
    assert fates(found)[key] is Fate.ASK
    assert not any(word in str(data(found)) for word in ("nan", "inf"))
    assert found.exit_code == 1


@pytest.mark.parametrize("value", ["1e400", "nan", "-inf"])
def test_texts_that_are_read_as_no_number_are_asked(value: str) -> None:
    found = migrated(SOURCE.replace("learning_rate: 2e-6", f"learning_rate: {value}"))
    assert fates(found)["lr_schedule.learning_rate"] is Fate.ASK
    assert "learning_rate" not in data(found)["lr_scheduler"]


@pytest.mark.parametrize("clipping", ["use_clip_grad: 'on'", "use_clip_grad: True\n  max_grad_norm: '1.0'"])
def test_clipping_that_is_not_reported_by_a_number_is_asked(clipping: str) -> None:
    found = migrated(SOURCE.replace("type: MFTrainOneStepCell", f"type: MFTrainOneStepCell\n  {clipping}"))
    assert fates(found)["runner_wrapper.use_clip_grad"] is Fate.ASK
    assert "max_norm" not in data(found)["training"]


def test_a_config_without_a_model_says_what_is_missing() -> None:
    found = migrated("run_mode: train\nseed: 1\nrunner_config: {epochs: 1, batch_size: 1}\n")
    assert found.refused
    assert found.exit_code == 2
    assert found.blocking == ()
    assert [one.id for one in found.missing] == ["migrate.why.no-model"]
    assert fates(found)["seed"] is Fate.TRANSLATED


def test_other_data_than_the_data_set_is_asked() -> None:
    text = SOURCE.replace("  dataset_config: *train_dataset", "  dataset_config: {data_loader: {type: X}}")
    assert fates(migrated(text))["train_dataset_task.dataset_config.data_loader.type"] is Fate.ASK


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("deepseek_v3", "telechat3", "model.model_config.model_type"),
        ("type: AdamW", "type: SGD", "optimizer.type"),
        ("model_type: deepseek_v3", "model_type: made_up", "model.model_config.model_type"),
        ("run_mode: 'train'", "run_mode: 'predict'", "run_mode"),
    ],
)
def test_keys_that_are_in_the_way(old: str, new: str, key: str) -> None:
    found = migrated(SOURCE.replace(old, new))
    assert found.refused
    assert found.exit_code == 2
    (way,) = [one for one in found.blocking if one.name == key]
    assert way.why is not None
    if new == "telechat3":  # it lists the models that have a network
        assert way.why.params["networks"] == "deepseek_v3, deepseek_v4, qwen3"


def test_a_network_that_cannot_be_cut_refuses_a_pipeline() -> None:
    text = """\
        use_legacy: False
        use_parallel: True
        parallel_config: {pipeline_stage: 2, micro_batch_num: 2}
        model: {model_config: {model_type: qwen3, num_hidden_layers: 4}}
        """
    found = migrated(text)
    assert [one.name for one in found.blocking] == ["parallel_config.pipeline_stage"]
    one_stage = migrated(text.replace("pipeline_stage: 2", "pipeline_stage: 1"))
    assert not one_stage.refused


def test_a_config_that_names_its_model_elsewhere(tmp_path: Path) -> None:
    text = "use_legacy: False\nuse_parallel: False\npretrained_model_dir: model\nmodel: {model_config: {}}\n"
    source = parse_source(text, tmp_path / "train.yaml")
    asked = migrate_source(source, check=False)
    assert fates(asked)["pretrained_model_dir"] is Fate.ASK
    assert not asked.refused
    (tmp_path / "model").mkdir()
    sizes = '{"model_type": "qwen3", "hidden_size": 64, "num_hidden_layers": 2, "torch_dtype": "bfloat16"}'
    (tmp_path / "model" / "config.json").write_text(sizes, encoding="utf-8")
    found = migrate_source(source, check=False)
    assert not found.refused
    assert at(found, "model.hidden_size") == 64
    assert at(found, "model.architectures") == "Qwen3ForCausalLM"
    assert "torch_dtype" not in data(found)["model"]
    # Weights are loaded if the folder contains some.
    assert fates(found)["pretrained_model_dir"] is Fate.ASK


@pytest.mark.parametrize("folder", ["/not/here", ""])
def test_all_but_the_model_is_written_where_its_folder_is_not_here(folder: str) -> None:
    config = yaml.safe_load(SOURCE)
    config |= {"pretrained_model_dir": folder}
    config["model"] = {"model_config": {"offset": [1, -1], "moe_grouped_gemm": True}}
    config["recompute_config"] = {"recompute": [1, 1], "select_recompute": False, "mp_comm_recompute": True}
    found = migrated(yaml.safe_dump(config), check=True)
    assert not found.refused
    assert found.exit_code == 1
    asked = {"pretrained_model_dir", "recompute_config.recompute", "parallel_config.pipeline_stage"}
    asked |= {"model.model_config.offset", "model.model_config.moe_grouped_gemm"}
    assert {key for key, fate in fates(found).items() if fate is Fate.ASK} == asked
    assert fates(found)["recompute_config.select_recompute"] is Fate.DEFAULT
    assert at(found, "parallelism.tensor_parallel") == config["parallel_config"]["model_parallel"]
    assert "pipeline_parallel" not in data(found)["parallelism"]
    assert [line for line in found.text.splitlines() if "DECIDE" in line and "--model-config" in line]
    holds = {one.name: one.holds for one in found.proof}
    assert [holds[name] for name in ("layers", "fields", "weights")] == [None, None, None]
    assert not found.proved


def test_a_legacy_model_is_not_read_from_a_folder() -> None:
    found = migrated("run_mode: train\nuse_legacy: True\npretrained_model_dir: here\nmodel: {model_config: {}}\n")
    assert [one.why.id for one in found.blocking if one.why] == ["migrate.why.folder-legacy"]


@pytest.mark.parametrize("named", ["elsewhere", "elsewhere/config.json", "elsewhere/other.json"])
def test_the_models_config_is_named_by_its_user(tmp_path: Path, named: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    model = yaml.safe_load(SOURCE)["model"]["model_config"]
    for name in ("config.json", "other.json"):
        (tmp_path / "elsewhere" / name).write_text(json.dumps(model), encoding="utf-8")
    config = yaml.safe_load(SOURCE) | {
        "pretrained_model_dir": "/not/here",
        "model": {"model_config": {"offset": [1, -1]}},
    }
    source = parse_source(yaml.safe_dump(config), tmp_path / "train.yaml")
    assert fates(migrate_source(source, version="1.9", check=False))["model.model_config.offset"] is Fate.ASK
    found = migrate_source(source, version="1.9", model_config=tmp_path / named)
    assert at(found, "model.hidden_size") == 256
    holds = {one.name: one.holds for one in found.proof}
    assert holds["layers"]
    assert holds["weights"]


def test_both_sides_are_simulated_with_the_models_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = yaml.safe_load(SOURCE)["model"]["model_config"]
    (tmp_path / "config.json").write_text(json.dumps(model | {"offset": 7}), encoding="utf-8")
    config = yaml.safe_load(SOURCE) | {
        "pretrained_model_dir": "/not/here",
        "model": {"model_config": {"offset": [1, -1]}},
    }
    path = tmp_path / "train.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    found = migrate_source(load_source(path), version="1.9", model_config=tmp_path, check=False)
    seen = []

    def simulated(request: DryrunRequest, _observer: object) -> SimpleNamespace:
        assert request.config is not None
        seen.append((request.config.name, yaml.safe_load(request.config.read_text(encoding="utf-8"))))
        return SimpleNamespace(runs=(), stages=(), not_included=(), warnings=())

    monkeypatch.setattr(memory, "dryrun_job", simulated)
    memory.simulate_both(found, DryrunRequest(), Observer())
    (old, before), (new, after) = seen
    assert (old, new) == ("train.yaml", "train.migrated.yaml")
    assert "pretrained_model_dir" not in before
    assert before["model"]["model_config"]["hidden_size"] == after["model"]["hidden_size"] == 256
    assert before["model"]["model_config"]["offset"] == [1, -1]  # the config's own value comes first
    assert path.read_text(encoding="utf-8") == yaml.safe_dump(config)


def test_a_config_that_reads_no_models_config_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as expected:
        migrate_source(
            parse_source("use_legacy: True\nmodel: {}\nparallel_config: {}\nrunner_config: {}\n", tmp_path / "a.yaml"),
            model_config=tmp_path,
        )
    assert expected.value.message.id == "config.model-json.legacy"
    with pytest.raises(ConfigError):
        migrate_source(parse_source(SOURCE, tmp_path / "a.yaml"), model_config=tmp_path)


def test_a_base_config_is_followed(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(SOURCE, encoding="utf-8")
    source = parse_source("base_config: base.yaml\nseed: 9\n", tmp_path / "train.yaml")
    found = migrate_source(source, version="1.9", check=False)
    assert at(found, "training.seed") == 9
    assert at(found, "training.steps") == 1600
    assert "  # two in a million" in found.text
    first = found.entries[0]
    assert (first.name, first.value, first.line, first.fate) == ("base_config", "base.yaml", 1, Fate.DEFAULT)


def test_targets() -> None:
    assert parse_target("mindformers-pynative") is None
    assert parse_target("mindformers-pynative@2.0") == parse_target("mindformers-pynative:2.0") == "2.0"
    with pytest.raises(UsageError):
        parse_target("megatron")
    with pytest.raises(UnsupportedError):
        migrated(target="1.9")


@pytest.mark.slow
def test_too_many_keys_are_refused() -> None:
    with pytest.raises(ConfigError):
        migrated(SOURCE + "".join(f"k{number}: 1\n" for number in range(20_001)))


ODD = strategies.sampled_from([None, True, False, 0, -1, 1, 2, 10**18, 1.5, "x", "", [], {}, [1], {"a": 1}, [[1]]])
KEYS = sorted(".".join(map(str, path)) for path, _ in list_leaves(yaml.safe_load(SOURCE)))


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(strategies.dictionaries(strategies.sampled_from(KEYS), ODD, min_size=1, max_size=3))
def test_odd_values_have_a_fate_or_a_clear_error(changes: dict[str, Any]) -> None:
    config = yaml.safe_load(SOURCE)
    for dotted, value in changes.items():
        section: Any = config
        *parents, name = dotted.split(".")
        for parent in parents:
            section = section[int(parent) if isinstance(section, list) else parent] if section else None
            if not isinstance(section, (dict, list)):
                break
        if isinstance(section, dict):
            section[name] = value
    text = yaml.safe_dump(config, sort_keys=False)
    source = parse_source(text, Path("a.yaml"))
    try:
        found = migrate_source(source, version="1.9", check=False)
    except (ConfigError, UnsupportedError):
        return
    assert len(found.entries) == len(list(list_leaves(source.data)))
    assert found.refused or isinstance(yaml.safe_load(found.text), dict)
