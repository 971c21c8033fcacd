"""Test ``ms-tune lint`` on a project: folders, settings, baselines, fixes."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from ms_tune.cli.main import main
from ms_tune.lint.settings import settings_for
from tests.lint.few import make_only_few

CONFIG = "# 头\ntrainer: {}\nprofile: True  # on\noptimizer:\n  eps: 1e-8  # 小\n"


@pytest.fixture(autouse=True)
def project(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    make_only_few(monkeypatch)
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.yaml").write_text(CONFIG, encoding="utf-8")
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    settings_for.cache_clear()  # every run of ms-tune is a process of its own
    code = main(["lint", *arguments])
    output = capsys.readouterr()
    return code, output.out, output.err


def concise(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    return run(capsys, "--format", "concise", *arguments)[1].splitlines()


def test_fix_mends_the_file_and_reports_the_rest(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    code, out, err = run(capsys, "--fix", "train.yaml")
    assert (code, err) == (1, "")
    assert (project / "train.yaml").read_text(encoding="utf-8") == CONFIG.replace("1e-8", "1.e-8")
    assert out.startswith("warning[profiling-on] MST509")
    assert "train.yaml: fixed: set 'eps' to 1.e-8\n" in out
    assert out.endswith("\nFixed 1 issue. 1 issue remains (1 warning). 1 fixable with `--fix=unsafe`.\n")
    code, out, _ = run(capsys, "--fix=unsafe", "train.yaml")
    assert code == 0
    assert out == (
        "train.yaml: fixed: set 'profile' to False\n"
        "Checked 1 file for MindFormers 1.9.\nFixed 1 issue. No issues remain.\n"
    )
    assert (project / "train.yaml").read_text(encoding="utf-8") == CONFIG.replace("1e-8", "1.e-8").replace(
        "True", "False"
    )


DIFF = """\
--- a/train.yaml
+++ b/train.yaml
@@ -2,4 +2,4 @@
 trainer: {}
 profile: True  # on
 optimizer:
