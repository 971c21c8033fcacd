from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_tune.errors import ConfigError
from ms_tune.lint.code_files import parse_python
from ms_tune.lint.python_code.module import module_of, refusal
from ms_tune.lint.python_code.rewrites import DROP_IN, WITH_KEYWORDS, WITHOUT_FIX
from ms_tune.text import Language
from tests.lint.code import lint_python, python_checks
from tests.lint.few import profile_for
from tests.source.corpus import SITE_PACKAGES

if TYPE_CHECKING:
    from ms_tune.lint.checklist import Check

CHECKS = python_checks()
FILE = Path("train.py")


def ids(text: str, profile: str | None = None) -> list[str]:
    findings = lint_python(parse_python(text, FILE), profile=profile)
    for finding in findings:
        for language in Language:
            assert finding.message.say(language)
            assert finding.help is None or finding.help.say(language)
    return [finding.id for finding in findings]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_bad_example_is_found_and_good_example_is_clean(check: Check) -> None:
    assert [found for found in ids(check.bad, profile_for(check)) if found not in check.also] == [check.id]
    assert [found for found in ids(check.good, profile_for(check)) if found not in check.also] == []


def test_only_files_that_import_mindspore_are_checked() -> None:
    code = "for data in loader:\n    loss = train_step(data)\n    print(loss)\n"
    for line in ("", "import torch\n", "import numpy\n", "from .mindspore import x\n"):
        assert not module_of(parse_python(line + code, FILE)).uses_mindspore
        assert ids(line + code) == []
    assert ids(f"import mindspore\n{code}") == ["MST914"]
    assert ids(f"def f():\n    import mindspore.nn as n\n{code}") == ["MST914"]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("F.silu(x)", ["MST909"]),
        ("P.matmul(x, y)", []),
        ("ops.cast(x, t)", []),
        ("nn.SiLU()", ["MST909"]),
        ("nn.Dense(1, 2)", []),
    ],
)
def test_mint(call: str, expected: list[str]) -> None:
    imports = (
        "import numpy as np\nfrom mindspore import nn, ops\nimport mindspore.ops.functional as F\n"
        "from mindspore.ops import operations as P\n"
    )
    assert ids(f"{imports}y = {call}\n") == expected


@pytest.mark.parametrize("setting", ["ms.set_deterministic(True)", "ms.runtime.launch_blocking()"])
def test_a_setting_after_a_switch_of_its_own_is_one_that_was_asked_for(setting: str) -> None:
    check = "MST901" if "determ" in setting else "MST902"
    for test, expected in (
        ("args.deterministic or debug", []),
        ("not args.quick", [check]),
        ("rank == 0", [check]),
    ):
        assert ids(f"import mindspore as ms\nif {test}:\n    ms.set_seed(1)\n    {setting}\n") == expected
    assert ids(f"import mindspore as ms\nif not args.debug:\n    pass\nelse:\n    {setting}\n") == [check]


@pytest.mark.skipif(not (SITE_PACKAGES / "mindspore").is_dir(), reason="mindspore is not installed")
def test_mint_names_are_those_of_the_installed_mindspore() -> None:
    folder = SITE_PACKAGES / "mindspore" / "mint"
    text = {
        "mint": (folder / "__init__.py").read_text(encoding="utf-8"),
        "mint.nn": (folder / "nn" / "__init__.py").read_text(encoding="utf-8"),
        "mint.nn.functional": (folder / "nn" / "functional.py").read_text(encoding="utf-8"),
        "mint.linalg": (folder / "linalg" / "__init__.py").read_text(encoding="utf-8"),
        "mint.optim": (folder / "optim" / "__init__.py").read_text(encoding="utf-8"),
    }
    for new in {**DROP_IN, **WITH_KEYWORDS, **WITHOUT_FIX}.values():
        package, _, name = new.rpartition(".")
        assert name in text[package], new


