"""A check of the heads of legacy networks that only the compiler refuses (MindFormers 1.6 to 2.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.lint.checks import legacy_glm, legacy_llama

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.lint.context import Context, Violation


def uneven(context: Context) -> Iterator[Violation]:
    """Heads of keys and values that do not divide the attention heads."""
    yield from legacy_llama.uneven_key_heads(context)
    yield from legacy_glm.uneven_groups(context)
