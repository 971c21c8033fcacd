"""Test ``ms-tune report``: the page says what the commands say, and the zip names no path, user or machine."""

from __future__ import annotations

import json
import re
import shutil
import socket
import zipfile
from html import unescape
from pathlib import Path

import pytest

from ms_tune.cli.main import main
from ms_tune.facts.query import data_folder

TEMPLATE = (data_folder("yaml_templates") / "mindformers/qwen3_32b.yaml").read_text(encoding="utf-8")
CONFIG = TEMPLATE.replace("parallel_config:", "parallel_config:\n  '<b>@x|`': 1", 1)
TRACE = Path(__file__).parents[1] / "data" / "memory_tracker" / "asc2"
ROW = re.compile(r"^\s+(\d+)\s+(\d+)\s+(\d+-\d+)\s+(\d+)\s", re.MULTILINE)  # of the table of layers
SECRETS = {
    "a.json": '{"folder": "/home/alice/project/run", "python": "/opt/venv/lib/python3.11/site-packages/mindspore/nn/cell.py"}',
    "b/log.txt": "worker alice@npu-node-17 at 10.1.2.3: File:/home/alice/project/train.py:7 ./kept/here https://a.org/b/c\n",
    "c.yaml": "dataset_dir: /data/alice/corpus.bin  # alice's\n",
    "weights.ckpt": "no text",
}


def visible(page: str, language: str) -> str:
    """Return the words of a page in one language."""
    part = page.partition(f'<div lang="{language}">')[2].partition("\n</div>\n<div")[0]
    return " ".join(unescape(re.sub("<[^>]+>", " ", part)).split())


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


class TestPage:
    @pytest.mark.parametrize("language", ["en", "zh"])
    def test_a_config_has_what_the_commands_show(
        self, language: str, here: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        Path("train.yaml").write_text(CONFIG, encoding="utf-8")
        assert main(["report", str(here / "train.yaml"), "--lang", "en"]) == 0
        page = Path("report.html").read_text(encoding="utf-8")
        words = visible(page, language)
        capsys.readouterr()
        main(["check", "train.yaml", "-q", "--lang", language])
        assert capsys.readouterr().out.strip() in words
        main(["lint", "train.yaml", "--json", "--lang", language])
        findings = json.loads(capsys.readouterr().out)["findings"]
        assert findings
        for one in findings:
            assert f"{one['id']} {one['name']} {one['message']}" in words
        main(["normalize-recompute", "train.yaml"])
        rows = ROW.findall(capsys.readouterr().out)
        assert len(rows) > 4
        assert [row for row in rows if " ".join(row) not in words] == []
        assert str(here) not in page
        for part in ("<script", "<b>", "http://", "https://"):
            assert part not in page
        assert "default-src 'none'" in unescape(page)

    def test_an_operator_that_swaps_with_a_prefetch_is_named(self, here: Path) -> None:
        swap = "{swap: True, layer_swap: [], op_swap: [{op_name: silu, layers: [0, 2], backward_prefetch: 1}]}"
        sizes = "parallel_config: {pipeline_stage: 2}\nmodel: {model_config: {num_layers: 4}}"
        (here / "a.yaml").write_text(
            f"use_legacy: True\n{sizes}\nswap_config: {swap}\nrecompute_config: {{recompute: [0, 1]}}\n"
        )
        main(["report", "a.yaml"])
        assert "silu@1" in visible((here / "report.html").read_text(encoding="utf-8"), "en")

    def test_a_launch_script_has_its_layers_with_their_kinds(self, here: Path) -> None:
        sizes = "--num-layers 4 --hidden-size 64 --num-attention-heads 8 --seq-length 64 --max-position-embeddings 64"
        experts = "--num-experts 8 --moe-layer-freq 1 --first-k-dense-replace 1"
        (here / "a.sh").write_text(f"msrun --worker_num 8 pretrain_gpt.py --ai-framework mindspore {sizes} {experts}\n")
        main(["report", "a.sh"])
        words = visible((here / "report.html").read_text(encoding="utf-8"), "en")
        assert "0 0 0 1 dense - 0 0 1-3 3 experts -" in words

    def test_a_run_has_the_figures_of_memory(self, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
        shutil.copytree(TRACE, "run")
        assert main(["report", "run", "-o", "run.html", "--lang", "en"]) == 0
        words = visible((here / "run.html").read_text(encoding="utf-8"), "en")
        capsys.readouterr()
        main(["memory", "run", "-q", "--lang", "en"])
        assert capsys.readouterr().out.partition(":")[2].strip() in words
        assert main(["report", "run", "-o", "run.html"]) == 2  # it exists
        assert main(["report", "run", "-o", "run.html", "--force"]) == 0


class TestBundle:
    def test_no_path_user_or_machine_is_named(self, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(socket, "gethostname", lambda: "npu-node-17")
        monkeypatch.setenv("HOME", "/home/alice")
        for name, text in SECRETS.items():
            (here / "run" / name).parent.mkdir(exist_ok=True, parents=True)
            (here / "run" / name).write_text(text + str(here / "run" / "x.csv"), encoding="utf-8")
        (here / "run" / "link.txt").symlink_to("/etc/passwd")
        assert main(["report", "run", "--bundle", "run.zip"]) == 0
        with zipfile.ZipFile("run.zip") as packed:
            texts = {name: packed.read(name).decode() for name in packed.namelist()}
        assert texts.keys() == SECRETS.keys() - {"weights.ckpt"}
        for text in texts.values():
            for secret in ("alice", "npu-node", "10.1.2.3", "/home", "/data", "/opt", str(here)):
                assert secret not in text
        assert "mindspore/nn/cell.py" in texts["a.json"]
        assert "./kept/here https://a.org/b/c" in texts["b/log.txt"]
        assert not Path("report.html").exists()

    @pytest.mark.usefixtures("here")
    def test_an_unpacked_run_is_read_as_before(self, capsys: pytest.CaptureFixture[str]) -> None:
        shutil.copytree(TRACE, "run")
        assert main(["report", "run", "--bundle", "run.zip"]) == 0
        shutil.unpack_archive("run.zip", "again")
        screens = []
        for folder in ("run", "again"):
            capsys.readouterr()
            main(["memory", folder, "--json"])
            report = json.loads(capsys.readouterr().out)
            screens.append([(one["peak_bytes"], one["categories_at_peak"]) for one in report["ranks"]])
        assert screens[0] == screens[1]

    def test_a_config_without_a_run_says_how_to_get_one(self, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
        Path("train.yaml").write_text(TEMPLATE, encoding="utf-8")
        assert main(["report", "train.yaml", "--bundle", "run.zip", "--lang", "en"]) == 2
        assert "ms-tune dryrun train.yaml" in capsys.readouterr().err
        assert [one.name for one in here.iterdir()] == ["train.yaml"]
