"""Compare predicted effects of remedies with the peak of the same trace with the remedy applied."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from ms_tune.enums import MemoryCategory
from ms_tune.footprint.breakdown import Expected, Theory
from ms_tune.footprint.category import Contents
from ms_tune.footprint.curve import ChangedLives, compute_curve
from ms_tune.footprint.layers import find_scoped_layers
from ms_tune.footprint.lifetimes import analyse_lifetimes
from ms_tune.footprint.phases import Phase
from ms_tune.footprint.remedies import (
    ContentBytes,
    MemoryRemedy,
    RemedyFacts,
    find_remedies,
    scale_remedies,
    sum_peak_contents,
)
from ms_tune.footprint.savings import recompute_all_layers
from ms_tune.footprint.steps import StepEvidence, Steps
from ms_tune.readers.memory_block import Block, Frame
from ms_tune.text import Language, Text
from tests.memory.reports import LLAMA, QWEN_8B, QWEN_TINY, rank_of
from tests.readers.rows import table_from
from tests.readers.samples import block


def known_of(blocks: list[Block]) -> RemedyFacts:
    table = table_from(blocks)
    contents, curve = Contents(table, None), compute_curve(table)
    lives = analyse_lifetimes(table, contents, curve, Steps((), StepEvidence.NONE))
    return RemedyFacts(
        table, contents, curve, recompute_all_layers(table, contents, curve), lives, Theory(0, 0, (), None, None)
    )


def kernel(start: int, end: int, path: str, size: int, users: tuple[int, ...] = ()) -> Block:
    reported = f"{{{'-'.join(map(str, users))}}}"
    return block(start, end, size, kind="Kernel", task_name=f"{start}_{path}", node_name=path, user_text=reported)


def test_a_peak_of_the_optimizer_is_not_lowered_by_recompute() -> None:
    layers = [kernel(10 + n, 60 - n, f"Default/net-Net/layers-CellList/{n}-Block/Dense-op{n}", 1000) for n in range(4)]
    backward = kernel(30, 33, "Gradients/Default/net-Net/layers-CellList/3-Block/Grad_Dense/MatMul-op9", 50)
    update = [kernel(70 + n, 90, f"Default/t-T/optimizer-AdamW/Mul-op{n}", 3000) for n in range(3)]
    known = known_of([*layers, backward, *update])
    assert known.curve.peak_bytes == 9000
    assert find_remedies(known) == ()
    rows = known.curve.rows[known.table.live_at(known.curve.peak_tick)[known.curve.rows]]
    assert sum_peak_contents(known, rows) == (ContentBytes(Phase.UPDATE, MemoryCategory.TEMPORARIES, 9000),)


@pytest.mark.parametrize("run", [QWEN_TINY, QWEN_8B, LLAMA, "gpt", "asc_gO0", "v_simple"])
@pytest.mark.slow
def test_remedies_of_real_runs(run: str) -> None:
    rank = rank_of(run)
    peak = rank.curve.peak_bytes
    assert sum(held.bytes for held in rank.held_at_peak) == peak
    freed = [remedy.bytes_freed for remedy in rank.remedies]
    assert freed == sorted(freed, reverse=True)
    for remedy in rank.remedies:
        assert 0 < remedy.bytes_freed == peak - remedy.peak_after_bytes
        assert remedy.title.zh != remedy.title.en
        assert all(remedy.how)
    names = {remedy.name: remedy for remedy in rank.remedies}
    static = "weight-sharding" in names
    shared = [MemoryCategory.OPTIMIZER_STATE, *([MemoryCategory.WEIGHTS] if static else [])]
    state = np.isin(rank.contents.codes, [list(MemoryCategory).index(content) for content in shared])
    lives = ChangedLives(rank.table, rank.curve)
    lives.size[state] = -(-lives.size[state] // 2)
    plain, _ = lives.peak_moment()
    name = "weight-sharding" if static else "optimizer-sharding"
    shown = names[name].peak_after_bytes if name in names else peak
    assert abs(shown - plain) * 1000 <= peak


def eager(start: int, end: int, name: str, size: int, line: int) -> Block:
    """Return a block of the dynamic graph's forward pass that one script line allocates."""
    frames = (
        Frame("/job/train.py", 9, "<module>"),
        Frame("/job/model.py", 30, "construct"),
        Frame("/job/model.py", line, "construct"),
    )
    return block(start, end, size, node_name=name, stack=frames)


