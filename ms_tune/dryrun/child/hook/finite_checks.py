"""Let checks whether all numbers are finite succeed, as in a healthy training.

In simulation every value is read as zero, so that ``if all_finite(gradients): optimizer(gradients)`` would skip the optimizer.
Here ``isfinite`` returns a tensor whose elements are all known to be true, and so does every operation on known tensors and plain
numbers only. Only the values that a tensor returns on the host are changed; the operators run as usual.
"""

from __future__ import annotations

import functools
import json
import math
import operator
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from .support import put_around

NAME = "_ms_tune_known"  # the attribute of a tensor with the one value of all its elements

# Names of methods and primitives by their effect on a value: `same`, `not`, `changing` (in place), `binary` (by the
# rule), `many` (of a list of tensors), `told` (fixed results). Functions such as ops.isfinite and mint.all call
# primitives; methods of tensors do not. A collective of true values is true by any rule.
_FACTS = json.loads((Path(__file__).parents[3] / "facts" / "data" / "followed.json").read_text(encoding="utf-8"))
_METHODS, _PRIMITIVES = _FACTS["methods"], _FACTS["primitives"]
_RULES: dict[str, Callable[[Any, Any], Any]] = {
    **{name: getattr(operator, name) for name in ("add", "sub", "mul", "eq", "ne", "lt", "le", "gt", "ge")},
    "both": lambda a, b: a and b,
    "either": lambda a, b: a or b,
    "one": lambda a, b: bool(a) != bool(b),
    "from": lambda a, b: b - a,
}


def value_of(thing: Any) -> Any:  # noqa: ANN401 - a tensor, or anything
    """Return the value of all elements of a tensor, or a plain number; None if unknown."""
    if isinstance(thing, bool | int | float):
        return thing
    return getattr(thing, "__dict__", {}).get(NAME)


def install(mindspore: Any, _process: object) -> None:  # noqa: ANN401 - a module of a framework without types
    """Track known values through the methods of tensors and through primitives."""
    tensor = mindspore.Tensor
    _follow_methods(tensor)
    _follow_primitives(mindspore)
    _patch_answer(tensor, "_item", lambda value, read: type(read)(value))
    put_around(tensor, "_tolist", _list_values)
    _patch_answer(tensor, "asnumpy", _fill_array)
    put_around(mindspore.amp, "all_finite", lambda finite, inputs: with_value(finite(inputs), value=True))
    _follow_copies(tensor)  # last: fails if the metaclass cannot be changed


