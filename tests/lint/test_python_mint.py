"""Test calls with a counterpart in mint: the whole table, and the results of rewritten calls in the installed MindSpore.

With ``MS_TUNE_MINT_MAP``, the path of a JSON file, the table is also compared with an independent one: old full name
to ``{"new": full name, "compat": "drop-in" | "arg-rename" | other}``.
"""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ms_tune.lint.code_files import parse_python
from ms_tune.lint.fix import apply_fixes
from ms_tune.lint.python_code.rewrites import DROP_IN, WITH_KEYWORDS, WITHOUT_FIX, parameter_names
from tests.dryrun.machine import needs_c_compiler, needs_elftools, needs_mindspore
from tests.lint.code import lint_python, python_checks

FILE = Path("train.py")
CHECK = next(check for check in python_checks() if check.id == "MST909")
REWRITTEN = {**DROP_IN, **WITH_KEYWORDS}
HEAD = "import mindspore as ms\n"
# Functions that look like counterparts in mint and differ, with the difference (MindSpore 2.9).
LEFT_OUT = {
    "mindspore.communication.comm_func.P2POp": "mint receives into the tensor given; there is no recv_dtype",
    "mindspore.communication.comm_func.batch_isend_irecv": "mint gives handles to wait for, not what was received",
    "mindspore.experimental.optim.Adam": "by its own documentation its formula is not the one that mint's Adam has",
    "mindspore.ops.flatten": "its second argument is `order`, and it keeps the first axis unless told otherwise",
    "mindspore.ops.gather": "takes slices along an axis; mint's picks element by element",
    "mindspore.ops.max": "gives an index, too, whether or not there is an axis",
    "mindspore.ops.min": "gives an index, too, whether or not there is an axis",
    "mindspore.ops.std": "is that of the whole population unless told otherwise",
    "mindspore.ops.transpose": "takes the order of all axes; mint's swaps two",
    "mindspore.ops.var": "is that of the whole population unless told otherwise",
}


def advised(call: str) -> str | None:
    """Return the function that lint suggests for a call with MindSpore's full names."""
    found = lint_python(parse_python(f"{HEAD}y = {call}\n", FILE), (CHECK,))
    assert len(found) <= 1
    return str(found[0].message.params["new"]) if found else None


def mended(call: str) -> str:
    """Return the call after the fix."""
    source = parse_python(f"{HEAD}y = {call}\n", FILE)
    after, _ = apply_fixes(source, lambda one: lint_python(one, (CHECK,)), unsafe=True)
    return after.text.removeprefix(f"{HEAD}y = ").rstrip()


def written(name: str) -> str:
    return name.replace("mindspore", "ms", 1)


@pytest.mark.parametrize("name", DROP_IN)
def test_a_function_that_needs_nothing_but_the_new_name(name: str) -> None:
    assert advised(f"{written(name)}(a)") == DROP_IN[name]
    assert mended(f"{written(name)}(a)") == f"ms.{DROP_IN[name]}(a)"


@pytest.mark.parametrize("name", WITH_KEYWORDS)
def test_a_function_whose_parameters_are_called_otherwise(name: str) -> None:
    assert advised(f"{written(name)}(a)") == WITH_KEYWORDS[name]
    assert mended(f"{written(name)}(a)") == f"ms.{WITH_KEYWORDS[name]}(a)"
    for old, new in parameter_names(name).items():
        value = "1" if old == "axis" else "b"
        after = mended(f"{written(name)}({old}={value})")
        assert after == f"ms.{WITH_KEYWORDS[name]}({new}={value})" or name == "mindspore.ops.any"


@pytest.mark.parametrize("name", WITHOUT_FIX)
def test_a_function_that_is_named_only(name: str) -> None:
    call = f"{written(name)}(a)"
    assert advised(call) == WITHOUT_FIX[name]
    assert mended(call) == call


@pytest.mark.parametrize("name", LEFT_OUT)
def test_a_function_that_means_something_else(name: str) -> None:
    assert advised(f"{written(name)}(a)") is None


@pytest.mark.parametrize(
    ("call", "after"),
    [
        ("ms.ops.any(x, -1, keep_dims=True)", "ms.mint.any(x, -1, keepdim=True)"),
        ("ms.ops.any(x, axis=(0, 1))", None),
        ("ms.ops.any(x, None)", None),
        ("ms.ops.any(x, keep_dims=True)", None),
        ("ms.ops.any(x, axis)", None),
        ("ms.ops.vector_norm(x=a, axis=1, keepdims=True)", "ms.mint.linalg.vector_norm(x=a, dim=1, keepdim=True)"),
        ("ms.ops.kl_div(logits=a, labels=b)", "ms.mint.nn.functional.kl_div(input=a, target=b)"),
    ],
)
def test_calls_that_need_more_than_the_usual_names(call: str, after: str | None) -> None:
    assert advised(call)
    assert mended(call) == (after or call)


