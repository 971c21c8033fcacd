"""Test the repository around a script or a config: its release, definitions and registrations."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ms_tune.cli.main import main
from ms_tune.errors import ConfigError
from ms_tune.facts.query import load
from ms_tune.job.checkout import Checkout, read_git_head
from ms_tune.job.detect import find_repository
from ms_tune.job.script import ScriptJob

_SCRIPT = """msrun --worker_num 8 posttrain_gpt.py --stage dpo --is-pairwise-dataset --is-instruction-dataset --prompt-type qwen \\
  --ai-framework mindspore --num-layers 8 --hidden-size 64 --num-attention-heads 8 \\
  --seq-length 4096 --max-position-embeddings 4096 --pipeline-model-parallel-size 2
"""


def find_checkout(path: Path) -> Checkout:
    repository = find_repository(path)
    assert repository is not None
    return Checkout(*repository)


def releases_around(path: Path) -> tuple[str, ...]:
    """Return the releases of MindSpeed-LLM whose sources may contain a script."""
    return find_checkout(path).releases_of("MindSpeed-LLM")


def checkout(folder: Path, release: str) -> Path:
    """Create a script in sources that define the arguments of a release, in two files."""
    names = [
        name
        for name, rows in load("megatron")["arguments"].items()
        if any(row["part"] == "MindSpeed-LLM" and release in row["releases"] for row in rows)
    ]
    for place, part in (("training/arguments.py", names[::2]), ("features_manager/more.py", names[1::2])):
        file = folder / "mindspeed_llm" / place
        file.parent.mkdir(parents=True)
        file.write_text("".join(f"group.add_argument('{name}', type=int)\n" for name in part), encoding="utf-8")
    script = folder / "examples" / "mindspore" / "tune.sh"
    script.parent.mkdir(parents=True)
    script.write_text(_SCRIPT, encoding="utf-8")
    return script


@pytest.mark.parametrize("release", ["2.2", "2.3", "26.0", "26.1"])
def test_a_script_is_for_the_release_that_it_lies_in(
    release: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = checkout(tmp_path, release)
    assert release in releases_around(script)
    assert main(["lint", str(script), "--json"]) in (0, 1)
    result = json.loads(capsys.readouterr().out)
    assert result["summary"]["checked_for"][0]["version"] == release
    # Only from 2.3 on do stages not allocate buffers for received tensors.
    assert ("MST134" in {one["id"] for one in result["findings"]}) == (release != "2.2")
    assert ScriptJob(script, _SCRIPT).release == release
    assert ScriptJob(script, _SCRIPT, version="2.3").release == "2.3"


@pytest.mark.parametrize(
    ("release", "stated", "found"),
    [("2.3", "26.0.0dev0", "26.0"), ("26.1", "26.0.0dev0", "26.1"), ("2.3", "0.0.1", "2.3")],
)
def test_a_release_that_sources_state_is_the_earliest(release: str, stated: str, found: str, tmp_path: Path) -> None:
    script = checkout(tmp_path, release)
    write_files(tmp_path, {"setup.py": f"__version__ = '{stated}'\n"})
    assert releases_around(script)[-1] == found


def test_elsewhere_nothing_is_known(tmp_path: Path) -> None:
    assert find_repository(tmp_path / "tune.sh") is None
    (tmp_path / ".git").mkdir()
    assert find_checkout(tmp_path / "here" / "tune.sh") == Checkout(tmp_path, None)
    assert releases_around(tmp_path / "tune.sh") == ()


def test_what_the_release_around_it_does_with_layers_is_not_known(tmp_path: Path) -> None:
    script = checkout(tmp_path, "2.0")
    with pytest.raises(ConfigError, match=r"2\.0"):
        _ = ScriptJob(script, _SCRIPT).release


def test_programs_with_a_parser_of_their_own_are_not_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """MindSpeed-Core-MS's branch ``br_master`` has its own parser."""
    script = checkout(tmp_path, "2.3")
    (tmp_path / "mindspeed_llm").rename(tmp_path / "mindspeed_ms")
    script.write_text(_SCRIPT.replace("--stage dpo", "--distributed-backend hccl --stage dpo"), encoding="utf-8")
    assert main(["lint", str(script), "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["findings"] == []
    assert "another parser" in err
    with pytest.raises(ConfigError, match="another parser"):
        _ = ScriptJob(script, _SCRIPT).release
    # What bash and the launcher do with the script is the same with any parser.
    text = script.read_text("utf-8").replace("--stage dpo", "--stage dpo\n    --bf16")
    script.write_text(text.replace("msrun", "msrun --master_port 70000", 1), encoding="utf-8")
    assert main(["lint", str(script), "--json"]) == 1
    found = {one["name"] for one in json.loads(capsys.readouterr().out)["findings"]}
    assert found == {"options-cut-off", "port-beyond-all"}


_OF_1_0 = "".join(f"parser.add_argument('{name}')\n" for name in load("releases")["megatron"]["outdated"]["arguments"])


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("modellink/training/arguments.py", ""),
        ("ascendspeed/arguments.py", ""),
        ("mindspeed_llm/training/arguments.py", _OF_1_0),  # Megatron-LM's arguments, which 2.0 no longer defines itself
    ],
)
def test_nothing_is_claimed_of_mindspeed_llm_before_2_0(
    file: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = file.partition("/")[0]
    write_files(tmp_path, {"tune.sh": _SCRIPT.replace("--stage", "--ours --stage"), f"{package}/__init__.py": ""})
    write_files(tmp_path, {file: text})
    assert main(["lint", str(tmp_path / "tune.sh")]) == 0
    out, err = capsys.readouterr()
    assert "No issues found" in out
    assert str(tmp_path / file) in err
    sizes = _SCRIPT.replace("--stage dpo --is-pairwise-dataset", "--padded-vocab-size 64 --micro-batch-size 1 --bf16")
    write_files(tmp_path, {"tune.sh": sizes})
    assert main(["check", str(tmp_path / "tune.sh")]) == 0
    assert "estimated by the rules of MindSpeed-LLM 2.2" in capsys.readouterr().out


def test_the_innermost_checkout_counts(tmp_path: Path) -> None:
    """MindSpeed-Core-MS contains a clone of MindSpeed-LLM."""
    outer = tmp_path / "mindspeed_ms" / "training" / "arguments.py"
    outer.parent.mkdir(parents=True)
    outer.write_text("", encoding="utf-8")
    script = checkout(tmp_path / "MindSpeed-LLM", "2.2")
    assert find_checkout(script).own_parser is None
    assert "2.2" in releases_around(script)
    assert find_checkout(tmp_path / "examples" / "pretrain.sh").own_parser == outer
    assert releases_around(tmp_path / "examples" / "pretrain.sh") == ()


_CONFIG = """run_mode: 'finetune'
trainer: {type: CausalLanguageModelingTrainer, model_name: 'ours'}
runner_config: {epochs: 1, batch_size: 1}
callbacks: [{type: OurMonitor, OPTION}]
model: {model_config: {type: LlamaConfig, num_layers: 8}, arch: {type: OurModel}}
optimizer: {type: Ours}
"""
_CLASSES = """import os
from mindformers.tools.register import MindFormerRegister, MindFormerModuleType
open('TRACE', 'w')  # of a run

@MindFormerRegister.register(MindFormerModuleType.MODELS)
class OurModel: pass

@MindFormerRegister.register(MindFormerModuleType.CALLBACK, alias="OurMonitor")
class Monitor:
    def __init__(self, every=1): self.every = every

from elsewhere import Ours
MindFormerRegister.register_cls(Ours, MindFormerModuleType.OPTIMIZER)
"""


def write_files(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def mindformers(folder: Path, version: str, option: str = "every: 2") -> Path:
    """Create a config in a repository of MindFormers with additional classes."""
    classes = _CLASSES.replace("TRACE", str(folder / "trace"))
    setup = f"setup(\n    name='mindformers',\n    version='{version}',\n)\n"
    config = {"research/ours/train.yaml": _CONFIG.replace("OPTION", option), "research/ours/ours.py": classes}
    write_files(folder, {"setup.py": setup, "mindformers/__init__.py": "", **config})
    return folder / "research" / "ours" / "train.yaml"


def lint(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[set[str], str, str]:
    """Return the names of the findings in a file, its release, and further notes."""
    main(["lint", str(path), "--json"])
    out, err = capsys.readouterr()
    result = json.loads(out)
    return {one["name"] for one in result["findings"]}, result["summary"]["checked_for"][0]["version"], err


@pytest.mark.parametrize(
    ("version", "release", "note"),
    [
        ("1.7.0", "1.7", 0),
        ("1.4.0", "1.4", 1),
        ("2.7.0.dev1", "2.1", 1),
        ("1.9.0", "1.9", 0),
        ("2023.09.dev", "0.3", 1),
    ],
)
def test_a_config_is_checked_for_the_release_around_it(
    version: str, release: str, note: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = mindformers(tmp_path, version)
    _, checked_for, err = lint(config, capsys)
    assert checked_for == release
    assert err.count(f"MindFormers {version}") == note
    main(["lint", str(config), str(tmp_path), "--framework-version", "1.8", "--json"])
    assert '"version": "1.8"' in capsys.readouterr().out


@pytest.mark.parametrize("network", ["InferenceGlm4ForCausalLM", "TrainingGlm4ForCausalLM"])
def test_a_repository_trains_the_models_for_which_it_has_a_network(
    network: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = mindformers(tmp_path, "1.6.0")
    text = "use_legacy: False\nrun_mode: train\ntrainer: {type: CausalLanguageModelingTrainer}\n"
    config.write_text(
        f"{text}model:\n  model_config: {{model_type: glm4, architectures: [Glm4ForCausalLM]}}\n", "utf-8"
    )
    write_files(tmp_path, {"mindformers/models/glm4/modeling_glm4_x.py": f"class {network}: pass\n"})
    assert ("model-for-inference-only" in lint(config, capsys)[0]) == network.startswith("Inference")


@pytest.mark.parametrize(
    ("package", "given", "severity"),
    [
        ("mindformers", ".", "warning"),  # its test builds the parts that it needs
        ("mindformers", "tests/st/build.yaml", "error"),
        ("ours", ".", "error"),  # not a framework's own tests
    ],
)
def test_errors_in_a_config_of_a_frameworks_own_tests_are_warnings(
    package: str, given: str, severity: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = "run_mode: train\ntrainer: {type: CausalLanguageModelingTrainer}\nrunner_config: {epoch: 1}\n"
    files = {"setup.py": "setup(version='1.9.0')\n", f"{package}/__init__.py": "", ".git/HEAD": ""}
    write_files(tmp_path, {**files, "tests/st/build.yaml": config})
    main(["lint", str(tmp_path / given), "--select", "MST203", "--json"])
    assert [one["severity"] for one in json.loads(capsys.readouterr().out)["findings"]] == [severity]


def test_what_is_said_of_a_repository_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = mindformers(tmp_path, "1.4.0")
    config.with_name("more.yaml").write_text(config.read_text(encoding="utf-8"), encoding="utf-8")
    main(["lint", str(tmp_path)])
    assert capsys.readouterr().err.count("1.4.0") == 1


def test_classes_of_the_repository_are_registered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = {"unregistered-callback", "unregistered-legacy-model", "unregistered-optimizer-class"}
    found, _, _ = lint(mindformers(tmp_path / "a", "1.8.0"), capsys)
    assert not found & own
    source = tmp_path / "a" / "research" / "ours" / "ours.py"
    source.write_text("class OurModel: pass\n", encoding="utf-8")  # its own program builds it
    assert (lint(source.with_name("train.yaml"), capsys)[0] & own) == own - {"unregistered-legacy-model"}
    source.write_text("", encoding="utf-8")
    found, _, _ = lint(tmp_path / "a" / "research" / "ours" / "train.yaml", capsys)
    assert found >= own  # a changed source is read again
    assert not (tmp_path / "a" / "trace").exists()  # none of it was executed


def test_a_class_of_the_framework_takes_what_the_repository_lets_it_take(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = mindformers(tmp_path, "1.8.0")
    config.write_text(_CONFIG.replace("OurMonitor", "CheckpointMonitor").replace("OPTION", "every: 2"), "utf-8")
    assert "argument-refused" in lint(config, capsys)[0]
    source = config.with_name("ours.py")
    source.write_text(source.read_text("utf-8").replace("OurMonitor", "CheckpointMonitor"), "utf-8")
    assert "argument-refused" not in lint(config, capsys)[0]


def test_a_git_repository_that_uses_mindformers_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = mindformers(tmp_path, "1.4.0")
    (tmp_path / "mindformers" / "__init__.py").unlink()
    (tmp_path / ".git").mkdir()
    found, _, err = lint(config, capsys)
    assert not {one for one in found if one.startswith("unregistered")}
    assert "1.4.0" not in err  # the user's own version


def test_arguments_and_choices_of_a_fork_are_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = checkout(tmp_path, "2.3")
    words = "--our-quant x --ours --theirs 1 --position-embedding-type ours --optimizer-selection our_muon"
    words += (
        " --rotary-base 1e6 --balanced-moe-experts"  # an integer in Megatron-LM; an argument that 2.3 does not register
    )
    script.write_text(_SCRIPT.replace("--stage dpo", f"--stage dpo {words}"), encoding="utf-8")
    before, _, _ = lint(script, capsys)
    assert {"unknown-argument", "value-is-no-choice", "value-is-no-number"} <= before
    assert "parser-rejected" in plan_problems(script, capsys)
    more = """WAYS = ['rope', 'ours']
def add(group, parser):
    group.add_argument('--our-quant', type=str)
    group.add_argument('--ours', '-o', action='store_true')
    group.add_argument('--position-embedding-type', choices=WAYS)
    group.add_argument('--rotary-base', type=float)
    group.add_argument('--balanced-moe-experts', action='store_true')
    add_parser_argument_choices_value(parser, '--optimizer-selection', 'our_muon')
"""
    write_files(tmp_path, {"mindspeed_llm/features_manager/ours.py": more})
    write_files(tmp_path, {"posttrain_gpt.py": "parser.add_argument('--theirs', type=int)\n"})
    after, release, _ = lint(script, capsys)
    assert not after & {"unknown-argument", "value-is-no-choice", "value-is-no-number"}
    assert release == "2.3"
    assert "parser-rejected" not in plan_problems(script, capsys)
    main(["check", str(script)])
    assert "parser-rejected" not in capsys.readouterr().out


def test_nothing_is_claimed_of_a_release_that_is_not_supported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = mindformers(tmp_path, "1.4.0", "unknown: 2")
    config.write_text(
        config.read_text("utf-8") + "moe_config: {expert_num: 8}\nseed: 1\nseed: 2\nstrange: 1\n", "utf-8"
    )
    found, _, err = lint(config, capsys)
    assert found == {"duplicate-key"}  # the form of YAML is the same in every release
    assert "--framework-version 1.6" in err
    assert main(["normalize-recompute", str(config)]) == 2
    assert "MindFormers 1.4.0 is not supported" in capsys.readouterr().err
    assert main(["check", str(config)]) == 1  # the duplicate key
    out = capsys.readouterr().out  # it names sizes like 1.6, so that its memory is known
    assert "estimated by the rules of MindFormers 1.6" in out
    assert "to read it as a config of 1.6" in out
    main(["lint", str(config), "--framework-version", "1.6", "--json"])
    assert len(json.loads(capsys.readouterr().out)["findings"]) > 1


def test_mindformers_1_4_also_reads_the_form_of_mindspeed_core_ms(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = mindformers(tmp_path, "1.4.0")
    config.write_text(
        "training_config: {training_iters: 1}\nparallel_config: {tensor_model_parallel_size: 2}\n"
        "model_config: {num_layers: 2, num_heads: 1}\noptimizer_config: {optimizer_type: AdamW}\n",
        "utf-8",
    )
    found, release, err = lint(config, capsys)
    assert (found, release) == (set(), "1.4")
    assert "MindFormers 1.4.0 is not supported" in err
    write_files(tmp_path, {"setup.py": "setup(version='1.6.0')"})
    found, release, _ = lint(config, capsys)
    assert release == "0.1"
    assert found


def test_a_config_of_before_1_0_shows_in_its_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "run.yaml"
    config.write_text(f"resume_or_finetune_checkpoint: ''\n{_CONFIG.replace('OPTION', 'every: 2')}", "utf-8")
    found, release, err = lint(config, capsys)
    assert (found, release) == (set(), "0.3")
    assert "a config of MindFormers before 1.0 (resume_or_finetune_checkpoint)" in err
    found, release, _ = lint(mindformers(tmp_path / "a", "1.8.0"), capsys)
    assert release == "1.8"


def severities(script: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """The severity of each finding in a script."""
    main(["lint", str(script), "--json"])
    return {one["name"]: one["severity"] for one in json.loads(capsys.readouterr().out)["findings"]}


def test_what_a_fork_may_define_elsewhere_is_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = checkout(tmp_path, "2.3")
    words = "--nowhere x --position-embedding-type theirs"
    script.write_text(_SCRIPT.replace("--stage dpo", f"--stage dpo {words}"), encoding="utf-8")
    names = ("unknown-argument", "value-is-no-choice")
    found = severities(script, capsys)
    assert [found[name] for name in names] == ["error", "error"]  # a release as it is
    assert "parser-rejected" in plan_problems(script, capsys)
    write_files(tmp_path, {"mindspeed_llm/ours.py": "parser.add_argument('--not-here')\n"})
    script.write_text(script.read_text("utf-8").replace("--nowhere", "--not-heer"), "utf-8")
    main(["lint", str(script)])
    assert "did you mean --not-here" in capsys.readouterr().out
    found = severities(script, capsys)
    assert [found[name] for name in names] == ["warning", "warning"]
    assert "parser-rejected" not in plan_problems(script, capsys)
    write_files(tmp_path, {"megatron/arguments.py": "", "mindspeed/arguments.py": ""})
    assert severities(script, capsys)["unknown-argument"] == "error"  # its whole parser is here
    write_files(tmp_path, {"megatron/arguments.py": "for name in NAMES:\n    parser.add_argument(name)\n"})
    assert severities(script, capsys)["unknown-argument"] == "warning"


_TEAM = """source /opt/team/env.sh
GBS=${GBS:-16}
ARGS="--micro-batch-size ${MBS:-3} --global-batch-size $GBS --train-iters $ITERS"
msrun --worker_num 8 pretrain_gpt.py $ARGS --num-layers 8 --hidden-size 64 --num-attention-heads 8 \\
  --seq-length 64 --max-position-embeddings 64
"""


def test_defaults_of_what_a_missing_file_may_set_are_assumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "run.sh"
    script.write_text(_TEAM, "utf-8")
    main(["lint", str(script), "--json"])
    found = {one["name"]: one for one in json.loads(capsys.readouterr().out)["findings"]}
    batch = found["batch-does-not-fit"]
    assert batch["severity"] == "warning"
    assert batch["message"].endswith("micro batch 3 x DP 8 = 24, unless /opt/team/env.sh sets MBS, GBS")
    assert "value-not-evaluable" not in found
    assert "ITERS" in found["value-set-nowhere"]["message"]
    script.write_text(_TEAM.replace("source /opt/team/env.sh", "").replace("$ITERS", "9"), "utf-8")
    assert severities(script, capsys)["batch-does-not-fit"] == "error"


@pytest.mark.parametrize(
    "line", ["pkill -9 -f torchrun", "echo torchrun", "ps aux | grep torchrun | xargs kill", "NAME=torchrun.log"]
)
def test_what_a_script_starts_decides_what_it_is(line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f"{line}\npython parse.py out.log\n", "utf-8")
    assert main(["lint", str(script)]) == 0
    script.write_text(f"{line}\ntorchrun --nproc_per_node 8 train.py\n", "utf-8")
    assert main(["lint", str(script)]) == 2
    assert "PyTorch" in capsys.readouterr().err


def test_a_similar_argument_is_near_in_its_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = checkout(tmp_path, "2.3")
    for written, meant in (("--wandb-group", ""), ("--micro-batchsize", "--micro-batch-size")):
        script.write_text(_SCRIPT.replace("--stage dpo", f"--stage dpo {written} 2"), "utf-8")
        main(["lint", str(script), "--json"])
        (text,) = [
            one["message"]
            for one in json.loads(capsys.readouterr().out)["findings"]
            if one["name"] == "unknown-argument"
        ]
        assert ("did you mean" in text, meant in text) == (bool(meant), True)


def test_a_multimodal_config_is_for_the_release_that_reads_its_features(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "train.yaml"
    text = "parallel: {fsdp_plan: {apply_modules: [a]}, recompute: true}\nmodel: {model_id: ours, loss_cfg: {loss_type: default}}\n"
    config.write_text(f"{text}training: {{micro_batch_size: 1}}\n", "utf-8")
    found, release, _ = lint(config, capsys)
    assert ("feature-in-other-section" in found, release) == (False, "26.0")
    config.write_text(f"{text}training: {{micro_batch_size: 1}}\nfeatures: {{recompute: true}}\n", "utf-8")
    found, release, _ = lint(config, capsys)
    assert ("feature-in-other-section" in found, release) == (True, "26.1")


def test_configs_of_mindrlhf_are_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "grpo.yaml"
    text = "rl_config: {align_type: 'rlhf_stages', save_strategy_dir: './s/'}\ncontext: {mode: 0}\n"
    config.write_text(f"{text}actor_config: {{parallel_config: {{data_parallel: 1}}}}\n", "utf-8")
    assert main(["lint", str(config)]) == 2
    assert "MindRLHF" in capsys.readouterr().err


def plan_problems(script: Path, capsys: pytest.CaptureFixture[str]) -> set[str]:
    """Return the problems that normalize-recompute reports for the programs of a script."""
    main(["normalize-recompute", "--json", str(script)])
    return {problem["id"] for job in json.loads(capsys.readouterr().out)["jobs"] for problem in job["plan"]["problems"]}


def test_sources_that_cannot_be_read_are_as_if_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = mindformers(tmp_path, "1.8.0")
    word = "MindFormerModuleType.MODELS"
    folder = tmp_path / "research"
    write_files(folder, {"broken.py": f"class {word}(((", "deep.py": f"x = {word}" + "+1" * 200_000})
    write_files(folder, {"nested.py": f"{word}\n" + "(" * 50_000, "huge.py": f"# {word}\n" + "x = 1\n" * 200_000})
    (folder / "binary.py").write_bytes(word.encode() + bytes(range(256)) * 100)
    (folder / "folder.py").mkdir()
    os.mkfifo(folder / "pipe.py")
    (folder / "loop").symlink_to(folder)
    (folder / "gone.py").symlink_to(tmp_path / "nowhere.py")
    (tmp_path / "pyproject.toml").symlink_to(tmp_path / "pyproject.toml")
    deep = folder
    for _ in range(30):
        deep /= "d"
    write_files(deep, {"far.py": _CLASSES.replace("OurModel", "FarModel")})
    assert not {one for one in lint(config, capsys)[0] if one.startswith("unregistered")}
    classes = find_checkout(config).classes
    assert "FarModel" not in classes["model"]
    assert classes["callback"] == {"OurMonitor": frozenset({"every"})}


_COMMIT = "c0ffee" + "0" * 34


@pytest.mark.parametrize(
    ("files", "release"),
    [
        ({"HEAD": "ref: refs/heads/r2.0.0\n"}, "2.0"),
        ({"HEAD": "ref: refs/heads/2.0-new-loss\n"}, "1.9"),
        ({"HEAD": _COMMIT, "refs/tags/v1.7.0": _COMMIT}, "1.7"),
        ({"HEAD": _COMMIT, "packed-refs": f"# pack-refs\n{'1' * 40} refs/tags/v1.6.0\n^{_COMMIT}\n"}, "1.6"),
        ({"HEAD": "ref: refs/heads/x\n", "packed-refs": f"{_COMMIT} refs/heads/x\n{_COMMIT} refs/tags/r1.8\n"}, "1.8"),
        ({"HEAD": "ref: refs/heads/../../../tags/v1.7.0\n", "refs/tags/v1.7.0": _COMMIT}, "1.9"),
        ({"HEAD": "\0\udcff"}, "1.9"),
        ({}, "1.9"),
    ],
)
def test_git_shows_the_release_before_setup_does(files: dict[str, str], release: str, tmp_path: Path) -> None:
    config = mindformers(tmp_path, "1.9.0")
    for name, text in files.items():
        (tmp_path / ".git" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / ".git" / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    assert find_checkout(config).releases == (release,)
    assert len(read_git_head(tmp_path).tags) <= 1
