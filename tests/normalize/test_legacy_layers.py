"""Test the modules of a legacy model's layers: two switches of the config decide on attention and its projections."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ms_tune.dialects.mindformers.placement import RecomputeInputs
from tests.jobs import known_layers
from tests.normalize.conversion_cases import source_of

if TYPE_CHECKING:
    from ms_tune.dialects.operators import LayerModel


def layers(architecture: str, **settings: object) -> LayerModel | None:
    model = {"arch": {"type": architecture}, "model_config": {"num_layers": 2, **settings}}
    return known_layers(source_of({"model": model}), RecomputeInputs(layers=2))


@pytest.mark.parametrize("joined", [True, False, None])
@pytest.mark.parametrize("flash", [True, False, None])
def test_two_switches_of_llama(flash: object, joined: object) -> None:
    written = {"use_flash_attention": flash, "qkv_concat": joined}
    found = layers("LlamaForCausalLM", **{name: value for name, value in written.items() if value is not None})
    assert found is not None
    if joined is True and not flash:
        assert found.tree(0) is None  # its structure is not in the trees
        return
    tree = found.tree(0)
    assert tree is not None
    names = {name for path in tree.paths() for name in path.split(".")}
    assert ("flash_attention" in names) is (flash is True)
    assert ("w_qkv" in names, "wq" in names) == (joined is True, joined is not True)
