"""Test the facts about arguments of MindSpeed-LLM's programs, release by release."""

from __future__ import annotations

from ms_tune.facts.megatron import (
    Definition,
    definitions,
    names,
    parts_of,
    programs,
    releases_of,
    releases_on,
    tag,
)

RELEASES = ("2.0", "2.1", "2.2", "2.3", "26.0", "26.1")


def test_releases_and_what_they_run_with() -> None:
    assert "pretrain_gpt.py" in programs()
    assert (releases_on("core_r0.8.0"), releases_on("core_v0.12.1")) == (("2.0", "2.1"), ("2.2", "2.3", "26.0", "26.1"))
    assert releases_on("core_r0.1") == ()
    assert tag("MindSpeed-LLM", "2.3") == "v2.3.0"
    assert tag("Megatron-LM", "2.0") == "core_r0.8.0"


def test_an_argument_is_what_its_parser_defines() -> None:
    plain = Definition("Megatron-LM", "num_layers", None, "int", None, None, None, required=False)
    switch = Definition("Megatron-LM", "bf16", "store_true", "str", None, None, False, required=False)  # noqa: FBT003
    chosen = Definition(
        "Megatron-LM", "recompute_granularity", None, "str", None, ("full", "selective"), None, required=False
    )
    for release in RELEASES:
        assert definitions("--num-layers", release) == (plain,)
        assert definitions("--bf16", release) == (switch,)
        assert definitions("--recompute-granularity", release) == (chosen,)
    assert definitions("--num-layers", "1.0") == definitions("--no-such-argument", "2.3") == ()
    off = [one for name in names("2.3") for one in definitions(name, "2.3") if one.action == "store_false"]
    assert {one.default for one in off if one.part == "Megatron-LM"} == {True}
    assert [one.dest for one in off if one.default is not True] == ["use_rts"]  # MindSpeed's own, off in any case


def test_who_defines_an_argument_and_since_when() -> None:
    assert parts_of("--swap-attention") == {"MindSpeed", "MindSpeed-LLM"}
    assert parts_of("--no-such-argument") == frozenset()
    assert [len(definitions("--swap-attention", release)) for release in RELEASES] == [2, 2, 2, 2, 1, 1]
    assert releases_of("--swap-attention") == RELEASES
    assert releases_of("--no-such-argument") == ()
    for name in ("--num-layers", "--swap-attention", "--recompute-modules"):
        assert [release for release in RELEASES if name in names(release)] == list(releases_of(name))
