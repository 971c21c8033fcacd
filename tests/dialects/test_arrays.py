"""Compare the text of arrays, which frameworks put into their errors, with that of NumPy."""

from __future__ import annotations

from random import Random

import pytest

from ms_tune.dialects.values import array_repr, array_text

numpy = pytest.importorskip("numpy")


def test_arrays_of_any_length_are_broken_as_numpy_breaks_them() -> None:
    drawn = Random(5)  # noqa: S311 - made-up arrays, no secrets
    for length in range(1, 120):
        most = 10 ** drawn.randrange(1, 8)
        numbers = [drawn.randrange(most // 2, most) for _ in range(length)]
        array = numpy.array(numbers, numpy.int32)
        assert array_text((length,), numbers) == str(array)
        assert array_repr(numbers) == repr(array)
        assert array_text((1, length), numbers) == str(array.reshape(1, length))


def test_words_longer_than_a_line_have_lines_of_their_own() -> None:
    for lengths in ((80, 80), (73, 74, 75), (76, 1), (1, 76, 1)):
        words = [letter * length for letter, length in zip("abc", lengths, strict=False)]
        array = numpy.array([word.rjust(max(lengths)) for word in words], object)
        shown = numpy.array2string(array, formatter={"object": str})
        assert array_text((len(words),), words) == shown, lengths
