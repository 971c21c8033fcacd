from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_tune.dialects.check_context import CheckContext
from ms_tune.enums import Dialect
from ms_tune.facts.models import UNKNOWN
from ms_tune.lint.checklist import Check
from ms_tune.lint.engine import job_of, lint
from ms_tune.lint.expressions import Scope, evaluate
from ms_tune.lint.rows import MAX_DEPTH, MAX_LENGTH, parse_expression, row_of
from ms_tune.source.yaml import parse_source
from tests.jobs import commands_in

if TYPE_CHECKING:
    from ms_tune.diagnostics import Diagnostic

VALUES = {"a": 6, "b.c": 4, "zero": 0, "half": 0.5, "name": "Causal", "flag": True, "null": None, "rows": [[0, 2], 1]}


def scope(values: dict[str, Any]) -> Scope:
    """Return a scope that maps names of an expression to values."""
    nothing = parse_source("{}", Path("a.yaml"))
    return Scope(CheckContext(job_of(nothing, Dialect.MINDFORMERS, "1.9"), {}), {}, values)


def value_of(text: str) -> bool | None:
    """Return the value of an expression; None if it is unknown."""
    value = evaluate(parse_expression(text), scope(VALUES))
    return None if value is UNKNOWN else bool(value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a % b.c == 2", True),
        ("a // b.c * b.c + a % b.c == a", True),
        ("2 + 3 * 4 == 14", True),
        ("(2 + 3) * 4 == 20", True),
        ("-a < -5", True),
        ("1 < b.c < a", True),
        ("1 < a < b.c", False),
        ("not a == 6 or b.c == 4", True),
        ("a > 1 and b.c > 10", False),
        ("half * 2 == 1", True),
        ("a == 6.0", True),
        ("missing > 1", None),
        ("missing > 1 or a == 6", True),
        ("missing > 1 and a == 7", False),
        ("missing > 1 and a == 6", None),
        ("not missing", None),
        ("a % zero == 0", None),
        ("a - b.c - 1 == 1", True),
        ("a", True),
        ("name == 'Causal'", True),
        ("lower(name) in ('causal', '')", True),
        ("lower(a) in ('causal', '')", None),
        ("a in (6, 7) and name not in ('x',)", True),
        ("flag is True and null is None", True),
        ("flag == 1", None),
        ("flag + 1 > 0", None),
        ("name > 1", None),
        ("missing is None", None),
        ("null is None or missing", True),
        ("largest(rows) == 2", True),
        ("largest(name) == 2", None),
        ("rows[1] == 1 and rows[-1] == 1 and rows[0][1] == 2", True),
        ("rows[2] == 1", None),
        ("a[0] == 1", None),
        ("any(kind(row) == 'list' for row in rows)", True),
        ("all(kind(row) == 'list' for row in rows)", False),
        ("all(one < 3 for one in rows[0] if one > 0)", True),
        ("any(one > missing for one in rows[0])", None),
        ("any(one == 0 or one > missing for one in rows[0])", True),
        ("all(one > missing for one in rows[0])", None),
        ("any(one for one in missing)", None),
        ("len(rows) == 2 and len(name) == 6", True),
        ("len(a) == 1", None),
        ("known(missing) or known(null) and on(flag) and not on(zero) and not on(missing)", True),
        ("integer(flag) == 1", None),
        ("integer(missing, 3) == 3 and integer(half, 2) == 2 and integer(a, 1) == 6", True),
        ("either(missing, 'x') == 'x' and either(name, 'x') == 'Causal'", True),
        ("kind(null) == 'null' and kind(flag) == 'bool' and kind(half) == 'float'", True),
        ("matches(name, 'Cau') and not matches(name, 'Cau$') and not matches(a, '6')", True),
        ("numeral('1e5') and not numeral(name)", True),
        ("size('64GB') == size('65536MB')", True),
        ("a in (zero, b.c, 6)", True),
    ],
)
def test_relations(text: str, expected: bool | None) -> None:  # noqa: FBT001 - a table
    assert value_of(text) is expected


def test_names_are_in_order_and_once() -> None:
    names: list[str] = []
    parse_expression("b.c + a < b.c", names)
    assert dict.fromkeys(names) == {"b.c": None, "a": None}


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "a +",
            "a b",
            "a = 1",
            "(a",
            "a)",
            "a ** 2",
            "a / 2",
            "f(a)",
            "lower()",
            "lower(a, a)",
            "a.b()",
            "a | 1",
            "b'a'",
            "f'{a}'",
            "[a]",
            "__import__('os')",
            "a.1",
        ),
        *("a if b else c", "lambda: 1", "and", "a and", "1..2", "a; b", "a\\b"),
        *("-" * (MAX_DEPTH + 2) + "a", "a" * (MAX_LENGTH + 1), "not " * 99 + "a", "(" * 201 + ")"),
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no expression of a checklist"):
        parse_expression(text)


SUMS = st.recursive(
    st.integers(0, 50).map(str),
    lambda inner: st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%"]), inner, st.booleans()).map(
        lambda parts: f"({parts[0]} {parts[1]} {parts[2]})" if parts[3] else f"{parts[0]} {parts[1]} {parts[2]}"
    ),
    max_leaves=8,
)


