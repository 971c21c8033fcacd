"""Read and write baselines: files with fingerprints of known findings, so that only new findings are reported."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from ms_tune.encode import SCHEMA_VERSION, json_text, schema_version_of
from ms_tune.errors import ConfigError, reason_of
from ms_tune.records import Record
from ms_tune.source.atomic_write import write_atomically
from ms_tune.source.files import read_bytes
from ms_tune.text import msg

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ms_tune.diagnostics import Diagnostic

VERSION = 1
_MOST_BYTES = 64 * 1024**2


class Baseline(Record):
    """The known findings: the count of each fingerprint in each file, by the file's path relative to ``folder``."""

    folder: Path
    files: dict[str, Counter[str]]

    def without(self, path: Path, text: str, findings: Sequence[Diagnostic]) -> tuple[tuple[Diagnostic, ...], int]:
        """Return the new findings of a file, and the number of known ones."""
        left = Counter(self.files.get(relative_name(path, self.folder), {}))
        new = []
        for finding, print_ in zip(findings, fingerprints(text, findings), strict=True):
            if left[print_[0]] > 0:
                left[print_[0]] -= 1
            else:
                new.append(finding)
        return tuple(new), len(findings) - len(new)


def relative_name(path: Path, folder: Path) -> str:
    """Return a path with ``/``, relative to a folder."""
    return Path(os.path.relpath(path.absolute(), folder.absolute())).as_posix()


def load_baseline(file: Path) -> Baseline:
    """Read a baseline."""
    try:
        data = json.loads(read_bytes(file, _MOST_BYTES))
        if (version := schema_version_of(data)) != VERSION:
            raise ConfigError(msg("lint.baseline.version", version=version), path=file)
        files = {
            str(name): Counter({str(one["fingerprint"]): int(one["count"]) for one in entries})
            for name, entries in data["files"].items()
        }
    except OSError as error:
        hint = msg("lint.baseline.hint")
        raise ConfigError(msg("config.unreadable", reason=reason_of(error)), hint, path=file) from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ConfigError(msg("lint.baseline.invalid"), path=file) from error
    return Baseline(file.absolute().parent, files)


def write_baseline(file: Path, found: Iterable[tuple[Path, str, Sequence[Diagnostic]]]) -> int:
    """Write all findings as the baseline; return their number."""
    folder = file.absolute().parent
    files: dict[str, list[dict[str, object]]] = {}
    for path, text, findings in found:
        counts = Counter(
            (finding.name, print_[0]) for finding, print_ in zip(findings, fingerprints(text, findings), strict=True)
        )
        entries: list[dict[str, object]] = [
            {"name": name, "fingerprint": print_, "count": count} for (name, print_), count in sorted(counts.items())
        ]
        if entries:
            files[relative_name(path, folder)] = entries
    content = json_text({SCHEMA_VERSION: VERSION, "files": dict(sorted(files.items()))}, indent=1)
    write_atomically(file, f"{content}\n".encode())
    return sum(count for entries in files.values() for entry in entries if isinstance(count := entry["count"], int))


_LENGTH = 16  # characters of a fingerprint
_WORDS = 200  # characters of the location's text that are included


def fingerprints(text: str, findings: Iterable[Diagnostic]) -> list[tuple[str, int]]:
    """Return for each finding its fingerprint, and its number among equal fingerprints in the file (from 1)."""
    import hashlib  # noqa: PLC0415 - slow to import, and few runs need it

    counts: Counter[str] = Counter()
    found = []
    for finding in findings:
        words = " ".join(text[finding.location.start : finding.location.end].split())[:_WORDS]
        # Use the family's id, if any: the baseline may be older than the ids of its checks.
        kind = (finding.family or finding).id
        parts = json.dumps([kind, [str(item) for item in finding.path], words])
        print_ = hashlib.sha256(parts.encode()).hexdigest()[:_LENGTH]
        counts[print_] += 1
        found.append((print_, counts[print_]))
    return found
