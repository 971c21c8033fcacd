"""Test ``ms-tune init --model``: layouts that fit, files that lint finds clean, and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ms_tune.cli import init as init_command
from ms_tune.cli.main import main
from ms_tune.enums import Dialect
from ms_tune.facts.new_models import describe_model, find_new_model
from ms_tune.facts.query import load
from ms_tune.lint.runner import lint_files
from ms_tune.planning.layouts import Layout
from ms_tune.verdict.limit import Cap, device_of, limit_of
from ms_tune.verdict.outcome import Need, UntracedNeeds, judge
from ms_tune.workflows.check.result import StageVerdict
from ms_tune.workflows.new_job.layouts import JobSize, list_candidates, step_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ms_tune.dryrun.request import DryrunRequest

DENSE = {
    "model_type": "llama",
    "vocab_size": 50257,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 30,
    "num_attention_heads": 32,
    "num_key_value_heads": 2,
}


CAPTURE = pytest.CaptureFixture[str]


def init(capsys: pytest.CaptureFixture[str], line: str) -> tuple[int, str, str]:
    code = main(["init", "--lang", "en", *line.split()])
    output = capsys.readouterr()
    return code, output.out, output.err


# Dense models, experts, long sequences, numbers of devices other than powers of two, layers that stages do not divide.
JOBS = (
    ("qwen3-32b --devices 64 --chip 910B4 --seq 8192 --global-batch 512", "mindformers-pynative"),
    ("qwen3-32b --devices 64 --chip 910B4 --seq 8192", "mindformers"),
    ("qwen3-32b --devices 64 --chip 910B4 --seq 8192", "megatron"),
    ("qwen3-32b --devices 64 --chip 910B4", "hyper-parallel"),
    ("qwen2.5-32b --devices 256 --chip 910B4 --seq 32768", "hyper-parallel"),
    ("mixtral-8x7b-v0.1 --devices 256 --seq 2048", "hyper-parallel"),
    ("qwen3-235b-a22b --devices 256", "hyper-parallel"),
    ("qwen3-30b-a3b --devices 32", "mindformers"),
    ("deepseek-v3 --devices 512", "megatron"),
    ("telechat3-105b-a4.7b --devices 64", "mindformers"),
    ("qwen3-8b --devices 16 --seq 131072 --global-batch 32", "mindformers-pynative"),
    ("qwen3-14b --devices 24 --seq 32768", "mindformers"),
    ("llama-3.1-8b --devices 12", "megatron"),
    ("qwen2.5-72b --devices 48", "megatron"),
)


@pytest.mark.slow
@pytest.mark.drawn(6)
@pytest.mark.parametrize(("line", "dialect"), JOBS, ids=[f"{line.split()[0]}-{dialect}" for line, dialect in JOBS])
def test_written_files_are_clean_and_fit(
    line: str, dialect: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / ("train.sh" if dialect == "megatron" else "train.yaml")
    code, out, err = init(capsys, f"--model {line} --dialect {dialect} -o {file} --no-verify --json")
    assert code == 0, err
    found = json.loads(out)
    layout, devices = found["layout"], int(line.split()[2])
    assert layout["dp"] * layout["tp"] * layout["pp"] * layout["cp"] == devices
    assert found["peak_bytes"] < found["limit_bytes"]
    report = lint_files(file)
    assert [one.name for each in report.files for one in each.findings] == []
    assert "<<" not in file.read_text()
    assert file.with_suffix(".sh").is_file()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--model qwen33b --devices 8", "did you mean qwen3-32b?"),
        ("--model zzz --devices 8", "give its config.json with --model-config"),
        ("--model qwen3-8b", "--model needs --devices"),
        ("--model qwen3-8b --devices 8 --chip 910X", "unknown chip"),
        ("--model qwen3-32b --devices 64 --global-batch 100", "try --global-batch 128, 64"),
        ("--model qwen3-0.6b --devices 1 --dialect mindformers", "try --global-batch 8, 4"),
        ("--model llama-3-8b --devices 8 --dialect mindformers", "has no network that trains Llama-3-8B"),
        ("--model chatglm3-6b --devices 8", "models of type 'chatglm' are not supported"),
        ("--model qwen3-8b --devices 8 -o train.txt", "must end with .yaml"),
    ],
)
def test_mistakes(line: str, words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = init(capsys, line if " -o " in line else f"{line} -o {tmp_path / 'a.yaml'}")
    assert code == 2
    assert words in err
    assert [*tmp_path.iterdir()] == []


@pytest.mark.slow
def test_too_few_devices(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = init(capsys, f"--model llama-3.1-70b --devices 16 --seq 8192 -o {tmp_path / 'a.sh'}")
    assert code == 1
    assert out.startswith("No layout is estimated to fit on 16 NPUs; nothing written.")
    assert "\nestimated to fit on 32 NPUs: " in out
    assert "\n- --global-batch 512 (not specified)\n" in out
    assert [*tmp_path.iterdir()] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        ((1.0,), 1, 0, "fits"),
        ((1.6, 1.0), 2, 0, "fits"),
        ((1.02, 1.02, 1.02), 3, 1, "exceeds the limit"),  # the last plan is on the disk, and is what is shown
        ((40.0,), 1, 1, "A dryrun shows that the plan exceeds the limit on 64 NPUs; "),
    ],
)
def test_plans_that_a_dryrun_refutes(
    case: tuple[Sequence[float], int, int, str], capsys: CAPTURE, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times, rounds, code, words = case
    seen: list[str] = []

    def simulate(job: DryrunRequest, _: object) -> tuple[StageVerdict, ...]:
        assert job.config is not None
        limit = limit_of(device_of("910B4", None), None, Cap.SCRIPT)
        size = round(limit.bytes * (0.9 if times[len(seen)] == 1 else times[len(seen)]))
        seen.append(job.config.read_text("utf-8"))
        return (StageVerdict(0, judge(Need.of_trace(size, size), limit, UntracedNeeds(simulated=False))),)

    monkeypatch.setattr(init_command, "simulate_new_job", simulate)
    monkeypatch.setattr(init_command, "find_spec", lambda _: True)
    file, shown = tmp_path / "train.yaml", list[str]()
    monkeypatch.setattr(init_command, "_show_new_job", lambda job, _: shown.append(job.files[file]))
    found, out, _ = init(capsys, f"--model qwen3-4b --devices 64 --chip 910B4 --seq 4096 -o {file}")
    assert (found, len(seen)) == (code, rounds)
    assert words in " ".join(out.split())
    assert file.read_text("utf-8") == seen[-1]  # never a plan that is shown and not written
    assert shown == seen[-1:] * ("A dryrun shows" not in words)


def test_files_are_kept(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    launch = tmp_path / "train.sh"
    launch.write_text("mine\n")
    line = f"--model qwen3-0.6b --devices 8 -o {tmp_path / 'train.yaml'} --no-verify"
    assert init(capsys, line)[0] == 2
    code, out, _ = init(capsys, f"{line} --diff")
    assert code == 0
    assert "\n-mine\n" in out
    assert [one.name for one in tmp_path.iterdir()] == ["train.sh"]
    assert launch.read_text() == "mine\n"
    assert init(capsys, f"{line} --force")[0] == 0
    assert "run_mindformer.py --config train.yaml" in launch.read_text()


def test_a_config_json_of_anybody(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Its vocabulary is odd, its layers are not divided by stages, and its texts reach no script."""
    more = {"rms_norm_eps": "1\nrm -rf /", "rope_theta": 20000, "tie_word_embeddings": "$(id)"}
    (tmp_path / "config.json").write_text(json.dumps(DENSE | more))
    line = f"--model-config {tmp_path} --model $(id) --devices 16 -o {tmp_path / 'a.sh'} --no-verify"
    assert init(capsys, line)[0] == 0
    text = (tmp_path / "a.sh").read_text()
    assert "--rotary-base 20000" in text
    assert "rm -rf" not in text
    assert "$(id)" not in text
    (tmp_path / "config.json").write_text(json.dumps(DENSE | {"hidden_size": 1 << 40}))
    code, _, err = init(capsys, line.replace("a.sh", "b.sh"))
    assert code == 2
    assert "no usable hidden_size" in err


