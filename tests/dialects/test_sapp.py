"""Test the limits of SAPP's lists: the last accepted and the first refused value."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from ms_tune.enums import RecomputeMode
from ms_tune.errors import UsageError
from ms_tune.normalize import sapp_lists
from ms_tune.normalize.sapp_lists import MOST, SappLists, Sizes, Table, parse_sapp, plan_sapp

if TYPE_CHECKING:
    from ms_tune.text import Message

NONE = SappLists(None, None, None, None)


def refusal(lists: SappLists, layers: int = 8, stages: int = 2, chunks: int = 1) -> tuple[str, dict[str, object]]:
    with pytest.raises(UsageError) as refused:
        plan_sapp(lists, Sizes(layers, stages, chunks))
    return split_message(refused.value.message)


def split_message(message: Message) -> tuple[str, dict[str, object]]:
    return message.id.removeprefix("plans.sapp."), dict(message.params)


@pytest.mark.parametrize(
    "sizes", [(0, 1, 1), (1, 0, 1), (1, 1, 0), (MOST + 1, 1, 1), (MOST, MOST + 1, 1), (4, 2, MOST // 2 + 1)]
)
def test_sizes_beyond_all_bounds(sizes: tuple[int, int, int]) -> None:
    wanted = {**dict(zip(("layers", "stages", "chunks"), sizes, strict=True)), "limit": MOST}
    assert refusal(NONE, *sizes) == ("sizes", wanted)


@pytest.mark.parametrize(
    ("table", "size"), [([[1], [1]], "2 x 1"), ([[1, 1, 1]], "1 x 3"), ([[1, 1], [1, 1]], "2 x 2"), ([[1]], "1 x 1")]
)
@pytest.mark.parametrize("key", sapp_lists.KEYS)
def test_another_shape(key: str, table: Table, size: str) -> None:
    rows: list[Any] = [table if name == key else None for name in sapp_lists.KEYS]
    assert refusal(SappLists(*rows)) == ("shape", {"key": key, "size": size, "wanted": "1 x 2"})


@pytest.mark.parametrize(
    ("offset", "placed"), [([[1, 0]], 9), ([[-1, 0]], 7), ([[-5, 5]], 8), ([[5, -5]], 8), ([[-5, -5]], -2)]
)
def test_offsets_that_place_other_layers_than_there_are(offset: Table, placed: int) -> None:
    """The same if the sum is correct but a cell would have a negative number of layers."""
    assert refusal(SappLists(offset, None, None, None)) == ("offset", {"layers": 8, "placed": placed})


@pytest.mark.parametrize("key", sapp_lists.KEYS[1:])
@pytest.mark.parametrize(("row", "stage"), [([5, 0], 0), ([0, 5], 1), ([-1, 0], 0), ([0, -1], 1)])
def test_more_than_a_cell_holds_and_less_than_nothing(key: str, row: list[int], stage: int) -> None:
    rows: list[Any] = [[row] if name == key else None for name in sapp_lists.KEYS]
    where = {"key": key, "chunk": 0, "stage": stage, "number": row[stage], "count": 4}
    assert refusal(SappLists(*rows)) == ("too-many", where)


def test_kinds_that_do_not_count_the_layers_recomputed_in_full() -> None:
    where = {"chunk": 0, "stage": 1, "number": 2, "full": 3}
    select = SappLists(None, [[0, 3]], [[0, 2]], None)
    assert refusal(select) == ("not-cumulative", {"key": "select_recompute", **where})
    comm = SappLists(None, [[0, 3]], None, [[0, 2]])
    assert refusal(comm) == ("not-cumulative", {"key": "select_comm_recompute", **where})


def parse_refusal(text: str) -> tuple[str, dict[str, object]]:
    with pytest.raises(UsageError) as refused:
        parse_sapp(text)
    return split_message(refused.value.message)


@pytest.mark.parametrize(
    "value",
    [
        "[[1, 2], [3]]",
        "[[[1]]]",
        "[1, [2]]",
        "[]",
        "[[]]",
        "[1",
        "x",
        "[1.5]",
        f"[{MOST + 1}]",
        f"[-{MOST + 1}]",
        "[1 2]",
    ],
)
def test_what_is_no_table(value: str) -> None:
    assert parse_refusal(f"recompute: {value}\n") == ("not-a-table", {"key": "recompute"})


@pytest.mark.parametrize(
    ("value", "table"),
    [
        ("[1, 2]", [[1, 2]]),
        ("[1, 2,]", [[1, 2]]),
        ("[[1, 2], [3, 4],]", [[1, 2], [3, 4]]),
        (f"[{MOST}, -{MOST}]", [[MOST, -MOST]]),
        ("[[1,\n 2],\n [3, 4]]", [[1, 2], [3, 4]]),
        ("False,", None),
        ("None", None),
        ("null", None),
        ("0", None),
    ],
)
def test_what_is_one(value: str, table: Table | None) -> None:
    assert parse_sapp(f"recompute: {value}\n").recompute == table


def test_texts_without_lists_and_texts_too_long() -> None:
    longest = "x" * sapp_lists._LONGEST
    assert parse_refusal(longest)[0] == "nothing"
    assert parse_refusal(longest + "x") == ("too-long", {"limit": sapp_lists._LONGEST})
    assert parse_refusal("recompute: [1]\nrecompute: [1]\n") == ("twice", {"key": "recompute"})


def printed(kinds: list[list[list[int]]], fulls: list[list[list[int]]], *, named: bool = True) -> str:
    """Return SAPP's output for several kinds of layers: the layers per cell, and the fully recomputed ones."""
    text = ""
    for counts, full in zip(kinds, fulls, strict=True):
        layers, cells = sum(map(sum, counts)), sum(map(len, counts))
        even = layers // cells
        split = [[even] * len(row) for row in counts]
        offset = [[count - even for count in row] for row in counts]
        head = (
            f"- OUTPUT - layer_num = {layers}\n- OUTPUT - layer-to-stage assignment baseline is \n\t{split}\n"
            if named
            else ""
        )
        text += f"{head}- OUTPUT - \nTo put in yaml configuration:\n\toffset: {offset}\n\trecompute: {full}\n"
    return text


