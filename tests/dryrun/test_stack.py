"""Test the parts of a software stack, and dynamic-graph configs where their own framework is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ms_tune.dialects.job_parts import SettingChange
from ms_tune.dryrun.job import MindSpeedJob
from ms_tune.dryrun.launchers import stand_in
from ms_tune.dryrun.reading import see_log
from ms_tune.dryrun.request import STEPS, DryrunRequest, PreparedRun
from ms_tune.dryrun.script_check import differing_parts, documented_set, missing_parts, release_by_sources
from ms_tune.dryrun.stack import StackPart, find_refusals, module_names, parts_of
from ms_tune.errors import UnsupportedError
from ms_tune.facts.megatron import releases_with
from ms_tune.facts.query import load
from ms_tune.facts.training import mindspeed_framework
from tests.dryrun.configs import MINDSPEED, edited, prepare_mindspeed

PARTS = ("mindspore", "msadapter", "megatron", "mindspeed", "mindspeed_llm", "transformers")


def package(root: Path, name: str, version: str | None = None, needs: str = "") -> str:
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("", encoding="utf-8")
    if version is not None:
        metadata = root / f"{name}-{version}.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Name: {name}\nRequires-Dist: {needs}\n", encoding="utf-8")
    return str(folder)


def arguments_of(part: str, release: str) -> list[str]:
    rows = load("megatron")["arguments"].items()
    return [name for name, own in rows if any(row["part"] == part and release in row["releases"] for row in own)]


def llm(root: Path, release: str) -> str:
    """Create a MindSpeed-LLM folder with the arguments of a release, or an argument that no release has."""
    folder = package(root, "mindspeed_llm")
    names = [*arguments_of("MindSpeed-LLM", release), "--of-my-own"]
    lines = [f"group.add_argument(\n    '{name}', type=int)" for name in names]
    (root / "mindspeed_llm" / "arguments.py").write_text("\n".join(lines), encoding="utf-8")
    return folder


def find_parts(folders: dict[str, str]) -> dict[str, StackPart]:
    parts = parts_of({name: [folder] for name, folder in folders.items()})
    return {part.name: release_by_sources(part) for part in parts}


@pytest.mark.parametrize("release", load("megatron")["releases"])
@pytest.mark.parametrize("part", ["MindSpeed-LLM", "MindSpeed"])
def test_a_release_is_reported_by_its_arguments(part: str, release: str) -> None:
    names = arguments_of(part, release)
    assert releases_with(part, frozenset(names)) == (release,)
    assert releases_with(part, frozenset([*names[3:], "--of-my-own"])) == (release,)


def test_parts_by_metadata_files_arguments_and_checkouts(tmp_path: Path) -> None:
    megatron = package(tmp_path / "m", "megatron")
    (tmp_path / "m" / "megatron" / "core").mkdir()
    (tmp_path / "m" / "megatron" / "core" / "package_info.py").write_text(
        "MAJOR = 0\nMINOR = 12\nPATCH = 1\nPRE_RELEASE = ''\n", encoding="utf-8"
    )
    mindspeed = package(tmp_path / "s", "mindspeed")
    (tmp_path / "s" / ".git").mkdir()
    (tmp_path / "s" / ".git" / "HEAD").write_text("ref: refs/heads/2.2.0_core_r0.12.1\n", encoding="utf-8")
    parts = find_parts(
        {
            "mindspore": package(tmp_path / "site", "mindspore", "2.9.0"),
            "megatron": megatron,
            "mindspeed": mindspeed,
            "mindspeed_llm": llm(tmp_path / "l", "2.2"),
        }
    )
    reported = {name: (part.release, part.told_by) for name, part in parts.items()}
    assert reported == {
        "MindSpore": ("2.9.0", "package"),
        "MSAdapter": (None, None),
        "Megatron-LM": ("0.12.1", "package"),
        "MindSpeed": ("2.2.0_core_r0.12.1", "branch"),
        "MindSpeed-LLM": ("v2.2.0", "arguments"),
        "transformers": (None, None),
    }
    assert missing_parts(tuple(parts.values())) == ("MSAdapter",)
    wanted = documented_set(tuple(parts.values()))
    assert (wanted.release, wanted.script) == ("r0.4.0", "auto_convert.sh llm")
    assert [(part.name, release) for part, release in differing_parts(tuple(parts.values()), wanted)] == [
        ("MindSpore", "2.7.1")
    ]


def test_a_commit_is_reported_by_the_tag_that_it_has(tmp_path: Path) -> None:
    folder = package(tmp_path, "mindspeed")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("a1b2\n", encoding="utf-8")
    (tmp_path / ".git" / "packed-refs").write_text("c3d4 refs/tags/v1\na1b2 refs/tags/v2\n", encoding="utf-8")
    part = find_parts({"mindspeed": folder})["MindSpeed"]
    assert (part.release, part.told_by) == ("v2", "branch")
    (tmp_path / ".git" / "packed-refs").unlink()
    assert find_parts({"mindspeed": folder})["MindSpeed"].release is None


def test_the_adapter_before_it_had_a_name_of_its_own(tmp_path: Path) -> None:
    folder = package(tmp_path / "MSAdapter" / "mindtorch", "torch")
    assert str(find_parts({"torch": folder})["MSAdapter"].folder) == folder
    assert find_parts({"torch": package(tmp_path / "site", "torch")})["MSAdapter"].folder is None


def test_nothing_is_found(tmp_path: Path) -> None:
    parts = parts_of({})
    assert missing_parts(parts) == tuple(load("stack")["needed"])
    assert documented_set(parts).release == list(load("stack")["releases"])[-1]
    assert list(find_refusals(parts, {})) == []
    assert list(differing_parts(parts, documented_set(parts))) == []
    gone = parts_of({name: [str(tmp_path / "gone")] for name in module_names()})
    assert [release_by_sources(part).release for part in gone] == [None] * len(gone)


def test_a_launchers_stand_in_needs_no_other_package() -> None:
    """It runs in the environment of a user's script, in which any package may replace those of ms-tune."""
    done = subprocess.run([sys.executable, "-I", "-S", stand_in.__file__], capture_output=True, text=True, check=False)
    assert "IndexError" in done.stderr  # it got no launcher