STEP = "import mindspore as ms\nimport numpy as np\nfrom mindspore import mint, ops\n"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("for d in data:\n    loss = train_step(d)\n    x = loss.item()\n", ["MST913"]),
        ("for d in data:\n    loss = train_step(d)\n    if args.log:\n        print(loss)\n", []),
        ("for d in data:\n    loss = train_step(d)\n    x = loss.item() if step % 10 == 0 else 0\n", []),
        (
            "for d in data:\n    loss = train_step(d)\n    x = loss.asnumpy().item()\n",
            ["MST913"],
        ),  # one synchronisation
        ("for e in range(3):\n    for d in data:\n        loss = net.train_one_step(d)\n    print(loss)\n", []),
        ("for d in data:\n    optimizer(grads)\n    n = float(mint.mean(x))\n", ["MST913"]),
        ("for d in data:\n    optimizer(grads)\n    n = float(x)\n", []),
        ("for d in data:\n    loss = train_step(d)\n    n = float(loss)\n", ["MST913"]),
        ("for d in data:\n    loss = train_step(d)\n    loss = 3\n    n = float(loss)\n", []),
        ("run = ms.nn.TrainOneStepCell(net, opt)\nfor d in data:\n    n = run(d).asnumpy()\n", ["MST913"]),
        ("f = ms.value_and_grad(net, None, w)\nfor d in data:\n    n = f(d)[0].asnumpy()\n", ["MST913"]),
        ("run = ms.nn.Dense(1, 2)\nfor d in data:\n    n = run(d).asnumpy()\n", []),
        ("for d in data:\n    train_step(d)\n    logger.debug(f'loss {loss}')\n", ["MST914"]),
        ("for d in data:\n    train_step(d)\n    logger.debug('loss %s', loss)\n", []),
        ("for d in data:\n    loss = train_step(d)\n    bar.set_postfix(loss=loss)\n", ["MST914"]),
        ("for d in data:\n    loss = train_step(d)\n    if step % 9 == 0:\n        bar.set_postfix(loss=loss)\n", []),
        ("def _train_step(x):\n    return forward_fn(x).item()\n", ["MST913"]),
        ("for d in data:\n    train_step(d)\n    def hook():\n        return x.asnumpy()\n", []),
        ("def train_step(x):\n    if mint.isnan(x).any():\n        return 0\n    return 1\n", ["MST915"]),
        ("while True:\n    train_step(next(it))\n", ["MST916"]),
        ("while trainer.step < last:\n    train_step(next(it))\n", ["MST916"]),
        ("while count < self.iter_times:\n    train_step(next(it))\n", []),
        ("while left > 0:\n    train_step(next(it))\n    left -= 1\n", []),
        ("for s in range(args.train_iters):\n    train_step(s)\n", ["MST916"]),
        ("x = mint.stack(a)\ny = sum(x)\n", ["MST910"]),
        ("def f(x):\n    return sum(x)\n", []),
        ("x = mint.stack(a)\nfor x in b:\n    y = sum(x)\n", []),
        ("y = x.contiguous().contiguous()\n", ["MST911"]),
        ("a = np.zeros(3)\ny = ms.Tensor(a)\n", ["MST912"]),
        ("a = np.zeros(3)\ny = ms.Tensor(a, ms.float32)\n", []),
        ("y = ms.Tensor(np.mean(x))\n", []),  # a number, which from_numpy refuses
        ("y = ms.Tensor(np.mean(x, axis=0))\n", ["MST912"]),
        ("a = np.sum(x)\na = a.astype('float32')\ny = ms.Tensor(a)\n", []),
        ("y = ms.Tensor(np.random.rand())\n", []),
        ("y = ms.Tensor(np.random.normal(0, 1, size=shape))\n", ["MST912"]),
    ],
)
def test_steps(body: str, expected: list[str]) -> None:
    assert ids(STEP + body) == expected


@pytest.mark.parametrize("method", ["step_end", "on_train_step_end", "step_begin"])
@pytest.mark.parametrize("base", ["ms.Callback", "Callback", "LossCallback"])
def test_callbacks_run_in_every_step(method: str, base: str) -> None:
    text = f"from mindspore.train import Callback\nclass C({base}):\n    def {method}(self, run_context):\n        "
    assert ids(f"{STEP}{text}loss = run_context.net_outputs.asnumpy()\n") == ["MST913"]
    assert ids(f"{STEP}{text}if self.step % 10 == 0:\n            loss = run_context.net_outputs.asnumpy()\n") == []
    other = text.replace(f"def {method}", "def epoch_end").replace(base, "Other")
    assert ids(f"{STEP}{other}loss = run_context.net_outputs.asnumpy()\n") == []
    assert ids(f"{STEP}{text.replace(base, 'Other')}loss = run_context.net_outputs.asnumpy()\n") == []


CELL = """from mindspore import nn

class Cell(nn.Cell):
    def __init__(self, both):
        super().__init__()
        LISTED

    def construct(self, x, y):
        return x * y

    def bprop(ARGUMENTS):
        return READS
"""


@pytest.mark.parametrize(
    ("listed", "arguments", "reads", "expected"),
    [
        ("pass", "self, *args", "args[-1]", ["MST918"]),
        ("pass", "self, x, y, out, dout", "x * dout", ["MST918"]),
        ("pass", "self, *args", "f(args[0], args[1], args[2], args[3])", []),
        ("self.used_bprop_inputs = []", "self, *args", "args[-1]", []),
        ("self.used_bprop_inputs = []", "self, *args", "args[3]", []),  # dout
        ("self.used_bprop_inputs = []", "self, *args", "args[2]", ["MST919"]),  # the output
        ("self.used_bprop_inputs = [0]", "self, *args", "args[0] * args[1]", ["MST919"]),
        ("self.used_bprop_inputs = [0]", "self, x, y, out, dout", "y * dout", ["MST939", "MST919"]),
        ("self.used_bprop_inputs = [-2]", "self, *args", "args[-2]", ["MST919"]),
        ("self.used_bprop_inputs = [0] if both else [1]", "self, *args", "args[0]", []),  # not written out
    ],
)
def test_backward_passes(listed: str, arguments: str, reads: str, expected: list[str]) -> None:
    text = CELL.replace("LISTED", listed).replace("ARGUMENTS", arguments).replace("READS", reads)
    assert ids(text) == expected


