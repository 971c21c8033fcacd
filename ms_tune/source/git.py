"""Ask git for files at a commit, and for those that changed since a branch left it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ms_tune.errors import UsageError
from ms_tune.source.yaml import MAX_BYTES, decode, read_text
from ms_tune.text import msg

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess

_PATIENCE = 30.0  # timeout in seconds for git
_NAMES = ("*.yaml", "*.yml", "*.sh", "*.bash")


def text_at(revision: str, path: Path) -> str | None:
    """Return the text of the file ``revision``, or of ``path`` where this branch left a commit, under its old name if renamed.

    None if the commit does not have the file.
    """
    if Path(revision).is_file():
        return read_text(Path(revision))
    folder = path.absolute().parent
    any_commit = _run_git(folder, "rev-list", "--all", "--max-count=1")
    if any_commit.returncode == 0 and not any_commit.stdout:  # a repository before its first commit
        return None
    commit = _find_commit(folder, revision)
    name: str | None = f"./{path.name}"
    if not _run_git(folder, "ls-tree", commit, "--", path.name).stdout.strip():
        name = _find_old_name(folder, commit, path.name)
    if name is None:
        return None
    shown = _run_git(folder, "show", f"{commit}:{name}")
    if shown.returncode:
        raise _unknown_revision(revision, shown)
    return decode(shown.stdout[: MAX_BYTES + 1], path)


def changed_since(revision: str, folder: Path, names: Iterable[str] = _NAMES) -> list[Path]:
    """Return the configs and scripts of a folder that changed since this branch left a commit, without deleted files."""
    commit = _find_commit(folder, revision)
    found = _run_git(folder, "diff", "--name-only", "-z", "--relative", "--diff-filter=d", commit, "--", *names)
    if found.returncode:
        raise _unknown_revision(revision, found)
    return sorted(folder / name for name in found.stdout.decode(errors="surrogateescape").split("\0") if name)


def _find_commit(folder: Path, revision: str) -> str:
    # Return the full name of the commit where this branch left another one, so that later changes of the other do not count. If
    # unknown, as in a shallow checkout, return the other commit itself. The revision is never passed as an option of git.
    found = _run_git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if found.returncode:
        raise _unknown_revision(revision, found)
    commit = found.stdout.decode().strip()
    return _run_git(folder, "merge-base", commit, "HEAD").stdout.decode().strip() or commit


def _find_old_name(folder: Path, commit: str, name: str) -> str | None:
    # Return the file's name at a commit, relative to the top of the repository; None if it was not renamed.
    prefix = _run_git(folder, "rev-parse", "--show-prefix").stdout.decode(errors="surrogateescape").rstrip("\n")
    renames = ("-c", "diff.relative=false", "diff", "--name-status", "-z", "--find-renames", "--diff-filter=R")
    shown = _run_git(folder, *renames, commit).stdout
    words = shown.decode(errors="surrogateescape").split("\0")
    return next((old for old, new in zip(words[1::3], words[2::3], strict=False) if new == f"{prefix}{name}"), None)


def _run_git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    import subprocess  # noqa: PLC0415 - seldom asked for

    command = ["git", "-C", str(folder), "--no-optional-locks", *arguments]
    try:
        return subprocess.run(command, capture_output=True, timeout=_PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired):
        raise UsageError(msg("check.base.no-git"), msg("check.base.unknown.hint")) from None


def _unknown_revision(revision: str, done: subprocess.CompletedProcess[bytes]) -> UsageError:
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    text = (
        msg("check.base.unknown", revision=revision, reason=lines[0])
        if lines
        else msg("check.base.none", revision=revision)
    )
    return UsageError(text, msg("check.base.unknown.hint"))
