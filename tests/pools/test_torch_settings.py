"""Test the sizes by settings of PyTorch's allocators, on both sides of each limit in their sources."""

from __future__ import annotations

import pytest

from ms_tune.pools.torch_space import NPU_PADDING, TorchSettings
from ms_tune.units import GIB, MIB

PLAIN = TorchSettings()


@pytest.mark.parametrize(
    ("settings", "size", "rounded"),
    [
        (PLAIN, 0, 512),
        (PLAIN, 1, 512),
        (PLAIN, 512, 512),
        (PLAIN, 513, 1024),
        (TorchSettings(padding=NPU_PADDING), 480, 512),
        (TorchSettings(padding=NPU_PADDING), 481, 1024),
        # Divisions count from more than 512 bytes a division on.
        (TorchSettings(roundup=(4,)), 2048, 2048),
        (TorchSettings(roundup=(4,)), 2049, 2560),
        (TorchSettings(roundup=(4,)), 4097, 5120),
        (TorchSettings(roundup=(4,)), 8192, 8192),
        (TorchSettings(roundup=(4,)), 8193, 10240),
        (TorchSettings(roundup=(1,)), 8193, 8704),
        (TorchSettings(roundup=(0,)), 8193, 8704),
        (TorchSettings(roundup=(2, 4)), 2 * MIB - 1, 2 * MIB),
        (TorchSettings(roundup=(2, 4)), MIB + 1, MIB + MIB // 2),
        (TorchSettings(roundup=(2, 4)), 2 * MIB + 1, 2 * MIB + MIB // 2),
        (TorchSettings(roundup=(2, 4)), 64 * GIB + 1, 80 * GIB),
        (TorchSettings(roundup=(*[0] * 15, 4)), 32 * GIB + 1, 40 * GIB),
        (TorchSettings(roundup=(*[0] * 15, 4)), 32 * GIB - 511, 32 * GIB),
        (TorchSettings(roundup=(*[0] * 15, 4, 0)), 64 * GIB + 1, 80 * GIB),
    ],
)
def test_what_a_request_takes(settings: TorchSettings, size: int, rounded: int) -> None:
    assert settings.round_request(size) == rounded


@pytest.mark.parametrize(
    ("size", "found", "refused"),
    [
        (99 * MIB, 100 * MIB - 512, False),
        (99 * MIB, 100 * MIB, True),
        (100 * MIB, 120 * MIB - 512, False),
        (100 * MIB, 120 * MIB, True),
    ],
)
def test_which_free_blocks_are_kept_whole(size: int, found: int, refused: bool) -> None:  # noqa: FBT001 - a column
    assert TorchSettings(max_split=100 * MIB).refuses_block(size, found) is refused
    assert not PLAIN.refuses_block(size, found)


@pytest.mark.parametrize("size", [99 * MIB, 100 * MIB])
def test_what_becomes_a_block_of_its_own(size: int) -> None:
    limited = TorchSettings(max_split=100 * MIB)
    for small, expandable in ((True, False), (False, True), (True, True)):
        assert limited.should_split(512, size, small=small, expandable=expandable)
        assert not limited.should_split(0, size, small=small, expandable=expandable)
    assert not PLAIN.should_split(MIB, size, small=False, expandable=False)
    assert PLAIN.should_split(MIB + 512, size, small=False, expandable=False)
    assert limited.should_split(MIB + 512, size, small=False, expandable=False) is (size < 100 * MIB)
