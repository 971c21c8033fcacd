"""Change the arguments of Megatron programs for a simulation: few steps, synthetic data, nothing loaded or saved."""

from __future__ import annotations

import json
import struct
from array import array
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ms_tune.dryrun.launchers.arguments import OptionWords, ProgramSplit, parallel_of
from ms_tune.errors import UsageError
from ms_tune.facts.query import load
from ms_tune.text import msg

STEPS = 2  # the second one starts with optimizer state, like every later one
EACH_RANK = "rank_N"  # in an argument: replaced by the folder of the rank
_DATA, _TOKENIZER = "data", "tokenizer"  # file names in the job's folder


def simulation_arguments(
    arguments: Sequence[str], world: int, folder: Path, settings: Sequence[tuple[str, str | None]] = ()
) -> OptionWords:
    """Return the arguments with which a program is simulated, and their differences from the script.

    For programs other than Megatron's, only the user's settings are applied.
    """
    words, names = OptionWords(arguments), load("launchers")["megatron"]
    for option, value in settings:
        if value is None:
            words.drop([option])
        else:
            words.put(option, *value.split())
    if not all(name in words for name in names["known_by"]):
        return words
    words.drop(names["out"])
    _few_steps(words, names)
    if names["global_batch"] not in dict(settings):
        _few_micro_batches(words, names, world, parallel_of(words.arguments()) or ProgramSplit())
    _made_up(words, names, folder)
    words.put(names["no_initialisation"])
    return words


def _few_steps(words: OptionWords, names: Mapping[str, Any]) -> None:
    if names["samples"] in words:
        batch = words.number(names["global_batch"]) or 1
        words.put(names["samples"], str(STEPS * batch))
    else:
        words.put(names["steps"], str(STEPS))
    for option in names["warm_up"]:  # must be shorter than the training
        if option in words:
            words.put(option, "0")
    words.put(names["evaluation"], "0")


def _few_micro_batches(words: OptionWords, names: Mapping[str, Any], world: int, parallel: ProgramSplit) -> None:
    # Run twice as many micro-batches as stages, three times with several chunks: further ones only repeat them. 1F1B has at
    # most as many in flight as stages (Megatron-LM core_v0.12.1, ``megatron/core/pipeline_parallel/schedules.py``); for chunks
    # see :func:`~ms_tune.planning.schedule.enough_micro_batches`. The peak needs no more; fragmentation grows slightly with the
    # repetitions.
    micro, whole = words.number(names["micro_batch"]), words.number(names["global_batch"])
    ranks = parallel.tensor * parallel.pipeline * parallel.context
    if micro is None or whole is None or world % ranks:
        return
    each = micro * (world // ranks)
    layers = load("launchers")["layers"]
    chunks = any(layers[option] in words for option in ("chunks", "of_chunk"))
    enough = (3 if chunks else 2) * parallel.pipeline
    if not whole % each and whole // each > enough:
        words.put(names["global_batch"], str(each * enough))
        if names["samples"] in words:
            words.put(names["samples"], str(STEPS * each * enough))


def _made_up(words: OptionWords, names: Mapping[str, Any], folder: Path) -> None:
    sized = next((words.number(option) for option in names["vocabulary"] if words.number(option)), None)
    tokenizer = [option for option in names["tokenizer"] if option in words]
    absent = [option for option in tokenizer if not Path(" ".join(words.get(option) or [])).exists()]
    if absent:
        if sized is None:
            path = " ".join(words.get(absent[0]) or [])
            raise UsageError(
                msg("launch.vocabulary", option=absent[0], path=path),
                msg("launch.vocabulary.hint", option=names["vocabulary"][0].lstrip("-")),
            )
        place = folder / _TOKENIZER
        write_tokenizer(place)
        words.drop(option for option in tokenizer if option != names["tokenizer_folder"])
        words.put(names["tokenizer_type"], names["tokenizer_of_a_folder"])
        words.put(names["tokenizer_folder"], str(place))
    given = [option for option in names["data"] if option in words]
    if given:
        length = words.number(names["sequence"]) or 1
        packed = next((fields for option, fields in names["packed"].items() if option in words), None)
        if packed is None:
            write_data(folder / _DATA, length)
        else:
            write_packed(folder / _DATA, length, packed)
        words.drop(option for option in given if option != names["data"][0])
        words.put(names["data"][0], str(folder / _DATA))
        words.put(names["split"], "100,0,0")
        words.put(names["data_cache"], str(folder / EACH_RANK))


_MAGIC = b"MMIDIDX\x00\x00"  # megatron/core/datasets/indexed_dataset.py, Megatron-LM core_v0.12.1
_VERSION, _INT32 = 1, 4
_DOCUMENTS = 16
_WORDS = 100  # words of the tokenizer, and thus token numbers
_NO_LABEL = -100  # IGNORE_INDEX of mindspeed_llm/tasks/preprocess, MindSpeed-LLM v2.2.0
_ANSWERS = ("chosen_labels", "rejected_labels")
_SPECIAL = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}


def write_data(prefix: Path, length: int) -> None:
    """Write ``PREFIX.bin`` and ``PREFIX.idx``: few documents of low token numbers, since memory depends only on lengths."""
    _write_tokens(prefix, array("i", (number % _WORDS for number in range(length + 1))))


def write_packed(prefix: Path, length: int, fields: Iterable[str]) -> None:
    """Write fine-tuning data: ``PREFIX_packed_FIELD_document.bin`` and ``.idx`` for each field.

    Of two answers to compare, each is the second half of its sequence.
    """
    for field in fields:
        tokens = array("i", (1 + number % (_WORDS - 1) for number in range(length)))
        if field.endswith("attention_mask"):
            tokens = array("i", [1] * length)
        elif field in _ANSWERS:
            tokens = array("i", [_NO_LABEL] * (length // 2)) + tokens[length // 2 :]
        _write_tokens(prefix.with_name(f"{prefix.name}_packed_{field}_document"), tokens)


def _write_tokens(prefix: Path, tokens: array[int]) -> None:
    with prefix.with_suffix(".bin").open("wb") as file:
        for _ in range(_DOCUMENTS):
            tokens.tofile(file)
    size = len(tokens) * tokens.itemsize
    with prefix.with_suffix(".idx").open("wb") as file:
        file.write(_MAGIC + struct.pack("<QBQQ", _VERSION, _INT32, _DOCUMENTS, _DOCUMENTS + 1))
        array("i", [len(tokens)] * _DOCUMENTS).tofile(file)
        array("q", (number * size for number in range(_DOCUMENTS))).tofile(file)
        array("q", range(_DOCUMENTS + 1)).tofile(file)


def write_tokenizer(folder: Path) -> None:
    """Write the folder of a tokenizer with a hundred words, in the format of Hugging Face's ``AutoTokenizer``."""
    folder.mkdir(exist_ok=True)
    words = [*_SPECIAL.values(), *(f"word{number}" for number in range(_WORDS - len(_SPECIAL)))]
    added = [
        {
            "id": number,
            "content": word,
            "special": True,
            **dict.fromkeys(("normalized", "single_word", "lstrip", "rstrip"), False),
        }
        for number, word in enumerate(_SPECIAL.values())
    ]
    tokenizer = {
        "version": "1.0",
        "added_tokens": added,
        "pre_tokenizer": {"type": "Whitespace"},
        "model": {
            "type": "WordLevel",
            "vocab": {word: number for number, word in enumerate(words)},
            "unk_token": _SPECIAL["unk_token"],
        },
        **dict.fromkeys(("truncation", "padding", "normalizer", "post_processor", "decoder")),
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 1 << 30, **_SPECIAL}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
