from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ms_tune.diagnostics import KeyPath, TextEdit
from ms_tune.enums import ChangeKind
from ms_tune.errors import ConfigError
from ms_tune.source import yaml_nodes
from ms_tune.source.edit import EditRefusedError, ValueChange, apply_edits, overlap, prove, same_data, spell
from ms_tune.source.yaml import SourceFile, load_source, parse_source
from tests.source.corpus import wheel_configs

REMOVE, SET, RENAME, ADD = (
    ChangeKind.REMOVE_KEY,
    ChangeKind.SET_VALUE,
    ChangeKind.RENAME_KEY,
    ChangeKind.ADD_KEY,
)
CONFIGS = wheel_configs()


def parse(text: str) -> SourceFile:
    return parse_source(text, Path("config.yaml"))


def changed(text: str, change: ValueChange) -> str:
    """Return the text after a validated change, or why it is refused."""
    source = parse(text)
    try:
        edits = change.edits(source)
    except EditRefusedError as refusal:
        return refusal.message.id
    return apply_edits(text, edits) if prove(source, [change], edits) else "unproven"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "change", "expected"),
    [
        # A key is removed with its line, its comment and its line break; nothing else moves.
        ("a: 1 # c\r\nb: 2\r\n", ValueChange(REMOVE, ("a",)), "b: 2\r\n"),
        ("# 头\na: 1\n# 尾\nb: 2", ValueChange(REMOVE, ("a",)), "# 头\n# 尾\nb: 2"),
        ("a: 1\nb: 2", ValueChange(REMOVE, ("b",)), "a: 1\n"),
        ("a:\n  b: 1\n  c:\n  - x\n  - y # z\nd: 2\n", ValueChange(REMOVE, ("a", "c")), "a:\n  b: 1\nd: 2\n"),
        ("a:\n  b: 1 # x\nd: 2\n", ValueChange(REMOVE, ("a", "b")), "a: {}\nd: 2\n"),
        ("a: &x # why\n  b: 1\nd: 2\n", ValueChange(REMOVE, ("a", "b")), "a: &x {} # why\nd: 2\n"),
        ("{a: 1, b: 2, c: 3}", ValueChange(REMOVE, ("b",)), "{a: 1, c: 3}"),
        ("{a: 1, b: 2 }", ValueChange(REMOVE, ("b",)), "{a: 1 }"),
        ("a: {b: 1}\n", ValueChange(REMOVE, ("a", "b")), "a: {}\n"),
        ("a: {b: [1, 2],\n    c: 3}\n", ValueChange(REMOVE, ("a", "b")), "a: {\n    c: 3}\n"),
        ("a: [1, 2]\n", ValueChange(REMOVE, ("a", 0)), "edits.list-item"),
        ("a:\n- b: 1\n  c: 2\n", ValueChange(REMOVE, ("a", 0, "b")), "edits.not-a-line"),
        ("a:\n- b: 1\n  c: 2\n", ValueChange(REMOVE, ("a", 0, "c")), "a:\n- b: 1\n"),
        ("a: 1\n", ValueChange(REMOVE, ("a",)), "edits.last-key"),
        ("? a\n: 1\nb: 2\n", ValueChange(REMOVE, ("a",)), "edits.shared"),
        # Values used elsewhere stay: anchors, merged sections, the first of two equal keys.
        ("a: &x 1\nb: *x\n", ValueChange(REMOVE, ("a",)), "unproven"),
        ("a: &x 1\nb: *x\nc: 2\n", ValueChange(REMOVE, ("b",)), "a: &x 1\nc: 2\n"),
        ("a: &x {k: 1}\nb:\n  <<: *x\n  l: 2\n", ValueChange(REMOVE, ("b", "k")), "edits.shared"),
        ("a: &x {k: 1}\nb: *x\n", ValueChange(SET, ("b", "k"), 2), "edits.shared"),
        ("a: &x {k: 1}\nb: *x\n", ValueChange(SET, ("a", "k"), 2), "unproven"),
        ("a: &x {k: 1}\nb:\n  <<: *x\n", ValueChange(SET, ("b", "k"), 2), "edits.no-such-place"),
        (
            "a: &x {k: 1}\nb:\n  <<: *x\n  l: 3\n",
            ValueChange(SET, ("b", "k"), 2),
            "a: &x {k: 1}\nb:\n  <<: *x\n  l: 3\n  k: 2\n",
        ),
        ("a:\n- - 1\n  - 2\n- 3\n", ValueChange(SET, ("a", 0), [4]), "a:\n- [4]\n- 3\n"),
        ("a: 1\na: 2\nb: 3\n", ValueChange(REMOVE, ("a",)), "unproven"),
        # Values: the anchor, the quotes and the spelling of truth stay.
        ("a: &x 1 # c\n", ValueChange(SET, ("a",), 2), "a: &x 2 # c\n"),
        ("a: &x 1\nb: *x # c\n", ValueChange(SET, ("b",), 2), "a: &x 1\nb: 2 # c\n"),
        ("a: True\n", ValueChange(SET, ("a",), value=False), "a: False\n"),
        ("a: true\n", ValueChange(SET, ("a",), value=False), "a: false\n"),
        ("a: 'x'\n", ValueChange(SET, ("a",), "it's"), "a: 'it''s'\n"),
        ('a: "x"\n', ValueChange(SET, ("a",), 'say "\\'), 'a: "say \\"\\\\"\n'),
        ("a: x\n", ValueChange(SET, ("a",), "on"), 'a: "on"\n'),
        ("a: 1e-5\n", ValueChange(SET, ("a",), None, "1.e-5"), "a: 1.e-5\n"),
        ("a:\nb: 1\n", ValueChange(SET, ("a",), [1, 2]), "a: [1, 2]\nb: 1\n"),
        ("a: # c\nb: 1\n", ValueChange(SET, ("a",), None, "5"), "a: 5 # c\nb: 1\n"),
        ("a: [1,\n  2]\n", ValueChange(SET, ("a",), 3), "a: 3\n"),
        ("a:\n- 1\n- 2\nb: 1\n", ValueChange(SET, ("a",), [3]), "a: [3]\nb: 1\n"),
        ("a:\n  # c\n  - 1\n", ValueChange(SET, ("a",), [3]), "a: [3]\n  # c\n"),
        ("a:\n- 1 # c\n- 2\n", ValueChange(SET, ("a",), [3]), "edits.several-lines"),
        ("a: [1, [2, 3]]\n", ValueChange(SET, ("a", 1, 0), 0), "a: [1, [0, 3]]\n"),
        ("a: 1\n", ValueChange(SET, ("b",), 3), "edits.no-such-place"),
        # Keys.
        ("'a': 1 # c\n", ValueChange(RENAME, ("a",), "b"), "'b': 1 # c\n"),
        ("feed.mul: 1\n", ValueChange(RENAME, ("feed.mul",), "feed\\.mul"), "feed\\.mul: 1\n"),
        ("a: 1\nb: 2\n", ValueChange(RENAME, ("a",), "b"), "unproven"),
        ("a: [1]\n", ValueChange(RENAME, ("a", 0), "b"), "edits.list-item"),
        ("a:\n  b: 1 # c\n\nd: 2\n", ValueChange(ADD, ("a", "c"), value=True), "a:\n  b: 1 # c\n  c: True\n\nd: 2\n"),
        ("a:\r\n  b: 1", ValueChange(ADD, ("a", "c"), 2), "a:\r\n  b: 1\r\n  c: 2"),
        ("a:\n- b: 1\n", ValueChange(ADD, ("a", 0, "c"), 2), "a:\n- b: 1\n  c: 2\n"),
        ("a: {b: 1}\n", ValueChange(ADD, ("a", "c"), 2), "a: {b: 1, c: 2}\n"),
        ("a: {}\n", ValueChange(ADD, ("a", "c"), 2), "a: {c: 2}\n"),
        ("a:\n", ValueChange(ADD, ("a", "c"), 2), "edits.no-such-place"),
        ("a: &x {b: 1}\nd: *x\n", ValueChange(ADD, ("d", "c"), 2), "edits.no-such-place"),
        ("a: {b: 1}\n", ValueChange(ADD, ("a", "b"), 2), "unproven"),
    ],
)
def test_changes(text: str, change: ValueChange, expected: str) -> None:
    assert changed(text, change) == expected