-  eps: 1e-8  # 小
+  eps: 1.e-8  # 小
"""


def test_diff_changes_nothing(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    assert run(capsys, "--diff", "train.yaml") == (1, DIFF, "Would fix 1 issue in 1 file.\n")
    code, out, _ = run(capsys, "--diff=unsafe", "train.yaml")
    assert code == 1
    assert "+profile: False  # on\n" in out
    assert run(capsys, "--diff", "--fix=unsafe", "train.yaml")[1] == out
    assert (project / "train.yaml").read_text(encoding="utf-8") == CONFIG
    run(capsys, "--fix", "train.yaml")
    assert run(capsys, "--diff", "train.yaml") == (0, "", "Would fix 0 issues in 0 files.\n")


def test_diff_without_a_last_line_break(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    (project / "train.yaml").write_bytes(b"trainer: {}\r\neps: 1e-8")
    out = run(capsys, "--diff", "train.yaml")[1]
    assert out.endswith("-eps: 1e-8\n\\ No newline at end of file\n+eps: 1.e-8\n\\ No newline at end of file\n")


def test_standard_input(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def give(content: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    give(CONFIG.encode())
    code, out, _ = run(capsys, "--format", "concise", "-")
    assert code == 1
    assert out.startswith("<stdin>:3:10: warning[profiling-on] MST509: ")
    give(CONFIG.encode())
    assert run(capsys, "--diff", "-")[1].startswith("--- a/<stdin>\n")
    assert run(capsys, "--fix", "-")[0] == 2
    for content in (CONFIG.encode(), b"a: [1,\n"):  # a finding, and an unreadable file
        give(content)
        assert "file=<stdin>," in run(capsys, "--format", "github", "-")[1]
    give(b"x" * (4 * 1024**2 + 1))
    code, _, err = run(capsys, "-")
    assert code == 2
    assert "4 MiB" in err


def test_folders_say_what_they_skip(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    (project / "compose.yaml").write_text("services: {}\n")
    code, out, err = run(capsys, "--fail-on", "error", ".")
    assert (code, err) == (0, "")
    assert "Skipped 1 file (`--verbose` lists them)." in out
    err = run(capsys, "--verbose", ".")[2]
    assert err == ("compose.yaml: skipped: does not look like a training config of MindFormers or MindSpeed-Core-MS\n")
    assert json.loads(run(capsys, "--json", ".")[1])["summary"]["skipped"] == 1


def test_nothing_to_check(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    (project / "train.yaml").write_text("services: {}\n")
    code, _, err = run(capsys, ".")
    assert code == 2
    assert "no training config found; skipped 1 file" in err
    assert run(capsys, "--skip-unknown", "train.yaml")[0] == 0
    assert run(capsys, "train.yaml")[0] == 2


def test_settings_of_the_project(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    (project / "ms-tune.toml").write_text(
        "ignore = ['profiling-on']\nfail-on = 'error'\n[severity]\nnumber-read-as-text = 'error'\n"
    )
    assert [line.split(": ")[1] for line in concise(capsys, "train.yaml")[:-2]] == ["error[number-read-as-text] MST102"]
    assert len(concise(capsys, "--no-config", "train.yaml")) == 4
    assert run(capsys, "--no-config", "--fail-on", "error", "train.yaml")[0] == 0
    assert len(concise(capsys, "--select", "MST5", "train.yaml")) == 3
    assert concise(capsys, "--ignore", "MST102", "train.yaml")[-1] == "No issues found."
    (project / "other.toml").write_text("select = ['nothing-like-this']\n")
    code, _, err = run(capsys, "--config", "other.toml", "train.yaml")
    assert code == 2
    assert "unknown check 'nothing-like-this'" in err
    code, _, err = run(capsys, "--select", "profiling-onn", "train.yaml")
    assert (code, "did you mean profiling-on?" in err) == (2, True)


def test_profiles(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    (project / "train.yaml").write_text("trainer: {}\ntrain_precision_sync: True\n")
    assert "deterministic-on" in concise(capsys, "train.yaml")[0]
    assert not any("deterministic-on" in line for line in concise(capsys, "--profile", "reproducible", "train.yaml"))


def test_checklists_can_replace_and_turn_off(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    (project / "team.yaml").write_text("disable: [profiling-on, MST102]\n")
    assert concise(capsys, "--checklist", "team.yaml", "train.yaml")[-1] == "No issues found."
    (project / "ms-tune.toml").write_text("checklists = ['team.yaml']\n")
    assert concise(capsys, "train.yaml")[-1] == "No issues found."


def test_baseline(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    code, out, err = run(capsys, "--baseline", "old.json", "--write-baseline", "train.yaml")
    assert (code, out, err) == (0, "", "Wrote 2 findings to old.json.\n")
    code, out, _ = run(capsys, "--baseline", "old.json", "train.yaml")
    assert (code, out) == (0, "Checked 1 file for MindFormers 1.9. 2 in the baseline.\nNo issues found.\n")
    # Lines may move; a second finding of the same kind is new.
    (project / "train.yaml").write_text(f"seed: 1\n{CONFIG}lr_schedule: {{eps: 1e-8}}\n", encoding="utf-8")
    lines = concise(capsys, "--baseline", "old.json", "train.yaml")
    assert [line.split(": ")[0] for line in lines[:-2]] == ["train.yaml:7:20"]
    # Old findings are not mended either.
    assert run(capsys, "--baseline", "old.json", "--diff=unsafe", "train.yaml")[2] == "Would fix 1 issue in 1 file.\n"
    (project / "ms-tune.toml").write_text("baseline = 'old.json'\n")
    assert len(concise(capsys, "train.yaml")) == 3


def test_baselines_that_are_none(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    assert run(capsys, "--write-baseline", "train.yaml")[0] == 2
    assert "create one with ms-tune lint --write-baseline" in run(capsys, "--baseline", "old.json", "train.yaml")[2]
    for text in ("x", "[]", '{"version": 2}', '{"version": 1, "files": {"a": 1}}'):
        (project / "old.json").write_text(text)
        code, _, err = run(capsys, "--baseline", "old.json", "train.yaml")
        assert code == 2
        assert "baseline" in err


def test_a_baseline_of_0_2_0_is_read(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    run(capsys, "--write-baseline", "--baseline", "old.json", "train.yaml")
    written = json.loads((project / "old.json").read_text())
    assert written.pop("schema_version") == 1
    (project / "old.json").write_text(json.dumps({"version": 1, **written}))
    assert " in the baseline." in run(capsys, "--baseline", "old.json", "train.yaml")[1]


def test_statistics(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    (project / "two.yaml").write_text("trainer: {}\na: {b: 1e1, c: 1e2}\n")
    lines = run(capsys, "--statistics", "train.yaml", "two.yaml")[1].splitlines()
    assert lines[0] == "3  warning[number-read-as-text] MST102  in 2 files"
    statistics = json.loads(run(capsys, "--json", "--statistics", "two.yaml", "train.yaml")[1])["statistics"]
    assert statistics[0] == {
        "id": "MST102",
        "name": "number-read-as-text",
        "severity": "warning",
        "count": 3,
        "files": 2,
    }


@pytest.mark.parametrize(
    "arguments",
    [
        ("--json", "--format", "sarif", "train.yaml"),
        ("--diff", "--json", "train.yaml"),
        ("--config", "a.toml", "--no-config", "train.yaml"),
        ("--write-baseline", "--baseline", "a", "--fix", "train.yaml"),
        ("--fix=all", "train.yaml"),
        ("--jobs", "0", "train.yaml"),
    ],
)
def test_options_that_do_not_go_together(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")


def test_environment_settings(
    capsys: pytest.CaptureFixture[str], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "run.sh").write_text("export MS_ALLOC_CONF=enable_vmm=True\npython train.py\n")
    (project / "other.sh").write_text("export A=1\n")
    lines = concise(capsys, "--select", "MST801", ".")
    assert lines[0].startswith("run.sh:1:22: warning[setting-without-colon] MST801: ")
    assert "MindSpore 2.9." in lines[-2]
    assert "other.sh: skipped: does not set any variable that MindSpore reads" in run(capsys, "--verbose", ".")[2]
    assert concise(capsys, "other.sh")[-1] == "No issues found."
    (project / "run.sh").write_text("# ms-tune: ignore[MST801]\nexport MS_ALLOC_CONF=enable_vmm=True\n")
    assert "1 ignored by comments." in concise(capsys, "--select", "MST801", "run.sh")[0]
    monkeypatch.setenv("MS_ALLOC_CONF", "enable_vmm=True")
    lines = concise(capsys, "--select", "MST801", "--env-from-process")
    assert lines[0].startswith("environment:1:")
    assert run(capsys)[0] == run(capsys, ".")[0] == 1  # without a path it checks this folder


def test_a_fix_that_cannot_be_written_is_not_counted(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    (project / "train.yaml").chmod(0o444)
    (project / "other.yaml").write_text(CONFIG, encoding="utf-8")
    code, out, err = run(capsys, "--fix", "--format", "json", "train.yaml", "other.yaml")
    report = json.loads(out)
    assert (code, report["summary"]["fixed"], report["summary"]["unreadable"]) == (2, 1, 0)
    assert [(one["file"], one["message"][:18]) for one in report["failed"]] == [("train.yaml", "is write-protected")]
    assert "chmod u+w train.yaml" in report["failed"][0]["hint"]
    assert [one["file"] for one in report["findings"] if one["id"] == "MST102"] == ["train.yaml"]
    assert "train.yaml: error: is write-protected" in err
    assert (project / "train.yaml").read_text(encoding="utf-8") == CONFIG
    out = run(capsys, "--fix", "train.yaml")[1]
    assert "fixed" not in out
    assert "Could not write 1 file." in out


def test_quiet_is_the_summary_alone(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    assert project.is_dir()
    code, out, _ = run(capsys, "-q", "train.yaml")
    assert (code, out) == (
        1,
        "Found 2 issues (2 warnings). 1 fixable with `--fix`, 1 more with `--fix=unsafe`.\n",
    )


def test_findings_of_many_files_end_with_a_table_of_them(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    for number in range(5):
        (project / f"{number}.yaml").write_text(CONFIG, encoding="utf-8")
    lines = run(capsys, *(f"{number}.yaml" for number in range(5)))[1].splitlines()
    assert lines[-9:-2] == ["Issues by file:", *(f"     2  {number}.yaml" for number in range(5)), ""]
    assert "Issues by file:" not in run(capsys, "--format", "concise", ".")[1]


def test_files_come_in_the_order_given_and_a_note_about_each_is_written_once(
    capsys: pytest.CaptureFixture[str], project: Path
) -> None:
    for name in "cab":
        (project / f"{name}.yaml").write_text("parallel_config: {pipeline_stage: 2}\nprofile: True\n", encoding="utf-8")
    _, out, err = run(capsys, "--dialect", "mindformers", "--format", "concise", "c.yaml", "a.yaml", "b.yaml")
    assert [line.partition(":")[0] for line in out.splitlines()[:3]] == ["c.yaml", "a.yaml", "b.yaml"]
    assert err.count("only part of a 'mindformers' config") == 1
    assert err.endswith("\n  the same applies to 2 more files\n")
