"""Which of two alike blocks is freed first decides what a pool loses, and nothing else about the requests."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from ms_tune.pools.workload import Request, Workload, free_order_variants, make_workload


def asked(*lives: tuple[int, int, int | None]) -> Workload:
    """Requests of these sizes, each with its start and its end."""
    return make_workload(Request(size, start, end) for size, start, end in lives)


def test_either_of_two_alike_blocks_may_live_longer() -> None:
    work = asked((512, 0, 3), (512, 1, 9), (1024, 2, 4))
    found = [[request.end for request in other.requests] for other in free_order_variants(work)]
    assert sorted(map(str, found)) == ["[3, 9, 4]", "[9, 3, 4]"]


def test_what_is_not_alike_stays() -> None:
    for second in (
        Request(1024, 1, 9),  # another size
        Request(512, 1, 9, stream=1),
        Request(512, 1, 9, persistent=True),
        Request(512, 1, 3),  # freed together
    ):
        assert list(free_order_variants(make_workload([Request(512, 0, 3), second]))) == []
    apart = asked((512, 0, 2), (1024, 1, 3), (512, 4, 9))
    assert list(free_order_variants(apart)) == []


@given(st.lists(st.tuples(st.sampled_from([512, 1024]), st.integers(1, 9)), min_size=2, max_size=20))
def test_as_much_is_in_use_at_every_moment(made: list[tuple[int, int]]) -> None:
    work = asked(*((size, tick, tick + life) for tick, (size, life) in enumerate(made)))

    def used(one: Workload) -> list[int]:
        return [
            sum(request.size for request in one.requests if request.start <= tick < (request.end or 0))
            for tick in range(40)
        ]

    for other in free_order_variants(work):
        assert Counter(request.end for request in other.requests) == Counter(request.end for request in work.requests)
        assert used(other) == used(work)
