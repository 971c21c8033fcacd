"""Generate random arguments of MindSpeed-LLM's programs that concern layers, valid and invalid, some left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

# Arguments that every program needs and that do not concern layers.
ALWAYS = (
    *("--hidden-size", "64", "--num-attention-heads", "4", "--micro-batch-size", "1", "--seq-length", "64"),
    *("--max-position-embeddings", "64", "--train-iters", "2000", "--position-embedding-type", "rope", "--bf16"),
    *("--transformer-impl", "local"),  # the other one needs Transformer Engine, which does not concern layers
)
_SHARED = ("--expert-model-parallel-size", "2", "--moe-token-dispatcher-type")
# Overlap of the experts' communication with computation, with its requirements.
_OVERLAPS = (
    ("--moe-alltoall-overlap-comm", *_SHARED, "alltoall"),
    ("--moe-alltoall-overlap-comm", *_SHARED, "alltoall_seq", "--moe-permutation-async-comm"),
    ("--moe-allgather-overlap-comm", *_SHARED, "allgather", "--moe-permutation-async-comm"),
)


def random_arguments(random: Random) -> list[str]:
    """Return the arguments of one program."""
    stages = random.choice((1, 1, 2, 2, 2, 3, 4, 4, 8))
    chunks = random.choice((1, 1, 1, 2, 2, 3))
    share = random.randint(1, 4)
    layers = stages * chunks * share if random.random() < 0.95 else random.randint(1, 24)
    found = [*ALWAYS, "--num-layers", str(layers)]
    if stages > 1 or random.random() < 0.3:
        found += ["--pipeline-model-parallel-size", str(stages)]
    found += _placement(random, layers, stages, chunks)
    found += _kinds(random, layers, stages)
    found += _recompute(random, layers, stages)
    tensor = (
        "--tensor-model-parallel-size" in found
    )  # with experts over several ranks it needs more, which does not concern layers
    if "--moe-grouped-gemm" in found and not tensor and random.random() < 0.3:
        found += random.choice(_OVERLAPS)
    return found


def _maybe(random: Random, chance: float, *words: str) -> list[str]:
    return list(words) if random.random() < chance else []


def _count(random: Random, most: int) -> str:
    return str(random.randint(1, max(most, 1)) if random.random() < 0.97 else random.choice((0, most + 1, 2 * most)))


def _placement(random: Random, layers: int, stages: int, chunks: int) -> list[str]:
    found: list[str] = []
    if chunks > 1 and random.random() < 0.8:
        of_chunk = str(max(layers // stages // chunks, 1))
        found += random.choice(
            (
                ["--num-layers-per-virtual-pipeline-stage", of_chunk],
                ["--num-layers-per-virtual-pipeline-stage", of_chunk],
                ["--num-virtual-stages-per-pipeline-rank", str(chunks)],
            )
        )
    found += _maybe(random, 0.02, "--num-layers-per-virtual-pipeline-stage", _count(random, 3))
    found += _maybe(random, 0.02, "--num-virtual-stages-per-pipeline-rank", str(random.randint(1, 3)))
    found += _maybe(random, 0.03, "--no-overlap-p2p-communication")
    if random.random() < 0.1:
        # Together they add two layers: valid with two stages, or with two layers fewer.
        found += _maybe(random, 0.8, "--account-for-embedding-in-pipeline-split")
        found += _maybe(random, 0.8, "--account-for-loss-in-pipeline-split")
        less = sum(word.startswith("--account") for word in found)
        if layers > less and random.random() < 0.8:
            found += ["--num-layers", str(layers - less)]
    elif random.random() < 0.08:
        found += _maybe(random, 0.7, "--decoder-first-pipeline-num-layers", _count(random, layers // stages + 1))
        found += _maybe(random, 0.7, "--decoder-last-pipeline-num-layers", _count(random, layers // stages + 1))
    if random.random() < (0.02 if chunks > 1 or stages == 1 else 0.12):
        found += ["--num-layer-list", ",".join(map(str, _shares(random, layers, stages)))]
    if random.random() < (0.02 if "--num-layer-list" in found else 0.18):
        noop = sorted(random.sample(range(layers + (random.random() < 0.05)), random.randint(1, min(layers, 3))))
        found += [
            "--noop-layers",
            ",".join(map(str, noop)) + random.choice(("", "", "", "", ",x", ", 1"))[: 2 * (random.random() < 0.05)],
        ]
    if random.random() < (0.01 if {"--num-layer-list", "--noop-layers"} & {*found} else 0.06):
        rows = [_shares(random, share, chunks) for share in _shares(random, layers, stages)]
        found += ["--pipeline-num-transformer-layers", str(rows).replace(" ", "")]
    if (
        random.random() < (0.12 if stages > 1 and chunks == 1 else 0.01)
        and "--num-virtual-stages-per-pipeline-rank" not in found
    ):
        found += ["--schedules-method", "dualpipev"]
        found += _maybe(random, 0.9, "--untie-embeddings-and-output-weights")
        found += _maybe(random, 0.95, "--global-batch-size", str(random.choice((1, 16, 32))))
    return found


def _shares(random: Random, total: int, parts: int) -> list[int]:
    cuts = sorted(random.randint(0, total) for _ in range(parts - 1))
    shares = [end - start for start, end in zip([0, *cuts], [*cuts, total], strict=True)]
    if random.random() < 0.06:
        shares[-1] += random.choice((-1, 1)) if shares[-1] else 1
    if random.random() < 0.04:
        shares.append(1)
    return shares


def _kinds(random: Random, layers: int, stages: int) -> list[str]:
    found: list[str] = []
    if random.random() < 0.35:
        found += ["--num-experts", "8"]
        found += _maybe(random, 0.4, "--moe-grouped-gemm")
        found += _maybe(random, 0.4, "--moe-layer-freq", str(random.randint(1, 3)))
        found += _maybe(random, 0.1, "--moe-layer-recompute")
    found += _maybe(random, 0.25, "--first-k-dense-replace", _count(random, layers // stages))
    found += _maybe(random, 0.12, "--mtp-num-layers", str(random.randint(1, 2)))
    return found


def _recompute(random: Random, layers: int, stages: int) -> list[str]:
    found: list[str] = []
    kind = random.random()
    if kind < 0.5:
        found += _maybe(random, 0.97, "--recompute-granularity", "full")
        found += _maybe(random, 0.97, "--recompute-method", random.choice(("block", "block", "uniform")))
        found += _maybe(random, 0.97, "--recompute-num-layers", _count(random, layers // stages))
    elif kind < 0.65:
        found += random.choice((["--recompute-granularity", "selective"], ["--recompute-activations"]))
        names = ["core_attn", "layernorm", "mlp", "moe", "moe_act", "mla_up_proj"]
        found += _maybe(random, 0.6, "--recompute-modules", *random.sample(names, random.randint(0, 4)))
        found += _maybe(random, 0.03, "--recompute-method", "block")
        found += _maybe(random, 0.03, "--recompute-num-layers", "1")
    else:
        found += _maybe(random, 0.1, "--recompute-num-layers", _count(random, 3))
        found += _maybe(random, 0.1, "--recompute-method", "block")
    for name in ("activation-function", "norm"):
        found += _maybe(random, 0.3, f"--recompute-{name}")
        found += _maybe(
            random, 0.15, f"--recompute-{name}-num-layers", random.choice((*[_count(random, layers)] * 15, "-1"))
        )
    found += _maybe(random, 0.2, "--enable-recompute-layers-per-pp-rank")
    early = random.random()
    if early < 0.04:
        found += ["--recompute-in-advance"] if early < 0.02 else ["--recompute-in-bubble"]
        found += _maybe(random, 0.1, "--no-overlap-p2p-communication")
        found += _maybe(random, 0.1, "--no-align-grad-reduce")
    found += _maybe(random, 0.08, "--swap-attention")
    found += _maybe(random, 0.02, "--distribute-saved-activations")
    found += _maybe(random, 0.05, "--tensor-model-parallel-size", "2")
    found += _maybe(random, 0.03, "--sequence-parallel")
    return found