def test_positions_count_characters() -> None:
    text = "import mindspore as ms\n中文 = '确定'; ms.set_deterministic(True)\n"
    (finding,) = lint_python(parse_python(text, FILE))
    assert (finding.location.line, finding.location.column) == (2, 12)
    assert text[finding.location.start : finding.location.end] == "ms.set_deterministic(True)"


EVERY_FORM = """\
from mindspore import ops as o, mint
@decorated(1)
async def f(a, /, b=2, *c, d: int = 3, **e) -> None:
    async for x, [y, *z] in o.cat((a, b[1:2]), **e): pass
    with g() as h, i: continue_ = lambda: (yield)
class K(B, meta=M):
    k: int = 1; self.m = self.n.p = -1 + (not 2) if 3 < 4 <= 5 else {6: 7, **q}
    def n(self):
        global r; nonlocal s; del t[0], u.v
        try: raise W("é" f"{x!r:>{y}}") from None
        except (X, Y) as z: return {1, *z}, [a async for b in c if (d := b)], "\u4e2d\u6587", mint.cat(x), mint.cat(x)
        match x:
            case [1, *rest] | {"a": _, **more} | P(q, r=1) as whole if rest: assert x, y
"""


def _usual(root: ast.AST) -> Iterator[ast.AST]:
    """Return the nodes below a node by the standard library, without nodes that several parents share."""
    shared = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
    return (node for node in ast.walk(root) if not isinstance(node, shared))


def test_the_nodes_of_a_tree_are_those_of_the_standard_library() -> None:
    module = module_of(parse_python(EVERY_FORM, FILE))
    usual = list(_usual(module.tree))
    assert module.nodes[0] is module.tree
    assert set(module.nodes) == set(usual)
    for root in module.ends:
        assert set(module.below(root)) == {*_usual(root)} - {root}
        scopes = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
        inner = [one for one in module.below(root) if isinstance(one, scopes)]
        hidden = {node for one in inner for node in module.below(one)}
        assert set(module.local_nodes(root)) == set(module.below(root)) - hidden
    for node, around in module.parents.items():
        assert node in ast.iter_child_nodes(around)
        assert module.nodes.index(around) < module.nodes.index(node)
    assert {"MatchMapping", "JoinedStr", "AugAssign"} - {type(node).__name__ for node in usual} == {"AugAssign"}


_LADDER = "if a:\n    b = 0\n" + "elif a:\n    b = 1\n" * 3000


@pytest.mark.parametrize(
    ("text", "running", "message"),
    [
        ("type X = int\n", (3, 11), "lint_code.newer"),
        ("type Pair[T] = tuple[T, T]\n", (3, 11), "lint_code.newer"),
        ("def first[T](x: list[T]) -> T:\n    return x[0]\n", (3, 10), "lint_code.newer"),
        ("async def first[T](x):\n    pass\n", (3, 11), "lint_code.newer"),
        ("class Box[T]:\n    pass\n", (3, 11), "lint_code.newer"),
        ("type X = = int\n", (3, 12), "lint_code.not-python"),
        ("type x == 3\n", (3, 11), "lint_code.not-python"),
        ("x = [1, 2\ny = 3\n", (3, 11), "lint_code.not-python"),
        ("x = " + "(" * 300 + ")" * 300, (3, 11), "lint_code.too-deep"),
        ("".join(" " * depth + "if a:\n" for depth in range(150)), (3, 11), "lint_code.too-deep"),
    ],
)
def test_why_the_parser_refuses_a_file(text: str, running: tuple[int, int], message: str) -> None:
    error = SyntaxError("invalid syntax", ("a.py", 1, 1, text.splitlines()[0]))
    if message == "lint_code.too-deep":
        with pytest.raises(SyntaxError) as caught:
            ast.parse(text)
        error = caught.value
    reported = refusal(error, FILE, running)
    assert reported.message.id == message
    assert str(running[1]) in str(reported.message)


def test_a_ladder_of_elif_is_no_wrong_python() -> None:
    try:
        assert ids(f"import mindspore\n{_LADDER}") == []  # no parser has enough memory for it
    except ConfigError as error:
        assert error.message.id == "lint_code.too-deep"  # noqa: PT017 - either is right


@pytest.mark.parametrize("text", ["(" * 5000, "x = " + "-" * 100_000 + "1", "\0", "a" + ".b" * 50_000])
def test_hostile_code_is_refused_or_read(text: str) -> None:
    try:
        ids(f"import mindspore\n{text}\n")
    except ConfigError as error:
        assert "Python" in str(error)  # noqa: PT017 - both ways out are fine


LINES = """\
import mindspore as ms
from mindspore import ops
for x in y:
 optimizer(x)
 print(loss)
x =\x20
ops.cat(x)
class A(ms.nn.Cell):
 def bprop(self, *args):
  return args[0]
if x.max():
 x.item()"""


@given(st.lists(st.sampled_from(LINES.splitlines()), max_size=12))
def test_no_code_makes_a_check_crash(lines: list[str]) -> None:
    try:
        assert "MST001" not in ids("\n".join(lines))
    except ConfigError:
        return
