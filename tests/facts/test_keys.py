from __future__ import annotations

import ast
from pathlib import Path

import pytest

from ms_tune.enums import Dialect
from ms_tune.facts.keys import by_section, find_first_release, list_model_keys
from ms_tune.facts.models import facts_of
from ms_tune.facts.query import ABSENT, all_at, at, load
from ms_tune.lint.schema import schema
from tests.source.corpus import SITE_PACKAGES, wheel_configs

FRAMEWORK = SITE_PACKAGES / "mindformers"


def test_keys_of_models_are_those_that_the_general_class_or_one_of_a_release_has() -> None:
    data = load("models")
    there = {
        release: {*all_at(data["latent"], release), *facts_of(release).valid_keys()} for release in data["releases"]
    }
    for one in data["classes"].values():
        for release in [one_ for one_ in there if at(one["names"], one_) is not ABSENT]:
            there[release] |= {*all_at(one["defaults"], release), *all_at(one["aliases"], release)}
            there[release] |= set(at(one["ignored"], release))
    names_ = {key for keys in there.values() for key in keys}
    assert {key: having for key, having in list_model_keys().items() if having} == {
        name: {release for release, keys in there.items() if name in keys} for name in names_
    }


# First releases by MindFormers' own classes: TransformerConfig and the tables that convert settings to its fields.
LATER = {
    "1.7": "add_mlp_fc1_bias_linear disable_lazy_inline moe_token_dispatcher_type n_layer use_qk_norm",
    "1.8": "model_architecture nope_layer_interval window_size print_expert_load window_attn_skip_freq",
    "1.9": "dsa_indexer_head_dim enable_expert_relocation experimental_attention_variant index_topk index_n_heads",
}


def test_a_models_settings_have_one_date() -> None:
    """The table, the schema and the linter use the classes of models; the table's own rows do not contain these keys."""
    section = by_section(Dialect.MINDFORMERS)["model", "model_config"]
    made = schema(Dialect.MINDFORMERS)["properties"]["model"]["properties"]["model_config"]["properties"]
    listed = [(name, since) for since, names_ in LATER.items() for name in names_.split()]
    for name, since in listed:
        assert (section[name].since, section[name].until) == (since, None), name
        assert made[name]["description"].endswith(f"[>={since}]"), name
        assert find_first_release(name, "1.6") == since
    rows = [row for row in load("keys_mindformers")["keys"] if row["path"].startswith("model.model_config.")]
    assert len(rows) > 200
    assert not [row["path"] for row in rows if "since" in row or "until" in row]


def classes(path: Path) -> dict[str, list[str]]:
    """Return the public names that are assigned in class bodies."""
    found = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            plain = [one.targets[0] for one in node.body if isinstance(one, ast.Assign)]
            typed = [one.target for one in node.body if isinstance(one, ast.AnnAssign)]
            found[node.name] = [
                one.id for one in (*plain, *typed) if isinstance(one, ast.Name) and not one.id.startswith("_")
            ]
    return found


@pytest.mark.skipif(not wheel_configs(), reason="mindformers is not installed")
def test_the_template_of_the_installed_mindformers_has_the_same_keys() -> None:
    template = classes(FRAMEWORK / "tools" / "register" / "template.py")
    for name, section in (
        ("ParallelConfig", "parallel_config"),
        ("RecomputeConfig", "recompute_config"),
        ("SwapConfig", "swap_config"),
        ("MoEConfig", "moe_config"),
        ("RunnerConfig", "runner_config"),
        ("MonitorConfig", "monitor_config"),
    ):
        assert by_section(Dialect.MINDFORMERS)[section,].keys() == set(template[name]), section
    assert set(template["GeneralConfig"]) <= by_section(Dialect.MINDFORMERS)[()].keys()
    assert (
        set(template["MsParallelConfig"]) - by_section(Dialect.MINDFORMERS)["parallel",].keys()
        == {"strategy_ckpt_save_file"} - by_section(Dialect.MINDFORMERS)["parallel",].keys()
    )


@pytest.mark.skipif(not wheel_configs(), reason="mindformers is not installed")
def test_the_model_keys_of_the_installed_mindformers_are_known() -> None:
    source = (FRAMEWORK / "parallel_core" / "transformer_config_utils.py").read_text(encoding="utf-8")
    mapping = next(
        node.value
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "COMMON_CONFIG_MAPPING"
    )
    assert isinstance(mapping, ast.Dict)
    written = {
        one.value
        for part in mapping.keys
        if part is not None
        for one in ast.walk(part)
        if isinstance(one, ast.Constant)
    }
    known = by_section(Dialect.MINDFORMERS)["model", "model_config"].keys() | {
        name
        for section in ("parallel_config", "recompute_config")
        for name in by_section(Dialect.MINDFORMERS)[section,]
    }
    assert written <= known
