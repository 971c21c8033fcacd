"""Run some of the random programs on the allocator; ``python -m tests.fuzz.allocator`` runs 10,000."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.allocator import SANITIZERS, run_programs


@pytest.mark.slow
@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_no_two_live_blocks_overlap(sanitizer: str, tmp_path: Path) -> None:
    assert run_programs(tmp_path, sanitizer, 0, 60) == "60 programs\n"
