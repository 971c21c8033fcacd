"""Test the tracking of steps, tensors and settings, and code that is compiled as a graph."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from ms_tune.lint.code_files import parse_python
from ms_tune.lint.result import FileReport, LintRequest
from ms_tune.lint.runner import LintRun, LintTarget, check_file
from tests.lint.code import lint_python

HEAD = "import os\nimport mindspore as ms\nfrom mindspore import nn, ops, mint, Tensor\nfrom mindspore.ops import operations as P\n"


def names(text: str, head: str = HEAD) -> list[str]:
    return [one.name for one in lint_python(parse_python(head + text, Path("train.py")))]


def has(text: str, name: str, head: str = HEAD) -> bool:
    return name in names(text, head)


STEP = """
net = nn.Dense(3, 3)
opt = nn.Adam(net.trainable_params())
{maker}
def {name}(x):
    {call}
    opt(g)
    {wait}
    return loss
for i in range(10):
    {result}{name}(i)
"""
MADE = ("grad_fn = ms.value_and_grad(net, None, opt.parameters)", "loss, g = grad_fn(i)")


@pytest.mark.parametrize("name", ["step", "grad", "one", "do_it", "update_weights"])
@pytest.mark.parametrize(
    ("maker", "call"),
    [
        MADE,
        ("g1 = ops.GradOperation()(net)", "loss, g = 1, g1(x)"),
        ("g1 = ms.grad(net)", "loss, g = 1, g1(x)"),
        ("", "g = x"),
    ],
)
def test_a_step_is_known_by_what_it_holds(name: str, maker: str, call: str) -> None:
    text = STEP.format(maker=maker, name=name, call=call, wait="y = loss.asnumpy()", result="")
    assert has(text, "waiting-in-step")
    assert not has(text.replace("for i in range(10):\n    ", "if True:\n    "), "waiting-in-step")
    assert not has(text.replace("y = loss.asnumpy()", "pass"), "waiting-in-step")


def test_a_step_through_other_functions_and_methods() -> None:
    text = """
class Run:
    def __init__(self, net):
        self.opt = nn.AdamWeightDecay(net.trainable_params())
        self.fn = ms.value_and_grad(self.forward, None, None)
    def forward(self, x):
        {forward}
        return net(x)
    def inner(self, x):
        loss, g = self.fn(x)
        self.opt(g)
        return loss
    def all(self):
        for x in data:
            loss = self.inner(x)
            {loop}
"""
    for place in ("forward", "loop"):
        parts = {"forward": "pass", "loop": "pass", place: "print(mint.sum(x).item())"}
        assert has(text.format(**parts), "waiting-in-step"), place
    assert not has(text.format(forward="pass", loop="pass"), "waiting-in-step")


def test_objects_that_take_a_step_and_steps_as_in_torch() -> None:
    cell = """
class TrainStep(nn.Cell):
    def __init__(self, net, opt):
        self.fn = ms.value_and_grad(net, None, opt.parameters)
    def construct(self, x):
        return self.fn(x)
stepper = {made}
history = []
for x in data:
    loss = stepper(x)
    history.append(loss)
"""
    assert has(cell.format(made="TrainStep(net, opt)"), "growing-list-of-tensors")
    assert not has(cell.format(made="other(net, opt)"), "growing-list-of-tensors")
    torch = """
def go(x):
    out = net(x)
    {back}
    return out
for x in data:
    out = go(x)
    print(out.item())
"""
    for back in ("out.backward()", "opt.step()", "optimizer.step()"):
        assert has(torch.format(back=back), "waiting-in-step"), back
    for back in ("pass", "scheduler.step()", "self.backward()"):
        assert not has(torch.format(back=back), "waiting-in-step"), back


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("losses.append(loss)", True),
        ("self_losses.append(step(x))", True),
        ("losses.append(loss.item())", False),
        ("losses.append(3)", False),
        ("losses.append(loss); losses.clear()", False),
        ("losses = [loss]; losses.append(loss)", False),
        ("if i % 10 == 0: losses.append(loss)", False),
    ],
)
def test_growing_lists(line: str, found: bool) -> None:  # noqa: FBT001
    text = STEP.format(maker=MADE[0], name="step", call=MADE[1], wait="pass", result="loss = ") + f"    {line}\n"
    assert has(text, "growing-list-of-tensors") is found


@pytest.mark.parametrize(
    ("value", "tensor"),
    [
        ("mint.ones((3,))", True),
        ("x + 1", True),
        ("x.reshape(-1)", True),
        ("P.MatMul()(x, x)", True),
        ("net", False),
        ("x.shape", False),
        ("ops.shape(x)", False),
        ("mint.split(x, 2)", False),
        ("[1, 2]", False),
    ],
)
def test_sum_of_what_is_a_tensor(value: str, tensor: bool) -> None:  # noqa: FBT001
    assert has(f"def f(x: Tensor, net):\n    t = {value}\n    return sum(t)\n", "builtin-sum-of-tensor") is tensor


def test_operators_of_a_cell() -> None:
    text = """
class Net(nn.Cell):
    def __init__(self):
        self.mm = {operator}
    def construct(self, x):
        if self.mm(x, x):
            return x
        return self.mm(x, x)
