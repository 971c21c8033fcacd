"""Return the behaviour of each operator of each layer by both graphs' own code: recomputation, its communication, swap.

The layers are made from ms-tune's trees (``facts/data/trees.json``, which ``test_real_classes.py`` compares with real
networks). On the static side ``LayerSetting`` calls ``recompute``, ``add_prim_attr`` and ``offload`` of their parts; on
the dynamic side ``apply_ac`` wraps them. Both are recorded; an operator follows its own settings, or else those of the
innermost part around it that has any.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ms_tune.dialects.mindformers.placement import KEYS
from ms_tune.dialects.operators import LayerModel, Tree, dynamic_model
from ms_tune.facts.models import rows
from tests.jobs import known_layers, read_recompute
from tests.oracle import layer_setting, pynative

if TYPE_CHECKING:
    from ms_tune.source.yaml import SourceFile


@dataclass(frozen=True)
class Act:
    """What an operator does.

    Attributes:
        recomputed: Whether it is recomputed.
        comm: Whether its communication is recomputed or excluded; None if not set.
        swapped: The prefetch distance, if it is moved to the host.
    """

    recomputed: bool = False
    comm: bool | None = None
    swapped: object = None


@dataclass
class LayerCalls:
    """The settings of the parts of one layer, by path; the layer itself has the empty path."""

    tree: Tree
    recompute: dict[str, bool] = field(default_factory=dict)
    comm: dict[str, bool] = field(default_factory=dict)
    swap: dict[str, object] = field(default_factory=dict)
    excluded: set[str] = field(default_factory=set)

    def act(self, path: str) -> Act:
        """Return an operator's behaviour: switched off by its own name, switched on by its own name or that of any parent."""
        around = [*_around(path)]
        on = any(self.recompute.get(one) for one in around)
        off = any(self.recompute.get(one) is False or one in self.excluded for one in around)
        swapped = next((self.swap[one] for one in around if one in self.swap), None)
        return Act(on and not off, self.comm.get(path), swapped)


def _around(path: str) -> Iterator[str]:
    """Yield a path and its parents, innermost first."""
    parts = path.split(".") if path else []
    for length in range(len(parts), -1, -1):
        yield ".".join(parts[:length])


class StaticPart:
    """A cell or an operator of the static graph; patterns are matched with ``dir``, so all other names are private."""

    def __init__(self, expected: LayerCalls, path: str, tree: Tree | None) -> None:
        self._told, self._path = expected, path
        inner = f"{path}." if path else ""
        self._cells = {name: StaticPart(expected, inner + name, child) for name, child in tree.cells} if tree else {}
        for name in tree.operators if tree else ():
            setattr(self, name, StaticPart(expected, inner + name, None))

    def __dir__(self) -> list[str]:
        return [name for name in vars(self) if not name.startswith("_")]

    def recompute(self, mode: bool = True, **_: object) -> None:  # noqa: FBT001, FBT002 - the framework's signature
        self._told.recompute[self._path] = mode

    def add_prim_attr(self, name: str, value: bool) -> None:  # noqa: FBT001 - as above
        assert name == "recompute_comm_op"
        self._told.comm[self._path] = value

    def offload(self, backward_prefetch: object) -> None:
        layer_setting.check_offload(backward_prefetch)
        self._told.swap[self._path] = backward_prefetch

    _offload = offload

    def set_comm_fusion(self, number: int) -> None:
        """Ignore the request: nothing is fused here."""


def static_acts(source: SourceFile, release: str) -> dict[int, LayerCalls] | str:
    """Return the settings that the static graph's own code makes for every layer, including prediction layers; or its exception."""
    inputs = read_recompute(source, release)
    model = known_layers(source, inputs)
    assert model is not None
    found: dict[int, LayerCalls] = {}

    def make(layer: int) -> StaticPart:
        found[layer] = LayerCalls(_tree(model, layer, inputs.layers))
        return StaticPart(found[layer], "", found[layer].tree)

    values = dict(zip(KEYS, inputs.values, strict=True))
    outcome = layer_setting.Oracle(release, make).ask(inputs, values)
    return f"{outcome.exception}: {outcome.text}" if outcome.exception else found


def _tree(model: LayerModel, layer: int, layers: int) -> Tree:
    tree = model.tree(layer) if layer < layers else model.ahead
    assert tree is not None
    return tree