@given(SUMS)
def test_arithmetic_is_pythons(text: str) -> None:
    try:
        expected = eval(text)  # noqa: S307 - numbers and operators
    except ZeroDivisionError:
        expected = None
    # Python leaves a whole chain at the first division by zero, the language says "unknown": neither has a result.
    value = evaluate(parse_expression(f"({text}) == x"), scope({"x": expected if expected is not None else 0}))
    assert value is (UNKNOWN if expected is None else True)


def checked(text: str, *tests: dict[str, Any]) -> tuple[Diagnostic, ...]:
    """Return the findings of tests in a config; each message has the test's name."""
    entry: dict[str, Any] = {
        "id": "T1",
        "name": "t",
        "severity": "warning",
        "category": "correctness",
        "help": {"en": "", "zh": ""},
        "messages": {name: {"en": name, "zh": ""} for name in ("default", "one", "other")},
        "dialects": ["mindformers"],
        "test": list(tests),
    }
    return lint(parse_source(text, Path("a.yaml")), Dialect.MINDFORMERS, [Check(row_of(entry), entry)])


def test_what_the_check_says() -> None:
    names = ("heads", "ways", "none")

    def run_test(refuse: str, **test: object) -> list[tuple[tuple[str | int, ...], dict[str, object], int]]:
        config = "m: {heads: 7}\np: {ways: 2, flag: True}\n"
        findings = checked(config, {"refuse": refuse, **test})
        return [
            (one.path, {name: value for name, value in one.message.params.items() if name in names}, len(one.related))
            for one in findings
        ]

    assert run_test("m.heads % p.ways != 0") == [(("m", "heads"), {"heads": "7", "ways": "2"}, 0)]
    assert run_test("m.heads % p.ways != 0", at="p.ways", related="one")[0][0] == ("p", "ways")
    assert run_test("m.heads % p.ways != 0", related="one")[0][2] == 1
    assert run_test("m.heads % p.ways != 0", given="p.ways > 2") == []
    assert run_test("m.heads % p.flag != 0") == []  # True is no number
    assert run_test("m.heads % p.none != 0") == []
    assert run_test("m.heads % p.none != 0", defaults={"p.none": 4})[0][1] == {"heads": "7", "none": "4"}
    assert run_test("p.none <= m.heads", defaults={"p.none": 4})[0][0] == ("m", "heads")
    assert run_test("p.none > 3", defaults={"p.none": 4}) == []  # nothing of it is written


def run_tests(text: str, *tests: dict[str, Any]) -> list[tuple[str, str]]:
    return [(".".join(map(str, one.path)), one.message.text.en) for one in checked(text, *tests)]


def test_each_value_is_looked_at_by_itself() -> None:
    text = "s: {a: [1, -2, x], b: {c: -3, d: 4}, n: 3}\n"
    below = {"each": ["s.a.*", "s.b.*"], "refuse": "value < 0"}
    assert run_tests(text, below) == [("s.a.1", "default"), ("s.b.c", "default")]
    assert run_tests(text, {**below, "given": "kind(within) == 'dict'"}) == [("s.b.c", "default")]
    assert run_tests(text, {**below, "given": "key == 'd'"}) == []
    cases = {"one": "value == highest", "other": "value > 0"}
    highest = {"each": "s.*", "let": {"highest": "s.n"}, "refuse": cases}
    assert run_tests(text, highest) == [("s.n", "one")]
    assert run_tests(text, highest, {**below, "refuse": {"other": "value > 0"}}) == [
        *(("s.a.0", "other"), ("s.b.d", "other"), ("s.n", "one")),
    ]
    lacking = {"each": "s.b", "refuse": "not known(value.e)", "place": ["", "e"]}
    assert run_tests(text, lacking) == [("s.b.e", "default")]
    assert run_tests(text, {"refuse": "not written.s.x", "place": {"default": "s.y"}}) == [("s.y", "default")]


def test_arguments_of_a_program() -> None:
    script = "msrun --worker_num 8 pretrain_gpt.py --ai-framework mindspore --num-layers 8 --bf16 --lr $(cat rate)\n"
    (command,) = commands_in(Path("a.sh"), script, "2.3")
    context = CheckContext(job_of(command, Dialect.MEGATRON, "2.3"), {})
    names = ("num_layers", "tensor_model_parallel_size", "bf16", "fp16", "lr", "no_release_has_it")
    assert [context.value(f"argument.{name}") for name in names] == [8, 1, True, False, UNKNOWN, None]
    assert [context.value(f"written.argument.{name}") for name in names] == [True, False, True, False, True, False]
    assert context.find_setting("argument.num_layers") == ("--num-layers",)
    assert {"--num-layers", "num_layers", "bf16"} <= command.key_names
    config = CheckContext(job_of(parse_source("num_layers: 8\n", Path("a.yaml")), Dialect.MINDFORMERS, "1.9"), {})
    assert config.value("argument.num_layers") is UNKNOWN
