"""Test the free memory of cards, and MindSpore's share of it."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_tune.facts.devices import (
    chips,
    communicator_bytes,
    fastest_peak,
    find_chip,
    find_peak,
    free_of_card,
    pool_of,
)
from ms_tune.facts.query import installed_version
from ms_tune.units import GIB, MIB


@pytest.mark.parametrize("name", ["910B2", "Ascend910B2", "ascend910b2", "910b2 ", "910B"])
def test_a_chip_goes_by_all_its_names(name: str) -> None:
    chip = find_chip(name)
    assert chip is not None
    assert (chip.name, chip.card_bytes, chip.published) == ("910B", 64 * GIB, True)


def test_the_pool_is_what_mindspore_logged() -> None:
    # "Device MOC memory size: 65536M, MindSpore Used memory size: 61430M"; a card of 64 GB with 62,055 MiB free: 58,166M.
    assert pool_of(65536 * MIB) == 61430 * MIB
    assert pool_of(62055 * MIB) == 58166 * MIB
    assert pool_of(5 * MIB) == 0


@given(st.integers(0, 1 << 42), st.integers(0, 1 << 42))
def test_more_free_is_never_a_smaller_pool(one: int, other: int) -> None:
    small, large = sorted((one, other))
    assert pool_of(small) <= pool_of(large) <= large


def test_a_card_that_is_known_by_its_size_leaves_the_least_that_is_known() -> None:
    for chip in chips():
        alike = [other.free_bytes for other in chips() if other.card_bytes == chip.card_bytes]
        assert free_of_card(chip.card_bytes) == min(alike)


@given(st.integers(1, 512), st.integers(1, 512))
def test_a_larger_card_never_leaves_less(one: int, other: int) -> None:
    small, large = sorted((one, other))
    assert free_of_card(small * GIB) <= free_of_card(large * GIB) < large * GIB


def test_a_size_that_no_card_has_leaves_the_smallest_share_and_no_less_than_a_smaller_card() -> None:
    assert free_of_card(48 * GIB) == int(48 * GIB * Fraction(91, 100))
    assert free_of_card(32 * GIB) == free_of_card(32 * GIB + 1) == 29843 * MIB
    assert free_of_card(64 * GIB) == 62055 * MIB
    assert free_of_card(16 * GIB) == int(16 * GIB * Fraction(91, 100))
    assert communicator_bytes(0) == communicator_bytes() == 400 * MIB


@pytest.mark.parametrize(
    ("text", "name", "tflops"),
    [
        ("910B2", "910B2", 353.89),
        ("Ascend910B2C", "910B2", 353.89),
        ("910b1", "910B1", 378.88),
        (" 910A", "910A", 256.0),
        ("910", "910A", 256.0),
        ("910c ", "A3", 376.0),
        ("910B", None, 0),  # a family of several peaks
    ],
)
def test_how_fast_a_device_is(text: str, name: str | None, tflops: float) -> None:
    found = find_peak(text)
    assert (found and (found.name, found.tflops)) == ((name, tflops) if name else None)
    assert fastest_peak() == 378.88


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    installed_version.cache_clear()
    yield
    installed_version.cache_clear()


@pytest.mark.parametrize(
    "package", ["pytest", "PyYAML", "hypothesis", "jsonschema", "mindspore", "mindformers", "no-such"]
)
def test_it_agrees_with_the_standard_library(package: str) -> None:
    try:
        wanted = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        wanted = None
    assert installed_version(package) == wanted


@pytest.mark.parametrize(
    ("folder", "version"),
    [
        ("mindformers-1.8.0.dist-info", "1.8.0"),
        ("MindFormers-2.1.0rc1+ascend.dist-info", "2.1.0rc1+ascend"),
        ("mindformers-1.3.0-py3.9.egg-info", "1.3.0"),
        ("mindformers_extra-1.0.dist-info", None),
        ("mindformers-extra-1.0.dist-info", None),
        ("mindformers", None),
    ],
)
def test_the_folder_shows(folder: str, version: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / folder).mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path / "missing.zip"), str(tmp_path)])
    assert installed_version("mindformers") == version
