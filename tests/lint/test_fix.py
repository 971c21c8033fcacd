"""Test fixes: those of the checklists, and how they are applied."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ms_tune.enums import Dialect
from ms_tune.errors import ConfigError
from ms_tune.facts.query import default_release
from ms_tune.lint.checklist import Check, built_in
from ms_tune.lint.engine import lint, matches
from ms_tune.lint.fix import Fixed, apply_fixes
from ms_tune.source.atomic_write import write_atomically, write_back
from ms_tune.source.yaml import SourceFile, parse_source
from ms_tune.text import Language, render
from tests.lint.few import few, profile_for

if TYPE_CHECKING:
    from ms_tune.diagnostics import Diagnostic

CASES = [
    pytest.param(check, dialect, id=f"{check.id}-{dialect.value}")
    for check in built_in()
    for dialect in sorted(check.dialects)
    if check.fixes and dialect is not Dialect.MEGATRON  # scripts: tests/lint/test_megatron.py
]


def version_for(check: Check, dialect: Dialect) -> str:
    versions = (default_release(dialect), "1.9", "1.8", "1.6", "2.0")
    return next(version for version in versions if matches(version, check.versions))


def find(source: SourceFile, dialect: Dialect, version: str, profile: str | None) -> tuple[Diagnostic, ...]:
    return lint(source, dialect, built_in(dialect), version, profile)


def mended(text: str, dialect: Dialect = Dialect.MINDFORMERS, *, unsafe: bool = True) -> Fixed:
    source = parse_source(text, Path("config.yaml"))
    return apply_fixes(source, lambda config: lint(config, dialect, few(dialect)), unsafe=unsafe)[1]._replace(titles=())


@pytest.mark.slow
@pytest.mark.parametrize(("check", "dialect"), CASES)
def test_the_fix_of_a_check_mends_its_bad_example(check: Check, dialect: Dialect) -> None:
    version, profile = version_for(check, dialect), profile_for(check)
    source = parse_source(check.bad, Path("config.yaml"))
    before = find(source, dialect, version, profile)
    found = [finding for finding in before if finding.id == check.id]
    assert all(finding.unfixable is None for finding in found)
    if not any(finding.fix for finding in found):
        assert all(fix.messages for fix in check.fixes), "a fix that its own example does not show"
        return

    def only_this(config: SourceFile) -> list[Diagnostic]:
        return [finding for finding in find(config, dialect, version, profile) if finding.id == check.id]

    after, fixed = apply_fixes(source, only_this, unsafe=True)
    left = {finding.id for finding in find(after, dialect, version, profile)}
    assert fixed.made == len(found)
    assert left <= ({finding.id for finding in before} - {check.id}) | check.also
    if check.fixes[0].safe and len(check.fixes) == 1:
        assert apply_fixes(source, only_this)[1] == fixed
    else:
        assert apply_fixes(source, only_this)[1].made == 0
    assert apply_fixes(after, only_this, unsafe=True)[1].made == 0


def test_every_line_that_is_not_mended_stays() -> None:
    text = (
        "# 头\r\noptimizer:  # Adam\r\n    eps: 1e-8   # 小\r\n    'betas' : [0.9,   0.95]\r\n"
        "recompute_config: {recompute: [2], recompute_slice_activation: True}\r\n"
    )
    fixed = mended(text, unsafe=False)
    assert fixed.text == text.replace("1e-8", "1.e-8").replace(", recompute_slice_activation: True", "")
    assert fixed.made == 2


def test_fixes_that_uncover_others_are_made_too() -> None:
    text = "training_config:\n  use_distributed_optimizer: True\n  delay_grad_reduce: True\n"
    fixed = mended(text, Dialect.MINDSPEED_MS)
    assert "  wrap_with_ddp: True\n" in fixed.text
    assert "  overlap_grad_reduce: True\n" in fixed.text
    assert mended(fixed.text, Dialect.MINDSPEED_MS) == Fixed(fixed.text, 0)


def test_a_shared_value_is_not_mended_and_that_is_said() -> None:
    text = "x-eps: &eps 1e-8\noptimizer: {eps: *eps}\ncontext: {save_graphs: &on True}\nprofile: *on\n"
    source = parse_source(text, Path("config.yaml"))
    found = lint(source, Dialect.MINDFORMERS, few(Dialect.MINDFORMERS))
    findings = {(finding.id, finding.location.line): finding for finding in found}
    assert findings["MST102", 1].fix is None
    assert findings["MST102", 1].unfixable is not None
    assert findings["MST102", 1].unfixable.id == "edits.unproven"
    assert findings["MST505", 3].fix is None
    # The alias is replaced where it is used, and the anchor stays for other uses.
    assert findings["MST509", 4].fix is not None
    assert "profile: False\n" in mended(text).text


def test_the_fix_of_an_item_names_the_list() -> None:
    text = "parallel_config: {pipeline_stage: 2}\nrecompute_config: {recompute: [-1, 0]}\n"
    checks = [check for check in built_in(Dialect.MINDFORMERS) if check.name == "negative-recompute"]
    (finding,) = lint(parse_source(text, Path("a.yaml")), Dialect.MINDFORMERS, checks)
    assert finding.fix is not None
    assert render(finding.fix.title, Language.EN) == "set 'recompute[0]' to 0"


MOVES = [
    (
        """\