def test_edits_that_overlap() -> None:
    with pytest.raises(ValueError, match="Edit"):
        apply_edits("abc", [TextEdit(0, 2, "x"), TextEdit(1, 3, "y")])
    assert overlap([TextEdit(0, 2, "x")], [TextEdit(2, 3, "y")])
    assert not overlap([TextEdit(0, 1, "x")], [TextEdit(2, 3, "y")])


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)


@given(value=VALUES | st.lists(VALUES, max_size=3), old=st.sampled_from(["", "True", "true", "'x'", '"x"', "1"]))
def test_what_is_spelled_is_read_back(value: object, old: str) -> None:
    if isinstance(value, str) and (not value.isprintable() or "\x85" in value):
        return  # a config with such characters is refused
    assert same_data(yaml.safe_load(f"a: {spell(value, old)}")["a"], value)


TREES = st.recursive(
    st.booleans() | st.integers(-9, 9) | st.sampled_from(["x", "it's", "a b", "#", "数"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=4),
    max_leaves=8,
)


@given(
    data=st.dictionaries(st.sampled_from("abcd"), TREES, min_size=1, max_size=4),
    flow=st.booleans() | st.none(),
    line_break=st.sampled_from(["\n", "\r\n"]),
    kind=st.sampled_from(ChangeKind),
    draw=st.data(),
)
def test_other_lines_stay_as_they_are(
    data: dict[str, object], line_break: str, kind: ChangeKind, draw: st.DataObject, *, flow: bool | None
) -> None:
    """Any change affects only lines and the value of its own key."""
    written: str = yaml.safe_dump(data, default_flow_style=flow, allow_unicode=True, width=10**6)
    lines = [f"{line}  # 注 {number}" for number, line in enumerate(written.splitlines())]
    text = line_break.join([*lines, ""])
    source = parse(text)
    paths: list[KeyPath] = [path for path, _ in source.positions()]
    path = draw.draw(st.sampled_from(paths))
    change = ValueChange(kind, (*path, "new") if kind is ADD else path, "new" if kind is RENAME else 7)
    try:
        edits = change.edits(source)
    except EditRefusedError:
        return
    mended = apply_edits(text, edits)
    if not prove(source, [change], edits):
        return
    assert same_data(parse(mended).data, change.applied(source.data))
    position = source.position(path)
    assert position is not None
    first = (position.key or position.value).line
    parent = source.position(path[:-1]) if path[:-1] else None
    touched = {*range(first, position.value.end_line + 1), *([parent.key.line] if parent and parent.key else [])}
    kept = [line for number, line in enumerate(text.split("\n"), 1) if number not in touched]
    assert [line for line in mended.split("\n") if line in kept] == kept


@pytest.mark.slow
@pytest.mark.skipif(not CONFIGS, reason="mindformers is not installed")
def test_every_key_of_real_configs_can_be_set_or_is_refused() -> None:
    """Numbers and switches of the wheel's configs: one line changes, or the value is shared."""
    made = 0
    for path in CONFIGS:
        source = load_source(path)
        for key_path, position in source.positions():
            if position.plain is None or position.plain.kind not in ("int", "bool"):
                continue
            change = ValueChange(SET, key_path, 12345)
            edits = change.edits(source)
            if not prove(source, [change], edits):
                assert "*" in source.text  # an alias leads here, or to a section around it
                continue
            old, new = source.text.splitlines(), apply_edits(source.text, edits).splitlines()
            assert [a == b for a, b in zip(old, new, strict=True)].count(False) == 1
            made += 1
    assert made > 500


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("".join(f"k{number}: 1\n" for number in range(60)), "config.too-many-written"),
        ("a: &a [1, 2, 3, 4, 5, 6, 7, 8, 9]\n" + "".join(f"k{n}: *a\n" for n in range(9)), "config.too-many"),
    ],
)
def test_the_reason_is_the_right_one(text: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_nodes, "MAX_VALUES", 50)
    with pytest.raises(ConfigError) as caught:
        parse_source(text, Path("a.yaml"))
    assert caught.value.message.id == reason
