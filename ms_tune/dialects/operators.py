"""Look up the cells (modules) and operators of MindFormers model layers, by model and release.

The operators of a layer depend on the model's settings: a model has variants, and of its kinds of layers the one
without experts comes first. The data are in ``facts/data/trees.json``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cache

from ms_tune.dialects import LayerSpec
from ms_tune.facts.models import rows
from ms_tune.facts.query import all_at, load
from ms_tune.records import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

_INSIDE = "transformer_layer"  # the layer inside a multi-token prediction layer
_AHEAD = "mtp"  # marks multi-token prediction layers, in addition to each variant


class Tree:
    """A MindSpore cell (module): its operators and its ordered child cells."""

    def __init__(self, operators: Sequence[str] = (), cells: Sequence[tuple[str, Tree]] = ()) -> None:
        self.operators, self.cells = operators, cells

    def paths(self, above: str = "") -> Iterator[str]:
        """Yield the dotted paths of everything inside, operators before cells."""
        for name in self.operators:
            yield above + name
        for name, cell in self.cells:
            yield above + name
            yield from cell.paths(f"{above}{name}.")


class LayerModel(Record):
    """The layers of one model."""

    name: str  # the model's name: `model_type`, or `arch.type` of a legacy model
    # The layer without experts and the one with them, as this config builds them, or the only kind. Empty if the
    # settings match no known variant.
    kinds: tuple[Tree, ...]
    every: tuple[Tree, ...]  # the layers of all variants
    experts: tuple[bool, ...] = ()  # whether each layer has experts; further layers have the last kind
    ahead: Tree | None = None  # the multi-token prediction layer, if known

    def tree(self, layer: int) -> Tree | None:
        """Return the tree of one layer."""
        if not self.kinds:
            return None
        return self.kinds[-1 if layer >= len(self.experts) or self.experts[layer] else 0]


@cache
def read_tree(number: int) -> Tree:
    """Return a cell by its number in the data's ``parts``: operators, then child cells as name=number."""
    words = [word.partition("=") for word in load("trees")["parts"][number].split()]
    cells = tuple((name, read_tree(int(part))) for name, child, part in words if child)
    return Tree(tuple(name for name, child, _ in words if not child), cells)


def expert_layers(layers: int, dense: object, frequency: object) -> tuple[bool, ...] | None:
    """Return which layers have experts (``get_gpt_decoder_block_spec`` of both graphs); None for values that the framework refuses."""
    if isinstance(dense, int) and dense:
        return tuple(layer >= dense for layer in range(layers))
    if isinstance(frequency, int) and frequency:
        return tuple(layer % frequency == 0 for layer in range(layers))
    if isinstance(frequency, list) and len(frequency) == layers:
        return tuple(map(bool, frequency))
    return None


def layer_model(name: str, release: str, variant: str = "", experts: tuple[bool, ...] | None = ()) -> LayerModel | None:
    """Return a static-graph model by its ``model_type`` or ``arch.type``; None if its layers are unknown for this release.

    For an unknown variant the result has no ``kinds``, only ``every``. ``experts`` flags the layers with experts (None:
    unknown).
    """
    known = all_at(load("trees")["static"].get(name, {}), release)
    if not known:
        return None
    numbers = sorted({number for kinds in known.values() for number in kinds})
    kinds = () if experts is None else tuple(map(read_tree, known.get(variant, ())))
    ahead = known.get(f"{variant} {_AHEAD}".strip())
    found = LayerModel(name, kinds, tuple(map(read_tree, numbers)), experts or ())
    return _add_prediction_layer(found, read_tree(ahead[0])) if ahead and kinds else found


def _add_prediction_layer(model: LayerModel, ahead: Tree) -> LayerModel:
    """Add the multi-token prediction layer, which contains a layer of the same kind as the model's last one."""
    inside = model.tree(len(model.experts) - 1) if model.experts else model.kinds[-1]
    cells = tuple((name, inside if name == _INSIDE and inside else cell) for name, cell in ahead.cells)
    return model._replace(ahead=Tree(ahead.operators, cells))


