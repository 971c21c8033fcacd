"""Test the usable memory of a device, and its source."""

from __future__ import annotations

import pytest

from ms_tune.errors import UsageError
from ms_tune.facts.devices import chips
from ms_tune.facts.query import load
from ms_tune.text import Language, render
from ms_tune.units import GIB, MIB
from ms_tune.verdict.limit import Cap, device_of, limit_of


def test_a_64_gb_card_gives_what_was_published_of_it_and_not_what_the_simulator_says() -> None:
    for device in (device_of(), device_of("910B2"), device_of("Ascend910B3"), device_of(None, 64 * GIB)):
        assert limit_of(device).bytes == 58166 * MIB


@pytest.mark.parametrize(("chip", "pool"), [("A3", 58466), ("ascend910_93", 58466), ("910B4", 27966), ("910a", 27966)])
def test_what_is_not_published_is_derived_and_says_so(chip: str, pool: int) -> None:
    limit = limit_of(device_of(chip))
    assert limit.bytes == pool * MIB
    for language, word in ((Language.EN, "derived"), (Language.ZH, "推算")):
        assert word in render(limit.source, language)


def test_every_chip_has_its_source_and_leaves_less_than_the_card_has() -> None:
    for chip in chips():
        assert chip.free_bytes < chip.card_bytes
        assert load("devices")["chips"][chip.name]["source"]
        for name in (chip.name, *chip.names):
            assert device_of(name).free_bytes == chip.free_bytes


def test_an_unknown_chip_is_refused_with_what_is_known() -> None:
    with pytest.raises(UsageError) as caught:
        device_of("910B9")
    assert "910B4" in str(caught.value)
    assert caught.value.hint is not None


def test_what_is_assumed_free_of_a_size_is_reported() -> None:
    for language in Language:
        assert "29.1 GiB" in render(limit_of(device_of(None, 32 * GIB)).source, language)
        assert "61.27" not in render(limit_of(device_of(None, 96 * GIB)).source, language)


def test_a_max_device_memory_wins_where_the_device_has_so_much() -> None:
    limit = limit_of(device_of(), 58 * GIB, Cap.CONFIG)  # above the pool's default, below the free memory
    assert (limit.bytes, limit.source.id) == (58 * GIB, "verdict.limit.config")
    assert limit.outside_pool_bytes == (62055 - 59392) * MIB
    assert limit_of(device_of(), 20 * GIB, Cap.SCRIPT).bytes == 20 * GIB


@pytest.mark.parametrize("cap", [Cap.CONFIG, Cap.FRAMEWORK, Cap.SCRIPT])
def test_a_max_device_memory_that_the_device_does_not_have_is_refused_as_mindspore_does(cap: Cap) -> None:
    with pytest.raises(UsageError) as caught:
        limit_of(device_of("910B4"), 58 * GIB, cap)
    assert caught.value.hint is not None
    assert "27GB" in render(caught.value.hint, Language.EN)
    with pytest.raises(UsageError):
        limit_of(device_of(), 62055 * MIB, cap)  # it must be below the free memory
    assert limit_of(device_of(), 62055 * MIB - 1, cap).bytes == 62055 * MIB - 1


def test_of_a_size_that_mindspore_does_not_know_of_the_chip_it_takes_no_notice() -> None:
    """As in ``AscendMemAdapter::GetDeviceMemSizeFromContext`` (MindSpore 2.7 to 2.10), regardless of the card."""
    pool = limit_of(device_of()).bytes
    limit = limit_of(device_of(), 100 * GIB, Cap.SCRIPT)
    assert (limit.bytes, limit.source.id) == (pool, "verdict.limit.unheeded")
    assert "100 GiB" in render(limit.source, Language.ZH)
    with pytest.raises(UsageError):
        limit_of(device_of(), 64 * GIB, Cap.SCRIPT)
    with pytest.raises(UsageError):
        limit_of(device_of(), 100 * GIB, Cap.CONFIG)  # written for another device
    assert limit_of(device_of("910A"), 33 * GIB, Cap.SCRIPT).source.id == "verdict.limit.unheeded"
    with pytest.raises(UsageError):
        limit_of(device_of("910B4"), 33 * GIB, Cap.SCRIPT)


@pytest.mark.parametrize("cap", [Cap.CONFIG, Cap.SCRIPT])
def test_1024_is_mindspores_word_for_none(cap: Cap) -> None:
    assert limit_of(device_of(), 1024 * GIB, cap) == limit_of(device_of())


def test_a_size_that_the_user_names_is_asked_of_no_device() -> None:
    limit = limit_of(device_of("910B4"), 100 * GIB, Cap.USER)
    assert (limit.bytes, limit.outside_pool_bytes) == (100 * GIB, 0)
