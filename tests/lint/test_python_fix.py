"""Test fixes of Python code: the syntax tree changes as intended, and no other character."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_tune.lint.code_files import parse_python
from ms_tune.lint.fix import Fixed, apply_fixes
from ms_tune.lint.python_code.rewrites import Swap, leads_to
from tests.lint.code import lint_python, python_checks
from tests.lint.few import check_the_example, profile_for

if TYPE_CHECKING:
    from ms_tune.diagnostics import Diagnostic
    from ms_tune.lint.checklist import Check
    from ms_tune.source.yaml import SourceFile

FILE = Path("train.py")
CASES = [pytest.param(check, id=check.id) for check in python_checks() if check.fixes]


def mended(text: str, profile: str | None = "performance", *, unsafe: bool = True) -> str:
    source = parse_python(text, FILE)
    after, _ = apply_fixes(source, lambda one: lint_python(one, profile=profile), unsafe=unsafe)
    assert apply_fixes(after, lambda one: lint_python(one, profile=profile), unsafe=unsafe)[1] == Fixed(after.text, 0)
    return after.text


@pytest.mark.parametrize("check", CASES)
def test_the_fix_makes_the_good_example_of_the_bad_one(check: Check) -> None:
    def again(source: SourceFile) -> tuple[Diagnostic, ...]:
        return lint_python(source, (check,), profile_for(check))

    check_the_example(check, parse_python(check.bad, FILE), again)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('ms.set_context(mode=1, deterministic = "ON") # 确定', 'ms.set_context(mode=1, deterministic = "OFF") # 确定'),
        ("ms.set_deterministic(deterministic=True)", "ms.set_deterministic(deterministic=False)"),
        ("ms.set_context(deterministic='O' 'N')", None),
        ("ms.set_context(deterministic='off')", "ms.set_context(deterministic='OFF')"),
        ("ms.set_deterministic('OFF')", "ms.set_deterministic(False)"),
        ("ms.set_context(pynative_synchronize=True)", "ms.set_context(pynative_synchronize=False)"),
        ("os.environ['MS_ALLOC_CONF'] = 'a:1,enable_vmm=True'", "os.environ['MS_ALLOC_CONF'] = 'a:1,enable_vmm:True'"),
        ("os.environ['MS_ALLOC_CONF'] = 'a:1,' 'enable_vmm=True'", None),
        ("os.environ['MS_ALLOC_CONF'] = 'enable_vmm'", None),
    ],
)
def test_single_places(line: str, expected: str | None) -> None:
    head = "import os\nimport numpy as np\nimport mindspore as ms\n\n"
    for end in ("\n", "\r\n"):
        text, wanted = (f"{head}{words}\n".replace("\n", end) for words in (line, expected or line))
        assert mended(text) == wanted
    assert mended(f"{head}{line}") == f"{head}{expected or line}"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("ms.runtime.launch_blocking()  # debug\nx = 1\n", "x = 1\n"),
        ("x = 1; ms.runtime.launch_blocking()\n", "x = 1; pass\n"),
        ("if a:\n    ms.runtime.launch_blocking()  # debug\n", "if a:\n    pass  # debug\n"),
        ("if a: ms.runtime.launch_blocking()\nelse: x = 1\n", "if a: pass\nelse: x = 1\n"),
        ("if a:\n    ms.runtime.launch_blocking()\n    x = 1\n", "if a:\n    x = 1\n"),
        ("def f():\n    x = 1\n    ms.runtime.launch_blocking(\n    )", "def f():\n    x = 1\n"),
        ("x = ms.runtime.launch_blocking()\n", "x = ms.runtime.launch_blocking()\n"),
        ("x = 1 if ms.runtime.launch_blocking() else 2\n", "x = 1 if ms.runtime.launch_blocking() else 2\n"),
        ("ms.runtime.launch_blocking()", ""),
    ],
)
def test_calls_are_dropped_with_their_line(code: str, expected: str) -> None:
    assert mended(f"import mindspore as ms\n{code}") == f"import mindspore as ms\n{expected}"


@pytest.mark.parametrize(
    ("imports", "call", "expected"),
    [
        ("from mindspore import mint, ops", "ops.mul(a, other=b)", "mint.mul(a, other=b)"),
        ("import mindspore.mint as M\nfrom mindspore import ops", "ops.mul(a, b)", "M.mul(a, b)"),
        (
            "import mindspore.nn\nimport mindspore.ops.functional as F",
            "F.silu(x)",
            "mindspore.mint.nn.functional.silu(x)",
        ),
        (
            "from mindspore import mint\nfrom mindspore.ops import mean as m",
            "m(x, keep_dims=True)",
            "mint.mean(x, keepdim=True)",
        ),
        ("from mindspore import mint, ops", "ops.sqrt(x=a)", "mint.sqrt(input=a)"),
        ("from mindspore import mint, ops", "ops.mul(*a)", "mint.mul(*a)"),
        ("from mindspore import mint, ops", "ops.cat(a, **b)", None),
        # Names that may mean something else.
        ("from mindspore import mint, ops\nmint = 1", "ops.mul(a, b)", None),
        ("from mindspore import mint, ops\ndef f(ops): pass", "ops.mul(a, b)", None),
        ("from mindspore import ops\ndef f(mint): pass", "ops.mul(a, b)", None),
        ("from mindspore import ops\nif a:\n    from mindspore import mint", "ops.mul(a, b)", None),
        ("from mindspore.ops import mul", "mul(a, b)", None),
        ("from mindspore import ops\nprint(mint)", "ops.mul(a, b)", None),
    ],
)
def test_mint(imports: str, call: str, expected: str | None) -> None:
    assert mended(f"{imports}\nx = {call}  # 乘\n") == f"{imports}\nx = {expected or call}  # 乘\n"


def test_one_import_is_added_for_many_calls() -> None:
    text = "from mindspore import (\n    nn,  # cells\n    ops,\n)\nx = ops.mul(a, b)\ny = ops.cat([ops.sub(c, d)])\n"
    assert mended(text) == text.replace("    ops,", "    ops, mint,").replace("ops.", "mint.")
    findings = lint_python(parse_python(text, FILE))
    assert [finding.fix is not None for finding in findings] == [True, True, True]
    below = "def f():\n    return ops.mul(a, b)\n\nfrom mindspore import ops\n"
    assert mended(below) == below


def test_comments_in_strings_are_no_comments() -> None:
    text = 'import mindspore\nx = """\n# ms-tune: ignore[MST901]\n"""\n'
    assert parse_python(text, FILE).quoted()
    assert mended(text) == text


