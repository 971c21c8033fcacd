"""Test parsing and formatting of sizes."""

from __future__ import annotations

import pytest

from ms_tune.units import GIB, KIB, MIB, gib, mib, parse_size, whole_number


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("58GB", 58 * GIB),
        ("64GiB", 64 * GIB),
        ("64gib", 64 * GIB),
        ("58 G", 58 * GIB),
        ("58g", 58 * GIB),
        ("512MB", 512 * MIB),
        ("1.5GB", 3 * GIB // 2),
        ("2T", 2048 * GIB),
        ("16K", 16 * KIB),
        ("1024B", 1024),
        ("7B", 7),
        ("  64GB \n", 64 * GIB),
    ],
)
def test_units_are_1024_based_with_or_without_the_i(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text",
    [
        "",
        "GB",
        "0.5",
        "64",
        "1024",
        "0",
        "0GB",
        "-1GB",
        "1e3",
        "1,024",
        "64 GB of memory",
        "six",
        "1.2.3G",
        "1.",
        ".5G",
        "64XB",
        "inf",
        "nan",
    ],
)
def test_what_is_no_size_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="not a size") as caught:
        parse_size(text)
    assert repr(text) in str(caught.value)


def test_gib_shows_two_places_and_mib_one() -> None:
    shown = [gib(size) for size in (0, 1234567890, 64 * GIB, 2000 * GIB)]
    assert shown == ["0.00 GiB", "1.15 GiB", "64.00 GiB", "2,000.00 GiB"]
    assert [mib(size) for size in (512, 1234567890, MIB)] == ["0.0 MiB", "1,177.4 MiB", "1.0 MiB"]


def test_a_whole_number_is_one_that_python_reads() -> None:
    texts = ("0", "007", "9" * 18, "9" * 19, "9" * 5000, "４", "²", "-1", "", " 1", "1.0")
    assert [whole_number(text) for text in texts] == [0, 7, 10**18 - 1, None, None, 4, *[None] * 5]
