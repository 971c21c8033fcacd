"""The cells and operators of the layers of the models that MindFormers trains, looked up by model and release.

Which operators a layer has depends on the model's settings: a model has variants, and of several kinds of layers the one
without experts comes first. The data are in ``facts/data/trees.json``.
"""

from __future__ import annotations

from functools import cache

from ms_tune.facts.models import rows
from ms_tune.facts.query import all_at, load
from ms_tune.records import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from typing import TypeAlias

    from ms_tune.dialects import LayerSpec

_INSIDE = "transformer_layer"  # the layer inside a layer that predicts further tokens
_AHEAD = "mtp"  # marks the layers that predict further tokens, beside each variant


class Tree:
    """A cell: its operators, and its child cells in their order."""

    def __init__(self, operators: Sequence[str] = (), cells: Sequence[tuple[str, Tree]] = ()) -> None:
        self.operators, self.cells = operators, cells

    def paths(self, above: str = "") -> Iterator[str]:
        """The dotted paths of everything inside, operators before cells."""
        for name in self.operators:
            yield above + name
        for name, cell in self.cells:
            yield above + name
            yield from cell.paths(f"{above}{name}.")


class LayerModel(Record):
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
    words = [word.partition("=") for word in load("trees")["parts"][number].split()]
    cells = tuple((name, read_tree(int(part))) for name, child, part in words if child)
    return Tree(tuple(name for name, child, _ in words if not child), cells)


def expert_layers(layers: int, dense: object, frequency: object) -> tuple[bool, ...] | None:
    """Which layers have experts (``get_gpt_decoder_block_spec`` of both graphs); None for values that the framework refuses."""
    if isinstance(dense, int) and dense:
        return tuple(layer >= dense for layer in range(layers))
    if isinstance(frequency, int) and frequency:
        return tuple(layer % frequency == 0 for layer in range(layers))
    if isinstance(frequency, list) and len(frequency) == layers:
        return tuple(map(bool, frequency))
    return None