@pytest.mark.parametrize(
    ("before", "swap", "after"),
    [
        ("x = a(1)\n", Swap("Name", (1, 4, 1, 5), "b.c"), "x = b.c(1)\n"),
        ("x = a(1)\ny = 2\n", Swap("Assign", (1, 0, 1, 8), ""), "y = 2\n"),
        ("x = a(1)\n", Swap("Assign", (1, 0, 1, 8), "y = 2; z = 3"), "y = 2\nz = 3\n"),
        ("x = a(b=1)\n", Swap("keyword", (1, 6, 1, 9), "c"), "x = a(c=1)\n"),
        ("x = a(**b)\n", Swap("Name", (1, 4, 1, 5), "c"), "x = c(**b)\n"),
        ("x = {**a, 1: b}\n", Swap("Name", (1, 13, 1, 14), "c"), "x = {**a, 1: c}\n"),
    ],
)
@pytest.mark.parametrize(("said", "meant"), [("", ""), ("1", "1.0"), ("1", "True"), ("'a'", "b'a'"), ("-0.0", "0.0")])
def test_a_swap_leads_to_its_code_and_to_no_other(before: str, swap: Swap, after: str, said: str, meant: str) -> None:
    assert leads_to(ast.parse(before + said), (swap,), after + meant) is (said == meant)
    assert not leads_to(ast.parse(before + said), (), after + said)
    assert not leads_to(ast.parse(before + said), (swap,), f"{after}{said}\ndel x\n")


CALLS = (
    "ops.mul(a, b)",
    "ops.cat([ops.sub(a, b)], axis=0)",
    "ms.set_deterministic(True)",
    "ms.set_context(mode=1, deterministic='ON')",
    "ms.runtime.launch_blocking()",
    "f(1)",
)
BEFORE = ("", "x = ", "if a: ", "for i in range(3):  # 循环\n    ", "y = 1; ", '"""ops.mul(a, b)"""; ', "(z) = ")
AFTER = ("", "  # ops.mul(a, b)", "; y = 2", " ")
IMPORTS = ("from mindspore import ops", "from mindspore import mint, ops", "import mindspore.ops as ops")


@pytest.mark.slow
@given(
    imports=st.sampled_from(IMPORTS),
    lines=st.lists(st.builds("{}{}{}".format, *map(st.sampled_from, (BEFORE, CALLS, AFTER))), max_size=5),
    end=st.sampled_from(["\n", "\r\n"]),
    unsafe=st.booleans(),
)
def test_only_what_the_fixes_mean_is_changed(imports: str, lines: list[str], end: str, *, unsafe: bool) -> None:
    def whole(*body: str) -> SourceFile:
        return parse_python("\n".join((*head, *body, "")).replace("\n", end), FILE)

    head = ("import mindspore as ms", "import numpy as np", imports)
    source = whole(*lines)

    def again(one: SourceFile) -> tuple[Diagnostic, ...]:
        return lint_python(one, profile="performance")

    after, done = apply_fixes(source, again, unsafe=unsafe)
    assert apply_fixes(after, again, unsafe=unsafe)[1] == Fixed(after.text, 0)
    assert bool(done.made) is (after.text != source.text)
    alone = [apply_fixes(whole(line), again, unsafe=unsafe)[0] for line in lines]
    assert _body(after.text) == "".join(_body(one.text) for one in alone)


def _body(text: str) -> str:
    """Return the text without its three import lines."""
    return "".join(text.splitlines(keepends=True)[3:])
