"""Test hostile files and files that are not configs: a message, no traceback, in bounded time and memory."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

_SECONDS = 20  # processor seconds; each case needs about a third of one
_BYTES = 1 << 30  # of address space
_OK = {0, 1, 2, 3}  # fine, findings, wrong use, a file that cannot be read
_CONFIG = "parallel_config: {pipeline_stage: 2}\nrecompute_config: {recompute: True}\n"

HOSTILE: dict[str, bytes] = {
    "empty": b"",
    "null": b"null\n",
    "list": b"- 1\n- 2\n",
    "deep flow": b"parallel_config: " + b"[" * 100_000 + b"\n",
    "deep closed flow": b"parallel_config: " + b"[" * 20_000 + b"]" * 20_000 + b"\n",
    "deep mapping": b"a: " + b"{a: " * 20_000 + b"1" + b"}" * 20_000 + b"\n",
    "deep block": b"".join(b" " * depth + b"a:\n" for depth in range(3000)),
    "alias bomb": b"a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    + b"".join(b"a%d: &a%d [%s]\n" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 10)) for n in range(1, 12))
    + _CONFIG.encode(),
    "alias bomb in place": b"parallel_config: &a0 {data_parallel: 1}\n"
    + b"".join(
        b"k%d: &a%d {%s}\n" % (n, n, b", ".join(b"x%d: *a%d" % (i, n - 1) for i in range(9))) for n in range(1, 10)
    ),
    "merge bomb": b"a0: &a0 {x: 1}\n"
    + b"".join(b"a%d: &a%d {<<: [%s]}\n" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 10)) for n in range(1, 12)),
    "recursive list": b"parallel_config: &a [*a]\n",
    "recursive mapping": b"parallel_config: &a {pipeline_stage: 2, again: *a}\nmodel: &m {model_config: *m}\n",
    "recursive merge": b"parallel_config: &a {<<: *a, pipeline_stage: 2}\n",
    "recursive values": b"recompute_config: {recompute: &r [1, *r], select_recompute: &s {a: *s}}\n"
    + _CONFIG.encode()[:37],
    "unknown alias": b"parallel_config: *nothing\n",
    "many anchors": b"".join(b"a%d: &a%d 1\n" % (n, n) for n in range(20_000)) + _CONFIG.encode(),
    "many keys": b"".join(b"key%d: 1\n" % n for n in range(20_000)) + _CONFIG.encode(),
    "same key": b"parallel_config: {" + b"a: 1, " * 20_000 + b"}\n",
    "long line": b"parallel_config: {note: '" + b"x" * 3_000_000 + b"'}\n",
    "long key": b"? " + b"k" * 2_000_000 + b"\n: 1\n" + _CONFIG.encode(),
    "huge number": b"parallel_config: {pipeline_stage: " + b"9" * 5000 + b"}\n",
    "huge exponent": b"parallel_config: {pipeline_stage: 1.e+999999999}\nmodel: {model_config: {num_layers: 1_0}}\n",
    "sexagesimal": b"parallel_config: {pipeline_stage: " + b":".join([b"59"] * 2000) + b"}\n",
    "many layers": b"parallel_config: {pipeline_stage: 2}\nrecompute_config: {recompute: [999999999999, 1]}\n"
    b"model: {model_config: {num_layers: 999999999999, offset: 0}}\n",
    "many stages": b"parallel_config: {pipeline_stage: 999999999999}\nrecompute_config: {recompute: [1]}\n"
    b"model: {model_config: {num_layers: 8, offset: 0, pp_interleave_num: 999999999}}\n",
    "slow pattern": b"parallel_config: {pipeline_stage: 1}\nmodel: {model_config: {num_layers: 8, offset: 0}}\n"
    b"recompute_config: {select_recompute: {'" + b"(a+)+" * 30 + b"$': True}}\n",
    "bad date": b"parallel_config: {pipeline_stage: 2001-99-99}\nrecompute_config: {}\n",
    "odd keys": b"parallel_config: {1: 2, 1.5: 3, true: 4, null: 5, 2001-01-01: 6, [1]: 7}\n",
    "mapping as key": b"? {a: 1}\n: 3\n" + _CONFIG.encode(),
    "python tag": b"parallel_config: !!python/object/apply:os.system ['true']\n",
    "set and pairs": b"parallel_config: !!set {a, b}\nrecompute_config: !!pairs [a: 1]\nmodel: !!omap [a: 1]\n",
    "NUL": _CONFIG.encode() + b"\x00\x00",
    "control characters": b"parallel_config: {a: \x07\x08}\n",
    "invalid UTF-8": b"parallel_config: {a: '\xff\xfe\xfa'}\n",
    "surrogate": b'parallel_config: {a: "\\ud800"}\n' + b"recompute_config: {recompute: True}\n",
    "BOM": b"\xef\xbb\xbf" + _CONFIG.encode(),
    "UTF-16": _CONFIG.encode("utf-16"),
    "tabs": b"parallel_config:\n\tpipeline_stage: 2\n",
    "CR only": _CONFIG.replace("\n", "\r").encode(),
    "odd line ends": "parallel_config: {a: 1}\u2028recompute_config: {}\u0085\n".encode(),
    "many documents": b"---\nparallel_config: {a: 1}\n" * 20_000,
    "random bytes": bytes(range(256)) * 400,
    "an archive": b"PK\x03\x04" + bytes(2000),
    "an ELF": b"\x7fELF\x02\x01\x01" + bytes(2000),
    "directives": b"%YAML 9.9\n%TAG ! tag:x\n---\n" + _CONFIG.encode(),
    "many ignores": b"# ms-tune: ignore[MST201]\n" * 6_000 + _CONFIG.encode(),
    "odd ignore": b"# ms-tune: ignore[[[[\n# ms-tune: ignore\n# ms-tune:\n" + _CONFIG.encode(),
    "sections of any kind": b"parallel_config: 1\nrecompute_config: [x]\nmodel: {}\nparallel: 'x'\ncontext: true\nswap_config: 3\n"
    b"moe_config: [1]\nrunner_config: null\ncallbacks: {a: 1}\ntrain_dataset: 5\nprofile: []\n",
}


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_BYTES, _BYTES))


def _lint(*arguments: str, data: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    done = subprocess.run(
        [sys.executable, "-m", "ms_tune", "lint", "--no-config", *arguments],
        input=data,
        stdin=None if data is not None else subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        check=False,
        preexec_fn=_limit,
    )
    assert b"Traceback" not in done.stderr + done.stdout, done.stderr.decode(errors="replace")[-2000:]
    assert b"MST001" not in done.stdout, done.stdout.decode(errors="replace")[-2000:]
    assert done.returncode in _OK, (done.returncode, done.stderr[-500:])
    assert len(done.stdout) < 5_000_000
    return done


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_content(name: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(HOSTILE[name])
    done = _lint(str(path), "--dialect", "mindformers", "--format", "json")
    assert done.stdout == b"" or isinstance(json.loads(done.stdout), dict)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["alias bomb", "deep mapping", "invalid UTF-8", "BOM", "NUL", "recursive mapping"])
def test_hostile_content_on_standard_input_and_in_a_folder(name: str, tmp_path: Path) -> None:
    _lint("-", data=HOSTILE[name])
    (tmp_path / "config.yaml").write_bytes(HOSTILE[name])
    (tmp_path / "other.yaml").write_text(_CONFIG)
    assert b"Traceback" not in _lint(str(tmp_path)).stdout
    before = (tmp_path / "config.yaml").read_bytes()
    _lint(str(tmp_path), "--diff=unsafe")
    assert (tmp_path / "config.yaml").read_bytes() == before


@pytest.mark.slow
def test_a_hundred_megabytes(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    with path.open("wb") as file:
        file.truncate(100 << 20)
    assert _lint(str(path)).returncode != 0
    _lint(str(tmp_path))


def _folder_of_oddities(folder: Path) -> None:
    """Create loops, broken links, a pipe, a folder with a file's name, an unreadable file and one with an odd name."""
    (folder / "config.yaml").write_text(_CONFIG)
    (folder / "loop.yaml").symlink_to(folder / "loop.yaml")
    (folder / "dangling.yaml").symlink_to(folder / "nowhere.yaml")
    (folder / "in").mkdir()
    (folder / "in" / "again").symlink_to(folder)
    os.mkfifo(folder / "pipe.yaml")
    (folder / "folder.yaml").mkdir()
    (folder / "closed.yaml").write_text(_CONFIG)
    (folder / "closed.yaml").chmod(0)
    name = os.fsencode(folder) + b"/caf\xe9 \n\x1b[31m.yaml"
    Path(os.fsdecode(name)).write_text("parallel_config: {data_parallel: x}\n")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["", "loop.yaml", "dangling.yaml", "pipe.yaml", "folder.yaml", "closed.yaml"])
def test_hostile_files(name: str, tmp_path: Path) -> None:
    _folder_of_oddities(tmp_path)
    _lint(str(tmp_path / name))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["/dev/zero", "/dev/null", "/dev/urandom", "/proc/self/mem", "/nonexistent/a.yaml", ""]
)
def test_devices_and_names_of_nothing(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a name of nothing is the current folder
    _lint(name)