@pytest.mark.parametrize(
    "call", ["split(x, axis=1, output_num=4)", "upsample(x, recompute_scale_factor=True)", "upsample(x, 1, 2, 3, 4, 5)"]
)
def test_calls_with_arguments_that_mint_does_not_take(call: str) -> None:
    assert advised(f"ms.ops.{call}") is None


SIGNATURES = """
import inspect, json, sys
import mindspore
found = {}
for name in json.load(sys.stdin):
    value = mindspore
    for part in name.split(".")[1:]:
        value = getattr(value, part)
    parameters = inspect.signature(value).parameters.values()
    found[name] = [(one.name, one.kind.name, repr(one.default)) for one in parameters]
print("SIGNATURES" + json.dumps(found))
"""


@pytest.mark.mindspore
@needs_mindspore
def test_the_functions_of_mint_take_the_arguments_of_those_they_replace() -> None:
    names = {old: f"mindspore.{new}" for old, new in REWRITTEN.items()}
    done = subprocess.run(
        [sys.executable, "-c", SIGNATURES],
        input=json.dumps([*names, *names.values()]),
        capture_output=True,
        text=True,
        check=True,
    )
    signatures = json.loads(done.stdout.partition("SIGNATURES")[2])
    for old, new in names.items():
        renamed = parameter_names(old)
        gone = "recompute_scale_factor" if old == "mindspore.ops.upsample" else None  # such calls are not changed
        before = [[renamed.get(name, name), *others] for name, *others in signatures[old] if name != gone]
        after = signatures[new]
        unknown = [["args", "VAR_POSITIONAL"], ["kwargs", "VAR_KEYWORD"]]
        if unknown in ([one[:2] for one in before], [one[:2] for one in after]):
            continue  # it only dispatches to one of several functions: the calls below test those; or Python 3.11.2 shows no more
        assert after[: len(before)] == before, (old, before, after)
        assert all(default != repr(inspect.Parameter.empty) for _, _, default in after[len(before) :]), old


