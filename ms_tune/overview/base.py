"""What a change of a config did to its memory: the job before and after, and which key is to blame."""

from __future__ import annotations

import copy
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ms_tune.config.source import MAX_BYTES, MISSING, decode, source_of
from ms_tune.errors import ConfigError, MsTuneError, UsageError
from ms_tune.estimate.stage import Outlook
from ms_tune.overview.result import Blame, Difference
from ms_tune.texts import msg
from ms_tune.verdict.judge import Fit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ms_tune.config.source import KeyPath
    from ms_tune.dryrun.prepare import LoadedConfig
    from ms_tune.overview.config import Look
    from ms_tune.overview.result import StageVerdict

_PATIENCE = 30.0  # seconds for git
_MOST_KEYS = 64  # changed keys that are tried one by one
_NAMES = ("*.yaml", "*.yml", "*.sh", "*.bash")


def text_at(revision: str, path: Path) -> str | None:
    """A file's text at a commit of git, or in another file of that name.

    Returns:
        The text; None where the commit has no such file.

    Raises:
        UsageError: There is no such commit, or no git.
    """
    if Path(revision).is_file():
        return decode(_bounded(Path(revision)), Path(revision))
    folder = path.absolute().parent
    commit = _commit(folder, revision, path)
    if not _git(folder, "ls-tree", commit, "--", path.name).stdout.strip():
        return None
    shown = _git(folder, "show", f"{commit}:./{path.name}")
    if shown.returncode:
        raise _unknown(revision, path, shown)
    return decode(shown.stdout[: MAX_BYTES + 1], path)


def changed_since(revision: str, folder: Path) -> list[Path]:
    """Configs and scripts of a folder that are other than at a commit; those that are gone are not among them.

    Raises:
        UsageError: There is no such commit, or no git.
    """
    commit = _commit(folder, revision, folder)
    found = _git(folder, "diff", "--name-only", "-z", "--relative", "--diff-filter=d", commit, "--", *_NAMES)
    if found.returncode:
        raise _unknown(revision, folder, found)
    return sorted(folder / name for name in found.stdout.decode(errors="surrogateescape").split("\0") if name)


def difference(before: Look, after: Look) -> Difference | None:
    """What a change did to the stage that is fullest now; None where memory is not known on both sides."""
    if before.verdicts and after.verdicts:
        return _by_dryrun(before, after)
    if before.seen.estimate is None or after.seen.estimate is None:
        return None
    now, was = after.seen.estimate, before.seen.estimate
    stage = now.fullest
    old = was.stages[min(stage.stage, len(was.stages) - 1)].peak_bytes
    worse = now.outlook is Outlook.OVER and was.outlook is not Outlook.OVER
    outcome = "over" if worse else "more" if stage.peak_bytes > old else "less"
    blame = _blame(before, after, stage.stage) if outcome != "less" else None
    return Difference(stage.stage, old, stage.peak_bytes, now.limit.bytes, outcome, estimated=True, blame=blame)


def _by_dryrun(before: Look, after: Look) -> Difference | None:
    now, was = _worst(after.verdicts), _worst(before.verdicts)
    same = next((one for one in before.verdicts if one.stage == now.stage), was)
    if now.verdict.need is None or same.verdict.need is None or now.verdict.limit is None:
        return None
    old, new = same.verdict.need.peak_bytes, now.verdict.need.peak_bytes
    outcome = "more" if new > old else "less"
    if now.verdict.severity > was.verdict.severity:
        outcome = "over" if now.verdict.outcome is Fit.DOES_NOT_FIT else "tight"
    blame = _blame(before, after, now.stage) if outcome != "less" else None
    return Difference(now.stage, old, new, now.verdict.limit.bytes, outcome, estimated=False, blame=blame)


def _worst(verdicts: Sequence[StageVerdict]) -> StageVerdict:
    return max(verdicts, key=lambda one: (one.verdict.severity, -one.verdict.spare_bytes))


def _blame(before: Look, after: Look, stage: int) -> Blame | None:
    """Each changed key is taken back alone: the one without which the stage holds least is to blame."""
    now, was = after.loaded.source, before.loaded.source
    keys = list(_changed(now.data, was.data, ()))[:_MOST_KEYS]
    if not keys:
        return None
    estimate, old = after.seen.estimate, before.seen.estimate
    best, share = keys[0], None
    if estimate is not None:
        peak = estimate.stages[stage].peak_bytes
        freed = {key: peak - _without(after, key, was.get(key, MISSING), stage, peak) for key in keys}
        best = max(keys, key=lambda key: freed[key])
        added = peak - old.stages[min(stage, len(old.stages) - 1)].peak_bytes if old is not None else 0
        share = min(freed[best] / added, 1.0) if added > 0 and freed[best] > 0 else None
    value, other = now.get(best, MISSING), was.get(best, MISSING)
    return Blame(
        path=best,
        line=after.loaded.original.nearest(best).value.line,
        old=None if other is MISSING else other,
        new=None if value is MISSING else value,
        share=share,
    )


def _without(after: Look, key: KeyPath, value: object, stage: int, peak: int) -> int:
    """What the stage holds with one key as it was; as now where such a config is none."""
    data = copy.deepcopy(after.loaded.source.data)
    place: Any = data
    for name in key[:-1]:
        place = place.setdefault(name, {}) if isinstance(place, dict) else place[name]
    if value is MISSING:
        place.pop(key[-1], None)
    else:
        place[key[-1]] = copy.deepcopy(value)
    try:
        loaded: LoadedConfig = replace(after.loaded, source=source_of(data, after.loaded.source.path))
        found = after.again(loaded).estimate
    except MsTuneError:
        return peak
    return peak if found is None or stage >= len(found.stages) else found.stages[stage].peak_bytes


def _changed(now: object, was: object, path: KeyPath) -> Iterator[KeyPath]:
    """The keys whose values differ; lists are values."""
    if isinstance(now, dict) and isinstance(was, dict):
        for name in dict.fromkeys((*now, *was)):
            if isinstance(name, (str, int)):
                yield from _changed(now.get(name, MISSING), was.get(name, MISSING), (*path, name))
    elif now != was and path:
        yield path


def _bounded(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(msg("config.unreadable", reason=error.strerror or str(error)), path=path) from error


def _commit(folder: Path, revision: str, path: Path) -> str:
    """The full name of a commit: no option of git, whatever the user wrote."""
    found = _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if found.returncode:
        raise _unknown(revision, path, found)
    return found.stdout.decode().strip()


def _git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = ["git", "-C", str(folder), "--no-optional-locks", *arguments]
    try:
        return subprocess.run(command, capture_output=True, timeout=_PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired):
        raise UsageError(msg("check.base.no-git"), msg("check.base.unknown.hint")) from None


def _unknown(revision: str, path: Path, done: subprocess.CompletedProcess[bytes]) -> UsageError:
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    reason = lines[0] if lines else "no such commit"
    return UsageError(
        msg("check.base.unknown", file=path, revision=revision, reason=reason), msg("check.base.unknown.hint")
    )
