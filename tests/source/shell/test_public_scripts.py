"""Compare the programs that the public launch scripts of MindSpeed-LLM and MindSpeed-MM start with the record, word by word."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.oracle.make_scripts import DATA, VARIABLE, answers_about, digest_of, scripts_in

EXPECTED: dict[str, list[object]] = json.loads(DATA.read_text("utf-8"))


def test_nearly_all_of_them_start_something_that_is_known() -> None:
    assert len(EXPECTED) == 504
    started = [rows[1:] for rows in EXPECTED.values() if len(rows) > 1]
    assert len(started) == 499
    words = [word for rows in started for row in rows if isinstance(row, list) for word in str(row[2]).split()]
    assert sum("?" in word for word in words) < len(words) * 0.01


@pytest.mark.slow
@pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} names no folder with the scripts")
def test_they_are_read_as_recorded() -> None:
    folder, read = Path(os.environ[VARIABLE]), 0
    for path in scripts_in(folder):
        name = path.relative_to(folder).as_posix()
        digest, *answers = EXPECTED.get(name, [""])
        if digest == digest_of(path):  # another version of a script may be another script
            read += 1
            assert answers_about(path) == answers, name
    assert read > len(EXPECTED) // 2
