"""Provide fixtures for tests of the reports."""

from __future__ import annotations

from tests.cli.conftest import _no_framework_is_installed

__all__ = ["_no_framework_is_installed"]  # a fixture that every test here uses