def test_layers_of_a_dynamic_graph_are_what_repeats() -> None:
    blocks = [eager(1, 900, "Embedding", 40, 5)]
    for micro in range(2):
        for layer in range(4):
            at, end = 100 * micro + 10 * layer + 2, 100 * micro + 90 - 10 * layer
            blocks += [eager(at + place, end - place, f"op{place}", 1000 + place, 50 + place) for place in range(4)]
    known = known_of(blocks)
    assert known.curve.peak_bytes == 40 + 4 * 4006
    found = recompute_all_layers(known.table, known.contents, known.curve)
    # The output of each layer stays (1,003); the rest of the layer whose backward pass begins is recomputed.
    assert found.peak == 40 + 4 * 1003 + 3003


@pytest.mark.parametrize("folder", ["loss", "other"])
def test_a_loss_in_pieces_keeps_the_logits_and_two_copies_of_their_gradient(folder: str) -> None:
    def of_the_loss(start: int, end: int, name: str, size: int) -> Block:
        function = "construct" if start < 30 else "_pynative_func_grad_backward"
        frames = (Frame("/job/train.py", 9, "<module>"), Frame(f"/job/pynative/{folder}/loss.py", 140, function))
        return block(start, end, size, node_name=name, stack=frames)

    wide = 1200
    forward = [
        of_the_loss(10 + place, 20 if place < 3 else 40, name, wide)
        for place, name in enumerate(("Cast", "SubExt", "Exp", "SubExt"))
    ]
    backward = [of_the_loss(30 + place, 35, name, wide) for place, name in enumerate(("Exp", "ScatterAddExt", "Mul"))]
    gradient = of_the_loss(34, 50, "Cast", wide // 2)
    logits = eager(5, 60, "MatMulExt", wide // 2, 50)
    known = known_of([logits, *forward, *backward, gradient])
    assert known.curve.peak_bytes == wide // 2 + 4 * wide + wide // 2
    remedy_peaks = {remedy.name: remedy.peak_after_bytes for remedy in find_remedies(known)}
    # The logits, 2 W where three tensors of W were, and the gradient, which is whole.
    assert remedy_peaks.get("chunked-loss") == (wide // 2 + 2 * wide + wide // 2 if folder == "loss" else None)


def _activated(layer: int, *, recomputed: bool = False) -> list[Block]:
    """Return a layer with an activation function as MindSpore runs it, recomputed or not."""
    path, at, end = f"net-Net/layers-CellList/{layer}-Block/mlp-MLP/{{}}-op{layer}", 20 * layer, 400 - 20 * layer
    cell = f"activation_func-SwiGlu/{{}}-op{layer}"
    mark = "recompute_" if recomputed else ""

    def own(start: int, stop: int, name: str, size: int, *users: int) -> Block:
        marked = f"{mark}Default/" if name.startswith("activation") else "Default/"
        return kernel(start, stop, marked + path.format(name), size, users)

    split, silu = at + 14, at + 15
    first = [
        own(split, end - 1, cell.format("Split"), 1000, silu, end - 2),
        own(silu, end - 3, cell.format("SiLU"), 1000, at + 16, end - 4),
    ]
    if recomputed:
        first = [
            own(split, at + 17, cell.format("Split"), 1000, silu, at + 16),
            own(silu, at + 17, cell.format("SiLU"), 1000, at + 16),
        ]
        first += [
            own(end - 5, end - 1, cell.format("Split2"), 1000, end - 2),
            own(end - 5, end - 3, cell.format("SiLU2"), 1000, end - 4),
        ]
    return [
        own(at + 12, end - 4 if recomputed else at + 15, "fc1-Linear/MatMul", 1000, split, *[end - 5] * recomputed),
        *first,
        own(at + 16, end - 6, cell.format("Mul"), 500, at + 18, end - 7),
        own(at + 18, end + 14, "Add", 100, at + 22),
        kernel(end - 8, end - 7, f"Gradients/Default/{path.format('Grad_Add/Add')}", 1),
    ]


def test_what_recompute_of_an_activation_function_leaves() -> None:
    before, after = (
        known_of([row for layer in range(4) for row in _activated(layer, recomputed=recomputed)])
        for recomputed in (False, True)
    )
    found = {remedy.name: remedy for remedy in find_remedies(before)}
    # Of three layers the first product stays instead of its parts and their activation; the last layer uses all of it.
    assert before.curve.peak_bytes == 4 * 2600 + 1
    assert found["selective-recompute"].peak_after_bytes == after.curve.peak_bytes == 3 * 1600 + 3500
    assert "selective-recompute" not in {remedy.name for remedy in find_remedies(after)}


def test_gradients_of_four_bytes_for_weights_of_two_are_one_set() -> None:
    def sets(measured: int, expected: int, *, typed: bool) -> list[str]:
        blocks = [block(1, 9, measured, node_name="Empty"), block(2, 9, 100), eager(3, 5, "Dense", 1, 9)]
        known = known_of(blocks)
        theory = Theory(
            100, 1, (Expected(MemoryCategory.GRADIENTS, measured, expected, None, typed),), measured / 100, None
        )
        contents = Contents(known.table, None)
        contents.codes[0] = list(MemoryCategory).index(MemoryCategory.GRADIENTS)
        known = RemedyFacts(known.table, contents, known.curve, known.recompute, known.lifetimes, theory)
        return [remedy.name for remedy in find_remedies(known) if remedy.name == "one-set-of-gradients"]

    assert sets(200, 200, typed=True) == []
    assert sets(400, 200, typed=True) == ["one-set-of-gradients"]
    assert sets(200, 100, typed=False) == []
    assert sets(400, 100, typed=False) == ["one-set-of-gradients"]


def test_micro_batches_whose_layers_are_all_recomputed_are_no_layers() -> None:
    """The remainder of each micro-batch is the same, and freed before the next one begins, except for the embedding."""

    def micro_batches(*, together: bool) -> set[str]:
        blocks = [
            eager(
                100 * micro + place,
                (900 - 200 * micro if together else 100 * micro) + 90 - place,
                f"op{place}",
                1000,
                50 + place,
            )
            for micro in range(3)
            for place in range(2, 12)
        ]
        return {remedy.name for remedy in find_remedies(known_of(blocks))}

    assert "recompute" in micro_batches(together=True)
    assert "recompute" not in micro_batches(together=False)


@pytest.mark.parametrize(("operator", "named"), [("Cast", False), ("ResizeStorage", True), ("GroupedMatmulV4", False)])
def test_sharding_of_all_is_named_where_weights_are_gathered_and_no_experts_are_there(
    operator: str, *, named: bool
) -> None:
    layers = [eager(at, 100 - at, f"op{at}", 1000, 50 + at) for at in range(1, 20)]
    gathered = [eager(30, 35, "ResizeStorage", 1, 7)] if operator == "GroupedMatmulV4" else []
    weight = block(1, None, 5000, kind="Weight", node_name="w", task_name="PyNative")
    known = known_of([*layers, *gathered, eager(31, 36, operator, 1, 8), weight])
    names = {remedy.name for remedy in find_remedies(known)}
    assert ("full-sharding" in names) == named
    assert ("sequence-split" in names) == (operator == "Cast")


def test_it_is_said_where_a_figure_is_rough_and_nowhere_else() -> None:
    path = "Default/net-Net/layers-CellList/{}-Block/{}-op{}"
    layers = [
        kernel(10 + 10 * layer + place, 190 - 10 * layer - place, path.format(layer, name, layer), 1000 + place)
        for layer in range(4)
        for place, name in enumerate(("Dense", "GeLU", "Add"))
    ]
    layers.append(kernel(150, 151, "Gradients/Default/net-Net/layers-CellList/3-Block/Grad_Add/Mul-op1", 1))
    update = kernel(200, 210, "Default/t-T/optimizer-AdamW/Mul-op1", 8000)
    blocks = [
        eager(10 * layer + place, 90 - 10 * layer - place, f"op{place}", 1000, 50 + place)
        for layer in range(4)
        for place in range(4)
    ]
    for rows, rough in ((layers, True), ([*layers, update], False), (blocks, False)):
        found = {remedy.name: remedy for remedy in find_remedies(known_of(rows))}
        assert (
            "swap" not in found
        )  # no MindFormers, or no lazy_inline: the tensors that MindSpore would move are unknown
        for language in Language:
            assert ("3 %" in found["recompute"].price.say(language)) == rough


@pytest.mark.parametrize(
    ("cells", "operator", "outputs", "moved"),
    [
        ("decoder-TransformerBlock/layers-CellList", "Add", 1, True),
        (
            "decoder-TransformerBlock/layers-CellList",
            "Split",
            2,
            False,
        ),  # of several outputs those that other gradients read stay
        (
            "decoder-TransformerBlock/layers-CellList",
            "RmsNorm",
            2,
            True,
        ),  # and those that its own gradient reads do not
        ("net-Net/layers-CellList", "Add", 1, False),  # not MindFormers': the primitives in a cell are unknown
    ],
)
def test_what_swap_moves_out(cells: str, operator: str, outputs: int, *, moved: bool) -> None:
    """Two layers; the second one's weight is copied like the first one's, which indicates ``lazy_inline``."""
    forward = [
        kernel(place, end, f"Default/{path}", size, users)
        for layer in range(2)
        for at in [20 * layer]
        for place, end, path, size, users in [
            (at + 1, at + 90, "TensorMove-op1", 1, (at + 3,)),
            *(
                (
                    at + 3 + one,
                    90 - at,
                    f"{cells}/{layer}-TransformerLayer/{operator}-op{layer}",
                    1000,
                    (at + 6, 84 - at),
                )
                for one in range(outputs)
            ),
            (at + 6, at + 9, f"{cells}/{layer}-TransformerLayer/Cast-op{layer}", 10, (at + 8,)),
            (at + 8, at + 11, f"{cells}/{layer}-TransformerLayer/Dense-op{layer}", 10, (at + 10,)),
            (at + 10, at + 24, f"{cells}/{layer}-TransformerLayer/AddExt-op{layer}", 10, (at + 23,)),
        ]
    ]
    backward = [
        kernel(
            84 - 20 * layer + place,
            95,
            f"Gradients/Default/{cells}/{layer}-TransformerLayer/Grad_{operator}/{name}",
            1,
            (),
        )
        for layer in range(2)
        for place, name in (
            (-2, f"Mul-op{layer}"),
            (0, f"{operator}Grad-op{layer}" if operator == "RmsNorm" else f"Mul-op1{layer}"),
        )
    ]
    known = known_of([*forward, *backward])
    found = {remedy.name: remedy.peak_after_bytes for remedy in find_remedies(known)}
    assert ("swap" in found) == moved
    if moved:  # only those of one layer at a time
        assert outputs * 1000 < found["swap"] < known.curve.peak_bytes - outputs * 1000 + 50


def _passes(most: int, batches: int = 6) -> list[Block]:
    """Return a pipeline stage with this many micro-batches in flight: each keeps 1,000 bytes, 200 more are transient."""
    order = [("F", n) for n in range(most)]
    for n in range(batches):
        order += [("B", n), *([("F", n + most)] if n + most < batches else [])]
    at = {one: 10 * place + 10 for place, one in enumerate(order)}
    path = "net-Net/layers-CellList/0-Block/{}-op{}"
    blocks = []
    for n in range(batches):
        first, back = at["F", n], at["B", n]
        blocks += [
            kernel(first, first + 3, f"Default/{path.format('MatMul', n)}", 200),
            kernel(first + 2, back + 6, f"Default/{path.format('GeLU', n)}", 600),
            kernel(first + 4, back + 5, f"Default/{path.format('Add', n)}", 400),
            kernel(back, back + 8, f"Gradients/Default/{path.format('Grad_Add/Add', n)}", 50),
        ]
    return blocks


def test_one_micro_batch_less_in_flight_leaves_what_a_run_with_less_has() -> None:
    def limited_search(most: int) -> tuple[int, int | None]:
        known = known_of(_passes(most))
        after = {remedy.name: remedy.peak_after_bytes for remedy in find_remedies(known)}
        return known.curve.peak_bytes, after.get("fewer-in-flight")

    peaks = {most: limited_search(most) for most in (1, 2, 3, 4)}
    assert peaks == {1: (1050, None), 2: (2050, None), 3: (3050, peaks[2][0]), 4: (4050, peaks[3][0])}


def shared(layer: int, step: int = 0) -> list[Block]:
    """Return a layer's blocks where MindSpore assigns operators directly in its class to the scope of the first layer."""
    path, at = "Default/net-Net/layers-CellList/{}-Block/{}-op{}", 1000 * step + 10 * layer
    end = 1000 * step + 190 - 10 * layer
    return [
        kernel(at + 10, at + 13, path.format(layer, "wide-Dense/MatMul", step), 5000),
        kernel(at + 12, end - 1, path.format(layer, "wide-Dense/BiasAdd", step), 1000),
        kernel(at + 14, end - 2, path.format(layer, "act-GELU/GeLU", step), 1000),
        kernel(at + 16, end + 8, path.format(0, "Add", 4 * step + layer), 100),
    ]


def test_what_a_layer_hands_on_may_have_the_scope_of_another() -> None:
    blocks = [row for step in range(2) for layer in range(4) for row in shared(layer, step)]
    known = known_of(blocks)
    found = find_scoped_layers(known.table, known.contents)
    assert [(layer.begin, layer.end) for layer in found[:4]] == [(10 * n + 10, 10 * n + 16) for n in range(4)]
    assert len(found) == 8
    # The outputs of layers stay. While the last layer is recomputed: its product in addition to one of the two.
    assert known.curve.peak_bytes == 3 * 2100 + 6000
    assert known.recompute.peak == 4 * 100 + 6000


def test_a_weight_in_another_format_stays_unless_layers_are_one_graph() -> None:
    def peak(*, one_graph: bool) -> int:
        path = "Default/net-Net/layers-CellList/{}-Block/{}-op0"
        blocks = [kernel(5, 6, "Default/net-Net/embed-Dense/MatMul-op0", 1)]
        for layer in range(4):
            at, end, weight = 10 * layer + 10, 190 - 10 * layer, f"layers.{layer}.weight"
            blocks += [
                block(1, 900, 600, kind="Weight", task_name="Prepare", node_name=weight, user_text=f"{{{at + 1}}}"),
                kernel(at, end, "Default/TensorMove-op0" if one_graph else path.format(layer, "norm-Norm/Norm"), 10),
                kernel(at + 1, end, path.format(layer, "wide-Dense/Cast"), 300),
                kernel(at + 2, end, path.format(layer, "wide-Dense/MatMul"), 1000),
                kernel(at + 6, end + 8, path.format(layer, "Add"), 100),
            ]
        return known_of(blocks).recompute.peak

    kept = 4 * 600 + 4 * 100 + 1010
    assert peak(one_graph=False) == kept + 4 * 300
    assert peak(one_graph=True) == kept + 300


def test_savings_are_scaled_like_the_peak_of_their_runs() -> None:
    """Ten layers from runs with two and four: a layer has 100 bytes, of which a remedy frees 40."""
    plain = Text("", "")
    runs = [
        (50 + 100 * layers, [MemoryRemedy("recompute", plain, 40 * layers, 50 + 60 * layers, plain, plain, {}, "")])
        for layers in (2, 4)
    ]
    (scaled,) = scale_remedies(1050, [Fraction(-3), Fraction(4)], runs)
    assert (scaled.bytes_freed, scaled.peak_after_bytes) == (400, 650)
    nothing_with_two = [(runs[0][0], []), runs[1]]
    (scaled,) = scale_remedies(1050, [Fraction(-3), Fraction(4)], nothing_with_two)
    assert scaled.bytes_freed == 4 * 160
    assert scale_remedies(1050, [Fraction(-3), Fraction(4)], [runs[0], (450, [])]) == ()
