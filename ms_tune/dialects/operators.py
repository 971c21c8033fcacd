"""The cells and operators of the layers of the models that MindFormers trains, looked up by model and release.

Which operators a layer has depends on the model's settings: a model has variants, and of several kinds of layers the one
without experts comes first. The data are in ``facts/data/trees.json``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING

from ms_tune.facts.query import all_at, load

if TYPE_CHECKING:
    from collections.abc import Iterator

_INSIDE = "transformer_layer"  # the layer inside a layer that predicts further tokens
_AHEAD = "mtp"  # marks the layers that predict further tokens, beside each variant


@dataclass(slots=True, eq=False)
class Tree:
    """A cell: its operators, and its child cells in their order."""

    operators: list[str] = field(default_factory=list)
    cells: list[tuple[str, Tree]] = field(default_factory=list)

    def paths(self, above: str = "") -> Iterator[str]:
        """The dotted paths of everything inside, operators before cells."""
        for name in self.operators:
            yield above + name
        for name, cell in self.cells:
            yield above + name
            yield from cell.paths(f"{above}{name}.")


@dataclass(frozen=True, slots=True)
class LayerModel:
    """The layers of one model."""

    name: str  # the model's name: `model_type`, or `arch.type` of a legacy model
    # The layer without experts and the one with them, as this config builds them; or the only one there is. Empty when
    # the config's settings are unlike any variant.
    kinds: tuple[Tree, ...]
    every: tuple[Tree, ...]  # the layers of all variants
    experts: tuple[bool, ...] = ()  # which layers have experts; those beyond are of the last kind
    ahead: Tree | None = None  # the layer that predicts further tokens, if it is known

    def tree(self, layer: int) -> Tree | None:
        """The tree of one layer."""
        if not self.kinds:
            return None
        return self.kinds[-1 if layer >= len(self.experts) or self.experts[layer] else 0]


@cache
def read_tree(number: int) -> Tree:
    """A cell by its number in the data's ``parts``: operators, then child cells as name=number."""
    tree = Tree()
    for word in load("trees")["parts"][number].split():
        name, child, part = word.partition("=")
        if child:
            tree.cells.append((name, read_tree(int(part))))
        else:
            tree.operators.append(name)
    return tree


def expert_layers(layers: int, dense: object, frequency: object) -> tuple[bool, ...] | None:
    """Which layers have experts (``get_gpt_decoder_block_spec``, in ``gpt_layer_specs.py`` of both graphs).

    Args:
        layers: The number of layers.
        dense: ``first_k_dense_replace``.
        frequency: ``moe_layer_freq``.

    Returns:
        None for values that the framework refuses.
    """
    if isinstance(dense, int) and dense:
        return tuple(layer >= dense for layer in range(layers))
    if isinstance(frequency, int) and frequency:
        return tuple(layer % frequency == 0 for layer in range(layers))
    if isinstance(frequency, list) and len(frequency) == layers:
        return tuple(map(bool, frequency))
    return None


def layer_model(name: str, release: str, variant: str = "", experts: tuple[bool, ...] | None = ()) -> LayerModel | None:
    """A model of the static graph.

    Args:
        name: ``model_type``, or ``arch.type`` of a legacy model.
        release: One of :data:`~ms_tune.dialects.mindformers.versions.VERSIONS`.
        variant: The variant that the config's settings make; one that is not known leaves only what all may have.
        experts: Which layers have experts, see :func:`expert_layers`; None if that is not known.

    Returns:
        None if the layers of this model are not known for this release.
    """
    known = all_at(load("trees")["static"].get(name, {}), release)
    if not known:
        return None
    numbers = sorted({number for kinds in known.values() for number in kinds})
    kinds = () if experts is None else tuple(map(read_tree, known.get(variant, ())))
    ahead = known.get(f"{variant} {_AHEAD}".strip())
    found = LayerModel(name, kinds, tuple(map(read_tree, numbers)), experts or ())
    return _predicting(found, read_tree(ahead[0])) if ahead and kinds else found


def _predicting(model: LayerModel, ahead: Tree) -> LayerModel:
    """The model with the layer that predicts, inside which there is one of the kind that the model's last layer is."""
    inside = model.tree(len(model.experts) - 1) if model.experts else model.kinds[-1]
    cells = [(name, inside if name == _INSIDE and inside else cell) for name, cell in ahead.cells]
    return replace(model, ahead=Tree(ahead.operators, cells))


def bare_model(name: str) -> LayerModel:
    """A model of which nothing but whole layers matters."""
    return LayerModel(name, (Tree(),), (), ahead=Tree())


def dynamic_model(name: str, release: str, experts: tuple[bool, ...] = ()) -> LayerModel | None:
    """A model of the dynamic graph, None if its layers are not known; ``experts`` tells which layers have them."""
    known = all_at(load("trees")["dynamic"].get(name, {}), release)
    if not known:
        return None
    trees = tuple(map(read_tree, known[""]))
    kinds = tuple(tree for tree in trees if _INSIDE not in dict(tree.cells))
    found = LayerModel(name, kinds, trees, experts)
    return _predicting(found, trees[-1]) if len(kinds) < len(trees) else found
