from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ms_tune.diagnostics import Location
from ms_tune.errors import ConfigError
from ms_tune.source.yaml import MAX_BYTES, SourceFile, load_source, parse_source
from ms_tune.text import Language, render
from tests.source.corpus import wheel_configs

CONFIGS = wheel_configs()


def parse(text: str) -> SourceFile:
    return parse_source(text, Path("config.yaml"))


def words(source: SourceFile, span: Location) -> str:
    return source.text[span.start : span.end]


def value(source: SourceFile, *path: str | int) -> str:
    position = source.position(path)
    assert position is not None
    return words(source, position.value)


def same(one: Any, other: Any) -> bool:  # noqa: ANN401 - whatever YAML holds
    """Return whether values are equal, including types, order and NaN."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other) or (isinstance(one, float) and math.isnan(one) and math.isnan(other))


@pytest.mark.slow
@pytest.mark.skipif(not CONFIGS, reason="mindformers is not installed")
def test_wheel_configs_are_read_as_pyyaml_reads_them() -> None:
    for path in CONFIGS:
        source = load_source(path)
        assert same(source.data, yaml.safe_load(path.read_text(encoding="utf-8"))), path
        for key_path, position in source.positions():
            if position.plain:
                assert same(yaml.safe_load(position.plain.raw), source.get(key_path)), (path, key_path)


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.dates()
DOCUMENTS = st.dictionaries(
    st.text(max_size=10) | st.integers(),
    st.recursive(
        SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    min_size=1,
    max_size=5,
)


@pytest.mark.slow
@given(document=DOCUMENTS, flow=st.booleans(), unicode=st.booleans())
def test_any_document_is_read_as_pyyaml_reads_it(document: dict[Any, Any], *, flow: bool, unicode: bool) -> None:
    text = yaml.safe_dump(document, default_flow_style=flow, allow_unicode=unicode)
    source = parse(text)
    assert same(source.data, yaml.safe_load(text))
    for path, position in source.positions():
        # The text of the span means the same as the value at the path.
        if position.plain and position.plain.raw:
            assert same(yaml.safe_load(position.plain.raw), source.get(path))


TREES = st.recursive(
    st.sampled_from(["1", "x", "中文", "null"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=10,
)


@given(tree=st.dictionaries(st.sampled_from("abc"), TREES, min_size=1), newline=st.sampled_from(["\n", "\r\n"]))
def test_every_value_has_a_position(tree: dict[str, Any], newline: str) -> None:
    text = yaml.safe_dump(tree, allow_unicode=True).replace("\n", newline)
    source = parse(text)
    lines = text.split(newline)
    paths = dict(source.positions())

    def check(path: tuple[str | int, ...], node: object) -> None:
        if path:
            span = paths[path].value
            assert source.position(path) == paths[path]
            assert lines[span.line - 1][span.column - 1 :].startswith(text[span.start : span.end].split(newline)[0])
        children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        for key, child in children:
            check((*path, key), child)

    check((), tree)


@given(st.text(max_size=200) | st.text(alphabet="{}[]:,&*a-\n #!|>'\"<%@\t", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        source = parse(text)
    except ConfigError as error:
        assert str(error).startswith("config.yaml")  # noqa: PT017 - both ways out are fine
    else:
        list(source.positions())


def test_positions() -> None:
    source = parse("# 配置\na:\n  b: 1\n\n  名: '值'  # c\n  list: [10, {x: y}]\nz: |\n  text\n\n")
    position = source.position(("a", "名"))
    assert position is not None
    assert position.key == Location(18, 19, 5, 3, 5, 4)
    assert position.value == Location(21, 24, 5, 6, 5, 9)
    assert position.plain is None
    assert value(source, "a", "list", 1, "x") == "y"
    assert value(source, "a", "list") == "[10, {x: y}]"
    assert value(source, "a").endswith("{x: y}]")
    assert value(source, "z") == "|\n  text"
    assert source.position(("a", "missing")) is None
    assert source.nearest(("a", "b", "c")) == source.position(("a", "b"))
    assert source.nearest(("nothing",)).value.line == 2
    assert source.line(5) == "  名: '值'  # c"


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_line_ends_and_byte_order_mark(tmp_path: Path, newline: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_bytes(f"\ufeffa: 1{newline}b: 二{newline}c: 3{newline}".encode())
    source = load_source(file)
    assert source.data == {"a": 1, "b": "二", "c": 3}
    position = source.position(("c",))
    assert position is not None
    assert (position.value.line, position.value.column) == (3, 4)


def test_raw_text_and_kind_of_plain_scalars() -> None:
    source = parse("a: 1e-5\nb: 1.e-5\nc: 010\nd: off\ne: None\nf:\ng: '1'\nh: !!str 5\ni: &x 7\n")
    kinds = {
        path[0]: position.plain and (position.plain.raw, position.plain.kind) for path, position in source.positions()
    }
    assert kinds == {
        "a": ("1e-5", "str"),
        "b": ("1.e-5", "float"),
        "c": ("010", "int"),
        "d": ("off", "bool"),
        "e": ("None", "str"),
        "f": ("", "null"),
        "g": None,
        "h": ("5", "str"),
        "i": ("7", "int"),
    }


def test_aliases_know_where_they_are_used() -> None:
    source = parse("dp: &dp 4\nbase: &base\n  x: 1\nlist: [*dp, 2]\ncopy: *base\n")
    position = source.position(("list", 0))
    assert position is not None
    assert (words(source, position.value), words(source, position.definition)) == ("*dp", "4")
    inside = source.position(("copy", "x"))
    assert inside is not None
    assert (inside.value.line, [words(source, use) for use in inside.uses]) == (3, ["*base"])
    assert [path for path, _ in source.positions()] == [
        ("dp",),
        ("base",),
        ("base", "x"),
        ("list",),
        ("list", 1),
    ]


def test_merge_keys() -> None:
    text = "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc:\n  <<: [*a, *b]\n  x: 3\nd:\n  <<: {q: 5}\n"
    source = parse(text)
    assert source.data == yaml.safe_load(text)
    assert source.data["c"] == {"x": 3, "y": 1, "z": 2}
    assert value(source, "c", "x") == "3"
    merged = source.position(("c", "y"))
    assert merged is not None
    assert (words(source, merged.value), words(source, merged.definition)) == ("*a", "1")
    assert value(source, "c", "z") == "*b"
    assert value(source, "d", "q") == "5"
    assert source.duplicates == ()


def test_duplicate_keys() -> None:
    source = parse("a:\n  x: 1\n  x: 2\n  x: 3\n1: p\n1: q\n")
    assert source.data == {"a": {"x": 3}, 1: "q"}
    assert [(d.path, d.first.line, d.second.line) for d in source.duplicates] == [
        ((1,), 5, 6),
        (("a", "x"), 2, 3),
        (("a", "x"), 3, 4),
    ]


LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGE_LAUGHS = "a: &a {x: 1}\n" + "".join(
    f"k{n}: &k{n}\n  <<: [{', '.join(['*a' if n == 0 else f'*k{n - 1}'] * 3)}]\n" for n in range(40)
)
CHAIN = "k0: &k0 [1]\n" + "".join(f"k{n}: &k{n} [[[*k{n - 1}]]]\n" for n in range(1, 60))


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("", "", "empty"),
        ("# nothing\n", "", "empty"),
        ("- a\n", "1:1", "top level"),
        ("text", "1:1", "top level"),
        ("a: 1\n---\nb: 2\n", "2:1", "second YAML document"),
        ("a: &a [*a]\n", "1:8", "inside the value"),
        ("a: &a {b: {c: *a}}\n", "1:15", "inside the value"),
        ("a: *b\n", "1:4", "*b has no anchor"),
        ("a: &x 1\nb: &x 2\n", "2:4", "&x is defined twice"),
        ("a: !!python/object/apply:os.system ['true']\n", "1:4", "!!python/object/apply:os.system"),
        ("a: !mine 5\n", "1:4", "!mine"),
        ("a: 1\nb: 2024-13-45\n", "2:4", "2024-13-45"),
        ("a: !!int x\n", "1:4", "not a valid value"),
        ("a:\n\tb: 1\n", "2:1", "tab"),
        ("a: b: c\n", "1:5", "': ' is not allowed here"),
        ("a: [1, 2\nb: 3\n", "2:2", "not valid YAML"),
        ("a: 1\nb\nc: 2\n", "3:1", "has no colon"),
        ("a: \x07\n", "1:4", "U+0007"),
        ("a: " + "[" * 101 + "]" * 101, "1:103", "more than 100 levels"),
        ("{[a]: 1}", "1:2", "not valid YAML"),
        ("b: 2\na: [0]*1+[1]*3\n", "2:9", "multiplied or added as in Python"),
        ("a: 1\nb: ['mlp[0-9]+, x[a-z]*\n", "3:1", "not valid YAML"),  # a quotation mark that is not closed
        ("a: [0] + [1]\nb: 2\n", "1:8", "multiplied or added as in Python"),
        (LAUGHS, "6:7", "more than 200000 values"),
        (MERGE_LAUGHS, "21:7", "more than 200000 values"),
        (CHAIN, "34:11", "more than 100 levels"),
    ],
)
def test_hostile_texts(text: str, where: str, what: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert caught.value.location() == ("config.yaml:" + where).rstrip(":")
    assert what in str(caught.value)
    assert render(caught.value.message, Language.ZH)


@pytest.mark.parametrize("value", ["", "3", "x", "''", "[1, 2]", "{a: 1}", "2024-13-45", "[[1, 2]]", "[{a: 1}]"])
@pytest.mark.parametrize("tag", sorted(filter(None, yaml.SafeLoader.yaml_constructors)))
def test_tags_are_taken_as_pyyaml_takes_them(tag: str, value: str) -> None:
    text = f"d: !<{tag}> {value}\n"
    try:
        expected = yaml.safe_load(text)
    except Exception:  # noqa: BLE001 - PyYAML raises many
        with pytest.raises(ConfigError):
            parse(text)
    else:
        assert parse(text).data == expected


def test_what_libyaml_itself_finds_too_deep() -> None:
    with pytest.raises(ConfigError) as caught:
        parse("a: " + "[" * 100_000)
    assert caught.value.message.id == "config.too-deep"
    assert caught.value.location() in ("config.yaml:1:103", "config.yaml:1:1003")  # PyYAML 6.0.4 looks as far ahead


def test_unreadable_files(tmp_path: Path) -> None:
    def refused(path: Path) -> str:
        with pytest.raises(ConfigError) as caught:
            load_source(path)
        return str(caught.value).removeprefix(str(tmp_path))

    file = tmp_path / "a.yaml"
    assert refused(file) == "/a.yaml: no such file"
    assert refused(tmp_path) == ": is a folder, not a file"
    file.write_bytes(b"a: \xc4\xe3\xba\xc3\n")
    assert refused(file) == "/a.yaml:1:4: is not valid UTF-8 from here on"
    file.write_bytes(b"\x7fELF\0\0")
    assert "binary" in refused(file)
    for encoding in ("utf-16", "utf-16-be"):
        file.write_bytes("\ufeff".encode("utf-16-be") * (encoding != "utf-16") + "a: 1\n".encode(encoding))
        assert "is UTF-16, not UTF-8" in refused(file)
    file.write_bytes(b"a: b\n" + b"#" * MAX_BYTES)
    assert "larger than 4 MiB" in refused(file)
    assert "cannot be read" in refused(file / "b")


def test_nothing_is_executed(tmp_path: Path) -> None:
    target = tmp_path / "made"
    with pytest.raises(ConfigError):
        parse(f"a: !!python/object/apply:pathlib.Path.touch [!!python/object/apply:pathlib.Path ['{target}']]\n")
    assert not target.exists()


def test_each_alias_is_where_it_is_written() -> None:
    text = (
        "d: &d {t: &t [&s 1, *s], u: *t, v: [*t, *s]}\n"
        "e:\n  - *d  # of all\n  - - *t\n    - *s\n  - ? *s\n    : *t\nf: *d\n"
    )
    source = parse(text)
    places = {
        ("d", "t", 1): "*s", ("d", "u"): "*t", ("d", "v", 0): "*t", ("d", "v", 1): "*s", ("e", 0): "*d",
        ("e", 1, 0): "*t", ("e", 1, 1): "*s", ("e", 2, 1): "*t", ("f",): "*d",
    }  # fmt: skip
    starts = []
    for path, words in places.items():
        position = source.position(path)
        assert position is not None, path
        assert text[position.value.start : position.value.end] == words, path
        starts.append(position.value.start)
    written = [match.start() for match in re.finditer(r"\*\w", text)]
    assert sorted(starts) == [one for one in written if text[one - 2] != "?"]
    assert source.nearest(("e", 2)).value.end == text.index("\nf:")


def test_a_key_that_is_an_equals_sign_is_a_text_as_for_pyyaml() -> None:
    assert parse("=: 3\n").data == yaml.safe_load("=: 3\n") == {"=": 3}


def test_the_parser_without_c_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a: &a [1, 二, {x: y}]\r\nb: *a\r\nc: &c\r\n  # note\r\n  d: |\r\n    t\r\n\r\ne: {<<: *c}\r\nf:\r\n"
    fast = parse(text)
    monkeypatch.setattr("ms_tune.source.yaml_nodes.Loader", yaml.SafeLoader)
    slow = parse(text)
    assert slow.data == fast.data
    assert list(slow.positions()) == list(fast.positions())
    assert slow.position(("e", "d")) == fast.position(("e", "d"))
    with pytest.raises(ConfigError, match=r"1:3: tabs"):
        parse("a:\tb\n\tc: d\n")
