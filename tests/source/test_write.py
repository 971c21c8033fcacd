"""Test the writer of users' files, and explicit lists: no property of a file is lost, even if the writer is killed."""

from __future__ import annotations

import fcntl
import os
import random
import resource
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ms_tune.enums import Dialect
from ms_tune.errors import ConfigError, MsTuneError
from ms_tune.source.atomic_write import PART, replacement, write_atomically, write_back
from ms_tune.source.files import diff_lines
from ms_tune.source.yaml import parse_source
from ms_tune.text import Language, render
from tests.jobs import explicit

NOBODY = 65534
root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to somebody else")
CONFIG = """\
use_legacy: True
trainer: {}
optimizer: {eps: 1e-8}
parallel_config: {pipeline_stage: 2}
model: {model_config: {num_layers: 4}}
recompute_config:
  recompute: [True, 1]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.yaml"
    path.write_text("a: 1\n")
    return path


@root
def test_owner_group_and_mode_stay(tmp_path: Path) -> None:
    file = tmp_path / "o.yaml"
    file.write_text("a: 1\n")
    os.chown(file, NOBODY, 1234)
    file.chmod(0o2600)
    write_back(file, "a: 1\n", "a: 2\n")
    status = file.stat()
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (NOBODY, 1234, 0o2600)
    assert file.read_text() == "a: 2\n"


def test_extended_attributes_stay(file: Path) -> None:
    try:
        os.setxattr(file, "user.reviewed", b"yes")
    except OSError as error:
        pytest.skip(f"this file system has no extended attributes: {error}")
    write_back(file, "a: 1\n", "a: 2\n")
    assert os.getxattr(file, "user.reviewed") == b"yes"


def _access_list(user: int, permissions: int) -> bytes:
    """Return an access control list in Linux's format (``linux/posix_acl_xattr.h``): rw- for the owner and another user."""
    entries = [(1, 6, -1), (2, permissions, user), (4, 4, -1), (16, 6, -1), (32, 0, -1)]
    words = (tag.to_bytes(2, "little") + bits.to_bytes(2, "little") for tag, bits, _ in entries)
    ids = ((one & 0xFFFFFFFF).to_bytes(4, "little") for _, _, one in entries)
    return (2).to_bytes(4, "little") + b"".join(word + id_ for word, id_ in zip(words, ids, strict=True))


def test_access_control_lists_stay(tmp_path: Path) -> None:
    file, other = tmp_path / "a.yaml", tmp_path / "other.yaml"
    name, wanted = "system.posix_acl_access", _access_list(1234, 6)
    file.write_text("a: 1\n")
    try:
        os.setxattr(file, name, wanted)
    except OSError as error:
        pytest.skip(f"this file system has no access control lists: {error}")
    write_back(file, "a: 1\n", "a: 2\n")
    assert os.getxattr(file, name) == wanted
    other.write_text("a: 1\n")
    other.chmod(0o640)
    os.setxattr(tmp_path, "system.posix_acl_default", wanted)  # new files in the folder get the list
    write_back(other, "a: 1\n", "a: 2\n")
    assert name not in os.listxattr(other)
    assert stat.S_IMODE(other.stat().st_mode) == 0o640


def test_a_file_that_nobody_may_write_is_left_alone(tmp_path: Path, file: Path) -> None:
    file.chmod(0o444)
    with pytest.raises(ConfigError, match="is write-protected") as caught:
        write_back(file, "a: 1\n", "a: 2\n")
    assert "chmod u+w" in render(caught.value.hint or caught.value.message, Language.EN)
    assert file.read_text() == "a: 1\n"
    assert list(tmp_path.iterdir()) == [file]


