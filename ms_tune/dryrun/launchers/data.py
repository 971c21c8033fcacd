"""Made-up training data in the form that Megatron's programs read: an indexed data set, and a tokenizer's folder.

Memory depends on lengths and never on tokens, so that a few documents of low token numbers will do.
"""

from __future__ import annotations

import json
import struct
from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_MAGIC = b"MMIDIDX\x00\x00"  # megatron/core/datasets/indexed_dataset.py, Megatron-LM core_v0.12.1
_VERSION, _INT32 = 1, 4
_DOCUMENTS = 16
_WORDS = 100  # of the tokenizer, and so token numbers
_NO_LABEL = -100  # IGNORE_INDEX of mindspeed_llm/tasks/preprocess, MindSpeed-LLM v2.2.0
_ANSWERS = ("chosen_labels", "rejected_labels")
_SPECIAL = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}


def write_data(prefix: Path, length: int) -> None:
    """Write ``PREFIX.bin`` and ``PREFIX.idx``.

    Args:
        prefix: The path without its ending.
        length: Tokens of a sample; every document has one more.
    """
    _write(prefix, array("i", (number % _WORDS for number in range(length + 1))))


def write_packed(prefix: Path, length: int, fields: Iterable[str]) -> None:
    """Write the data of a tuning, ``PREFIX_packed_FIELD_document.bin`` and ``.idx`` for each field.

    Args:
        prefix: What all paths begin with.
        length: Tokens of a sample.
        fields: What a sample consists of; of two answers to compare each is the second half of what it stands in.
    """
    for field in fields:
        tokens = array("i", (1 + number % (_WORDS - 1) for number in range(length)))
        if field.endswith("attention_mask"):
            tokens = array("i", [1] * length)
        elif field in _ANSWERS:
            tokens = array("i", [_NO_LABEL] * (length // 2)) + tokens[length // 2 :]
        _write(prefix.with_name(f"{prefix.name}_packed_{field}_document"), tokens)


def _write(prefix: Path, tokens: array[int]) -> None:
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
    """Write the folder of a tokenizer that knows a hundred words, as Hugging Face's ``AutoTokenizer`` reads it."""
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