@pytest.mark.parametrize(
    ("needs", "refused"),
    [("mindspore>=2.5", False), ("mindspore (>=2.10)", True), ("mindspore<2.9", True), ("mindspore==2.9.0", False)],
)
def test_a_mindspore_that_the_adapter_refuses(tmp_path: Path, needs: str, refused: bool) -> None:  # noqa: FBT001 - a case
    folders = {
        "mindspore": [package(tmp_path / "a", "mindspore", "2.9.0")],
        "msadapter": [package(tmp_path / "b", "msadapter", "0.9", needs)],
    }
    messages = [str(problem) for problem, _ in find_refusals(parts_of(folders), folders)]
    assert [text.startswith("MSAdapter 0.9 requires MindSpore ") for text in messages] == [True] * refused


def test_an_installed_wheel_hides_what_represents_torch(tmp_path: Path) -> None:
    package(tmp_path / "site", "msadapter", "0.5.0b1")
    folders = {"torch": [package(tmp_path / "site", "torch")]}
    ((problem, hint),) = find_refusals(parts_of(folders), folders)
    assert "hides MSAdapter's replacements for torch" in str(problem)
    assert "msa_thirdparty" in str(hint)
    meant = {"torch": [package(tmp_path / "site" / "msa_thirdparty", "torch")]}
    assert list(find_refusals(parts_of(meant), meant)) == []


READS_YAML = "def init_configs_from_yaml(file_path):\n    raise AssertionError('never imported')\n"
PLACES = {
    "mindspeed_ms": "mindspeed_ms/core/config.py",
    "mindformers.experimental.parallel_core.pynative": "mindformers/experimental/parallel_core/pynative/config.py",
}


def install(folder: Path, config: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a package on the path whose modules must not be imported."""
    file = folder / config
    file.parent.mkdir(parents=True)
    file.write_text(text, encoding="utf-8")
    (folder / Path(config).parts[0] / "__init__.py").write_text("raise AssertionError('imported')", encoding="utf-8")
    monkeypatch.syspath_prepend(folder)


@pytest.fixture
def mindspeed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, PLACES["mindspeed_ms"], READS_YAML, monkeypatch)


def handed_over(run: PreparedRun) -> dict[str, Any]:
    assert isinstance(run.job, MindSpeedJob)
    loaded: dict[str, Any] = yaml.safe_load(run.files[run.job.config_file])
    return loaded


@pytest.mark.parametrize(("package", "config"), PLACES.items())
def test_the_installed_framework_is_found_without_importing_it(
    package: str, config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, config, READS_YAML, monkeypatch)
    found = mindspeed_framework()
    assert found is not None
    assert found.package == package


def test_a_release_that_reads_no_yaml_is_not_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, PLACES["mindspeed_ms"], "def parse_args():\n    pass\n", monkeypatch)
    found = mindspeed_framework()
    assert found is None or found.package != "mindspeed_ms"


@pytest.mark.usefixtures("mindspeed")
def test_the_framework_gets_the_users_config_but_for_what_reads_writes_or_waits() -> None:
    config = edited(MINDSPEED, "training_config.load_checkpoint", "/data/checkpoint")
    config = edited(config, "training_config.training_iters", 5000)
    config = edited(config, "dataset_config.dataset_dir", "/data/tokens")
    run = prepare_mindspeed(config)
    assert run.job == MindSpeedJob("mindspeed_ms", "config.yaml", STEPS)
    assert run.changes == (
        SettingChange("training_config.load_checkpoint", "/data/checkpoint", None),
        SettingChange("dataset_config.dataset_dir", "/data/tokens", None),
        SettingChange("training_config.training_iters", 5000, STEPS),
    )
    expected = edited(MINDSPEED, "training_config.training_iters", STEPS)
    assert handed_over(run) == expected
    assert run.model.id == "reference.by-framework"


@pytest.mark.usefixtures("mindspeed")
@pytest.mark.parametrize(("key", "value"), [("parallel_config.zero_level", "z3"), ("lora_config.use_lora", True)])
def test_it_may_do_what_the_reference_transformer_does_not(key: str, value: object) -> None:
    config = edited(MINDSPEED, key, value)
    run = prepare_mindspeed(config)
    assert isinstance(run.job, MindSpeedJob)
    assert run.theory == {}
    with pytest.raises(UnsupportedError):
        prepare_mindspeed(config, DryrunRequest(reference=True))


@pytest.mark.parametrize(
    ("job", "text"),
    [
        ('{"kind": "mindspeed"}', "reference.run.log"),
        ('{"kind": "reference"}', "dryrun.run.log"),
        ("[1]", "dryrun.run.log"),
        (None, "dryrun.run.log"),
    ],
)
def test_where_the_framework_failed_the_way_out_is_reported(job: str | None, text: str, tmp_path: Path) -> None:
    if job is not None:
        (tmp_path / "job.json").write_text(job, encoding="utf-8")
    assert see_log(tmp_path).id == text
