"""Test the comment of merge requests: its text on five of a repository, and how it is posted and replaced."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from ms_tune.cli.main import main
from ms_tune.facts.query import data_folder

ROOT = Path(__file__).parents[3]
GIT = shutil.which("git")
CONFIG = (data_folder("yaml_templates") / "mindspeed_ms/llama2_7b.yaml").read_text(encoding="utf-8")
HEAD = "| file | memory | needs | usable |\n| --- | --- | ---: | ---: |"
COMPARED = "| file | memory | needs | before | usable |\n| --- | --- | ---: | ---: | ---: |"
# Each merge request: its files; the lines that its comment has besides the marker, in order; the exit code.
REQUESTS: dict[str, tuple[dict[str, str], list[str], int]] = {
    "out of memory": (
        {
            "train.yaml": CONFIG.replace("num_layers: 32", "num_layers: 64").replace(
                "recompute: [32]", "recompute: [64]"
            )
        },
        [
            "### ms-tune: 1 of 1 over the memory limit; No issues found.",
            *COMPARED.split("\n"),
            r"\| `train.yaml` \| \*\*estimated to exceed\*\* \| [\d.]+ GiB \| [\d.]+ GiB \| 56.8 GiB \|",
            r"- `train.yaml` this change makes stage 0 exceed the limit \(estimated\): needs .* model\\_config.num\\_layers changed from 32 to 64.*",
            "next: `ms-tune fit train.yaml.*`",
        ],
        1,
    ),
    "less memory, renamed": (
        {"train.yaml": "", "small.yaml": CONFIG.replace("seq_length: 4096", "seq_length: 2048")},
        [
            "### ms-tune: 0 of 1 over the memory limit; No issues found.",
            *COMPARED.split("\n"),
            r"\| `small.yaml` \| (estimated to fit|inconclusive) \| .*",
            "- `small.yaml` memory compared with the base \\(estimated\\): stage 0 needs .*",
        ],
        0,
    ),
    "broken": (
        {"train.yaml": CONFIG.replace("recompute: [32]", "recompute: [32")},
        [
            "### ms-tune: 0 of 1 over the memory limit; 1 error",
            *HEAD.split("\n"),
            r"\| `train.yaml` \| not estimated \|  \|  \|",
            r"- `train.yaml:\d+` .*",
            "next: `ms-tune (lint|check) train.yaml`",
        ],
        1,
    ),
    "hostile names": (
        {
            "a|b`@team`<b>.yaml": CONFIG.replace(
                "  num_layers:", "  '@team #1 `x` | <img src=x> [a](https://x.org)': 1\n  num_layers:"
            )
        },
        [
            "### ms-tune: 0 of 1 over the memory limit; 1 info",
            *HEAD.split("\n"),
            r"\| ``a\\\|b`@team`<b>.yaml`` \| .*",
            r"- ``a\\\|b`@team`<b>.yaml:\d+`` \*\*MST\d+\*\* .*@\u200bteam #\u200b1 \\`x\\` \\\| &lt;img src=x&gt; \\\[a\\\]\(https:\u200b//x.org\).*",
        ],
        0,
    ),
    "no config": (
        {"README.md": "# other\n", "compose.yaml": "services: {}\n"},
        ["### ms-tune: 0 of 0 over the memory limit; No issues found.", "<sub>ms-tune .*</sub>"],
        0,
    ),
}


def git(folder: Path, *words: str) -> None:
    own = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
    subprocess.run([str(GIT), "-C", str(folder), *own, *words], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.yaml").write_text(CONFIG, encoding="utf-8")
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "base")
    git(tmp_path, "checkout", "-q", "-b", "work")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def commit(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        if text:
            (folder / name).write_text(text, encoding="utf-8")
        else:
            (folder / name).unlink()
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "change")


@pytest.mark.skipif(GIT is None, reason="compares with commits of git")
class TestComment:
    @pytest.mark.parametrize("name", REQUESTS)
    def test_the_text(self, name: str, repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
        files, expected, code = REQUESTS[name]
        commit(repository, files)
        assert main(["check", "--base", "main", "--markdown", "--lang", "en"]) == code
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == "<!-- ms-tune check -->"
        assert len(lines) <= 20
        rest = iter(lines[1:])
        for wanted in expected:
            literal = wanted in (*HEAD.split("\n"), *COMPARED.split("\n"))
            assert any(line == wanted if literal else re.fullmatch(wanted, line) for line in rest), (wanted, lines)

    def test_both_languages_say_the_same_and_a_file_gets_it_besides(
        self, repository: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        commit(repository, REQUESTS["out of memory"][0])
        texts = []
        for language in ("en", "zh"):
            main(["check", "--base", "main", "--markdown-file", "c.md", "--lang", language])
            assert "<!--" not in capsys.readouterr().out
            texts.append((repository / "c.md").read_text(encoding="utf-8"))
        numbers = [re.findall(r"[\d.]+ GiB", text) for text in texts]
        assert sorted(numbers[0]) == sorted(numbers[1])
        assert texts[1].startswith("<!-- ms-tune check -->\n### ms-tune：")


class Service(HTTPServer):
    """The part of a service that has comments: who posted them, and their text."""

    def __init__(self, *, refuses: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), Comments)
        self.comments: list[dict[str, Any]] = [
            {"id": 1, "body": "<!-- ms-tune check -->\nof another user", "user": {"login": "eve", "username": "eve"}},
        ]
        self.refuses, self.calls = refuses, list[tuple[str, str]]()


class Comments(BaseHTTPRequestHandler):
    server: Service

    def answer(self) -> None:
        self.server.calls.append((self.command, self.path.partition("?")[0]))
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or b"{}")
        me = {"login": "github-actions[bot]", "username": "bot"}
        if self.server.refuses:
            self.send_error(403)
            return
        if self.command == "POST":
            self.server.comments.append({"id": len(self.server.comments) + 1, "body": body["body"], "user": me})
        elif self.command in ("PATCH", "PUT"):
            number = int(self.path.rpartition("/")[2])
            self.server.comments[number - 1]["body"] = body["body"]
        self.send_response(200)
        self.end_headers()
        is_user = self.path.endswith("/user")
        self.wfile.write(json.dumps(me if is_user else self.server.comments).encode())

    do_GET = do_POST = do_PATCH = do_PUT = answer  # noqa: N815 - http.server looks for these names

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def serve() -> Iterator[Callable[..., Service]]:
    running: list[Service] = []

    def start(**options: bool) -> Service:
        running.append(Service(**options))
        threading.Thread(target=running[-1].serve_forever, daemon=True).start()
        return running[-1]

    yield start
    for one in running:
        one.shutdown()
        one.server_close()


def variables(service: str, address: str, event: Path) -> dict[str, str]:
    """Return the variables that a service sets in a job of merge request 7."""
    event.write_text('{"pull_request": {"number": 7}}', encoding="utf-8")
    github = {"GITHUB_ACTIONS": "true", "GITHUB_EVENT_PATH": str(event), "GITHUB_API_URL": address}
    gitlab = {"GITLAB_CI": "true", "CI_API_V4_URL": address, "CI_PROJECT_ID": "5", "CI_MERGE_REQUEST_IID": "7"}
    v5 = {"MS_TUNE_API": address, "MS_TUNE_REPOSITORY": "me/it", "MS_TUNE_PULL": "7", "MS_TUNE_TOKEN": "secret"}
    return {
        "github": {**github, "GITHUB_REPOSITORY": "me/it", "TOKEN": "secret"},
        "gitlab": {**gitlab, "MS_TUNE_TOKEN": "secret"},
        "v5": v5,
    }[service]


PLACES = {
    "github": ("/repos/me/it/issues/7/comments", "PATCH /repos/me/it/issues/comments/2"),
    "gitlab": ("/projects/5/merge_requests/7/notes", "PUT /projects/5/merge_requests/7/notes/2"),
    "v5": ("/repos/me/it/pulls/7/comments", "PATCH /repos/me/it/pulls/comments/2"),
}


class TestPosting:
    def post(self, folder: Path, given: dict[str, str], text: str) -> str:
        (folder / "c.md").write_text(f"<!-- ms-tune check -->\n{text}", encoding="utf-8")
        command = [sys.executable, "-I", str(ROOT / "ci-templates" / "comment.py"), "c.md"]
        clean = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME")}
        done = subprocess.run(command, cwd=folder, env=clean | given, capture_output=True, text=True, check=True)
        assert "secret" not in done.stdout + done.stderr
        return done.stderr

    @pytest.mark.slow
    @pytest.mark.parametrize("name", PLACES)
    def test_one_comment_is_posted_and_then_replaced(
        self, name: str, tmp_path: Path, serve: Callable[..., Service]
    ) -> None:
        service = serve()
        given = variables(name, f"http://127.0.0.1:{service.server_port}", tmp_path / "event.json")
        assert "posted" in self.post(tmp_path, given, "first")
        assert "updated" in self.post(tmp_path, given, "second")
        assert [one["body"].partition("\n")[2] for one in service.comments] == ["of another user", "second"]
        changes = [f"{method} {path}" for method, path in service.calls if method != "GET"]
        assert changes == [f"POST {PLACES[name][0]}", PLACES[name][1]]

    @pytest.mark.slow
    @pytest.mark.parametrize("name", PLACES)
    def test_without_the_right_to_comment_the_job_goes_on(
        self, name: str, tmp_path: Path, serve: Callable[..., Service]
    ) -> None:
        service = serve(refuses=True)
        given = variables(name, f"http://127.0.0.1:{service.server_port}", tmp_path / "event.json")
        assert "refuses" in self.post(tmp_path, given, "x")
        given = {key: value for key, value in given.items() if "TOKEN" not in key}
        assert "no token" in self.post(tmp_path, given, "x")
