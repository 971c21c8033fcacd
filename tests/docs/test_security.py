"""Test that the figures and files in SECURITY.md are those of the code."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "SECURITY.md").read_text(encoding="utf-8")


def test_bounds_are_those_of_the_code_and_tests_exist() -> None:
    bounds = re.findall(r"`(ms_tune\.[\w.]+)\.(\w+)` (\d+)", TEXT)
    assert len(bounds) > 12
    wrong = {
        f"{module}.{name}": number
        for module, name, number in bounds
        if getattr(import_module(module), name) != int(number)
    }
    files = re.findall(r"`((?:tests|ms_tune)/[\w./]+)`", TEXT)
    assert (wrong, [name for name in files if not (ROOT / name).exists()]) == ({}, [])
