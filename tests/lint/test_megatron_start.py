"""Test how a launch script starts its programs, and numbers that prevent training."""

from __future__ import annotations

from pathlib import Path

import pytest

from ms_tune.enums import Dialect
from ms_tune.lint.checklist import built_in
from ms_tune.lint.engine import lint
from tests.jobs import commands_in

MODEL = "--num-layers 8 --hidden-size 64 --num-attention-heads 8 --seq-length 4096 --max-position-embeddings 4096"
RUN = f"msrun --worker_num 8 --local_worker_num 8 pretrain_gpt.py --ai-framework mindspore {MODEL}"
TORCH = f"torchrun --nproc_per_node 8 pretrain_gpt.py {MODEL}"
CP = "--context-parallel-algo ulysses_cp_algo --context-parallel-size"
HYBRID = "--context-parallel-algo hybrid_cp_algo --context-parallel-size 4"
OWN = ("MST145", "MST175", *(f"MST{number}" for number in range(185, 199)))


def lint_script(text: str, *own: str) -> list[tuple[str, str]]:
    every = [
        one
        for command in commands_in(Path("pretrain_x.sh"), text, "2.3")
        if not command.supposed
        for one in lint(command, Dialect.MEGATRON, built_in(Dialect.MEGATRON), "2.3")
    ]
    return [(one.id, str(one.message)) for one in every if one.id in (own or OWN)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (RUN.replace("--worker_num", "--workers_num"), "msrun has no option --workers_num; did you mean --worker_num?"),
        (TORCH.replace("--nproc", "--strange 3 --nproc"), "torchrun has no option --strange"),
        (
            TORCH.replace("--nproc_per_node", "--nproc-per-nodes"),
            "torchrun has no option --nproc_per_nodes; did you mean",
        ),
        (
            TORCH.replace("8 pre", "8 --nnodes 2 --node_rank 2 pre"),
            "machine number 2 does not exist: there are 2 machines, counted from 0",
        ),
        (
            RUN.replace("num 8 pre", "num 4 --node_rank 2 pre"),
            "machine number 2 does not exist: there are 2 machines, counted from 0",
        ),
        (TORCH.replace("8 pre", "8:8 pre"), "--nproc_per_node needs an integer, not '8:8'"),
        (TORCH.replace("8 pre", "8 --master_port 65536 pre"), "port 65536 does not exist: the highest is 65535"),
        (
            f"{RUN} \\ \n    --train-iters=5\n",
            "bash treats --train-iters as a command, because the line before does not continue",
        ),
        (f"export A = 1\n{RUN}", "A is not set, because there is a blank before the equals sign"),
        (f"{RUN} --log-interval 0", "--log-interval is 0, but must be at least 1"),
        (f"{RUN} --adam-beta2 1.0", "--adam-beta2 is 1.0, but must be at least 0 and below 1"),
        (
            f"{RUN} --train-iters 20 --lr-warmup-fraction 0.1 --lr-warmup-iters 9",
            "MindSpeed-LLM 2.3 refuses these values of --train-iters, --lr-warmup-fraction, --lr-warmup-iters: ",
        ),
        (f"{RUN} --num-query-groups 2", "--num-query-groups 2 has no effect without --group-query-attention"),
        (f"{RUN} --save out", "MindSpeed-LLM 2.3 refuses these values of --save, --save-interval: "),
        (
            f"{RUN} --seq-length 4088 --tensor-model-parallel-size 8 --context-parallel-size 2 --sequence-parallel",
            "2044 tokens of the sequence (CP 2) cannot be split over TP 8",
        ),
        (f"{RUN} {CP} 2 --tensor-model-parallel-size 8", "8 heads cannot be split over TP 8 x 2 CP ranks"),
        (f"{RUN} {HYBRID}", "hybrid_cp_algo needs --ulysses-degree-in-cp"),
        (f"{RUN} {HYBRID} --ulysses-degree-in-cp 3", "--ulysses-degree-in-cp 3 does not leave a ring for CP 4"),
        (
            f"{RUN} {HYBRID} --ulysses-degree-in-cp 2 --tensor-model-parallel-size 8",
            "8 heads cannot be split over TP 8 x 2 CP ranks",
        ),
        (f"{RUN} --data-path a --valid-data-path b", "--data-path and --valid-data-path cannot be used together"),
        (f"{RUN} --start-weight-decay 0.1", "--start-weight-decay is not accepted if the weight decay is constant"),
        (
            f"{RUN} --weight-decay-incr-style cosine --end-weight-decay 0.1",
            "a cosine weight decay needs --start-weight-decay",
        ),
        (f"{RUN} --hidden-dropout 1.5", "--hidden-dropout is 1.5, but must be at least 0 and below 1"),
    ],
)
def test_each_of_them(text: str, expected: str) -> None:
    ((_, message),) = lint_script(text)
    assert message.startswith(expected)


@pytest.mark.parametrize(
    "text",
    [
        RUN,
        TORCH.replace("--nproc_per_node", "--nproc"),  # argparse accepts an unambiguous prefix
        TORCH.replace("8 pre", "8 --nnodes $N --node_rank 3 pre"),
        TORCH.replace("8 pre", "8 --nnodes 2:4 --node_rank 3 pre"),
        RUN.replace("8 pre", "8 --node_rank 3 pre"),  # one machine: msrun reports that it ignores it
        f"# export A = 1\n{RUN}",
        f"cat > set.sh << END\nexport A = 1\nEND\n{RUN}",
        f"{RUN} --lr-warmup-fraction 0.1 --lr-warmup-iters 0",  # as the code requires
        f"{RUN} --num-query-groups 2 --group-query-attention",
        f"{RUN} --num-query-groups 2 $MORE",
        f"{RUN} --save out $MORE",
        f"{RUN} --micro-batch-size $MBS",
        f"{RUN} --seq-length 4095 --tensor-model-parallel-size 2 --sequence-parallel --variable-seq-lengths",
        f"ls\n-x\n{RUN}",
        f"{RUN} {CP} 8",
        f"{RUN} {CP} $CP --tensor-model-parallel-size 8",
        f"{RUN} {HYBRID} --ulysses-degree-in-cp 2",
        f"{RUN} --train-data-path a --valid-data-path b",
    ],
)
def test_what_is_right_or_unknown_is_left_alone(text: str) -> None:
    assert lint_script(text) == []


def test_words_of_a_number_are_no_sentence() -> None:
    """``your tp size`` is a placeholder for the user; ``2 4`` is two numbers, of which the parser uses one."""
    ask = f"{RUN} --tensor-model-parallel-size $TP"
    assert lint_script(f'TP="2 4"\n{ask}', "MST151") == [
        ("MST151", "'4' after --tensor-model-parallel-size does not belong to any argument")
    ]
    assert lint_script(f'TP="your size"\n{ask}', "MST151") == []


def test_one_dash_is_none_of_two() -> None:
    assert [one for one, _ in lint_script(f"{RUN} -data-path x", "MST150")] == ["MST150"]
    assert lint_script(f"{RUN} --lr -1.5", "MST150") == []