"""
    assert has(text.format(operator="P.MatMul()"), "tensor-decides")
    assert has(text.format(operator="P.MatMul()"), "operator-with-mint-counterpart")
    assert not has(text.format(operator="P.Shape()"), "tensor-decides")
    assert not has(text.format(operator="other()"), "tensor-decides")


@pytest.mark.parametrize(
    "test",
    ["x.dtype != F.dtype(x)", "F.shape(x)[0] > 3", "F.is_tensor(x)", "P.DType()(x) == 3", "P.Shape()(x)[0] == 1"],
)
def test_types_and_shapes_decide_at_once(test: str) -> None:
    text = f"from mindspore.ops import functional as F\nclass N(nn.Cell):\n    def construct(self, x):\n        if {test}:\n            return x\n        return x + 1\n"
    assert not has(text, "tensor-decides")
    assert has(text.replace(test, "F.relu(x) > 0"), "tensor-decides")


STATIC = (
    "ms.set_context(mode=ms.GRAPH_MODE)\n",
    "ms.set_context(mode=0)\n",
    "from mindformers.modules.layers import Linear\n",
    "mul = P.Mul().shard(((1, 1), (1, 1)))\n",
)
DYNAMIC = ("", "ms.set_context(mode=ms.PYNATIVE_MODE)\n", "from mindformers.pynative.trainer import x\n")


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("class N(nn.Cell):\n    def construct(self, x):\n        if mint.sum(x) > 0:\n            return x\n", "tensor-decides"),
        ("class N(nn.Cell):\n    def construct(self, x):\n        return x\n    def bprop(self, x, out, dout):\n        return (dout,)\n", "bprop-keeps-everything"),
        ("class O(nn.Optimizer):\n    def construct(self, g):\n        return g\n", "unjitted-optimizer"),
        ("x = ops.zeros_like(y)\n", "mint-counterpart"),
        ("x = P.MatMul()\n", "operator-with-mint-counterpart"),
    ],
)  # fmt: skip
def test_a_static_graph_is_not_reported_the_rules_of_the_dynamic_one(code: str, name: str) -> None:
    assert [line for line in STATIC if has(line + code, name)] == []
    assert [line for line in DYNAMIC if not has(line + code, name)] == []


def test_compiled_functions_are_graphs() -> None:
    code = "class N(nn.Cell):\n    {mark}\n    def construct(self, x):\n        if mint.sum(x) > 0:\n            return x\n"
    assert has(code.format(mark=""), "tensor-decides")
    for mark in ("@ms.jit", "@ms.jit(backend='ms_backend')"):
        assert not has(code.format(mark=mark), "tensor-decides")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("memory_optimize_level='O3'", "refused-context-value"),
        ("mode=True", "refused-context-value"),
        ("exec_order='fast'", "refused-context-value"),
        ("pynative_sync=True", "unknown-context-key"),
        ("**{'deterministic': 'ON'}", "deterministic-in-code"),
        ("**dict(pynative_synchronize=True)", "synchronous-in-code"),
        ("**settings", "synchronous-in-code"),
        ("save_graphs=True", "deprecated-context-key"),
    ],
)
def test_settings(arguments: str, expected: str) -> None:
    found = names(f"settings = {{'pynative_synchronize': True}}\nms.set_context({arguments})\n")
    assert found == ([expected] if expected else []) or expected in found


def test_star_imports() -> None:
    star = "from mindspore import *\n"
    assert has("set_context(deterministic='ON')\n", "deterministic-in-code", star)
    assert has("def f(x: Tensor):\n    return sum(x + 1)\n", "builtin-sum-of-tensor", star)
    assert not has("def set_context(**k): pass\nset_context(deterministic='ON')\n", "deterministic-in-code", star)
    assert not has(
        "x = sum(mint.ones(3))\n", "builtin-sum-of-tensor", "from mindspore import mint\nfrom mindspore.ops import *\n"
    )
    assert not has(
        "set_context(deterministic='ON')\n", "deterministic-in-code", "import mindspore\nfrom mine import *\n"
    )


def environment(tmp_path: Path, lines: Iterable[str]) -> list[str]:
    file = tmp_path / "train.py"
    file.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")
    report = check_file(LintTarget(file, named=True), LintRun(LintRequest(settings=False)))
    assert isinstance(report, FileReport), report
    return [one.name for one in report.findings]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["os.environ['MS_ALLOC_CONF'] = 'enable_vmm:True'", "os.environ['MS_ALLOC_CONF'] = 'vmm_align_size:20MB'"], ["replaced-settings"]),
        (["os.environ['MS_ALLOC_CONF'] = 'enable_vmm:True'", "os.environ['MS_ALLOC_CONF'] += ',a:b'"], []),
        (["os.environ['MS_SIMULATION_LEVEL'] = str(1)"], ["simulation-on"]),
        (["if args.simulate:", "    os.environ['MS_SIMULATION_LEVEL'] = '1'"], []),
        (["os.putenv('MS_DEV_LAUNCH_BLOCKING', '1')"], ["blocking-launch"]),
        (["level = '1'", "os.environ['MS_DEV_LAUNCH_BLOCKING'] = level"], ["blocking-launch"]),
        (["os.environ.update(MS_DEV_LAUNCH_BLOCKING='1')"], ["blocking-launch"]),
        (["os.environ.setdefault('MS_ALLOC_CONF', 'enable_vnm:True')"], ["unknown-setting"]),
        (["os.environ['MS_ALLOC_CONF'] = other()"], []),
    ],
)  # fmt: skip
def test_variables_set_in_code(tmp_path: Path, lines: list[str], expected: list[str]) -> None:
    assert environment(tmp_path, lines) == expected
