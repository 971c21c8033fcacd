"""Run the queries of MindFormers and HyperParallel on several devices in simulation: ``python answers_program.py OUT``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import mindspore
import numpy as np
from mindspore import Tensor, mint
from mindspore.communication import create_group, init
from mindspore.mint.distributed import get_process_group_ranks, recv_object_list

from ms_tune.dryrun.child.pynative_compat import (
    know_who_is_in_a_group,
    receive_stage_input,
    spread_tokens_evenly,
)


class Dispatcher:
    """A layer that counts tokens on the device and reads the counts back, like ``ExpertParallel`` of MindFormers 2.1."""

    def split(self, chosen: Tensor, experts: int, ways: int) -> Any:  # noqa: ANN401 - lists of numbers
        """Return the tokens sent to and received from every rank."""
        counts = self._count_tokens_per_expert(chosen, experts)
        return self._derive_splits(mint.cat((counts, counts)).tolist(), experts, ways)

    def _count_tokens_per_expert(self, chosen: Tensor, experts: int) -> Tensor:
        return mint.histc(chosen.reshape(-1), experts, 0, experts)

    @staticmethod
    def _derive_splits(counts: list[int], experts: int, ways: int) -> tuple[list[int], list[int]]:
        own, others = counts[:experts], counts[experts:]
        share = experts // ways
        return tuple([sum(half[way * share :][:share]) for way in range(ways)] for half in (own, others))  # type: ignore[return-value]


class EarlierDispatcher:
    """A layer that multiplies counts, reads the products and orders rows by counts, like ``ExpertParallel`` of MindFormers 2.0."""

    def split(self, chosen: Tensor, experts: int, ways: int) -> Any:  # noqa: ANN401 - lists of numbers
        """Return the numbers sent to and received from every rank, and the number of ordered rows."""
        counts = self._count_tokens_per_expert(chosen, experts)
        sent, received, ends = self._compute_token_splits(counts, counts, ways)
        there, back = self._build_resort_index(counts, ways)
        sizes = [(one * 16).tolist() for one in (sent, received)]
        return [*sizes, list(there.shape), list(back.shape), list(ends.shape)]

    def _count_tokens_per_expert(self, chosen: Tensor, experts: int) -> Tensor:
        return mint.histc(chosen.reshape(-1), experts, 0, experts)

    def _compute_token_splits(self, own: Tensor, others: Tensor, ways: int) -> tuple[Tensor, Tensor, Tensor]:
        sent, received = (mint.sum(one.reshape(ways, -1), dim=-1) for one in (own, others))
        return sent, received, mint.cumsum(mint.sum(others.reshape(ways, -1), dim=-2), 0)

    def _build_resort_index(self, others: Tensor, ways: int) -> tuple[Tensor, Tensor]:
        rows = Tensor(np.arange(int(others.reshape(ways, -1).asnumpy().sum()), dtype=np.int32))
        return rows, rows


def main(out: Path) -> None:
    """Write what was answered."""
    mindspore.set_device("Ascend", 0)
    init()
    create_group("pair", [0, 2])
    chosen = mint.zeros((6, 2), dtype=mindspore.int32)
    before, earlier = Dispatcher().split(chosen, 8, 4), EarlierDispatcher().split(chosen, 8, 4)
    know_who_is_in_a_group()
    spread_tokens_evenly(Dispatcher)
    spread_tokens_evenly(EarlierDispatcher)
    receive_stage_input((128, 1, 64), "bfloat16")
    received: list[Any] = [None]
    recv_object_list(received, src=1)
    ((shape, dtype),) = received[0]
    answers = {
        "everybody": get_process_group_ranks(),
        "pair": get_process_group_ranks("pair"),
        "without an answer": before,
        "even": Dispatcher().split(chosen, 8, 4),
        "without an answer, 2.0": earlier,
        "even, 2.0": EarlierDispatcher().split(chosen, 8, 4),
        "handed": [shape, str(dtype)],
    }
    out.write_text(json.dumps(answers), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