def layer_model(name: str, release: str, variant: str = "", experts: tuple[bool, ...] | None = ()) -> LayerModel | None:
    """A model of the static graph, by its ``model_type`` or ``arch.type``; None if its layers are not known for this release.

    A variant that is not known leaves only what all may have; ``experts`` are the layers that have some (None: not known).
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
    cells = tuple((name, inside if name == _INSIDE and inside else cell) for name, cell in ahead.cells)
    return model._replace(ahead=Tree(ahead.operators, cells))


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


# The attributes of a layer's plan that name operators, and whether a module is as good as an operator there.
ATTRIBUTES = {"select_patterns": True, "comm_patterns": False, "select_excludes": False, "comm_excludes": False}
SWAP = "swap"

# A name, and for a swap how soon it is fetched back -> the layers.
ByName: TypeAlias = "dict[tuple[str, object], list[int]]"


class Side(Record):
    """The layers of the model on one side of a conversion."""

    family: str  # whose names its parts bear
    model: str  # its name
    # The dotted paths of everything inside each layer; empty when that is not known.
    paths: Mapping[int, frozenset[str]]
    # What a pattern finds in a layer: layer, pattern, whether modules count -> paths.
    find: Callable[[int, str, bool], Iterable[str]]
    ahead: int = 0  # how many of the last layers predict further tokens


class Choices:
    """What the layers do, in the names of the target."""

    def __init__(self) -> None:
        # For each of `ATTRIBUTES` and `SWAP` the names and their layers. A swap of a whole layer has the empty name.
        self.named: dict[str, ByName] = {name: {} for name in (*ATTRIBUTES, SWAP)}
        # Operators without an equivalent, by attribute and name, with the layers that it costs.
        self.lost: dict[tuple[str, str], list[int]] = {}
        # Parts that the target cannot leave out, likewise.
        self.wider: dict[tuple[str, str], list[int]] = {}

    def layers(self, attribute: str) -> dict[str, list[int]]:
        """The names of one attribute with their layers."""
        return {name: layers for (name, _), layers in self.named[attribute].items()}

    def reached(self, attribute: str) -> set[int]:
        """The layers that have something of it, with an equivalent in the target or without."""
        named = list(self.named[attribute].values())
        lost = [layers for (name, _), layers in self.lost.items() if name == attribute]
        return {layer for layers in (*named, *lost) for layer in layers}


class Translator:
    """Translates paths between two sides; what it has found once for a kind of layer it keeps."""

    def __init__(self, source: Side, target: Side) -> None:
        self._source = source
        self._target = target
        self._rows = rows(source.family, target.family)
        self._images: dict[tuple[str, int, int], tuple[str, ...]] = {}
        self._kept: dict[tuple[object, ...], tuple[list[str], list[str], list[str]]] = {}

    def add(
        self, choices: Choices, attribute: str, layer: int, chosen: frozenset[str], prefetch: object = None
    ) -> None:
        """Enter what a layer does with some of its parts."""
        key = (chosen, id(self._source.paths.get(layer)), id(self._target.paths.get(layer)))
        if key not in self._kept:
            self._kept[key] = self.translate(layer, chosen)
        names, lost, wider = self._kept[key]
        for name in names:
            choices.named[attribute].setdefault((name, prefetch), []).append(layer)
        for kind, paths in ((choices.lost, lost), (choices.wider, wider)):
            for path in paths:
                kind.setdefault((attribute, path), []).append(layer)

    def translate(self, layer: int, chosen: AbstractSet[str]) -> tuple[list[str], list[str], list[str]]:
        """The names of some parts of a layer in the target; parts without an equivalent; those that come along though nobody asked."""
        ours = self._source.paths.get(layer, frozenset())
        theirs = self._target.paths.get(layer, frozenset())
        found = {path: self._whole(path, ours, theirs) for path in sorted(chosen)}
        names = sorted(topmost(name for image in found.values() for name in image))
        covered = set(names)
        wider = []
        for path in sorted(ours - chosen):
            image = self._image(path, ours, theirs)
            if any(_inside(name, covered) for name in image) and not _inside(path, chosen):
                wider.append(path)
        return names, [path for path, image in found.items() if not image], sorted(topmost(wider))

    def _whole(self, path: str, ours: frozenset[str], theirs: frozenset[str]) -> list[str]:
        """The names for a part and for what is inside of it, where that lies elsewhere in the target."""
        names = list(self._image(path, ours, theirs))
        for child in sorted(child for child in ours if child.startswith(f"{path}.")):
            names += [name for name in self._image(child, ours, theirs) if not _inside(name, set(names))]
        return names

    def _image(self, path: str, ours: frozenset[str], theirs: frozenset[str]) -> tuple[str, ...]:
        key = (path, id(ours), id(theirs))
        if key not in self._images:
            self._images[key] = self._look_up(path, theirs)
        return self._images[key]

    def _look_up(self, path: str, theirs: frozenset[str]) -> tuple[str, ...]:
        """By the longest part of the path that the table has a row for; a name that both families share is its own."""
        parts = path.split(".")
        for length in range(len(parts), 0, -1):
            head, rest = ".".join(parts[:length]), parts[length:]
            for here, there in self._rows:
                names = tuple(".".join((name, *rest)) for name in there)
                if head in here and (not theirs or theirs.issuperset(names)):
                    return names
        return (path,) if path in theirs else ()


def topmost(paths: Iterable[str]) -> list[str]:
    """The paths that lie in none of the others, those with the fewest parts first."""
    chosen: dict[str, None] = {}
    for path in sorted(set(paths), key=lambda path: (path.count("."), path)):
        if not _inside(path, chosen.keys()):
            chosen[path] = None
    return list(chosen)


def _inside(path: str, chosen: AbstractSet[str]) -> bool:
    parts = path.split(".")
    return any(".".join(parts[:length]) in chosen for length in range(1, len(parts) + 1))


def translate(layers: Sequence[LayerSpec], source: Side, target: Side) -> Choices:
    """What the layers do, in the names of the target."""
    choices = Choices()
    translator = Translator(source, target)
    for layer in layers:
        for attribute, modules in ATTRIBUTES.items():
            patterns = getattr(layer, attribute)
            chosen = _found(source, layer.layer, patterns, modules=modules) if patterns else frozenset()
            translator.add(choices, attribute, layer.layer, chosen)
        for swap in layer.swap:
            if not swap.target:
                choices.named[SWAP].setdefault(("", swap.prefetch), []).append(layer.layer)
                continue
            chosen = _found(source, layer.layer, (swap.target,), modules=True)
            translator.add(choices, SWAP, layer.layer, chosen, swap.prefetch)
    return choices


def _found(source: Side, layer: int, patterns: Iterable[str], *, modules: bool) -> frozenset[str]:
    return frozenset(path for pattern in patterns for path in source.find(layer, pattern, modules))


def as_written(layers: Sequence[LayerSpec]) -> Choices:
    """What the layers do in the names that they have already: source and target are one dialect."""
    choices = Choices()
    for layer in layers:
        for attribute in ATTRIBUTES:
            for pattern in getattr(layer, attribute):
                choices.named[attribute].setdefault((pattern, None), []).append(layer.layer)
        for swap in layer.swap:
            choices.named[SWAP].setdefault((swap.target, swap.prefetch), []).append(layer.layer)
    return choices