def total(tables: list[list[list[int]]]) -> list[list[int]]:
    return [[sum(cell) for cell in zip(*rows, strict=True)] for rows in zip(*tables, strict=True)]


def test_kinds_of_layers_are_added_up() -> None:
    random = Random(5)  # noqa: S311 - the same cases every time
    for _ in range(200):
        stages, chunks, kinds = random.randrange(1, 5), random.randrange(1, 4), random.randrange(2, 5)
        tables = [[[random.randrange(4) for _ in range(stages)] for _ in range(chunks)] for _ in range(kinds)]
        tables[0] = [[count + 1 for count in row] for row in tables[0]]  # MindFormers wants a layer in each cell
        fulls = [[[random.randrange(count + 1) for count in row] for row in table] for table in tables]
        counts, text = total(tables), printed(tables, fulls)
        layers = sum(map(sum, counts))
        plan = plan_sapp(parse_sapp(text), Sizes(layers, stages, chunks))
        assert plan.failure is None
        assert plan.placement == tuple(map(tuple, counts))
        assert sum(layer.recompute is RecomputeMode.FULL for layer in plan.layers) == sum(map(sum, total(fulls)))
        again = parse_sapp(text * 2)  # two results are no further kinds
        with pytest.raises(UsageError):
            plan_sapp(again, Sizes(layers, stages, chunks))


def test_the_published_example_of_dense_layers_and_experts() -> None:
    """The tool's readme shows the even split of three dense layers and thirteen with experts."""
    text = (
        "To put in yaml configuration:\n  offset: [[3, 0], [0, 0]]\n  recompute: [[0, 0], [0, 0]]\n"
        "- OUTPUT - layer-to-stage assignment baseline is\n        [[3, 3], [3, 3]]\n"
        "To put in yaml configuration:\n  offset: [[-1, 1], [0, 1]]\n  recompute: [[0, 0], [0, 0]]\n"
    )
    lists = parse_sapp(text)
    assert sapp_lists.rebase_offsets(lists, 16).offset == [[1, 0], [-1, 0]]
    assert plan_sapp(lists, Sizes(16, 2, 2)).placement == ((5, 4), (3, 4))
    for layers in (15, 12):
        with pytest.raises(UsageError):
            plan_sapp(lists, Sizes(layers, 2, 2))


def test_lists_that_are_there_again_need_to_say_of_what() -> None:
    text = printed([[[2, 1]], [[1, 2]]], [[[0, 0]], [[0, 0]]], named=False)
    assert parse_refusal(text) == ("twice", {"key": "offset"})
    text = printed([[[2, 1]], [[1, 2], [0, 0]]], [[[0, 0]], [[0, 0], [0, 0]]])
    assert parse_refusal(text) == ("twice", {"key": "offset"})
    many = printed([[[1, 1]]] * 9, [[[0, 0]]] * 9)
    assert parse_refusal(many) == ("twice", {"key": "offset"})
    assert parse_sapp(printed([[[1, 1]]] * 8, [[[0, 1]]] * 8)).recompute == [[0, 8]]
