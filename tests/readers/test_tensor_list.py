from __future__ import annotations

import json
from pathlib import Path

import pytest

from ms_tune.errors import TraceError
from ms_tune.readers.tensors import ListedTensor, read_tensor_list

GOOD = {
    "schema_version": 1,
    "weights": [{"name": "head.weight", "address": 4096, "bytes": 8192}],
    "optimizer_state": [{"name": "exp_avg.head.weight", "address": 16384, "bytes": 8192}],
    "gradients": [],
}


def test_reads_what_the_child_process_writes(tmp_path: Path) -> None:
    path = tmp_path / "tensors.json"
    path.write_text(json.dumps(GOOD))
    tensors = read_tensor_list(path)
    assert tensors is not None
    assert tensors.weights == (ListedTensor("head.weight", 4096, 8192),)
    assert tensors.optimizer_state == (ListedTensor("exp_avg.head.weight", 16384, 8192),)
    assert tensors.gradients == ()


@pytest.mark.parametrize(
    ("content", "reason", "detail"),
    [
        ("", "json", ""),
        ("{", "json", ""),
        ("\xff\xfe", "json", ""),
        ("[" * 100_000, "json", ""),
        ('{"version": ' + "1" * 10_000 + "}", "json", ""),
        ("[]", "shape", "$"),
        ("{}", "version", "None"),
        ('{"version": 2}', "version", "2"),
        ('{"schema_version": 2, "version": 1}', "version", "2"),
        ('{"version": true}', "version", "True"),
        ('{"version": 1, "weights": {}}', "shape", "$.weights"),
        (json.dumps(GOOD | {"gradients": [[]]}), "shape", "$.gradients[0]"),
        (json.dumps(GOOD | {"gradients": [{"name": "a", "address": -1, "bytes": 1}]}), "shape", "$.gradients[0]"),
        (json.dumps(GOOD | {"gradients": [{"name": "a", "address": 2**64, "bytes": 1}]}), "shape", "$.gradients[0]"),
        (json.dumps(GOOD | {"gradients": [{"name": "a", "address": 1.5, "bytes": 1}]}), "shape", "$.gradients[0]"),
        (json.dumps(GOOD | {"gradients": [{"name": 3, "address": 1, "bytes": 1}]}), "shape", "$.gradients[0]"),
        (json.dumps(GOOD | {"gradients": [{"name": "a", "address": 1, "bytes": True}]}), "shape", "$.gradients[0]"),
    ],
)
def test_malformed_lists(tmp_path: Path, content: str, reason: str, detail: str) -> None:
    path = tmp_path / "tensors.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(TraceError) as caught:
        read_tensor_list(path)
    assert caught.value.message.id == f"trace.tensors.{reason}"
    assert detail in str(caught.value)


def test_too_large_and_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ms_tune.readers.tensors._MAX_FILE", 10)
    path = tmp_path / "tensors.json"
    path.write_text(json.dumps(GOOD))
    with pytest.raises(TraceError):
        read_tensor_list(path)
    with pytest.raises(TraceError):
        read_tensor_list(tmp_path)
