"""The release of a script that lies in the sources of MindSpeed-LLM."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ms_tune.cli.main import main
from ms_tune.errors import ConfigError
from ms_tune.facts.query import load
from ms_tune.job.checkout import parser_of_its_own, releases_around
from ms_tune.job.script_arguments import release_of_scripts
from ms_tune.source.shell.read import read_launches

_SCRIPT = """msrun --worker_num 8 posttrain_gpt.py --stage dpo --is-pairwise-dataset --is-instruction-dataset --prompt-type qwen \\
  --ai-framework mindspore --num-layers 8 --hidden-size 64 --num-attention-heads 8 \\
  --seq-length 4096 --max-position-embeddings 4096 --pipeline-model-parallel-size 2
"""


def checkout(folder: Path, release: str) -> Path:
    """A script in sources that define the arguments of a release, in two files."""
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
    # Only from 2.3 on do stages make no room for what the others send.
    assert ("MST134" in {one["id"] for one in result["findings"]}) == (release != "2.2")
    assert release_of_scripts(read_launches(script, _SCRIPT), None) == release
    assert release_of_scripts(read_launches(script, _SCRIPT), "2.3") == "2.3"


def test_elsewhere_nothing_is_known(tmp_path: Path) -> None:
    assert releases_around(tmp_path / "tune.sh") == ()
    assert releases_around(Path("-")) == ()


def test_what_the_release_around_it_does_with_layers_is_not_known(tmp_path: Path) -> None:
    script = checkout(tmp_path, "2.0")
    with pytest.raises(ConfigError, match=r"2\.0"):
        release_of_scripts(read_launches(script, _SCRIPT), None)


def test_programs_with_a_parser_of_their_own_are_not_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As MindSpeed-Core-MS's branch ``br_master`` has one."""
    script = checkout(tmp_path, "2.3")
    (tmp_path / "mindspeed_llm").rename(tmp_path / "mindspeed_ms")
    script.write_text(_SCRIPT.replace("--stage dpo", "--distributed-backend hccl --stage dpo"), encoding="utf-8")
    assert main(["lint", str(script), "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["findings"] == []
    assert "parser of their own" in err
    with pytest.raises(ConfigError, match="parser of their own"):
        release_of_scripts(read_launches(script, _SCRIPT), None)


def test_the_innermost_checkout_counts(tmp_path: Path) -> None:
    """MindSpeed-Core-MS has MindSpeed-LLM cloned into its own folder."""
    outer = tmp_path / "mindspeed_ms" / "training" / "arguments.py"
    outer.parent.mkdir(parents=True)
    outer.write_text("", encoding="utf-8")
    script = checkout(tmp_path / "MindSpeed-LLM", "2.2")
    assert parser_of_its_own(script) is None
    assert "2.2" in releases_around(script)
    assert parser_of_its_own(tmp_path / "examples" / "pretrain.sh") == outer
    assert releases_around(tmp_path / "examples" / "pretrain.sh") == ()
