"""The cells and operators of the layers of the models that MindFormers trains, looked up by model and release.

Which operators a layer has depends on the model's settings: a model has variants, and of several kinds of layers the one
without experts comes first. The data are in :mod:`ms_tune.frameworks.tree_data`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from ms_tune.frameworks.tree_data import DYNAMIC_MODELS, MODELS, PARTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

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
    """The layers of one model.

    Args:
        name: The model's name: ``model_type``, or ``arch.type`` of a legacy model.
        kinds: The layer without experts and the one with them, as this config builds them; or the only one there is.
            Empty when the config's settings are unlike any variant.
        every: The layers of all variants.
        dense: How many layers have no experts, if some have.
        ahead: The layer that predicts further tokens, if it is known.
    """

    name: str
    kinds: tuple[Tree, ...]
    every: tuple[Tree, ...]
    dense: int = 0
    ahead: Tree | None = None

    def tree(self, layer: int) -> Tree | None:
        """The tree of one layer."""
        if not self.kinds:
            return None
        return self.kinds[0] if layer < self.dense else self.kinds[-1]


@cache
def read_tree(number: int) -> Tree:
    """A cell by its number in :data:`~ms_tune.frameworks.tree_data.PARTS`: operators, then child cells as name=number."""
    tree = Tree()
    for word in PARTS[number].split():
        name, child, part = word.partition("=")
        if child:
            tree.cells.append((name, read_tree(int(part))))
        else:
            tree.operators.append(name)
    return tree


def layer_model(name: str, release: str, variant: str = "", dense: int = 0) -> LayerModel | None:
    """A model of the static graph.

    Args:
        name: ``model_type``, or ``arch.type`` of a legacy model.
        release: One of :data:`~ms_tune.layers.mindformers.versions.VERSIONS`.
        variant: The variant that the config's settings make; one that is not known leaves only what all may have.
        dense: How many layers have no experts.

    Returns:
        None if the layers of this model are not known for this release.
    """
    known = _of_release(MODELS.get(name, {}), release)
    if not known:
        return None
    numbers = sorted({number for kinds in known.values() for number in kinds})
    ahead = known.get(f"{variant} {_AHEAD}".strip())
    return LayerModel(
        name=name,
        kinds=tuple(map(read_tree, known.get(variant, ()))),
        every=tuple(map(read_tree, numbers)),
        dense=dense,
        ahead=read_tree(ahead[0]) if ahead else None,
    )


def bare_model(name: str) -> LayerModel:
    """A model of which nothing but whole layers matters."""
    return LayerModel(name, (Tree(),), (), ahead=Tree())


def dynamic_layers(name: str, release: str) -> Sequence[Tree] | None:
    """The kinds of layers of a model of the dynamic graph; the one that predicts further tokens comes last, if there is one."""
    known = _of_release(DYNAMIC_MODELS.get(name, {}), release)
    return tuple(map(read_tree, known[""])) if known else None


def _of_release(variants: Mapping[str, Mapping[str, Sequence[int]]], release: str) -> dict[str, Sequence[int]]:
    return {
        variant: kinds
        for variant, releases in variants.items()
        for these, kinds in releases.items()
        if release in these.split()
    }
