"""Pipeline stages of ranks, by the layers of their parameters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ms_tune.footprint.result import RankReport

_LAYER = re.compile(r"(?:^|\.)(?:layers?|blocks?|h)\.(\d{1,6})\.")


def layers_of(rank: RankReport) -> frozenset[int]:
    """The numbers of the layers whose parameters the rank holds."""
    found = (_LAYER.search(name) for name in rank.contents.names.values())
    return frozenset(int(match[1]) for match in found if match)


def stages_of(ranks: Sequence[RankReport]) -> tuple[int | None, ...]:
    """The stage of each rank, counted among the stages that are present.

    Ranks of one stage hold the same layers, those of another stage other ones. None for ranks whose parameters have no
    names (the dynamic graph), and where all hold the same layers: there is no pipeline, or one stage of it only.
    """
    held = [layers_of(rank) for rank in ranks]
    different = sorted({layers for layers in held if layers}, key=min)
    if len(different) < 2:  # noqa: PLR2004 - one stage is no pipeline
        return tuple(None for _ in ranks)
    return tuple(different.index(layers) if layers else None for layers in held)