# Calls of functions with arguments from the program below. Those of ops are fixed, and both run.
CALLS = (
    *("any(b)", "any(b, 1)", "any(b, axis=-1, keep_dims=True)", "all(b, axis=(0, 1))", "all(b, keep_dims=True)"),
    *("clip(f, -1.0, 1.0)", "clip(f, min=None, max=f)", "clip(i, 1, 3)", "ge(f, g)", "ge(i, 2)", "ge(2.0, f)"),
    *("real(c)", "imag(c)", "hardtanh(f)", "hardtanh(f, min_val=-2.0, max_val=0.5)"),
    *("gather_elements(f, 1, n)", "gather_elements(f, dim=0, index=n)", "gather_d(x=f, dim=1, index=n)"),
    *("tensor_add(f, g)", "tensor_add(i, 2.5)", "tensor_mul(f, i)", "tensor_ge(f, 1.0)", "tensor_gt(i, f)"),
    *("tensor_le(2, i)", "tensor_exp(f)", "tensor_expm1(f)", "tensor_pow(f, 2.0)", "tensor_pow(2.0, f)"),
    *("tensor_floordiv(f, g)", "tensor_floordiv(i, 2)", "binary_cross_entropy(logits=p, labels=p, reduction='sum')"),
    *("binary_cross_entropy(p, p)", "diff(f)", "diff(x=f, axis=0, append=g)", "index_select(f, 1, v)"),
    *(
        "index_select(input=f, axis=0, index=v)",
        "invert(s)",
        "kl_div(f, p)",
        "kl_div(logits=f, labels=p, reduction='sum')",
    ),
    *("kl_div(f, p, 'batchmean')", "matrix_norm(f)", "matrix_norm(f, 1, axis=(0, 1), keepdims=True)"),
    *("vector_norm(f)", "vector_norm(x=f, ord=1.5, axis=1, keepdims=True)", "vector_norm(f, 0, 1)"),
    *("nansum(f)", "nansum(f, axis=1, keepdims=True)", "nansum(f, axis=(0, 1))", "qr(input=f)", "qr(f, 'complete')"),
    *("reduce_max(f)", "reduce_max(f, (0, 1))", "reduce_min(x=i, axis=1)", "repeat_interleave(f, 2, axis=0)"),
    *("repeat_interleave(f, [1, 2, 3, 4], 0)", "scatter(f, axis=1, index=n, src=h)", "scatter(f, 0, n, 2.0)"),
    *("unstack(f)", "unstack(input_x=f, axis=1)", "upsample(m, (8, 10))", "upsample(m, size=8)"),
    *("upsample(m, size=(8, 10), mode='bilinear', align_corners=True)", "max_unpool2d(x=m, indices=w, kernel_size=2)"),
)
CELLS = ("Flatten()(m)", "Flatten(1, end_dim=2)(m)", "GLU()(f)", "GLU(axis=0)(f)", "Hardtanh(-2.0)(f)", "ReLU6()(f)")
PROGRAM = """
import json, sys
import numpy as np
import mindspore as ms
device, lines = sys.argv[1], json.load(sys.stdin)
ms.set_context(mode=ms.PYNATIVE_MODE)
ms.set_device(device)
ms.runtime.launch_blocking()  # an error belongs to the call that it comes from
random = np.random.default_rng(1)
f, g, h, m = (ms.Tensor(random.normal(size=size).astype("float32")) for size in ((4, 6), (4, 6), (2, 3), (1, 2, 4, 5)))
i, b, p = ms.Tensor(random.integers(1, 9, (4, 6)).astype("int32")), f > 0, ms.Tensor(random.random((4, 6)).astype("float32"))
c = ms.Tensor((random.normal(size=(4, 6)) + 1j).astype("complex64"))
n, v = ms.Tensor(np.array([[0, 1, 2], [2, 1, 0]])), ms.Tensor(np.array([2, 0], "int32"))
s = ms.Tensor(np.array([1, -5, 0], "int16"))
w = ms.Tensor(np.arange(40).reshape(1, 2, 4, 5))
def outcome(line):
    try:
        values = eval(line)
        values = values if isinstance(values, (tuple, list)) else [values]
        numbers = [one.asnumpy() for one in values]
    except Exception as error:
        return str(error), []
    return [[str(one.dtype), list(one.shape)] for one in values], numbers
found = []
for pair in lines:
    (before, old), (after, new) = map(outcome, pair)
    close = before == after and all(np.allclose(*both, atol=1e-5, equal_nan=True) for both in zip(old, new))
    found.append([before, after, close])
print("OUTCOMES" + json.dumps(found))
"""


def pairs() -> Iterator[tuple[str, str]]:
    for call in (*(f"ms.ops.{call}" for call in CALLS), *(f"ms.nn.{call}" for call in CELLS)):
        after = mended(call)
        assert after.startswith("ms.mint."), call
        yield call, after


def outcomes(device: str, environment: dict[str, str], folder: Path) -> Iterator[tuple[str, Any, Any, bool]]:
    """Return a call, its result and that of the fixed call (types and shapes, or the error), and whether values agree."""
    lines = list(pairs())
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, device],
        input=json.dumps(lines),
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
        timeout=300,
        check=False,
    )
    assert "OUTCOMES" in done.stdout, done.stderr[-2000:]
    found = json.loads(done.stdout.partition("OUTCOMES")[2].splitlines()[0])
    for (call, _), (before, after, close) in zip(lines, found, strict=True):
        yield call, before, after, close


@pytest.mark.mindspore
@needs_mindspore
def test_mended_calls_give_the_same_values_on_the_cpu(tmp_path: Path) -> None:
    same = 0
    for call, before, after, close in outcomes("CPU", dict(os.environ), tmp_path):
        assert not isinstance(before, str), (call, before)
        if isinstance(after, str):
            # Most kernels of mint exist for Ascend only.
            assert "unregistered" in after or "deprecated_tensor_nansum" in after or "-----" in after, (call, after)
            continue
        assert before == after, call
        assert close, call
        same += 1
    assert same > len(CALLS) // 2


@pytest.mark.mindspore
@needs_mindspore
@needs_c_compiler
@needs_elftools
def test_mended_calls_give_the_same_types_and_shapes_on_ascend(tmp_path: Path) -> None:
    from ms_tune.dryrun.cann_sim.environment import find_mindspore, prepare_cann  # noqa: PLC0415 - asks for MindSpore
    from ms_tune.dryrun.environment import simulation_environment  # noqa: PLC0415 - as above

    cann = prepare_cann(find_mindspore(), lambda _: None)
    environment = simulation_environment(os.environ, cann, 0, 1, trace=tmp_path)
    for call, before, after, _ in outcomes("Ascend", environment, tmp_path):
        assert not isinstance(before, str), (call, before)
        assert before == after, call
