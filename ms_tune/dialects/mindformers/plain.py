"""Describe the model of a static graph whose class is not known, as a plain transformer of the sizes that the config states.

Old releases have classes of their own for BERT, T5, ViT, MAE, CLIP, BLIP-2 and PanguAlpha (MindFormers 0.3 to 1.3, ``mindformers/models``),
and users' repositories have others. Their weights are those of a transformer's layers, up to a few percent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from math import prod

from ms_tune.dialects.job_parts import Encoder, MultimodalModel
from ms_tune.dialects.sections import find_section
from ms_tune.facts.multimodal import arguments_for
from ms_tune.records import Any

_FORWARD = ("predict", "eval", "export")
_HIDDEN, _LAYERS, _WORDS, _SEQUENCE = "--hidden-size", "--num-layers", "--vocab-size", "--seq-length"
_INNER, _HEADS = "--ffn-hidden-size", "--num-attention-heads"
_MATRICES = 4  # of attention
# Least share of 16 bytes per parameter: weights and moments in float32, without gradients; the same on one of eight ranks.
_STATE, _SHARDED = 0.75, 0.1


def describe_plain_model(values: Mapping[str, Any]) -> MultimodalModel | None:
    """Return the model and the split of a config; None if it does not train, or a size is missing."""
    if values.get("run_mode") in _FORWARD:
        return None
    model = find_section(find_section(values, "model"), "model_config")
    stacks = [stack for section in (model, *model.values()) if (stack := _read_stack(section))]
    if not stacks:
        return None
    stacks.sort(key=_count_weights, reverse=True)
    main, *others = stacks
    words = [word for name, number in main.items() for word in (name, str(number))]
    encoders = tuple(
        Encoder(
            (),
            one[_LAYERS],
            _count_weights(one) // one[_LAYERS],
            8 * one[_HIDDEN] + one[_INNER],
            one[_SEQUENCE],
            trained=True,
        )
        for one in others
    )
    shards = find_section(values, "parallel").get("enable_parallel_optimizer") is True
    words += [*_list_run_arguments(values, model), "--ai-framework", "mindspore"]
    return MultimodalModel(tuple(words), encoders, devices=_count_ranks(values), least=_SHARDED if shards else _STATE)


def _read_stack(section: object) -> dict[str, int] | None:
    if not isinstance(section, dict):
        return None
    words = list(arguments_for(section))
    found = {name: int(value) for name, value in pairwise(words) if value.isdigit() and name.startswith("--")}
    if not (found.get(_HIDDEN) and found.get(_LAYERS) and found.get(_HEADS)):
        return None
    image, patch = section.get("image_size"), section.get("patch_size")
    if isinstance(image, int) and isinstance(patch, int) and patch > 0:
        found.setdefault(_SEQUENCE, (image // patch) ** 2 + 1)
    found.setdefault(_SEQUENCE, section.get("max_position_embeddings") or 1)
    return {_INNER: 4 * found[_HIDDEN], _WORDS: 1, **found}


def _count_weights(stack: Mapping[str, int]) -> int:
    return stack[_LAYERS] * stack[_HIDDEN] * (_MATRICES * stack[_HIDDEN] + 2 * stack[_INNER])


def _count_ranks(values: Mapping[str, Any]) -> int | None:
    split = find_section(values, "parallel_config")
    counts = [split.get(name, 1) for name in ("data_parallel", "model_parallel", "pipeline_stage")]
    known = "data_parallel" in split and all(isinstance(one, int) and one > 0 for one in counts)
    return prod(counts) if known else None


def _list_run_arguments(values: Mapping[str, Any], model: Mapping[str, Any]) -> Iterator[str]:
    split, run = find_section(values, "parallel_config"), find_section(values, "runner_config")
    batch = next(
        (one for one in (run.get("batch_size"), model.get("batch_size")) if isinstance(one, int) and one > 0), 1
    )
    given = {
        "--tensor-model-parallel-size": split.get("model_parallel"),
        "--pipeline-model-parallel-size": split.get("pipeline_stage"),
        "--micro-batch-size": batch,
    }
    for name, number in given.items():
        yield from (name, str(number)) if isinstance(number, int) and number > 0 else ()
    if find_section(values, "recompute_config").get("recompute") is True:
        yield from ("--recompute-granularity", "full", "--recompute-method", "uniform", "--recompute-num-layers", "1")
