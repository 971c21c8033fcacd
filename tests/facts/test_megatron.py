"""What is known of the arguments of MindSpeed-LLM's programs, release by release."""

from __future__ import annotations

import pytest

from ms_tune.facts.megatron import (
    Definition,
    Pair,
    definitions,
    names,
    names_by_dest,
    pairs,
    parts_of,
    programs,
    releases_of,
    releases_on,
    releases_with,
    tag,
    unregistered,
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


def test_several_arguments_write_to_one_destination() -> None:
    found = names_by_dest("2.3")
    assert found["num_layers"] == ("--num-layers",)
    assert sorted({name for given in found.values() for name in given}) == sorted(names("2.3"))
    assert all(list(given) == sorted(given) for given in found.values())
    several = next(dest for dest, given in found.items() if len(given) > 1)
    assert all(several in {one.dest for one in definitions(name, "2.3")} for name in found[several])


def test_sources_are_told_by_their_arguments() -> None:
    part = "MindSpeed-LLM"

    def of(release: str) -> frozenset[str]:
        return frozenset(name for name in names(release) if any(one.part == part for one in definitions(name, release)))

    for release in RELEASES:
        assert release in releases_with(part, of(release))
        assert release in releases_with(part, of(release) | {"--of-my-own"})
    assert len(releases_with(part, of("26.1"))) < len(RELEASES)
    assert releases_with(part, frozenset()) == releases_with(part, frozenset({"--of-my-own"})) == ()


@pytest.mark.parametrize(("release", "known"), [("2.3", False), ("26.0", True)])
def test_pairs_that_a_release_refuses(release: str, known: bool) -> None:  # noqa: FBT001 - a column
    assert Pair("moe_allgather_overlap_comm", "use_ascend_mc2", excludes=True) in pairs(release)
    assert (Pair("moe_alltoall_mc2", "moe_allgather_overlap_comm", excludes=True) in pairs(release)) is known
    assert any(not pair.excludes for pair in pairs("26.1"))
    assert pairs("2.0") == ()


def test_arguments_that_the_parser_does_not_know() -> None:
    assert unregistered("2.2")["--adaptive-cp-only-reschedule"] == ""
    assert "--adaptive-cp-only-reschedule" not in unregistered("2.0")
    assert not set(unregistered("26.1")) & set(names("26.1")) or any(unregistered("26.1").values())