def bare_model() -> LayerModel:
    """Return a model for plans that concern whole layers only."""
    return LayerModel("", (Tree(),), (), ahead=Tree())


def dynamic_model(name: str, release: str, experts: tuple[bool, ...] = ()) -> LayerModel | None:
    """Return a dynamic-graph model, or None if its layers are unknown; ``experts`` flags the layers with experts."""
    known = all_at(load("trees")["dynamic"].get(name, {}), release)
    if not known:
        return None
    trees = tuple(map(read_tree, known[""]))
    kinds = tuple(tree for tree in trees if _INSIDE not in dict(tree.cells))
    found = LayerModel(name, kinds, trees, experts)
    return _add_prediction_layer(found, trees[-1]) if len(kinds) < len(trees) else found


# The attributes of a layer's plan that name operators, and whether they may name modules too.
ATTRIBUTES = {"select_patterns": True, "comm_patterns": False, "select_excludes": False, "comm_excludes": False}
SWAP = "swap"

# (name, prefetch distance of a swap or None) -> layers.
ByName: TypeAlias = "dict[tuple[str, object], list[int]]"


class Side(Record):
    """The model's layers on one side of a conversion."""

    family: str  # family whose names its parts use
    model: str  # its name
    # The dotted paths of everything inside each layer; empty if unknown.
    paths: Mapping[int, frozenset[str]]
    # Paths that a pattern matches in a layer; arguments: layer, pattern, whether modules count.
    find: Callable[[int, str, bool], Iterable[str]]
    ahead: int = 0  # number of multi-token prediction layers at the end


class Choices:
    """Recomputation and swap of all layers, in the target's names."""

    def __init__(self) -> None:
        # For each of `ATTRIBUTES` and `SWAP` the names with their layers. The empty name is a swap of whole layers.
        self.layers_by_name: dict[str, ByName] = {name: {} for name in (*ATTRIBUTES, SWAP)}
        # Operators without an equivalent, by attribute and name, with the affected layers.
        self.untranslated: dict[tuple[str, str], list[int]] = {}
        # Parts that are included although not chosen, in the same form.
        self.wider: dict[tuple[str, str], list[int]] = {}

    def layers(self, attribute: str) -> dict[str, list[int]]:
        """Return the names of one attribute with their layers."""
        return {name: layers for (name, _), layers in self.layers_by_name[attribute].items()}

    def reached(self, attribute: str) -> set[int]:
        """Return the layers whose recomputation or swap uses an attribute, even without an equivalent in the target."""
        named = list(self.layers_by_name[attribute].values())
        lost = [layers for (name, _), layers in self.untranslated.items() if name == attribute]
        return {layer for layers in (*named, *lost) for layer in layers}