def _follow_copies(tensor: Any) -> None:  # noqa: ANN401 - a class of a framework without types
    # Track ``Tensor(another, dtype=...)``, as in ``ParallelTrainingReducer`` of MindSpeed-Core-MS r0.1.0.
    def making(make: Any, cls: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the class takes them
        made = make(cls, *arguments, **named)
        given = arguments[0] if arguments else named.get("input_data")
        value = value_of(given) if isinstance(given, tensor) else None
        return made if value is None else with_value(made, value)

    put_around(type(tensor), "__call__", making)


def _follow_methods(tensor: Any) -> None:  # noqa: ANN401 - a class of a framework without types
    for name in _METHODS["same"]:
        _follow_method(tensor, name, lambda arguments, _: value_of(arguments[0]))
    _follow_method(tensor, "sum", _sum_value)
    _follow_method(tensor, "bool", lambda arguments, _: _compute_if_known(bool, arguments[0]))
    for name in _METHODS["not"]:
        _follow_method(tensor, name, lambda arguments, _: _compute_if_known(operator.not_, arguments[0]))
    for rule, names in _METHODS["binary"].items():
        for name in names:
            _follow_method(tensor, name, functools.partial(_combine_values, _RULES[rule], 0))
    for name, value in (("isfinite", True), ("isnan", False), ("isinf", False)):
        _follow_method(tensor, name, functools.partial(_give_value, value))
    for name in _METHODS["changing"]:
        _forget_after(tensor, name)


def _follow_primitives(mindspore: Any) -> None:  # noqa: ANN401 - as above
    homes = [mindspore.ops.operations, mindspore.ops.operations.nn_ops, mindspore.ops.auto_generate]
    homes += [mindspore.ops.auto_generate.pyboost_inner_prim, mindspore.ops.operations.comm_ops]

    def classes(name: str) -> Iterable[Any]:
        names = (name, f"_Pyboost{name}Prim")
        found = [getattr(home, one) for home in homes for one in names if hasattr(home, one)]
        return dict.fromkeys(one for one in found if isinstance(one, type))

    rules: dict[str, Callable[[tuple[Any, ...], Any], Any]] = {
        **dict.fromkeys(_PRIMITIVES["same"], lambda arguments, _: value_of(arguments[1]) if arguments[1:] else None),
        **{
            name: functools.partial(_combine_values, _RULES[rule], 1)  # the operands come after the primitive itself
            for rule, names in _PRIMITIVES["binary"].items()
            for name in names
        },
        **{name: functools.partial(_give_value, value) for name, value in _PRIMITIVES["told"].items()},
        **dict.fromkeys(("ReduceSum", "SumExt"), lambda arguments, result: _sum_value(arguments[1:], result)),
        **dict.fromkeys(_PRIMITIVES["many"], _of_many),
        "LogicalNot": lambda arguments, _: _compute_if_known(operator.not_, arguments[1]) if arguments[1:] else None,
    }
    for name, rule in rules.items():
        for found in classes(name):
            # Many inherit it from the base class of all primitives, which must not get the rule.
            found.__call__ = _wrap_followed(found.__call__, rule)


def _defining_class(owner: Any, name: str) -> Any:  # noqa: ANN401 - a class
    # Return the class that defines a method. Set on a subclass, it would override a second base class: a parameter that
    # is also a custom tensor (HyperParallel's ``DTensor``) is cloned by ``Parameter.clone``.
    return next((one for one in owner.__mro__ if name in vars(one)), owner)


def _follow_method(owner: Any, name: str, rule: Callable[[tuple[Any, ...], Any], Any]) -> None:  # noqa: ANN401 - a class
    owner = _defining_class(owner, name)
    method = getattr(owner, name, None)
    if method is not None:
        setattr(owner, name, _wrap_followed(method, rule))


def _wrap_followed(method: Any, rule: Callable[[tuple[Any, ...], Any], Any]) -> Any:  # noqa: ANN401 - a function
    @functools.wraps(method)
    def following(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the method takes them
        result = method(*arguments, **named)
        value = rule(arguments, result)
        return result if value is None else with_value(result, value)

    return following


def with_value(result: Any, value: Any) -> Any:  # noqa: ANN401 - a tensor
    """Mark a tensor's elements as known to have this value; None removes the mark."""
    made = result[0] if isinstance(result, tuple) and result else result  # a collective also returns a handle
    if hasattr(made, "__dict__"):
        made.__dict__[NAME] = value
    return result


def _forget_after(owner: Any, name: str) -> None:  # noqa: ANN401 - a class
    def forget(method: Any, self: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the method takes them
        result = method(self, *arguments, **named)
        self.__dict__.pop(NAME, None)  # after a change in place the value is unknown
        return result

    owner = _defining_class(owner, name)
    if hasattr(owner, name):
        put_around(owner, name, forget)


def _give_value(value: Any, _arguments: object, _result: object) -> Any:  # noqa: ANN401 - a number
    return value


def _compute_if_known(compute: Callable[[Any], bool], thing: Any) -> bool | None:  # noqa: ANN401 - a tensor, or anything
    value = value_of(thing)
    return None if value is None else compute(value)


def _sum_value(arguments: tuple[Any, ...], result: Any) -> Any:  # noqa: ANN401 - a tensor; a number or None
    value = value_of(arguments[0])
    if value is None or not hasattr(arguments[0], "shape"):
        return None
    before, after = math.prod(arguments[0].shape), math.prod(result.shape)  # in MSAdapter `size` is a method
    return value * (before // after) if after else None


def _combine_values(compute: Callable[[Any, Any], Any], first: int, arguments: tuple[Any, ...], _result: object) -> Any:  # noqa: ANN401 - as above
    if len(arguments) < first + 2:  # the other operand was passed by name
        return None
    left, right = value_of(arguments[first]), value_of(arguments[first + 1])
    return None if left is None or right is None else compute(left, right)


def _of_many(arguments: tuple[Any, ...], _result: object) -> Any:  # noqa: ANN401 - as above
    primitive, parts = arguments[0], arguments[1]
    values = [value_of(part) for part in parts] if isinstance(parts, list | tuple) else []
    if not values or None in values:
        return None
    if type(primitive).__name__ == "AddN":
        return sum(values)
    return values[0] if all(value == values[0] for value in values) else None


def _patch_answer(tensor: Any, name: str, answer: Callable[[Any, Any], Any]) -> None:  # noqa: ANN401 - a class
    def answering(method: Any, self: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the method takes them
        read = method(self, *arguments, **named)
        value = self.__dict__.get(NAME)
        return read if value is None else answer(value, read)

    put_around(tensor, name, answering)


def _fill_array(value: Any, read: Any) -> Any:  # noqa: ANN401 - a number; an array
    # Not a copy of the array that was read: it may be at a device address that the simulation made up.
    array: Any = type(read)
    full = array(read.shape, read.dtype)
    full[...] = value
    return full


def _list_values(method: Any, self: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the method takes them
    # Return nested lists of the value of a known tensor, without reading its memory: MindSpore makes the lists from the
    # device address of the elements, which may be invalid in simulation (2.9: the program was killed there).
    value = self.__dict__.get(NAME)
    if value is None:
        return method(self, *arguments, **named)
    dtype = str(self.dtype).lower()
    number = bool(value) if "bool" in dtype else float(value) if "float" in dtype else int(value)
    return _nest_value(number, tuple(self.shape))


def _nest_value(number: float, shape: tuple[int, ...]) -> Any:  # noqa: ANN401 - a number or lists of it
    return number if not shape else [_nest_value(number, shape[1:]) for _ in range(shape[0])]