def _as_nobody(code: str, *arguments: Path) -> subprocess.CompletedProcess[str]:
    """Run a piece of Python as an ordinary user."""
    drop = f"import os, sys; os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
    # Imported before the change of user: only root may be able to read the sources' folder.
    start = "from pathlib import Path\nfrom ms_tune.source.atomic_write import write_back, write_atomically\n"
    words = [sys.executable, "-c", start + "from ms_tune.text import render, msg\n" + drop + code]
    return subprocess.run([*words, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False)


TRY = """
from ms_tune.errors import ConfigError
try:
    write_back(Path(sys.argv[1]), 'a: 1\\n', 'a: 2\\n')
except ConfigError as error:
    print(error)
else:
    print('written')
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Return a folder that an ordinary user can reach and write; pytest's own folders are private."""
    with tempfile.TemporaryDirectory(prefix="ms-tune-write-") as name:
        folder = Path(name)
        folder.chmod(0o777)
        yield folder


@root
@pytest.mark.parametrize(
    ("owner", "mode", "says"),
    [
        (NOBODY, 0o600, "written"),
        (NOBODY, 0o444, "is write-protected"),
        (NOBODY, 0o466, "is write-protected"),  # an owner has the owner's permissions, not those of other users
        (0, 0o644, "is write-protected"),
        (0, 0o666, "belongs to 0:0"),  # it could be written, but would change its owner
    ],
)
def test_an_ordinary_user(open_folder: Path, owner: int, mode: int, says: str) -> None:
    file = open_folder / "a.yaml"
    file.write_text("a: 1\n")
    os.chown(file, owner, owner)
    file.chmod(mode)
    output = _as_nobody(TRY, file)
    assert says in output.stdout, output
    assert file.read_text() == ("a: 2\n" if says == "written" else "a: 1\n")
    status = file.stat()
    assert (status.st_uid, stat.S_IMODE(status.st_mode)) == (owner, mode)
    assert list(open_folder.iterdir()) == [file]


@root
def test_a_folder_that_may_not_be_written(open_folder: Path) -> None:
    file = open_folder / "a.yaml"
    file.write_text("a: 1\n")
    file.chmod(0o666)
    open_folder.chmod(0o755)
    assert "cannot be written: permission denied" in _as_nobody(TRY, file).stdout
    assert file.read_text() == "a: 1\n"


def test_who_cannot_allow_it_is_not_reported_to(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.chmod(0o444)
    hints = []
    for user in (file.stat().st_uid, 12345):
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        with pytest.raises(ConfigError, match="is write-protected") as caught:
            write_back(file, "a: 1\n", "a: 2\n")
        hints.append(caught.value.hint and caught.value.hint.id)
    assert hints == ["edits.write.read-only.hint", "edits.write.owner.hint"]


def test_what_was_changed_meanwhile_is_left_alone(tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also between the comparison and the replacement."""

    write = Path.write_bytes

    def somebody_saves(part: Path, content: bytes) -> int:
        file.write_text("a: 7\n")
        return write(part, content)

    monkeypatch.setattr(Path, "write_bytes", somebody_saves)
    with pytest.raises(ConfigError, match="was modified"):
        write_back(file, "a: 1\n", "a: 2\n")
    assert file.read_text() == "a: 7\n"
    with pytest.raises(ConfigError, match="was modified"):
        write_back(file, "a: 1\n", "a: 2\n")
    file.unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        write_back(file, "a: 1\n", "a: 2\n")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, file: Path) -> None:
    code = (
        "import signal, sys\nfrom pathlib import Path\nfrom ms_tune.source.atomic_write import write_atomically\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "try:\n    write_atomically(Path(sys.argv[1]), b'x' * 100_000)\nexcept Exception as error:\n    print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(file)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)),
    )
    assert "cannot be written: the file exceeds the maximum size" in done.stdout
    assert file.read_text() == "a: 1\n"
    assert list(tmp_path.iterdir()) == [file]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be written: no such file or folder"):
        write_atomically(tmp_path / "gone" / "a.yaml", b"")
    write_atomically(tmp_path / "new" / "folder" / "a.yaml", b"x", parents=True)
    assert (tmp_path / "new" / "folder" / "a.yaml").read_bytes() == b"x"
    with pytest.raises(ConfigError, match="cannot be written"):
        write_atomically(tmp_path / "new" / "folder" / "a.yaml" / "b", b"", parents=True)


def test_a_very_long_name(tmp_path: Path) -> None:
    file = tmp_path / ("名" * 80 + ".yaml")
    write_atomically(file, b"1")
    write_atomically(file, b"2")
    assert [one.read_bytes() for one in tmp_path.iterdir()] == [b"2"]


def test_what_a_killed_run_left_is_removed_and_what_is_being_written_is_not(tmp_path: Path) -> None:
    file, left = tmp_path / "a.yaml", tmp_path / f".b.yaml.12345678{PART}"
    left.write_text("half of")
    with replacement(tmp_path / "other.yaml") as part:
        part.write_text("other")
        write_atomically(file, b"1")
        assert part.exists()
        assert not left.exists()
    assert {one.name for one in tmp_path.iterdir()} == {"a.yaml", "other.yaml"}


def test_a_part_that_another_process_takes_for_a_leftover_is_made_again(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.chmod(0o640)
    removed: list[Path] = []

    def lock(handle: int, _mode: int) -> None:
        if not removed:
            removed.append(Path(f"/proc/self/fd/{handle}").readlink())
            removed[0].unlink()

    monkeypatch.setattr(fcntl, "flock", lock)
    write_atomically(file, b"new")
    assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode), len(removed)) == (b"new", 0o640, 1)


@pytest.mark.slow
@pytest.mark.parametrize("command", [("normalize-recompute", "--write"), ("lint", "--fix", "--no-config")])
def test_a_command_killed_at_random_moments(tmp_path: Path, command: tuple[str, ...]) -> None:
    file = tmp_path / "a.yaml"
    old = CONFIG + "".join(f"# {n}\n" for n in range(100_000))
    words = [sys.executable, "-m", "ms_tune", *command, str(file)]
    file.write_text(old)
    begin = time.monotonic()
    subprocess.run(words, capture_output=True, timeout=120, check=False)
    whole, new = time.monotonic() - begin, file.read_text()
    assert new != old
    moments = random.Random(34)  # noqa: S311 - as above
    for _ in range(14):
        file.write_text(old)
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
            time.sleep(moments.uniform(0.3, 1.05) * whole)
            child.send_signal(signal.SIGKILL)
        assert file.read_text() in (old, new)
    file.write_text(old)
    subprocess.run(words, capture_output=True, timeout=120, check=False)
    assert file.read_text() == new
    assert list(tmp_path.iterdir()) == [file]


HEAD = """\
# a comment
parallel: {pipeline_config: {pipeline_interleave: True, pipeline_scheduler: 1f1b}}
parallel_config: {pipeline_stage: 2}   # two
model:
  model_config: {num_layers: 8, pp_interleave_num: 2}
recompute_config:
"""


def written(body: str, head: str = HEAD) -> str:
    result = explicit(parse_source(head + body, Path("c.yaml")), Dialect.MINDFORMERS, "1.9")
    assert result.text.startswith(head)
    again = explicit(parse_source(result.text, Path("c.yaml")), Dialect.MINDFORMERS, "1.9")
    assert again.text == result.text
    assert again.change_count == 0
    return result.text.removeprefix(head)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("  recompute: True  # all\n", "  recompute: [[2, 2], [2, 2]]  # all\n"),
        ("  recompute: [3, 1]\n", "  recompute: [[2, 1], [1, 0]]\n"),
        ("  recompute: [[1,  0],[2,0]]\n", "  recompute: [[1,  0],[2,0]]\n"),
        ("  recompute: [[9,  0], # top\n    [2,0]]\n", "  recompute: [[2,  0], # top\n    [2,0]]\n"),
        ("  recompute:\n  - 3\n  - 1\nz: 1\n", "  recompute: [[2, 1], [1, 0]]\nz: 1\n"),
        ("  recompute: # why\n    - 3\n    - 1\n\nz: 1\n", "  recompute: [[2, 1], [1, 0]] # why\n\nz: 1\n"),
        ("  recompute:\n    - [1, True]\n    - [0, 0]\n", "  recompute:\n    - [1, 2]\n    - [0, 0]\n"),
        ("  recompute: &r [1, 0]\n", "  recompute: &r [[1, 0], [0, 0]]\n"),
        ("  recompute: ['1']\n", "  recompute: [[2, 2], [2, 2]]\n"),
        ("  recompute: False\n  select_recompute: []\n", "  recompute: False\n  select_recompute: []\n"),
        ("  select_recompute: [1, 0]\n", "  select_recompute: [[1, 0], [0, 0]]\n"),
        ("  select_recompute: ['a\\.b']\n", "  select_recompute: {'a\\.b': [[2, 2], [2, 2]]}\n"),
        (
            '  select_recompute: {"a\\\\.b": True, c: False}\n',
            '  select_recompute: {"a\\\\.b": [[2, 2], [2, 2]], c: False}\n',
        ),
        (
            "  select_recompute: {a: True}\n  select_recompute_exclude: {a: [1, 0]}\n",
            "  select_recompute: {a: True}\n  select_recompute_exclude: {a: [[1, 0], [0, 0]]}\n",
        ),
        ("  recompute: [3, 1]\r\n  select_recompute: False\r\n", "  recompute: [[2, 1], [1, 0]]\r\n  select_recompute: False\r\n"),
    ],
)  # fmt: skip
def test_what_is_written(before: str, after: str) -> None:
    assert written(before) == after


def test_layer_numbers_when_swap_is_on() -> None:
    body = "  recompute: [3, 1, 3, 99]\nswap_config: {swap: True, layer_swap: [{layers: [5], backward_prefetch: 1}]}\n"
    assert written(body) == body.replace("[3, 1, 3, 99]", "[1, 3]")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("  recompute: &r [1, 0]\nother: *r\n", "used elsewhere"),
        ("  recompute: &r [[9, 0], [0, 0]]\nother: *r\n", "used elsewhere"),
        ("  recompute: [[&n 9, 0], [0, *n]]\n", "is an alias"),
        ("  recompute: *r\n", "is an alias"),
        ("  <<: *s\n", "is an alias"),
        ("  recompute: [-1, 0]\n", "nothing written"),
    ],
)
def test_what_is_refused(body: str, words: str) -> None:
    needs_anchors = "&r" not in body and ("*r" in body or "*s" in body)
    anchors = "x: &r [1, 0]\ns: &s {recompute: [1, 0]}\n" if needs_anchors else ""
    with pytest.raises(MsTuneError) as caught:
        explicit(parse_source(anchors + HEAD + body, Path("c.yaml")), Dialect.MINDFORMERS, "1.9")
    assert words in str(caught.value)
    if "nothing" not in words:
        assert isinstance(caught.value, ConfigError)
        assert caught.value.line is not None


@pytest.mark.parametrize("listed", ["\n    - 1  # one\n    - 0\n", " [1, # one\n   0]\n"])
def test_a_list_with_comments_stays_alone(listed: str) -> None:
    """The list next to it is still written."""
    body = f"  recompute:{listed}  select_recompute: [9, 0]\n"
    source = parse_source(HEAD + body, Path("c.yaml"))
    result = explicit(source, Dialect.MINDFORMERS, "1.9")
    assert result.text == HEAD + body.replace("[9, 0]", "[[2, 0], [2, 0]]")
    assert (result.change_count, result.left) == (1, (("recompute_config", "recompute"),))


def test_a_tag_goes_with_the_value() -> None:
    assert "True" not in written("  recompute: !!bool True\n")
    assert "!!bool" not in written("  recompute: !!bool True\n")


@pytest.mark.parametrize(("old", "new"), [("a: 1\r\nb: 2", "a: 1\r\nb: 3\r\n"), ("a: \u2028\x0b1\n", "a: \u2028\x0b2")])
def test_git_applies_a_diff(tmp_path: Path, old: str, new: str) -> None:
    file = tmp_path / "x"
    file.write_bytes(old.encode())
    diff = "".join(f"{line}\n" for line in diff_lines(old, new, "a/x", "b/x"))
    subprocess.run(["git", "apply"], input=diff.encode(), cwd=tmp_path, check=True)
    assert file.read_bytes().decode() == new
