"""Test ``ms-tune check``: one screen about a job, and the effect of a change."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from ms_tune import check_job, load_job, normalize_recompute
from ms_tune.cli.main import main
from ms_tune.diagnostics import Severity
from ms_tune.dryrun.request import DryrunRequest
from ms_tune.dryrun.settings import with_settings
from ms_tune.enums import SizeOrigin
from ms_tune.errors import ConfigError, ExitCode, UsageError
from ms_tune.estimate.memory import Estimate, Outlook, StageEstimate
from ms_tune.facts.query import data_folder
from ms_tune.report.console import text_width
from ms_tune.source.git import changed_since, text_at
from ms_tune.source.yaml import load_source
from ms_tune.text import msg
from ms_tune.units import MIB
from ms_tune.verdict.limit import device_of, limit_of
from ms_tune.verdict.outcome import Need, UntracedNeeds, judge, no_verdict
from ms_tune.workflows.check.base import compare_configs, compare_scripts
from ms_tune.workflows.check.config import InspectedConfig, OverviewRequest, inspect_config
from ms_tune.workflows.check.result import Blame, MemoryDifference, Overview, StageVerdict

if TYPE_CHECKING:
    from ms_tune.job import Job

    Screen = Callable[..., tuple[int, str, str]]

TEMPLATES = data_folder("yaml_templates")
ALL = sorted(TEMPLATES.glob("*/*.yaml"))
GIT = shutil.which("git")
GIB = 1024 * MIB


@pytest.fixture
def screen(capsys: pytest.CaptureFixture[str]) -> Screen:
    def show(*arguments: str) -> tuple[int, str, str]:
        code = main(["check", *arguments])
        done = capsys.readouterr()
        return code, done.out, done.err

    return show


def on(card: int, devices: int | None = None) -> OverviewRequest:
    """Return a request for devices with this many GiB."""
    return OverviewRequest(job=DryrunRequest(device_bytes=card * GIB, devices=devices))


def estimate_of(file: Path | str, request: OverviewRequest | None = None) -> Estimate:
    found = check_job(file, request=request or OverviewRequest()).estimate
    assert found is not None
    return found


def against(file: Path | str = "train.yaml", base: str = "HEAD") -> MemoryDifference:
    found = check_job(file, base=base).against
    assert found is not None
    return found


def blamed(file: Path | str = "train.yaml", base: str = "HEAD") -> Blame:
    blame = against(file, base).blame
    assert blame is not None
    return blame


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "train.yaml"
    shutil.copy(TEMPLATES / "mindspeed_ms" / "llama2_7b.yaml", file)
    return file


def edited(file: Path, **values: object) -> None:
    """Replace values of keys that occur once in a file."""
    text = file.read_text(encoding="utf-8")
    for key, value in values.items():
        lines = [line for line in text.splitlines() if line.strip().startswith(f"{key}:")]
        (line,) = lines
        text = text.replace(line, f"{line[: line.index(key)]}{key}: {value}")
    file.write_text(text, encoding="utf-8")


class TestScreen:
    @pytest.mark.parametrize(
        ("written", "name"),
        [({"recompute": "[4, 4, 4]"}, "short-recompute-list"), ({"offset": "3"}, "impossible-layer-split")],
    )
    def test_what_lint_says_is_not_said_again(
        self, screen: Screen, tmp_path: Path, written: dict[str, object], name: str
    ) -> None:
        file = tmp_path / "train.yaml"
        text = (TEMPLATES / "mindformers" / "qwen3_0_6b.yaml").read_text("utf-8")
        file.write_text(text.replace("pipeline_stage: 2", "pipeline_stage: 4"), "utf-8")
        edited(file, **written)
        (shown,) = json.loads(screen(str(file), "--json")[1])["files"]
        assert [one["name"] for one in shown["matters"] if one["severity"] != "info"] == [name]

    @pytest.mark.slow
    @pytest.mark.parametrize("language", ["en", "zh"])
    @pytest.mark.parametrize("file", ALL, ids=lambda file: file.stem)
    @pytest.mark.parametrize("card", ["16GiB", "64GiB"])
    def test_it_is_one_screen(
        self, monkeypatch: pytest.MonkeyPatch, screen: Screen, file: Path, card: str, language: str
    ) -> None:
        monkeypatch.setenv("COLUMNS", "80")
        monkeypatch.chdir(file.parent)
        code, out, err = screen(file.name, "--device-memory", card, "--lang", language)
        lines = out.splitlines()
        assert (code in (ExitCode.OK, ExitCode.FINDINGS), err) == (True, "")
        assert 5 <= len(lines) <= 12  # of a suggestion, its keys take up to five
        assert lines[0].startswith(("memory: ", "结论："))
        wide = [line for line in lines[:-1] if text_width(line) > 80]  # the last one is a command to copy
        assert wide == []
        assert file.name in out
        assert "fits" not in out  # an estimate never reports that a job fits
        assert "estimate" in out or language == "zh"

    def test_what_the_job_is_follows_the_verdict(self, screen: Screen) -> None:
        _, out, _ = screen(str(TEMPLATES / "mindformers" / "qwen3_32b.yaml"))
        assert "mindformers (MindFormers 1.9), qwen3, 64" in " ".join(out.split())
        assert "32 NPUs (from the config): DP=2 TP=4 PP=4" in " ".join(out.split())

    def test_json_holds_what_the_screen_says(self, screen: Screen, config: Path) -> None:
        code, out, _ = screen(str(config), "--device-memory", "16GiB", "--json")
        (found,) = json.loads(out)["files"]
        assert code == ExitCode.FINDINGS
        assert found["dialect"] == "mindspeed-ms"
        assert found["assumptions"]["devices"] == 8
        assert found["estimate"]["outlook"] == "over"
        assert found["estimate"]["peak_bytes"] == max(one["peak_bytes"] for one in found["estimate"]["stages"])
        assert found["next"][-1] == f"ms-tune fit {config} --search dp,tp,pp,vpp --devices 8 --device-memory 16GiB"
        assert found["change"]["name"] == "layout"
        assert found["against"] is None

    @pytest.mark.parametrize(("devices", "plans"), [("1", False), ("2", True)])
    def test_no_plan_is_pointed_to_where_nothing_is_recomputed(
        self, screen: Screen, tmp_path: Path, devices: str, *, plans: bool
    ) -> None:
        data = yaml.safe_load((TEMPLATES / "mindformers_pynative" / "deepseek3_1b_moe.yaml").read_text("utf-8"))
        data["parallelism"] = {"data_parallel_shard": int(devices)}
        file = tmp_path / "small.yaml"
        file.write_text(yaml.safe_dump(data), encoding="utf-8")
        asked = ("--devices", devices, "--device-memory", "4GiB", "--json")
        (found,) = json.loads(screen(str(file), *asked)[1])["files"]
        assert found["estimate"]["outlook"] == "over"
        assert any(command.startswith("ms-tune fit") for command in found["next"]) is plans

    def test_the_next_command_can_be_copied(self, screen: Screen, config: Path) -> None:
        file = config.rename(config.parent / "my train.yaml")
        (found,) = json.loads(screen(str(file), "--device-memory", "16GiB", "--json")[1])["files"]
        assert found["next"]
        assert all(str(file) in shlex.split(command) for command in found["next"])
        assert "\n下一步：ms-tune check --dryrun '" in screen(str(file), "--lang", "zh")[1]

    def test_a_pipe_can_be_read_but_once(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "train.yaml")
        with pytest.raises(ConfigError) as caught:
            check_job(tmp_path / "train.yaml")
        assert caught.value.message.id == "check.pipe"

    def test_several_files_one_after_the_other(self, screen: Screen, tmp_path: Path) -> None:
        code, out, err = screen(str(ALL[0]), str(tmp_path / "none.yaml"), str(ALL[1]))
        assert code == ExitCode.USAGE
        assert "none.yaml" in err
        assert ALL[0].name in out
        assert ALL[1].name in out

    def test_a_defect_of_ms_tune_in_one_file_does_not_hide_the_others(
        self, screen: Screen, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def load(path: Path, **options: Any) -> Job:  # noqa: ANN401 - those of `load_job`
            return load_job(path, **options) if path == ALL[1] else 1 / 0  # type: ignore[return-value] # it raises

        monkeypatch.setattr("ms_tune.workflows.check.run.load_job", load)
        code, out, err = screen(str(ALL[0]), str(ALL[1]))
        assert code == ExitCode.INTERNAL
        assert f"{ALL[0]}: error: ms-tune itself failed on this file (ZeroDivisionError" in err
        assert ALL[1].name in out

    def test_foreign_files_are_passed_over_where_that_is_asked_for(self, screen: Screen, tmp_path: Path) -> None:
        (tmp_path / "ci.yml").write_text("on: push\njobs: {a: {runs-on: x, steps: []}}\n", encoding="utf-8")
        (tmp_path / "run.sh").write_text("echo hello\n", encoding="utf-8")
        files = (str(tmp_path / "ci.yml"), str(tmp_path / "run.sh"))
        assert screen(*files, "--skip-unknown") == (ExitCode.OK, "", "")
        assert screen(*files)[0] == ExitCode.USAGE
        (tmp_path / "ci.yml").write_text("a: [\n", encoding="utf-8")
        assert screen(*files, "--skip-unknown") == (ExitCode.OK, "", "")
        (tmp_path / "ci.yml").write_text("run_mode: train\nparallel_config: [\n", encoding="utf-8")
        assert screen(*files, "--skip-unknown")[0] == ExitCode.FINDINGS

    @pytest.mark.parametrize(
        "text", ["gpt_args: {micro_batch_size: 1}\n", "parallel: {fsdp_size: 8, cp_size: 1, ep_size: 1}\n"]
    )
    def test_a_yaml_of_programs_whose_scripts_are_checked_has_a_screen(
        self, screen: Screen, tmp_path: Path, text: str
    ) -> None:
        file = tmp_path / "train.yaml"
        file.write_text(text, encoding="utf-8")
        code, out, _ = screen(str(file))
        assert code == ExitCode.OK
        assert "1 info; worst: not checked: MindSpeed-" in out
        command = out.splitlines()[-1].removeprefix("next: ms-tune check ")
        assert screen(command)[0] == ExitCode.OK

    def test_a_config_without_a_job_has_its_findings_and_the_next_command(self, screen: Screen, tmp_path: Path) -> None:
        file = tmp_path / "train.yaml"
        text = "use_parallel: True\nrun_mode: train\ntrainer: {}\nparallel_config: {pipeline_stage: 4}\n"
        file.write_text(text, encoding="utf-8")
        code, out, err = screen(str(file))
        assert (code, err) == (ExitCode.FINDINGS, "")
        assert out.startswith("memory: not estimated because the config names no model")
        assert "1 warning; worst: train.yaml:4: MST" in out
        assert "suggestion: " in out
        assert out.splitlines()[-1] == f"next: ms-tune lint {file}"

    def test_quiet_leaves_the_verdict_and_verbose_shows_the_evidence(self, screen: Screen, config: Path) -> None:
        (line,) = screen(str(config), "--quiet")[1].splitlines()
        assert line.startswith("memory: ")
        two = screen(str(config), str(ALL[0]), "-q")[1].splitlines()
        assert two[0] == f"{config}: {line}"
        assert len(two) == 2
        assert "- estimate only: simulated peaks ranged from 0.95x to 1.1x of it" in screen(str(config), "-v")[1]

    def test_without_a_file_it_says_what_it_wants(self, screen: Screen) -> None:
        code, _, err = screen()
        assert code == ExitCode.USAGE
        assert "name a config" in err


class TestParts:
    """Whatever is broken costs its own part only: memory, what the file is, findings, a suggestion, the next command."""

    STATIC = (TEMPLATES / "mindformers" / "qwen3_32b.yaml").read_text("utf-8")

    @pytest.mark.drawn(3)
    @pytest.mark.parametrize(
        ("was", "now", "memory", "what"),
        [
            ("  recompute:", "  recompute_x: 1\n  recompute:", "recompute_config has no key", "mindformers ("),
            ("recompute_config:", "recompute_config: [", "line 107 is not valid YAML", "mindformers ("),
            ("seed: 42", "seed: {", "line 9 is not valid YAML", "mindformers ("),
            ("num_hidden_layers: 64", "", "the config does not give the number of layers", "qwen3"),
            ("num_hidden_layers: 64", "num_hidden_layers: many", "num_hidden_layers", "qwen3"),
            ("seed: 42", "base_config: none.yaml", "base_config", "mindformers ("),
            ("pipeline_stage: 4", "pipeline_stage: 3", "", "qwen3"),
        ],
    )
    def test_a_broken_part_costs_no_other(  # noqa: PLR0913, PLR0917 - the case, and where it is tried
        self, screen: Screen, tmp_path: Path, was: str, now: str, memory: str, what: str
    ) -> None:
        file = tmp_path / "train.yaml"
        assert self.STATIC.count(was) >= 1
        file.write_text(self.STATIC.replace(was, now, 1), "utf-8")
        code, out, err = screen(str(file))
        lint = main(["lint", str(file), "-q"])
        lines = " ".join(out.split())
        assert (code, err) == (min(lint, 1), "")
        assert lines.startswith("memory: not estimated because ")
        assert memory in lines
        assert f"{file}: {what}" in lines or f", {what}" in lines
        assert ("No issues found." in out) is (lint == ExitCode.OK)
        assert "\nsuggestion: " in out
        next_ = shlex.split(out.splitlines()[-1].removeprefix("next: "))
        assert next_[0] == "ms-tune"
        if next_[1] != "check":  # the same screen again, after the correction
            assert main(next_[1:]) in (ExitCode.OK, ExitCode.FINDINGS)

    def test_all_findings_of_lint_are_counted(
        self, screen: Screen, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "train.yaml"
        text = self.STATIC.replace("  recompute:", "  recompute_slice_activatoin: True\n  recompute:", 1)
        file.write_text(f"{text}\nstrange: 1\nlr_schedule: {{learning_rate: 1e-5}}\n", "utf-8")
        main(["lint", str(file), "--json"])
        summary = json.loads(capsys.readouterr().out)["summary"]
        (shown,) = json.loads(screen(str(file), "--json")[1])["files"]
        levels = [one["severity"] for one in shown["matters"]]
        assert [levels.count(one) for one in ("error", "warning", "info")] == [
            summary["errors"],
            summary["warnings"],
            summary["infos"],
        ]
        assert len(levels) > 1
        parts = ("memory", "dialect", "matters", "change", "next", "no_estimate_because", "no_estimate_hint")
        assert all(shown[part] for part in parts)

    def test_a_fix_is_offered_where_it_is_made(self, screen: Screen, tmp_path: Path) -> None:
        text = (TEMPLATES / "mindformers" / "qwen3_0_6b.yaml").read_text("utf-8")
        config, script = tmp_path / "train.yaml", tmp_path / "run.sh"
        number = next(line for line in text.splitlines() if "learning_rate:" in line)
        config.write_text(text.replace(number, number.split(":")[0] + ": 1e-5"), "utf-8")
        script.write_text("msrun --worker_num=2 run_mindformer.py --config train.yaml --use_parallel True\n", "utf-8")
        out = screen(str(script))[1]
        assert f"ms-tune lint --fix {config}" in " ".join(out.split())
        assert out.splitlines()[-1] == f"next: ms-tune lint {config}"
        config.write_text("parallel_config: [\n", "utf-8")
        code, out, _ = screen(str(script), "--json")
        (shown,) = json.loads(out)["files"]
        assert code == ExitCode.FINDINGS
        assert [(one["file"], one["line"]) for one in shown["matters"] if not one["id"]] == [(str(config), 2)]

    def test_a_script_without_a_program_that_can_be_planned_has_its_findings(
        self, screen: Screen, tmp_path: Path
    ) -> None:
        script = tmp_path / "run.sh"
        for line in (
            "python convert_ckpt.py --model-type GPT\n",
            f"torchrun pretrain_gpt.py {PAIR} --full-attention-interval 4\n",
        ):
            script.write_text(f"export MS_ALLOC_CONF=enable_vmm=True\n{line}", "utf-8")
            code, out, err = screen(str(script))
            assert (code, err) == (ExitCode.FINDINGS, "")
            assert out.startswith("memory: not estimated because ")
            assert "suggestion: " in out
            assert out.splitlines()[-1].startswith("next: ms-tune ")

    def test_a_folder_is_a_table(self, monkeypatch: pytest.MonkeyPatch, screen: Screen, tmp_path: Path) -> None:
        shutil.copy(TEMPLATES / "mindformers" / "qwen3_32b.yaml", tmp_path / "train.yaml")
        (tmp_path / "ci.yml").write_text("on: push\njobs: {a: {runs-on: x, steps: []}}\n", "utf-8")
        (tmp_path / "bad.yaml").write_text("parallel_config: [\n", "utf-8")
        monkeypatch.chdir(tmp_path)
        code, out, err = screen(".")
        bad, good = (line.split() for line in out.splitlines()[2:-1])
        assert (bad[0], bad[-3:]) == ("bad.yaml", ["1", "0", "0"])
        assert good[:4] == ["train.yaml", "estimated", "to", "fit:"]
        assert out.splitlines()[-1] == "next: ms-tune check bad.yaml"
        assert (code, err) == (ExitCode.FINDINGS, "1 file skipped: not a training config or launch script\n")
        (tmp_path / "bad.yaml").unlink()
        (tmp_path / "train.yaml").unlink()
        assert screen(str(tmp_path))[0] == ExitCode.USAGE

    def test_what_cannot_be_checked_is_in_json(self, screen: Screen, tmp_path: Path) -> None:
        code, out, _ = screen(str(tmp_path / "none.yaml"), "--json")
        assert code == ExitCode.USAGE
        assert [one["file"] for one in json.loads(out)["failed"]] == [str(tmp_path / "none.yaml")]


class TestMatters:
    def test_the_worst_comes_first(self, config: Path) -> None:
        edited(config, num_layers=0)
        severities = [one.severity.rank for one in check_job(config).matters]
        assert severities == sorted(severities)
        assert severities[0] == Severity.ERROR.rank

    def test_an_issue_of_layers_is_said_once(self, config: Path) -> None:
        """The linter reports with a line what the plan reports, too."""
        edited(config, num_layers=30)
        assert [one.id for one in normalize_recompute(load_job(config)).problems] == ["value-rejected"]
        assert [one.id for one in check_job(config).matters if one.severity is not Severity.INFO] == ["MST622"]

    def test_what_the_device_cannot_give_is_an_error(self) -> None:
        seen = check_job(TEMPLATES / "mindformers" / "qwen3_32b.yaml", request=on(16))
        assert (seen.matters[0].severity, seen.exit_code()) == (Severity.ERROR, ExitCode.FINDINGS)
        assert "max_device_memory" in str(seen.matters[0].text)


class TestEstimate:
    def test_it_grows_with_the_layers_and_shrinks_with_recompute(self, config: Path) -> None:
        now = estimate_of(config, on(64))
        edited(config, num_layers=40)
        more = estimate_of(config, on(64))
        assert more.fullest.peak_bytes > now.fullest.peak_bytes
        assert more.fullest.lasting_bytes == pytest.approx(now.fullest.lasting_bytes * 40 / 32, rel=0.05)

    def test_more_than_the_limit_is_over_and_far_less_is_below(self, config: Path) -> None:
        outlooks = [one.outlook for card in (32, 64, 128) if (one := check_job(config, request=on(card)).estimate)]
        assert outlooks == [Outlook.OVER, Outlook.UNSURE, Outlook.BELOW]

    def test_a_legacy_model_needs_no_data_columns_of_ours(self, tmp_path: Path) -> None:
        """Columns that dryrun cannot make are no reason to have no estimate; settings of MindFormers change it."""
        values = yaml.safe_load((TEMPLATES / "mindformers" / "mixtral_8x7b_swap.yaml").read_text(encoding="utf-8"))
        values.pop("swap_config")
        values.pop("moe_config", None)
        values["train_dataset"]["input_columns"] = ["input_ids", "target_ids"]
        config, peaks, parameters = tmp_path / "config.yaml", [], set()
        summed, vocabulary = values["parallel"]["parallel_optimizer_config"], values["parallel_config"]
        vocabulary |= {"expert_parallel": 1, "data_parallel": 4, "model_parallel": 2}
        for shards in (False, True):
            summed["gradient_accumulation_shard"] = shards
            for whole in (False, True):
                vocabulary["vocab_emb_dp"] = whole
                for stages in (1, 2):
                    vocabulary["pipeline_stage"] = stages
                    config.write_text(yaml.safe_dump(values), encoding="utf-8")
                    seen = check_job(config)
                    assert seen.estimate is not None
                    assert seen.sizes is not None
                    parameters.add(seen.sizes.parameters)
                    peaks.append(seen.estimate.stages[0].peak_bytes)
        assert parameters == {7_241_732_096}  # Mistral-7B's published count: Mixtral without experts
        one, two, one_whole, two_whole, one_sharded, two_sharded, *_ = peaks
        assert one_whole > one  # the embedding is on every rank,
        assert two_whole == two  # but not with stages
        assert one_sharded == one  # nothing is accumulated without stages
        assert two_sharded < two

    def test_swap_may_free_all_activations(self) -> None:
        seen = check_job(TEMPLATES / "mindformers" / "mixtral_8x7b_swap.yaml").estimate
        assert seen is not None
        assert seen.ratio_range[0] == seen.fullest.lasting_bytes / seen.fullest.peak_bytes

    def test_chunks_without_stages_hold_one_pass(self, tmp_path: Path) -> None:
        peaks = []
        for chunks in (1, 2):
            values = yaml.safe_load((TEMPLATES / "mindformers" / "qwen3_0_6b.yaml").read_text(encoding="utf-8"))
            values["parallel_config"], values["recompute_config"] = {}, {"recompute": False}
            values["parallel"]["pipeline_config"] = {"pipeline_interleave": True, "pipeline_scheduler": "1f1b"}
            values["model"]["model_config"]["pp_interleave_num"] = chunks
            file = tmp_path / f"{chunks}.yaml"
            file.write_text(yaml.safe_dump(values), encoding="utf-8")
            seen = estimate_of(file, on(64))
            peaks.append(seen.fullest.peak_bytes)
        assert peaks[0] == peaks[1]


def with_change(file: Path, overview: Overview) -> Path:
    """Return a file next to a config, in which the suggestion is written."""
    assert overview.change is not None
    source, changed = load_source(file), file.with_name(f"changed_{file.name}")
    changed.write_text(with_settings(source, overview.change.settings, load_job(file).dialect).text, "utf-8")
    return changed


class TestChange:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("template", "edits", "size", "names"),
        [
            ("mindspeed_ms/llama2_13b_vpp", {"use_distributed_optimizer": "False"}, 44, ["optimizer"]),
            (
                "mindspeed_ms/llama2_7b",
                {"pipeline_model_parallel_size": "4", "recompute": "[0, 0, 0, 0]"},
                40,
                ["recompute"],
            ),
            # Lists without an offset would mean equal cells, which 61 layers do not have.
            ("mindformers_pynative/deepseek3_671b_dynamic", {"mode": "None"}, 48, ["recompute"]),
        ],
    )
    def test_the_change_frees_what_it_says(
        self, template: str, edits: dict[str, str], size: int, names: list[str], tmp_path: Path
    ) -> None:
        """After the change the estimate is lower by the amount on the screen, and the job does not exceed the limit any more."""
        file = tmp_path / "train.yaml"
        shutil.copy(TEMPLATES / f"{template}.yaml", file)
        edited(file, **edits)
        seen = check_job(file, request=on(size))
        assert seen.change is not None
        assert [seen.change.name, seen.change.enough] == [*names, True]
        before, after = seen.estimate, estimate_of(with_change(file, seen), on(size))
        assert before is not None
        assert (before.outlook, after.outlook) != (Outlook.OVER, Outlook.OVER)
        assert seen.change.freed_bytes == before.fullest.peak_bytes - after.fullest.peak_bytes

    def test_a_job_that_is_far_below_the_limit_needs_none(self, config: Path) -> None:
        seen = check_job(config, request=on(256))
        assert seen.change is not None
        assert seen.change.name == "nothing"


class TestDryrun:
    def with_verdict(self, peak: int, config: Path) -> Overview:
        limit = limit_of(device_of(card_bytes=64 * GIB))
        verdict = judge(Need.of_trace(peak, peak), limit, UntracedNeeds(communicators=0))
        return check_job(config)._replace(stages=(StageVerdict(0, verdict),))

    def test_its_verdict_decides(self, config: Path) -> None:
        assert self.with_verdict(20 * GIB, config).exit_code() == ExitCode.OK
        assert self.with_verdict(70 * GIB, config).exit_code() == ExitCode.FINDINGS

    def test_no_verdict_is_no_answer(self, config: Path) -> None:
        seen = check_job(config)._replace(stages=(StageVerdict(0, no_verdict(msg("verdict.none.cut"))),))
        assert seen.exit_code() == ExitCode.USAGE

    @pytest.mark.parametrize(
        ("before", "after", "outcome"),
        [
            ((20, 20), (30, 70), "over"),
            ((20, 20), (56.5, 30), "tight"),  # of 56.8 GiB, including memory outside the pool
            ((20, 20), (30, 20), "more"),
            ((70, 20), (80, 20), "still"),
            ((80, 20), (70, 20), "less"),
            ((30, 20), (20, 20), "less"),
            ((20,), (20, 30), "more"),  # there was no such stage: compared with the fullest old stage
        ],
    )
    def test_what_a_change_did_is_reported_by_the_dryruns_of_both(
        self, config: Path, before: tuple[float, ...], after: tuple[float, ...], outcome: str
    ) -> None:
        old = self.look(config, before)
        edited(config, num_layers=36, seed=7)
        found = compare_configs(old, self.look(config, after))
        assert found is not None
        full = max(range(len(after)), key=lambda stage: after[stage])
        assert (found.stage, found.outcome, found.estimated) == (full, outcome, False)
        was = before[full] if full < len(before) else max(before)
        assert (found.before_bytes, found.after_bytes) == (was * GIB, after[full] * GIB)
        assert (found.blame.path[-1] if found.blame else None) == (None if outcome == "less" else "num_layers")

    def test_of_several_keys_none_is_blamed_where_no_estimate_distinguishes_them(self, config: Path) -> None:
        old = self.look(config, (20,))
        edited(config, recompute="[1, 2, 3]", seed=7)
        new = inspect_config(OverviewRequest(), config, None, None)._replace(verdicts=self.verdicts((30,)))
        assert new.memory.estimate is None
        found = compare_configs(old, new)
        assert found is not None
        assert (found.outcome, found.blame) == ("more", None)

    def test_without_a_verdict_on_either_side_nothing_is_compared(self, config: Path) -> None:
        whole, none = self.look(config, (20,)), self.look(config, (20,))
        none = none._replace(verdicts=(StageVerdict(0, no_verdict(msg("verdict.none.cut"))),))
        assert compare_configs(none, whole) is None
        assert compare_configs(whole, none) is None

    def look(self, config: Path, peaks: tuple[float, ...]) -> InspectedConfig:
        edited(config, pipeline_model_parallel_size=len(peaks), recompute=[32 // len(peaks)] * len(peaks))
        return inspect_config(OverviewRequest(), config, None, None)._replace(verdicts=self.verdicts(peaks))

    def verdicts(self, peaks: tuple[float, ...]) -> tuple[StageVerdict, ...]:
        limit = limit_of(device_of(card_bytes=64 * GIB))
        sizes = (int(one * GIB) for one in peaks)
        judged = (judge(Need.of_trace(one, one), limit, UntracedNeeds(communicators=0)) for one in sizes)
        return tuple(StageVerdict(*one) for one in enumerate(judged))


@pytest.mark.skipif(GIT is None, reason="compares with commits of git")
class TestBase:
    @pytest.fixture
    def repository(self, tmp_path: Path, config: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        self.git(tmp_path, "init", "-q")
        self.git(tmp_path, "add", config.name)
        self.git(tmp_path, "commit", "-q", "-m", "base")
        monkeypatch.chdir(tmp_path)
        return tmp_path

    def git(self, folder: Path, *words: str) -> None:
        own = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
        subprocess.run([str(GIT), "-C", str(folder), *own, *words], check=True, capture_output=True)

    def test_more_layers_are_reported_at_their_line_with_stage_and_bytes(
        self, screen: Screen, repository: Path
    ) -> None:
        before = estimate_of("train.yaml", on(64))
        edited(repository / "train.yaml", num_layers=40)
        after = estimate_of("train.yaml", on(64))
        assert (before.outlook, after.outlook) == (Outlook.UNSURE, Outlook.OVER)
        code, out, _ = screen("--base", "HEAD", "--format", "github", "--device-memory", "64GiB")
        text = (repository / "train.yaml").read_text(encoding="utf-8").splitlines()
        line = next(number for number, one in enumerate(text, 1) if one.strip().startswith("num_layers:"))
        first = out.splitlines()[0]
        assert code == ExitCode.FINDINGS
        assert first.startswith(f"::error file=train.yaml,line={line},")
        assert f"this change makes stage {after.fullest.stage} exceed the limit (estimated)" in first
        assert "num_layers changed from 32 to 40" in first
        more = after.fullest.peak_bytes - before.stages[after.fullest.stage].peak_bytes
        assert f"({more / GIB:.1f} GiB more)" in first

    @pytest.mark.slow
    def test_the_key_that_did_it_is_found_among_others(self, repository: Path) -> None:
        edited(repository / "train.yaml", num_layers=34, seed=7)
        blame = blamed()
        assert (against().outcome, blame.path[-1], blame.old, blame.new) == ("over", "num_layers", 32, 34)

    def test_keys_that_came_or_went_are_found_too(self, repository: Path) -> None:
        file = repository / "train.yaml"
        text = file.read_text(encoding="utf-8")
        fewer = [line for line in text.splitlines() if not line.strip().startswith("recompute")]
        file.write_text("\n".join(fewer) + "\n", encoding="utf-8")
        blame = blamed()
        assert (blame.path[-1], blame.old, blame.new) == ("recompute_config", {"recompute": [32]}, None)
        assert against().outcome == "over"
        self.git(repository, "commit", "-q", "-a", "-m", "no recompute")
        file.write_text(text, encoding="utf-8")
        assert against().outcome == "less"

    def test_no_git_is_said(self, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(repository))
        with pytest.raises(UsageError) as caught:
            text_at("HEAD", repository / "train.yaml")
        assert caught.value.message.id == "check.base.no-git"

    def test_a_broken_index_is_said(self, repository: Path) -> None:
        (repository / ".git" / "index").write_bytes(b"broken")
        with pytest.raises(UsageError) as caught:
            changed_since("HEAD", repository)
        assert "index" in str(caught.value.message.params["reason"])

    def test_less_memory_is_no_complaint(self, repository: Path) -> None:
        edited(repository / "train.yaml", hidden_size=2048)
        found = against()
        assert (found.outcome, found.is_short, found.blame) == ("less", False, None)

    def test_without_a_file_those_that_were_changed(self, screen: Screen, repository: Path) -> None:
        assert screen("--base", "HEAD") == (
            ExitCode.OK,
            "",
            "no config or launch script changed since HEAD\n",
        )
        edited(repository / "train.yaml", seed=7)
        assert changed_since("HEAD", repository) == [repository / "train.yaml"]
        assert "train.yaml" in screen("--base", "HEAD")[1]

    def test_an_older_version_may_be_a_file(self, repository: Path) -> None:
        shutil.copy(repository / "train.yaml", repository / "old.txt")
        edited(repository / "train.yaml", num_layers=34)
        assert against(base="old.txt").outcome == "over"

    def test_a_renamed_file_is_compared_with_what_it_was(self, repository: Path) -> None:
        self.git(repository, "mv", "train.yaml", "large.yaml")
        edited(repository / "large.yaml", num_layers=34)
        self.git(repository, "commit", "-q", "-a", "-m", "renamed")
        blame = blamed("large.yaml", base="HEAD~")
        assert (blame.old, blame.new) == (32, 34)

    @pytest.mark.slow
    @pytest.mark.parametrize("relative", ["true", "false"])
    def test_a_renamed_file_of_a_folder_however_git_names_files(
        self, repository: Path, monkeypatch: pytest.MonkeyPatch, relative: str
    ) -> None:
        self.git(repository, "config", "diff.relative", relative)
        folder = repository / "models 模型"
        folder.mkdir()
        self.git(repository, "mv", "train.yaml", "models 模型/train.yaml")
        self.git(repository, "commit", "-q", "-a", "-m", "moved")
        self.git(repository, "mv", "models 模型/train.yaml", "models 模型/训练.yaml")
        edited(folder / "训练.yaml", num_layers=34)
        monkeypatch.chdir(folder)
        for path in ("训练.yaml", folder / "训练.yaml"):
            for base in ("HEAD", "HEAD~"):
                blame = blamed(path, base=base)
                assert (blame.old, blame.new) == (32, 34)

    def test_what_others_changed_since_is_no_part_of_it(self, repository: Path) -> None:
        shutil.copy("train.yaml", "other.yaml")
        self.git(repository, "add", "other.yaml")
        self.git(repository, "commit", "-q", "-m", "both")
        self.git(repository, "branch", "others")
        edited(repository / "train.yaml", num_layers=34)
        self.git(repository, "commit", "-q", "-a", "-m", "ours")
        self.git(repository, "checkout", "-q", "others")
        edited(repository / "other.yaml", num_layers=30)
        self.git(repository, "commit", "-q", "-a", "-m", "theirs")
        self.git(repository, "checkout", "-q", "-")
        assert changed_since("others", repository) == [repository / "train.yaml"]

    @pytest.mark.parametrize(
        ("was", "now", "key", "line"),
        [
            ("LAYERS=28", "LAYERS=30", ("LAYERS",), 2),
            ("--micro-batch-size 1 ", "--micro-batch-size 2 ", ("--micro-batch-size",), 3),
            ("10240 --max-position-embeddings 10240", "12288 --max-position-embeddings 12288", (), 4),
        ],
    )
    def test_a_launch_script_is_reported_at_the_line_that_did_it(
        self, repository: Path, was: str, now: str, key: tuple[str, ...], line: int
    ) -> None:
        arguments = PAIR.replace("--num-layers 28", "--num-layers $LAYERS").replace("--micro-batch-size 1 ", "")
        text = f"LAYERS=28\nmsrun --worker_num 8 pretrain_gpt.py --micro-batch-size 1 \\\n{arguments}\n"
        script = repository / "run.sh"
        script.write_text(text, "utf-8")
        self.git(repository, "add", "run.sh")
        self.git(repository, "commit", "-q", "-m", "script")
        before = estimate_of(script)
        script.write_text(f"# one line more\n{text.replace(was, now, 1)}", "utf-8")
        found = against(script, base="HEAD")
        assert found.after_bytes > found.before_bytes == before.stages[found.stage].peak_bytes
        assert found.blame is not None
        assert (found.blame.line, found.blame.path) == (line, key)
        assert found.blame.share == 1.0

    @pytest.mark.parametrize(
        ("was", "now", "blame"),
        [
            ("--bf16\n", "\n", ("--bf16", None)),
            ("A=1\n--recompute x\n--lr 2\n", "A=2\n--lr 2\n", ("--recompute x", None)),
            ("--lr 2\n", "--lr 2\n--layers 9\n", (None, "--layers 9")),
            ("LAYERS=8\n", "LAYERS=9\n", ("8", "9")),
            ("train --layers 8 --lr 1\n", "train --layers 9 --lr 1\n", ("8", "9")),
            ("train --layers 8 --lr 1\n", "train --layers 9 --lr 2\n", None),
        ],
    )
    def test_the_line_of_a_script_without_which_it_would_hold_least(
        self, was: str, now: str, blame: tuple[str | None, str | None] | None
    ) -> None:
        of_stage = estimate_of(TEMPLATES / "mindspeed_ms" / "llama2_7b.yaml")
        (stage, *_), used = of_stage.stages, {was: 1, now: 9}

        def estimate(text: str) -> Estimate:
            peak = used.get(text, 5 if "--recompute" not in text else 2)
            return of_stage._replace(stages=(stage._replace(transient_bytes=peak * GIB),))

        found = compare_scripts(was, now, estimate)
        assert found is not None
        assert found.after_bytes - found.before_bytes == 8 * GIB
        assert found.blame is not None
        assert (found.blame.old, found.blame.new) == (blame or (was.strip(), now.strip()))

    def test_no_line_of_a_script_accounts_for_it_where_none_alone_adds_anything(self) -> None:
        of_stage, was = estimate_of(TEMPLATES / "mindspeed_ms" / "llama2_7b.yaml"), "--layers 8\n--seq 1\n"

        def estimate(text: str) -> Estimate:
            peak = (1 if text == was else 9) * GIB
            return of_stage._replace(stages=(of_stage.stages[0]._replace(transient_bytes=peak),))

        found = compare_scripts(was, "--layers 9\n--seq 2\n", estimate)
        assert found is not None
        assert found.after_bytes - found.before_bytes == 8 * GIB
        assert found.blame is not None
        assert (found.blame.alone, found.blame.line, found.blame.path) == (False, 1, ("--layers",))

    def test_a_command_that_mends_can_be_copied_whatever_the_file_is_called(
        self, screen: Screen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        text = (TEMPLATES / "mindspeed_ms" / "llama2_7b.yaml").read_text(encoding="utf-8")
        Path("a b.yaml").write_text(text.replace("min_lr: 0.00003", "min_lr: 3e-5"), encoding="utf-8")
        for language in ("en", "zh"):
            _, out, _ = screen("a b.yaml", "--lang", language)
            assert "ms-tune lint --fix 'a b.yaml'\n" in out

    @pytest.mark.parametrize(
        ("language", "words"),
        [
            ("en", "no single change accounts for it; one of them"),
            ("zh", "没有哪一处改动能单独解释；其中"),
        ],
    )
    def test_no_key_accounts_for_it_where_none_alone_adds_anything(
        self,
        monkeypatch: pytest.MonkeyPatch,
        screen: Screen,
        repository: Path,
        language: str,
        words: str,
    ) -> None:
        monkeypatch.setattr("ms_tune.workflows.check.base._bytes_without", lambda *given: given[-1])
        edited(repository / "train.yaml", num_layers=34, seed=7)
        _, out, _ = screen("train.yaml", "--base", "HEAD", "--lang", language)
        assert "".join(words.split()) in "".join(out.split())  # wherever a line is broken
        result = json.loads(screen("train.yaml", "--base", "HEAD", "--json")[1])["files"][0]["against"]
        assert result["key"] is None
        assert result["line"]

    @pytest.mark.slow
    def test_a_number_of_layers_and_the_list_that_places_them_are_one_change(
        self, screen: Screen, repository: Path
    ) -> None:
        """The framework refuses either of them alone."""
        config = repository / "train.yaml"
        shutil.copy(data_folder("yaml_templates") / "mindspeed_ms" / "llama2_13b_vpp.yaml", config)
        self.git(repository, "commit", "-q", "-a", "-m", "placed")
        text = config.read_text("utf-8").replace("num_layers: 40", "num_layers: 42")
        config.write_text(text.replace("[[5, 5, 5, 5], [5, 5, 5, 5]]", "[[6, 5, 5, 5], [5, 5, 5, 6]]"), "utf-8")
        arguments = ("train.yaml", "--base", "HEAD", "--device-memory", "30GB")
        _, out, _ = screen(*arguments, "--format", "github")
        (line,) = (one for one in out.splitlines() if "stage 3 exceed the limit" in one)
        number = next(at for at, one in enumerate(text.splitlines(), 1) if "num_layers: 42" in one)
        assert f"line={number}," in line
        assert (
            "num_layers changed from 40 to 42 and, together with parallel_config.num_layer_list, accounts for 100%25 of it"
            in line
        )
        # The older one was near the limit, too: an estimate shows neither.
        assert "25.9 GiB before (2.2 GiB more); the estimate before was too close to the limit to decide" in line
        assert "too close" not in screen(*arguments[:-1], "31GB", "--format", "github")[1]
        result = json.loads(screen(*arguments, "--json")[1])["files"][0]["against"]
        assert (result["key"], result["with"]) == ("model_config.num_layers", ["parallel_config.num_layer_list"])

    def test_what_was_over_before_and_takes_more_is_still_over(self, screen: Screen, repository: Path) -> None:
        edited(repository / "train.yaml", num_layers=60)
        self.git(repository, "commit", "-q", "-a", "-m", "too much")
        edited(repository / "train.yaml", num_layers=64)
        code, out, _ = screen("train.yaml", "--base", "HEAD", "--device-memory", "16GB", "--format", "github")
        assert code == ExitCode.FINDINGS
        (line,) = (one for one in out.splitlines() if "still exceeds the limit" in one)
        assert line.startswith("::error")
        assert "num_layers changed from 60 to 64" in line
        assert len([one for one in out.splitlines() if one.startswith("::error")]) == 1

    def test_a_file_that_was_not_there_has_nothing_to_be_compared_with(self, repository: Path) -> None:
        shutil.copy(repository / "train.yaml", repository / "new.yaml")
        assert text_at("HEAD", repository / "new.yaml") is None
        assert check_job("new.yaml", base="HEAD").against is None
        (repository / "fresh").mkdir()
        self.git(repository / "fresh", "init", "-q")
        assert text_at("HEAD", repository / "fresh" / "new.yaml") is None  # before the first commit

    def test_a_base_that_is_broken_costs_the_comparison(self, screen: Screen, repository: Path) -> None:
        config = repository / "train.yaml"
        text = config.read_text("utf-8")
        config.write_text(f"{text}\nbroken: [\n", "utf-8")
        self.git(repository, "commit", "-q", "-a", "-m", "broken")
        config.write_text(text, "utf-8")
        code, out, err = screen("train.yaml", "--base", "HEAD", "--device-memory", "128GiB")
        assert (code, err) == (ExitCode.OK, "")
        assert "not compared with the base: the older version is not a valid config" in out

    @pytest.mark.parametrize("revision", ["nope", "--output=owned", "HEAD:train.yaml"])
    def test_what_is_no_commit_is_refused(self, repository: Path, revision: str) -> None:
        with pytest.raises(UsageError):
            text_at(revision, repository / "train.yaml")
        assert not (repository / "owned").exists()


COMMON = (
    "--use-mcore-models --untie-embeddings-and-output-weights --disable-bias-linear --swiglu --use-fused-swiglu "
    "--normalization RMSNorm --position-embedding-type rope --use-flash-attn --micro-batch-size 1 --global-batch-size 64 "
    "--make-vocab-size-divisible-by 1 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096"
)
LLAMA = f"{COMMON} --num-layers 32 --ffn-hidden-size 11008 --padded-vocab-size 32000 --bf16"
MIXTRAL = (
    f"{COMMON} --ffn-hidden-size 14336 --group-query-attention --num-query-groups 8 --vocab-size 32000 --num-experts 8 "
    "--moe-router-topk 2 --expert-model-parallel-size 2 --context-parallel-size 2 --use-distributed-optimizer"
)
PAIRS = "--num-layers 8 --stage dpo --bf16"
CHATGLM = (
    f"{COMMON} --num-layers 28 --ffn-hidden-size 13696 --padded-vocab-size 65024 --group-query-attention --num-query-groups 2 "
    "--add-qkv-bias"
)


def test_the_settings_of_the_project_name_the_dialect_and_the_release(tmp_path: Path) -> None:
    (tmp_path / "ms-tune.toml").write_text('dialect = "mindspeed-ms"\nframework-version = "0.1"\n', "utf-8")
    (tmp_path / "part.yaml").write_text("parallel_config:\n  micro_batch_num: 4\n", "utf-8")
    subject = check_job(tmp_path / "part.yaml").subject
    assert (subject.dialect, subject.framework) == ("mindspeed-ms", "MindSpeed-Core-MS 0.1")


@pytest.mark.parametrize(("ranks", "ratios"), [(1, (0.9, 1.2)), (2, (0.85, 1.25)), (4, (0.75, 1.5))])
def test_context_parallelism_widens_the_range(tmp_path: Path, ranks: int, ratios: tuple[float, float]) -> None:
    job = yaml.safe_load((TEMPLATES / "mindformers" / "qwen3_0_6b.yaml").read_text("utf-8"))
    job["parallel_config"]["context_parallel"] = ranks
    path = tmp_path / "train.yaml"
    path.write_text(f"# devices: 32\n{yaml.safe_dump(job)}", encoding="utf-8")
    estimate = check_job(path).estimate
    assert estimate is not None
    assert estimate.ratio_range == ratios


class TestScript:
    def test_the_config_that_a_script_names_on_as_many_devices_as_it_says(self, tmp_path: Path, config: Path) -> None:
        shutil.copy(TEMPLATES / "mindformers" / "qwen3_32b.yaml", tmp_path / "qwen3.yaml")
        script = tmp_path / "run.sh"
        script.write_text("msrun --worker_num=32 run_mindformer.py --config qwen3.yaml --use_parallel True\n", "utf-8")
        seen = check_job(script)
        assert seen.assumptions is not None
        assert (seen.assumptions.devices, seen.subject.layers) == (32, 64)
        assert seen.assumptions.source == msg("check.devices.script")
        assert seen.estimate is not None
        assert config.exists()

    def test_a_launcher_that_contradicts_the_config_does_not_end_the_screen(self, tmp_path: Path) -> None:
        part = "{use_parallel: True, trainer: {type: A}, parallel_config: {data_parallel: 2, model_parallel: 2}}"
        (tmp_path / "job.yaml").write_text(part, "utf-8")
        (tmp_path / "run_mindformer.py").write_text("", "utf-8")
        script = tmp_path / "run.sh"
        script.write_text("msrun --worker_num=8 run_mindformer.py --config job.yaml\n", "utf-8")
        seen = check_job(script)
        assert "MST837" in [one.id for one in seen.matters]
        assert seen.no_estimate_because is not None

    def test_the_config_may_build_on_another(self, tmp_path: Path) -> None:
        template = (TEMPLATES / "mindformers" / "qwen3_32b.yaml").read_text("utf-8")
        (tmp_path / "base.yaml").write_text(template, "utf-8")
        (tmp_path / "own.yaml").write_text("base_config: base.yaml\nrunner_config:\n  epoch: 1\n", "utf-8")
        script = tmp_path / "run.sh"
        script.write_text("msrun --worker_num=32 run_mindformer.py --config own.yaml --use_parallel True\n", "utf-8")
        found = [one.id for one in check_job(script).matters]
        assert "MST203" in found

    def test_a_program_of_megatron(self, tmp_path: Path) -> None:
        script = tmp_path / "pretrain.sh"
        arguments = (
            "--num-layers 8 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64 "
            "--micro-batch-size 1 --global-batch-size 8 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2"
        )
        script.write_text(f"msrun --worker_num 8 --local_worker_num 8 pretrain_gpt.py {arguments}\n", encoding="utf-8")
        seen = check_job(script)
        assert (seen.subject.dialect, seen.subject.layers) == ("megatron", 8)
        assert seen.assumptions is not None
        split = seen.assumptions.split
        assert (split.data, split.tensor, split.pipeline) == (2, 2, 2)
        assert seen.next[-1] == f"ms-tune normalize-recompute {script}"
        assert seen.sizes is not None
        assert (seen.sizes.origin, seen.sizes.model) == (
            SizeOrigin.BOUNDS,
            "32,000-160,256",
        )  # no model has these widths
        assert seen.estimate is not None
        ends = [_give_vocabulary(script, size).range_bytes for size in (32_000, 160_256)]
        assert list(seen.estimate.range_bytes) == pytest.approx([ends[0][0], ends[1][1]], abs=1)

    def test_two_lines_for_the_worst_finding_and_no_promise_of_a_simulation(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("COLUMNS", "80")
        monkeypatch.chdir(tmp_path)
        job = (
            "torchrun --nproc_per_node 8 posttrain_gpt.py --num-layers 8 --hidden-size 4096 --num-attention-heads 32 --swiglu "
            "--ffn-hidden-size 11008 --seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 1 --bf16 --use-flash-attn "
        )
        Path("tune.sh").write_text(f"{job} --lora-r 8 --lora-target-modules linear_qkv --swap-attention\n", "utf-8")
        main(["check", "tune.sh", "--device-memory", "13GB"])
        shown = capsys.readouterr().out
        assert re.search(r"worst: tune.sh:1: MST175 .*--lora-target-modules,\s+--swap-attention", shown, re.DOTALL)
        Path("train.sh").write_text(job, "utf-8")
        main(["check", "train.sh", "--device-memory", "40GB"])
        shown = capsys.readouterr().out
        assert "memory: inconclusive" in shown
        assert "suggestion: should it exceed the limit: " in shown

    def test_an_estimate_of_a_program_of_megatron(self, tmp_path: Path) -> None:
        # The published pair (docs/megatron.md): 32,683.5 MiB for the whole run by theory; simulated 55,389 and 48,436 at the peak.
        none, last = _of_pair(tmp_path, "")
        assert none.lasting_bytes == pytest.approx(32_683.5 * MIB, rel=1e-4)
        assert last.lasting_bytes == none.lasting_bytes + 18 * 3584  # the last norm
        assert none.peak_bytes == pytest.approx(55_389 * MIB, rel=0.02)
        assert last.peak_bytes == pytest.approx(48_436 * MIB, rel=0.02)
        full, _ = _of_pair(tmp_path, "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1")
        assert (full.layers, full.recomputed) == (14, 14)
        assert full.peak_bytes == pytest.approx(34_946 * MIB, rel=0.02)
        block, _ = _of_pair(tmp_path, "--recompute-granularity full --recompute-method block --recompute-num-layers 7")
        assert block.peak_bytes == pytest.approx(44_776 * MIB, rel=0.02)
        shared, _ = _of_pair(tmp_path, "--use-distributed-optimizer", devices=8)
        assert shared.lasting_bytes == pytest.approx(none.lasting_bytes * (6 + 12 / 2) / 18, rel=1e-4)

    @pytest.mark.parametrize("stages", ["$STAGES", "0"])
    def test_a_job_with_an_unknown_number_of_stages_has_no_estimate(self, tmp_path: Path, stages: str) -> None:
        seen = _check_pair(tmp_path, f"--pipeline-model-parallel-size {stages}", 4)
        assert (seen.assumptions, seen.estimate) == (None, None)
        assert seen.no_estimate_because is not None

    @pytest.mark.parametrize(
        ("devices", "found", "source"),
        [("$N", 8, msg("check.devices.assumed")), ("3", 4, msg("check.devices.least", given=3))],
    )
    def test_devices_that_a_script_does_not_give(
        self, tmp_path: Path, devices: str, found: int, source: object
    ) -> None:
        seen = _check_pair(tmp_path, "", devices)
        assert seen.assumptions is not None
        assert (seen.assumptions.devices, seen.assumptions.source) == (found, source)
        assert seen.estimate is not None

    @pytest.mark.parametrize(
        ("devices", "stage", "lasting", "words"),
        [
            (1, 0, 13_431.6, f"{LLAMA} --lora-r 16 --lora-target-modules linear_qkv linear_proj linear_fc1 linear_fc2"),
            (
                8,
                0,
                27_320.8,
                f"{LLAMA} --tensor-model-parallel-size 2 --context-parallel-size 4 --use-distributed-optimizer --reuse-fp32-param",
            ),
            (8, 0, 19_660.0, f"{MIXTRAL} --num-layers 6 --tensor-model-parallel-size 4 --sequence-parallel --bf16"),
            (
                8,
                0,
                40_809.3,
                f"{MIXTRAL} {PAIRS} --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 2",
            ),
            (8, 0, 23_822.5, f"{CHATGLM} --pipeline-model-parallel-size 2 --use-distributed-optimizer --fp16"),
        ],
        ids=["lora", "reuse", "experts", "dpo", "fp16"],
    )
    def test_the_persistent_memory_of_runs_on_devices(
        self, tmp_path: Path, devices: int, stage: int, lasting: float, words: str
    ) -> None:
        # "allocated memory" in MiB after a step on an NPU with PyTorch: MindSpeed-LLM 2.0 to 26.0, tests/**/baseline*/*.json.
        script = tmp_path / "run.sh"
        script.write_text(f"torchrun --nproc_per_node {devices} pretrain_gpt.py {words}\n", encoding="utf-8")
        estimate = check_job(script, request=OverviewRequest(framework_version="2.2")).estimate
        assert estimate is not None
        assert estimate.stages[stage].lasting_bytes == pytest.approx(lasting * MIB, rel=0.01)

    def test_samples_of_any_length_can_need_less(self, tmp_path: Path) -> None:
        script = tmp_path / "run.sh"
        words = f"{LLAMA} --micro-batch-size 64 --stage sft --variable-seq-lengths --reuse-fp32-param --use-distributed-optimizer"
        script.write_text(f"torchrun --nproc_per_node 64 posttrain_gpt.py {words}\n", encoding="utf-8")
        estimate = check_job(script, request=OverviewRequest(framework_version="2.2")).estimate
        assert estimate is not None
        assert estimate.fullest.peak_bytes > estimate.limit.bytes > estimate.fullest.lasting_bytes
        assert estimate.outlook is Outlook.UNSURE

    def test_the_vocabulary_of_the_model_that_a_script_names(self, tmp_path: Path) -> None:
        words = LLAMA.replace("--padded-vocab-size 32000", "--tokenizer-type Llama2Tokenizer")
        for name, tokenizer, key, model in (
            ("run.sh", "--tokenizer-model /data/llama-2-7b-hf/tokenizer.model", "--tokenizer-model", "Llama-2-7B"),
            ("pretrain_llama2_7b.sh", "", "pretrain_llama2_7b.sh", "Llama-2-7B"),
            ("pretrain_qwen_7b.sh", "", "pretrain_qwen_7b.sh", "Qwen1.5-7B"),
            ("run.sh", "--tokenizer-type GPT2BPETokenizer", "--tokenizer-type", "GPT-2"),
        ):
            script = tmp_path / name
            script.write_text(f"torchrun --nproc_per_node 8 pretrain_gpt.py {words} {tokenizer}\n", encoding="utf-8")
            seen = check_job(script)
            assert seen.estimate is not None
            assert seen.sizes is not None
            assert (seen.sizes.model, seen.sizes.key) == (model, key)
            assert seen.sizes.origin is SizeOrigin.VOCABULARY  # the other sizes are the script's

    def test_values_that_a_missing_file_may_set_are_assumed(self, tmp_path: Path) -> None:
        script = tmp_path / "pretrain_llama2_7b.sh"
        words = f"{LLAMA} --tensor-model-parallel-size ${{TP:-4}}"
        script.write_text(f"source env.sh\ntorchrun --nproc_per_node 8 pretrain_gpt.py {words}\n", encoding="utf-8")
        seen = check_job(script)
        assert seen.estimate is not None
        assert seen.assumptions is not None
        assert seen.assumptions.split.tensor == 4
        assert "the defaults of variables that env.sh may set" in str(seen.assumptions.source)

    def test_arguments_with_which_a_script_would_fit(self, tmp_path: Path) -> None:
        script, words = tmp_path / "pretrain.sh", f"torchrun --nproc_per_node 16 pretrain_gpt.py {LLAMA}"
        script.write_text(f"{words} --tensor-model-parallel-size 4", encoding="utf-8")
        change = check_job(script, on(22)).change
        assert change is not None
        assert (change.name, change.enough) == ("recompute", True)
        added = change.text.params["arguments"]
        assert str(added).startswith("--use-distributed-optimizer --sequence-parallel --recompute-granularity full")
        script.write_text(f"{words} --tensor-model-parallel-size 4 {added}", encoding="utf-8")
        after = check_job(script, on(22)).estimate
        assert after is not None
        assert after.outlook is Outlook.BELOW
        change = check_job(script, on(8)).change
        assert change is not None
        assert (change.name, change.enough) == ("layout", False)
        script.write_text(f"{words} --tensor-model-parallel-size 4", encoding="utf-8")
        unsure = check_job(script, on(40))
        assert unsure.estimate is not None
        assert unsure.estimate.outlook is Outlook.UNSURE
        assert unsure.change is not None
        assert str(unsure.change.text).startswith("should it exceed the limit: ")

    def test_passes_that_overlap_hold_one_micro_batch_more(self, tmp_path: Path) -> None:
        words = "--num-layers-per-virtual-pipeline-stage 7 --num-experts 8 --moe-grouped-gemm"
        plain, overlapping = (_check_pair(tmp_path, f"{words} {more}", 4).estimate for more in ("", "--moe-fb-overlap"))
        assert plain is not None
        assert overlapping is not None
        assert overlapping.fullest.activation_bytes > plain.fullest.activation_bytes

    @pytest.mark.parametrize(
        ("program", "more", "estimated"),
        [
            ("evaluation.py", "--task mmlu --evaluation-batch-size 1", False),
            ("inference.py", "--max-new-tokens 256", False),
            ("pretrain_gpt.py", "", True),
        ],
    )
    def test_only_programs_that_train_are_estimated(
        self, tmp_path: Path, program: str, more: str, *, estimated: bool
    ) -> None:
        # The others have no gradients and no optimizer state, although most of their arguments are the same.
        script = tmp_path / "run.sh"
        script.write_text(f"torchrun --nproc_per_node 1 {program} {LLAMA} {more}\n", encoding="utf-8")
        seen = check_job(script, request=OverviewRequest(framework_version="2.2"))
        assert (seen.estimate is not None) == estimated
        why = None if estimated else msg("check.script.not-training", program=program)
        assert seen.no_estimate_because == why

    @pytest.mark.slow
    def test_beyond_all_bounds(self, tmp_path: Path) -> None:
        words = "--global-batch-size 1000000000000000000 --num-layers 10000 --num-layers-per-virtual-pipeline-stage 1"
        seen = _check_pair(tmp_path, words, 4)
        assert (seen.estimate is None) != (seen.no_estimate_because is None)

    @pytest.mark.parametrize(
        ("more", "why"),
        [
            ("--tp-2d", "--tp-2d"),
            ("--stage trl_ppo", "--stage"),
            ("--optimizer sgd", "--optimizer"),
            ("--padded-vocab-size $WORDS", "WORDS"),
            ("--hidden-size 0", "--hidden-size"),
            ("--hidden-size 99999999999999999999", "--hidden-size"),
            ("--num-experts 4000000000", "--num-experts"),
        ],
    )
    def test_what_no_closed_form_shows_is_said(self, tmp_path: Path, more: str, why: str) -> None:
        seen = _check_pair(tmp_path, more, 4)
        assert seen.estimate is None
        assert why in str(seen.no_estimate_because)


PAIR = (
    "--ai-framework mindspore --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --sequence-parallel "
    "--num-layers 28 --hidden-size 3584 --ffn-hidden-size 18944 --num-attention-heads 28 --group-query-attention "
    "--num-query-groups 4 --seq-length 10240 --max-position-embeddings 10240 --padded-vocab-size 152064 "
    "--untie-embeddings-and-output-weights --disable-bias-linear --add-qkv-bias --swiglu --use-fused-swiglu "
    "--normalization RMSNorm --position-embedding-type rope --micro-batch-size 1 --global-batch-size 8 --bf16 --use-flash-attn"
)


def _check_pair(folder: Path, more: str, devices: int | str) -> Overview:
    script = folder / "pretrain.sh"
    words = f"msrun --worker_num {devices} --local_worker_num {devices} pretrain_gpt.py {PAIR} {more}\n"
    script.write_text(words, encoding="utf-8")
    return check_job(script, request=OverviewRequest(framework_version="2.2"))


def _give_vocabulary(script: Path, size: int) -> Estimate:
    other = script.with_name(f"pretrain_{size}.sh")
    other.write_text(f"{script.read_text(encoding='utf-8').rstrip()} --padded-vocab-size {size}\n", encoding="utf-8")
    estimate = check_job(other).estimate
    assert estimate is not None
    return estimate


def _of_pair(folder: Path, more: str, devices: int = 4) -> tuple[StageEstimate, ...]:
    estimate = _check_pair(folder, more, devices).estimate
    assert estimate is not None
    return estimate.stages
