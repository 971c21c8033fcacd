"""Test the supported releases, and the messages about others."""

from __future__ import annotations

from pathlib import Path

import pytest

from ms_tune.cli.main import main
from ms_tune.enums import YAML_DIALECTS, Dialect
from ms_tune.errors import UnsupportedError
from ms_tune.facts import query
from ms_tune.facts.query import Release, release_for, release_of, release_or_default, served

STATIC, DYNAMIC, SPEED, _ = YAML_DIALECTS
NEWEST = served(STATIC)[-1]
CONFIG = "use_legacy: False\nrun_mode: train\nmodel: {model_config: {model_type: qwen3, num_layers: 2}}\n"
DYNAMIC_CONFIG = "training: {steps: 1}\nparallelism: {data_parallel_shard: 1}\nmodel: {model_type: qwen3}\n"


@pytest.mark.parametrize(
    ("dialect", "installed", "asked", "release", "is_installed"),
    [
        (STATIC, None, None, Release("MindFormers", "1.9"), False),
        (STATIC, "1.8.0", None, Release("MindFormers", "1.8", "1.8.0"), True),
        (STATIC, "1.3.2", None, Release("MindFormers", "1.9", "1.3.2"), False),
        (STATIC, "2.10.0", None, Release("MindFormers", NEWEST, "2.10.0"), False),
        (STATIC, "dev", None, Release("MindFormers", "1.9", "dev"), False),
        (DYNAMIC, "1.9.0", None, Release("MindFormers", "2.1", "1.9.0"), False),
        (DYNAMIC, "2.0.0", None, Release("MindFormers", "2.0", "2.0.0"), True),
        (SPEED, None, "r0.1.0", Release("MindSpeed-Core-MS", "0.1"), False),
    ],
)
def test_the_installed_release_counts_if_it_is_served(  # noqa: PLR0913 - one for each column of the table
    dialect: Dialect,
    installed: str | None,
    asked: str | None,
    release: Release,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_installed: bool,
) -> None:
    monkeypatch.setattr(query, "installed_version", lambda _package: installed)
    assert release_for(dialect, asked) == release
    assert release.is_installed is is_installed


@pytest.mark.parametrize("version", ["0.7", "1.4", "1.5.0", "2.4", "2.10", "99", "", "new", "1.9x", "1.9/..", "²·¹"])
def test_no_other_release_is_taken(version: str) -> None:
    with pytest.raises(UnsupportedError, match=r"supported: mindformers 1\.6, 1\.7.*; mindspeed-ms 0\.1"):
        release_of(version)


@pytest.mark.parametrize("command", ["lint", "normalize-recompute"])
@pytest.mark.parametrize("version", ["0.3", "1.4", "99"])
def test_commands_refuse_it_with_the_list(
    command: str, version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "a.yaml"
    config.write_text(CONFIG)
    try:
        code = main([command, "--lang", "en", "--framework-version", version, str(config)])
    except SystemExit as error:
        code = int(error.code or 0)
    shown = capsys.readouterr()
    assert code == 2
    assert version in shown.err
    assert "1.6, 1.7, 1.8, 1.9, 2.0, 2.1" in shown.err
    assert shown.out == ""


@pytest.mark.parametrize(
    ("asked", "release"), [("r0.3.0", "2.1"), ("0.4", "2.2"), ("r0.5.0", "2.3"), ("2.2.0", "2.2"), ("26.0.0", "26.0")]
)
def test_a_release_of_mindspeed_core_ms_represents_what_it_fetches(asked: str, release: str) -> None:
    """Its ``auto_convert`` scripts check out a MindSpeed-LLM; users know the release of the scripts that they ran."""
    assert release_of(asked, Dialect.MEGATRON) == release_of(asked) == release
    assert release_or_default(asked, Dialect.MEGATRON) == release
    for version in ("0.6", "r0.2.0"):
        with pytest.raises(UnsupportedError):
            release_of(version, Dialect.MEGATRON)
    with pytest.raises(UnsupportedError):
        release_of("r0.4.0", Dialect.MINDFORMERS, Dialect.MINDSPEED_MS)


def test_a_release_of_another_dialect_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, folder = tmp_path / "in" / "a.yaml", tmp_path / "in"
    folder.mkdir()
    config.write_text(DYNAMIC_CONFIG)
    assert main(["lint", "--lang", "en", "--framework-version", "1.9", str(config)]) == 2
    assert "supported: mindformers-pynative 2.0, 2.1" in capsys.readouterr().err
    (folder / "b.yaml").write_text(CONFIG)
    assert main(["lint", "--lang", "en", "--framework-version", "1.9", str(folder)]) in (0, 1)
    assert "for MindFormers 1.9" in capsys.readouterr().out


def test_what_is_installed_and_not_served_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(query, "installed_version", lambda _package: "2.7.1")
    (tmp_path / "a.yaml").write_text(CONFIG)
    main(["lint", "--lang", "en", str(tmp_path / "a.yaml")])
    assert f"for MindFormers {NEWEST} (installed: 2.7.1)" in capsys.readouterr().out