class Translator:
    """A translator of paths between two sides, with a cache per kind of layer."""

    def __init__(self, source: Side, target: Side) -> None:
        self._source = source
        self._target = target
        self._rows = rows(source.family, target.family)
        self._images: dict[tuple[str, int, int], tuple[str, ...]] = {}
        self._cache: dict[tuple[object, ...], tuple[list[str], list[str], list[str]]] = {}

    def add(
        self, choices: Choices, attribute: str, layer: int, chosen: frozenset[str], prefetch: object = None
    ) -> None:
        """Record the recomputation or swap of some parts of a layer."""
        key = (chosen, id(self._source.paths.get(layer)), id(self._target.paths.get(layer)))
        if key not in self._cache:
            self._cache[key] = self.translate(layer, chosen)
        names, lost, wider = self._cache[key]
        for name in names:
            choices.layers_by_name[attribute].setdefault((name, prefetch), []).append(layer)
        for kind, paths in ((choices.untranslated, lost), (choices.wider, wider)):
            for path in paths:
                kind.setdefault((attribute, path), []).append(layer)

    def translate(self, layer: int, chosen: AbstractSet[str]) -> tuple[list[str], list[str], list[str]]:
        """Return the target's names of some parts, the parts without an equivalent, and parts included although not chosen."""
        ours = self._source.paths.get(layer, frozenset())
        theirs = self._target.paths.get(layer, frozenset())
        found = {path: self._translate_part(path, ours, theirs) for path in sorted(chosen)}
        names = sorted(topmost(name for image in found.values() for name in image))
        covered = set(names)
        wider = []
        for path in sorted(ours - chosen):
            image = self._image(path, ours, theirs)
            if any(_is_inside(name, covered) for name in image) and not _is_inside(path, chosen):
                wider.append(path)
        return names, [path for path, image in found.items() if not image], sorted(topmost(wider))

    def _translate_part(self, path: str, ours: frozenset[str], theirs: frozenset[str]) -> list[str]:
        """Return the target's names of a part and of those of its inner parts that are located elsewhere there."""
        names = list(self._image(path, ours, theirs))
        for child in sorted(child for child in ours if child.startswith(f"{path}.")):
            names += [name for name in self._image(child, ours, theirs) if not _is_inside(name, set(names))]
        return names

    def _image(self, path: str, ours: frozenset[str], theirs: frozenset[str]) -> tuple[str, ...]:
        key = (path, id(ours), id(theirs))
        if key not in self._images:
            self._images[key] = self._look_up(path, theirs)
        return self._images[key]

    def _look_up(self, path: str, theirs: frozenset[str]) -> tuple[str, ...]:
        """Look up the longest prefix of the path that has a row in the table; otherwise a name that both families share."""
        parts = path.split(".")
        for length in range(len(parts), 0, -1):
            head, rest = ".".join(parts[:length]), parts[length:]
            for here, there in self._rows:
                names = tuple(".".join((name, *rest)) for name in there)
                if head in here and (not theirs or theirs.issuperset(names)):
                    return names
        return (path,) if path in theirs else ()


def topmost(paths: Iterable[str]) -> list[str]:
    """Return the paths that are not inside another one, shortest first."""
    chosen: dict[str, None] = {}
    for path in sorted(set(paths), key=lambda path: (path.count("."), path)):
        if not _is_inside(path, chosen.keys()):
            chosen[path] = None
    return list(chosen)


def _is_inside(path: str, chosen: AbstractSet[str]) -> bool:
    parts = path.split(".")
    return any(".".join(parts[:length]) in chosen for length in range(1, len(parts) + 1))


def translate(layers: Sequence[LayerSpec], source: Side, target: Side) -> Choices:
    """Return the layers' recomputation and swap with the target's names."""
    choices = Choices()
    translator = Translator(source, target)
    for layer in layers:
        for attribute, modules in ATTRIBUTES.items():
            patterns = getattr(layer, attribute)
            chosen = _find_paths(source, layer.layer, patterns, modules=modules) if patterns else frozenset()
            translator.add(choices, attribute, layer.layer, chosen)
        for swap in layer.swap:
            if not swap.target:
                choices.layers_by_name[SWAP].setdefault(("", swap.prefetch), []).append(layer.layer)
                continue
            chosen = _find_paths(source, layer.layer, (swap.target,), modules=True)
            translator.add(choices, SWAP, layer.layer, chosen, swap.prefetch)
    return choices


def _find_paths(source: Side, layer: int, patterns: Iterable[str], *, modules: bool) -> frozenset[str]:
    return frozenset(path for pattern in patterns for path in source.find(layer, pattern, modules))


def copy_choices(layers: Sequence[LayerSpec]) -> Choices:
    """Return the layers' recomputation and swap unchanged: source and target are the same dialect."""
    choices = Choices()
    for layer in layers:
        for attribute in ATTRIBUTES:
            for pattern in getattr(layer, attribute):
                choices.layers_by_name[attribute].setdefault((pattern, None), []).append(layer.layer)
        for swap in layer.swap:
            choices.layers_by_name[SWAP].setdefault((swap.target, swap.prefetch), []).append(layer.layer)
    return choices
