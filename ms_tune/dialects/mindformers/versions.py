"""What differs between the MindFormers releases 1.6 to 2.1, as far as layers are concerned.

Found by comparing the released sources: ``LayerSetting`` is in ``mindformers/models/utils.py`` for legacy models of
1.6 and, in a reduced form, in ``mindformers/parallel_core/training_graph/transformer/utils.py`` for the others; since
1.7 the latter file holds one class for both. 1.9, 2.0 and 2.1 have the same class to the letter.
"""

from __future__ import annotations

from typing import NamedTuple

from ms_tune.facts.releases import VERSIONS


class Rules(NamedTuple):
    """The rules of one release."""

    zero_bubble: bool  # knows `zero_bubble_v`, where the second chunk runs backwards (since 1.7)
    # Models that are not legacy ones have exclude lists, swap and stricter checks of their own, and their prediction
    # layers are not counted with the others (since 1.7).
    one_class: bool
    copies_lists: bool  # a list of the config is copied before it is written into (since 1.7; rows never are)
    timed_patterns: bool  # patterns are matched by the module `regex` with a time limit (since 1.7), before by `re`
    checks_cells: bool  # a cell without layers is refused, and a single cell takes any offset (since 1.8)
    places_with_swap: bool  # the stage of a layer is set also when swap is on (since 1.8)
    # Blanks that a line continued in the source leaves in the warning about a layer of a list that is both swapped and
    # recomputed.
    warning_gap: int


def rules_of(version: str) -> Rules:
    """The rules of a release in :data:`VERSIONS`."""
    place = VERSIONS.index(version)
    since_17, since_18, since_19 = (place >= VERSIONS.index(first) for first in ("1.7", "1.8", "1.9"))
    return Rules(
        zero_bubble=since_17,
        one_class=since_17,
        copies_lists=since_17,
        timed_patterns=since_17,
        checks_cells=since_18,
        places_with_swap=since_18,
        warning_gap=31 if since_19 else 35,
    )
