"""How much memory a device has and MindSpore uses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_tune.cli.dryrun import build_parser
from ms_tune.dryrun.device import CHIPS, DEFAULT_MEMORY, memory_limit, usable_memory
from ms_tune.texts import Language, render
from ms_tune.units import GIB, MIB


def test_of_64_gib_mindspore_uses_what_its_log_says() -> None:
    # The log says "Device MOC memory size: 65536M" and then "MindSpore Used memory size: 61430M".
    assert usable_memory(64 * GIB) == 61430 * MIB


@pytest.mark.parametrize(("device", "usable"), [(32 * GIB, 30710 * MIB), (GIB, 950 * MIB), (10 * MIB, 0), (1, 0)])
def test_a_sixteenth_and_ten_mib_are_kept_back(device: int, usable: int) -> None:
    assert usable_memory(device) == usable


@given(st.integers(0, 2**42))
def test_usable_memory_is_never_negative_nor_more_than_there_is(device: int) -> None:
    assert 0 <= usable_memory(device) <= device


def test_without_a_wish_a_device_has_64_gib() -> None:
    limit = memory_limit(None, None)
    assert (limit.bytes, limit.device_bytes) == (61430 * MIB, 64 * GIB)
    assert limit.source.id == "dryrun.limit.default"


def test_the_device_that_the_user_names_counts() -> None:
    limit = memory_limit(32 * GIB, None)
    assert (limit.bytes, limit.device_bytes) == (30710 * MIB, 32 * GIB)
    assert limit.source.id == "dryrun.limit.device"


def test_the_configs_own_limit_caps_it() -> None:
    # With 58GB the log says "MindSpore Used memory size: 59392M".
    limit = memory_limit(None, 58 * GIB)
    assert (limit.bytes, limit.device_bytes) == (59392 * MIB, 64 * GIB)
    assert "58.00 GiB" in render(limit.source, Language.EN)
    assert "58.00 GiB" in render(limit.source, Language.ZH)


@pytest.mark.parametrize("cap", [62 * GIB, 1024 * GIB, 61430 * MIB])
def test_a_limit_above_the_device_changes_nothing(cap: int) -> None:
    assert memory_limit(None, cap) == memory_limit(None, None)


def test_a_small_device_is_not_enlarged_by_the_config() -> None:
    assert memory_limit(32 * GIB, 58 * GIB).bytes == 30710 * MIB


def test_chips_are_those_that_the_command_line_takes() -> None:
    parser = build_parser(Language.EN)
    for chip, memory in CHIPS.items():
        assert parser.parse_args(["--chip", chip]).chip == chip
        assert memory in (32 * GIB, 64 * GIB)
    assert DEFAULT_MEMORY == 64 * GIB
