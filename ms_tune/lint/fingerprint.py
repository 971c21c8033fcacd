"""What makes a finding the same finding after the file has changed.

A fingerprint holds no line number: it is made of the check, the key path and the words at the place, and survives
changes elsewhere in the file.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ms_tune.diagnostics import Diagnostic

_LENGTH = 16  # characters of a fingerprint
_WORDS = 200  # characters of the place that count


def fingerprints(text: str, findings: Iterable[Diagnostic]) -> list[tuple[str, int]]:
    """For every finding what it is, and the how-manieth of this kind in the file (from 1)."""
    counts: Counter[str] = Counter()
    found = []
    for finding in findings:
        words = " ".join(text[finding.location.start : finding.location.end].split())[:_WORDS]
        # By the family, where there is one: a baseline is older than the ids of its checks may be.
        kind = (finding.family or finding).id
        parts = json.dumps([kind, [str(item) for item in finding.path], words])
        print_ = hashlib.sha256(parts.encode()).hexdigest()[:_LENGTH]
        counts[print_] += 1
        found.append((print_, counts[print_]))
    return found
