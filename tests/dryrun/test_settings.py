"""Test changed settings of a run, and full stages as weighted sums of smaller ones."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from ms_tune.dryrun.extrapolate import combine_figures, solve_weights
from ms_tune.dryrun.request import DryrunRequest, Setting
from ms_tune.dryrun.settings import changed_text, list_variants, parse_sweep, with_settings
from ms_tune.enums import Dialect
from ms_tune.errors import ConfigError, UsageError
from ms_tune.source.files import diff_lines
from ms_tune.source.yaml import parse_source

KINDS = ("dense", "dense, full recompute", "moe")
counts = st.dictionaries(st.sampled_from(KINDS), st.integers(0, 40), max_size=3)
sizes = st.integers(0, 10**12)


def total(layers: dict[str, int], base: int, each: dict[str, int]) -> int:
    return base + sum(count * each[kind] for kind, count in layers.items())


def test_one_size_shows_nothing_but_itself() -> None:
    assert solve_weights({"layer": 32}, [{"layer": 4}]) is None
    assert solve_weights({"layer": 4}, [{"layer": 4}]) == (Fraction(1),)


@given(counts, st.lists(counts, min_size=1, max_size=5), sizes, st.fixed_dictionaries(dict.fromkeys(KINDS, sizes)))
def test_whatever_is_a_sum_over_layers_is_derived_exactly(
    full: dict[str, int], runs: list[dict[str, int]], base: int, each: dict[str, int]
) -> None:
    found = solve_weights(full, runs)
    assume(found is not None)
    assert found is not None
    assert sum(found) == 1
    assert combine_figures([total(run, base, each) for run in runs], found) == total(full, base, each)


@given(st.lists(counts, min_size=1, max_size=4), st.data())
def test_a_weighted_sum_of_runs_is_always_found(runs: list[dict[str, int]], data: st.DataObject) -> None:
    last = data.draw(st.integers(1, 5))
    factors = [*(data.draw(st.integers(-3, 3)) for _ in runs[1:]), 0]
    factors[-1] = 1 - sum(factors[:-1])
    full = {kind: last * sum(f * run.get(kind, 0) for f, run in zip(factors, runs, strict=True)) for kind in KINDS}
    if last == 1:
        assert solve_weights(full, runs) is not None


def test_a_figure_is_never_below_zero() -> None:
    assert combine_figures([10, 2], (Fraction(-1), Fraction(2))) == 0


TEXT = """\
# a config
parallel_config:
  data_parallel: &dp 2  # of the data
  pipeline_stage: 4
copy: *dp
recompute_config:
  recompute: [3, 4]
"""


def edited(*settings: str, text: str = TEXT, dialect: Dialect | None = Dialect.MINDFORMERS) -> str:
    source = parse_source(text, Path("config.yaml"))
    return with_settings(source, [Setting.parse(one) for one in settings], dialect).text


class TestParsing:
    @pytest.mark.parametrize(
        ("text", "path", "raw"),
        [
            ("a.b=1", ("a", "b"), "1"),
            ("a.0.c=[1, 2]", ("a", 0, "c"), "[1, 2]"),
            ("a=x=y", ("a",), "x=y"),
            ("a=", ("a",), "null"),
            (" a.b = 58GB ", ("a", "b"), "58GB"),
        ],
    )
    def test_a_setting_is_a_path_and_a_value(self, text: str, path: tuple[str | int, ...], raw: str) -> None:
        assert Setting.parse(text) == Setting(path, raw)

    @pytest.mark.parametrize("text", ["a.b", "=1", "a..b=1", "a.=1", "a=[1", "a={"])
    def test_anything_else_is_reported(self, text: str) -> None:
        with pytest.raises(UsageError, match=r"(?s)'.*'"):
            Setting.parse(text)

    @given(st.lists(st.lists(st.integers(-9, 9), max_size=4), min_size=1, max_size=5))
    def test_any_list_of_lists_can_be_swept(self, values: list[list[int]]) -> None:
        swept = parse_sweep("a=" + ",".join(map(str, values)))
        assert [yaml.safe_load(setting.raw) for setting in swept] == values


class TestVariants:
    def test_several_sweeps_make_every_combination(self) -> None:
        made = [
            one.settings for one in list_variants(DryrunRequest(settings=(Setting(("s",), "0"),)), ("a=1,2", "b=x,y,z"))
        ]
        assert [" ".join(map(str, one)) for one in made] == [
            f"s=0 a={a} b={b}" for a in ("1", "2") for b in ("x", "y", "z")
        ]

    def test_too_many_are_refused(self) -> None:
        sweep = "a=" + ",".join(map(str, range(20)))
        with pytest.raises(UsageError, match="400"):
            list_variants(DryrunRequest(), (sweep, sweep))


class TestEdits:
    def test_only_the_value_changes(self) -> None:
        assert edited("parallel_config.pipeline_stage=2") == TEXT.replace("pipeline_stage: 4", "pipeline_stage: 2")

    def test_a_known_key_that_is_not_there_is_added(self) -> None:
        made = edited("parallel_config.micro_batch_num=8")
        assert yaml.safe_load(made)["parallel_config"]["micro_batch_num"] == 8
        assert made.replace("  micro_batch_num: 8\n", "") == TEXT

    @pytest.mark.parametrize(
        ("setting", "meant"),
        [
            ("parallel_config.pipeline_stages=2", "parallel_config.pipeline_stage"),
            ("paralel_config.pipeline_stage=2", "parallel_config.pipeline_stage"),
            ("parallel_config.micro_batch_nun=2", "parallel_config.micro_batch_num"),
        ],
    )
    def test_a_slip_is_answered_with_what_was_meant(self, setting: str, meant: str) -> None:
        with pytest.raises(UsageError) as caught:
            edited(setting)
        assert caught.value.hint is not None
        assert caught.value.hint.params["path"] == meant

    def test_what_follows_an_anchor_follows(self) -> None:
        assert edited("parallel_config.data_parallel=4") == TEXT.replace("&dp 2", "&dp 4")

    def test_what_follows_an_anchor_can_be_set_by_itself(self) -> None:
        assert edited("copy=4", dialect=None) == TEXT.replace("copy: *dp", "copy: 4")

    def test_a_value_in_a_section_that_is_elsewhere_is_not_changed_behind_the_users_back(self) -> None:
        with pytest.raises(ConfigError) as caught:
            edited("c.b=2", text="a: &a\n  b: 1\nc: *a\n", dialect=None)
        assert caught.value.location() == "config.yaml:2:6"
        assert caught.value.hint is not None


class TestDiff:
    def test_changes_show_as_a_diff(self) -> None:
        source = parse_source(TEXT, Path("config.yaml"))
        text = changed_text(source, [("parallel_config.pipeline_stage", 1), ("recompute_config", None)])
        diff = "\n".join(diff_lines(TEXT, text, "a", "b"))
        assert "-  pipeline_stage: 4\n+  pipeline_stage: 1\n" in diff
        assert "-recompute_config:\n-  recompute: [3, 4]" in diff

    def test_what_cannot_be_edited_is_reported_at_the_end(self) -> None:
        source = parse_source(TEXT, Path("config.yaml"))
        text = changed_text(source, [("parallel_config.data_parallel", 8), ("parallel_config", None)])
        assert yaml.safe_load(text)["parallel_config"]["data_parallel"] == 2
        assert "# parallel_config: (left out)\n" in text
        assert "# parallel_config.data_parallel: 8\n" in text