parallel_config:
  pipeline_model_parallel_size: 2  # 段

# the top
recompute_config: # 重计算
    # of each stage
    recompute: [1, 1]  # layers

    select_recompute: |
      x
       y
model_config: {a: 1}
""",
        """\
parallel_config:
  pipeline_model_parallel_size: 2  # 段
  recompute_config: # 重计算
      # of each stage
      recompute: [1, 1]  # layers

      select_recompute: |
        x
         y

# the top
model_config: {a: 1}
""",
    ),
    (
        """\
recompute_config: {recompute: [1,
  1]}  # why
parallel_config:
    a: {b: 1}
    c:
      - 1
# end
""",
        """\
parallel_config:
    a: {b: 1}
    c:
      - 1
    recompute_config: {recompute: [1,
      1]}  # why
# end
""",
    ),
]


@pytest.mark.parametrize(("before", "after"), MOVES)
@pytest.mark.parametrize("line_break", ["\n", "\r\n"])
def test_a_key_moves_with_the_comments_on_its_lines(before: str, after: str, line_break: str) -> None:
    checks = [check for check in built_in(Dialect.MINDSPEED_MS) if check.name == "ignored-section"]
    source = parse_source(before.replace("\n", line_break), Path("config.yaml"))
    moved, fixed = apply_fixes(source, lambda config: lint(config, Dialect.MINDSPEED_MS, checks), unsafe=True)
    assert fixed._replace(titles=()) == Fixed(after.replace("\n", line_break), 1)
    assert moved.get(("parallel_config", "recompute_config")) == source.get(("recompute_config",))
    assert apply_fixes(source, lambda config: lint(config, Dialect.MINDSPEED_MS, checks))[1].made == 0  # it is unsafe


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("recompute_config: {recompute: 1}\n", "edits.no-such-place"),
        ("recompute_config: {recompute: 1}\nparallel_config: {a: 1}\n", "edits.not-a-line"),
        ("recompute_config: {recompute: 1}\nparallel_config:\n  recompute_config: {}\n", "edits.key-exists"),
        ("recompute_config: &r {recompute: 1}\nparallel_config:\n  a: 1\n", "edits.shared"),
        ("recompute_config:\n  recompute: &r 1\nx: *r\nparallel_config:\n  a: 1\n", "edits.unproven"),
        ("x: &p\n  a: 1\nparallel_config: *p\nrecompute_config: {recompute: 1}\n", "edits.shared"),
        ("parallel_config:\n  a: 1\nrecompute_config: {recompute: 1}", "edits.not-a-line"),
        ("parallel_config:\n  a: 1\naccelerate_config: {b: 1}\n", ""),
    ],
)
def test_a_key_that_cannot_be_moved_stays(text: str, reason: str) -> None:
    checks = [check for check in built_in(Dialect.MINDSPEED_MS) if check.name == "ignored-section"]
    (finding,) = lint(parse_source(text, Path("config.yaml")), Dialect.MINDSPEED_MS, checks)
    assert finding.fix is None
    assert (finding.unfixable.id if finding.unfixable else "") == reason


# The content of `x-own: &a value`, used elsewhere, is its author's own; a value that only looks like an anchor is not.
@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("num_layer : &layers 4", False),
        ("'num_layer': &layers 4", False),
        ("num_layer:  # 层数\n    &layers 4", False),
        ("num_layer: 4", True),
        ("num_layer: '&layers'", True),
    ],
)
def test_a_key_that_holds_an_anchor_is_not_taken_for_a_misspelt_one(line: str, *, found: bool) -> None:
    text = f"model_config:\n  {line}\n  hidden_size: 8\n"
    checks = [check for check in built_in(Dialect.MINDSPEED_MS) if check.name == "misspelt-library-key"]
    source = parse_source(text, Path("config.yaml"))
    findings = lint(source, Dialect.MINDSPEED_MS, checks)
    assert bool(findings) is found
    after, fixed = apply_fixes(source, lambda config: lint(config, Dialect.MINDSPEED_MS, checks), unsafe=True)
    assert fixed._replace(titles=()) == Fixed(text.replace("num_layer", "num_layers") if found else text, int(found))
    assert after.text == fixed.text


def test_what_is_merged_in_is_overruled() -> None:
    text = "x-shared: &shared\n  save_graphs: True\ncontext:\n  <<: *shared\n  mode: 0\n"
    assert mended(text) == Fixed(text + "  save_graphs: False\n", 1)


def test_writing_keeps_mark_and_permissions(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_bytes(b"\xef\xbb\xbfa: 1\r\n")
    file.chmod(0o640)
    write_back(file, "a: 1\r\n", "a: 2\r\n")
    assert file.read_bytes() == b"\xef\xbb\xbfa: 2\r\n"
    assert file.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [file]
    with pytest.raises(ConfigError, match="was modified"):
        write_back(file, "a: 1\r\n", "a: 3\r\n")


def test_links_and_folders_are_not_replaced(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("a: 1\n")
    link = tmp_path / "link.yaml"
    link.symlink_to(file)
    with pytest.raises(ConfigError, match="symbolic link"):
        write_atomically(link, b"")
    other = tmp_path / "other.yaml"
    other.hardlink_to(file)
    with pytest.raises(ConfigError, match="hard links"):
        write_atomically(file, b"")
    with pytest.raises(ConfigError, match="not a regular file"):
        write_atomically(tmp_path, b"")
    with pytest.raises(ConfigError, match="cannot be written"):
        write_atomically(tmp_path / "missing" / "a.yaml", b"")
    assert file.read_text() == "a: 1\n"
    assert {path.name for path in tmp_path.iterdir()} == {"a.yaml", "link.yaml", "other.yaml"}


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ("{pipeline_stage: 4}", "{pipeline_stage: 4, micro_batch_num: 4}"),
        ("\n  pipeline_stage: 4\n  micro_batch_num:", "\n  pipeline_stage: 4\n  micro_batch_num: 4"),
        ("{pipeline_stage: 4, micro_batch_num: 2}", "{pipeline_stage: 4, micro_batch_num: 4}"),
    ],
)
def test_what_nobody_has_written_is_added_and_not_set_elsewhere(section: str, expected: str) -> None:
    checks = [check for check in built_in() if check.id == "MST310"]
    source = parse_source(f"use_parallel: True\nparallel_config: {section}\n", Path("a.yaml"))
    done = apply_fixes(source, lambda config: lint(config, Dialect.MINDFORMERS, checks), unsafe=True)[1]
    assert done.text == f"use_parallel: True\nparallel_config: {expected}\n"
    assert done.made == 1