def _operator(expected: LayerCalls, path: str) -> Any:  # noqa: ANN401 - a function with attributes
    """Return an operator of the dynamic graph: a function, since 2.0 accepts no other callable."""

    def operator(value: object) -> object:
        return value

    vars(operator).update(_told=expected, _path=path)
    return operator


class DynamicPart(pynative.Cell):
    """A cell of the dynamic graph."""

    def __init__(self, expected: LayerCalls, path: str, tree: Tree) -> None:
        inner = f"{path}." if path else ""
        super().__init__({name: DynamicPart(expected, inner + name, child) for name, child in tree.cells})
        self.__dict__["_told"], self.__dict__["_path"] = expected, path
        for name in tree.operators:
            self.__dict__[name] = _operator(expected, inner + name)


def dynamic_acts(
    oracle: pynative.Oracle, release: str, config: dict[str, Any], experts: tuple[bool, ...]
) -> dict[int, LayerCalls] | str:
    """Return the settings that the dynamic graph's own code makes for every layer; or its exception.

    Args:
        oracle: That code.
        release: Its release.
        config: The config.
        experts: The layers that have experts.
    """
    section = config["model"]
    layers, ahead = section["num_hidden_layers"], section.get("num_nextn_predict_layers", 0)
    model = dynamic_model(section["model_type"], release, experts)
    assert model is not None
    found: dict[int, LayerCalls] = {}

    def make(layer: int) -> DynamicPart:
        found[layer] = LayerCalls(_tree(model, layer, layers))
        return DynamicPart(found[layer], "", found[layer].tree)

    _write_down(oracle._recompute, config.get("swap", {}).get("default_prefetch"))
    outcome = oracle.ask(config, layers, ahead, make)
    return f"{outcome.exception}: {outcome.text}" if outcome.exception else found


def _write_down(code: dict[str, Any], prefetch: object) -> None:
    """Put wrappers into the framework's code that write down what they wrap."""
    of_comm = False

    def recomputed(part: Any, **_: object) -> Any:  # noqa: ANN401 - a cell or an operator
        (part._told.comm if of_comm else part._told.recompute)[part._path] = True
        return part

    def excluded(part: Any, **_: object) -> Any:  # noqa: ANN401 - as above
        part._told.excluded.add(part._path)
        return part

    def swapped(part: Any, **_: object) -> Any:  # noqa: ANN401 - as above
        part._told.swap[part._path] = prefetch
        return part

    plain = code.get("_plain_select") or code["_set_select_recompute"]

    def select(*values: Any, add_prim_attr: bool = False, **others: object) -> None:  # noqa: ANN401 - as the framework's
        nonlocal of_comm
        of_comm = add_prim_attr
        plain(*values, add_prim_attr=add_prim_attr, **others)
        of_comm = False

    code |= {"_plain_select": plain, "_set_select_recompute": select}
    code |= {"checkpoint_wrapper": recomputed, "checkpoint_exclude_wrapper": excluded, "swap_wrapper": swapped}


def operators(tree: Tree) -> list[str]:
    """Return the paths of the innermost parts of a layer."""
    paths = set(tree.paths())
    return sorted(path for path in paths if not any(other.startswith(f"{path}.") for other in paths))


def images(path: str, theirs: Iterable[str]) -> tuple[str, ...]:
    """Return the names of a static-graph path in a dynamic-graph layer: by the table of names, or unchanged."""
    there, parts = set(theirs), path.split(".")
    for length in range(len(parts), 0, -1):
        head, rest = ".".join(parts[:length]), parts[length:]
        for here, names in rows("core", "dynamic"):
            found = tuple(".".join((name, *rest)) for name in names)
            if head in here and there.issuperset(found):
                return found
    return (path,) if path in there else ()


def differences(old: dict[int, LayerCalls], new: dict[int, LayerCalls]) -> list[tuple[int, str, Act, Act]]:
    """Yield operators that both sides have and that differ: layer, path, and the behaviour on each side."""
    found = []
    for layer, expected in old.items():
        theirs = list(new[layer].tree.paths())
        for path in operators(expected.tree):
            before = expected.act(path)
            for name in images(path, theirs):
                after = new[layer].act(name)
                if (before.recomputed, before.swapped, before.comm) != (after.recomputed, after.swapped, after.comm):
                    found.append((layer, path, before, after))
    return found


def compared(old: dict[int, LayerCalls], new: dict[int, LayerCalls]) -> int:
    """Return the number of operators with a counterpart."""
    return sum(bool(images(path, new[one].tree.paths())) for one in old for path in operators(old[one].tree))