def test_every_model_of_a_supported_type_is_described() -> None:
    types = load("from_zero")["types"]
    for name, entry in load("sizes")["models"].items():
        if entry["config"]["model_type"] in types:
            model = find_new_model(name)
            assert model.name == name
            assert model.dialects
            assert model.number("head_dim") > 0


def test_candidates_follow_the_rules() -> None:
    model = describe_model("x", DENSE)
    size = JobSize(model, Dialect.MEGATRON, 48, 4096, 96)
    found = list(list_candidates(size))
    assert found
    assert all(one.tensor <= 2 and one.context == 1 and one.samples == 96 for one in found)  # two key and value heads
    yaml = [one.tensor for one in list_candidates(size._replace(dialect=Dialect.MINDFORMERS))]
    assert set(yaml) == {1}  # 50,257 words cannot be divided
    long = size._replace(tokens=65536)
    assert {one.context for one in list_candidates(long)} > {1, 2}


def test_steps_agree_with_known_figures() -> None:
    """Full recomputation takes a third more, and chunks make a bubble smaller."""
    size = JobSize(find_new_model("llama-3.1-70b"), Dialect.MEGATRON, 64, 8192, 64, "910B2")
    one = Layout(tensor=8, pipeline=4, data=2, micro_batches=32)
    assert 1.2 < step_seconds(size, one, 1) / step_seconds(size, one, 0) < 1.4
    few = one._replace(pipeline=8, data=1, micro_batches=64)
    assert step_seconds(size, few._replace(chunks=2), 0) < step_seconds(size, few, 0)


@pytest.mark.parametrize(
    ("name", "tokens", "experts"),
    [("Qwen2.5-32B", 32_768, False), ("Mixtral-8x7B-v0.1", 2048, False), ("Qwen3-30B-A3B", 32_768, True)],
)
def test_hyper_parallel_gets_no_layout_whose_compute_is_not_injected(name: str, tokens: int, *, experts: bool) -> None:
    model = find_new_model(name)
    found = list(list_candidates(JobSize(model, Dialect.HYPER_PARALLEL, 64, tokens, 512)))
    assert {one.context for one in found} == {1}
    assert any(one.expert > 1 for one in found) is experts
    others = list(list_candidates(JobSize(model, Dialect.MEGATRON, 64, tokens, 512)))
    assert any(one.context > 1 for one in others) is (tokens >= 32_768)
