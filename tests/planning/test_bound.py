"""Check the constraints of the integer search with every content of small cells."""

from __future__ import annotations

import itertools

import numpy as np

from ms_tune.enums import RecomputeMode
from ms_tune.planning.anneal import is_allowed
from ms_tune.planning.bound import _exclusive_rows, relaxation_of
from ms_tune.planning.costs import costs_of
from ms_tune.planning.table import LayerCost
from tests.planning.tables import CASE_E


def test_the_integer_search_and_the_other_one_allow_the_same_cells() -> None:
    modes = dict.fromkeys((RecomputeMode.NONE, RecomputeMode.SELECT, RecomputeMode.COMM), LayerCost(1))
    layers = (CASE_E.layers[0]._replace(layer_count=3, recompute=modes),)
    costs = costs_of(CASE_E._replace(stages=2, layers=layers))
    (rows, limits), binaries = _exclusive_rows(relaxation_of(costs))
    assert binaries == 2
    for counts in itertools.product(range(4), repeat=6):
        if sum(counts) == 3:
            choices = (np.array([*counts, 0, *chosen]) for chosen in itertools.product((0, 1), repeat=2))
            possible = any((rows @ choice <= limits).all() for choice in choices)
            assert possible == is_allowed(costs, np.array(counts).reshape(1, 2, 3))[0], counts
