"""Write ``ms_tune/facts/data/mindspore_arguments.json``: which arguments MindSpore's own functions and classes refuse.

Run by hand where MindSpore is installed: ``python -m tests.oracle.make_arguments``. Nothing is read from its sources: every
public function is called with arguments that it accepts, found by trying; then one argument at a time is replaced by
:data:`PROBES`, and the answers decide. A bound is kept if every number beyond it is refused, with other values of the
required arguments as well; a list of choices if the message lists them and no listed one is refused for itself. What
depends on another argument, or on the machine, is left out.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import math
import os
import re
import resource
import select
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import islice, product
from pathlib import Path
from typing import Any, cast

from ms_tune.facts import query

MODULES = (
    *("mindspore", "mindspore.nn", "mindspore.amp", "mindspore.train", "mindspore.train.callback", "mindspore.dataset"),
    *("mindspore.dataset.config", "mindspore.runtime", "mindspore.profiler", "mindspore.mint.nn"),
    *("mindspore.mint.optim", "mindspore.experimental.optim"),
    *("mindspore.experimental.optim.lr_scheduler", "mindspore.parallel.auto_parallel", "mindspore.common.initializer"),
    *("mindspore.context", "mindspore.nn.optim", "mindspore.common"),
)
# Classes whose methods are called on an object of theirs; other names for the class of the object in the data.
OBJECTS = ("mindspore.nn.Cell", "mindspore.dataset.Dataset", "mindspore.parallel.auto_parallel.AutoParallel")
NUMBERS = (-2, -1, 0, 1, 2, -1.5, -1e-6, 0.0, 0.5, 1.0, 1.000001, 1.5)
WORDS = ("other_", "")
PROBES: tuple[Any, ...] = (*NUMBERS, *WORDS, True, False)
# These wait for other processes, need other hardware, or end the process.
_LEFT_OUT = re.compile(
    r"\.(?:init|release|run_check|set_device|create_group|destroy_group|get_rank|get_group_size|get_local_\w+|"
    r"launch_blocking|get_world_rank_\w+|get_group_rank_\w+|set_ps_context|reset_ps_context|parse_print|load|export|kernel|"
    r"set_context|set_deterministic|set_cpu_affinity|set_numa_affinity|Cifar\w+|ImageNetToMR|CsvToMR|MnistToMR|TFRecordToMR|FileWriter|FileReader|MindPage|\w*(?:Profiler|[Pp]rofile)|ask_\w+)$"
)
_ONCE = re.compile(r"\.(?:set_memory|set_auto_parallel_context|set_deterministic)$")
_SECONDS = 30  # of silence; a row of many arguments takes longer
# Optional arguments of which some functions need one.
_BESIDE: Mapping[str, Any] = {"column_names": ["x"]}
# Shares, whose upper bound does not depend on another argument.
_SHARES = re.compile(r"p|rho|factor|momentum|beta\d|keep_prob|label_smoothing")
_MOST_TRIED = 400
_MACHINE = re.compile(r"boundary between|CPU|cpu|cores|device|Ascend|GPU|platform", re.IGNORECASE)
_QUOTED = re.compile(r"'([^'\s]{1,40})'|\"([^\"\s]{1,40})\"")
_LISTING = re.compile(r"must be|should be|one of|should in|only support|\bin ?[:\[(]")
_REFUSALS = (ValueError, TypeError, RuntimeError, KeyError, AttributeError, NotImplementedError)


def public() -> dict[str, Any]:
    """Return the public functions and classes with their first name, and all names."""
    found: dict[int, tuple[Any, list[str]]] = {}
    for name in MODULES:
        package, _, last = name.rpartition(".")
        with contextlib.suppress(ModuleNotFoundError):  # dataset.config is a name only
            importlib.import_module(name)
        module = getattr(sys.modules[package], last) if package else sys.modules[name]
        for word, value in sorted(vars(module).items()):
            own = str(getattr(value, "__module__", "")).startswith("mindspore")
            listed = inspect.isclass(value) and issubclass(value, Enum)
            if not word.startswith("_") and own and callable(value) and hasattr(value, "__name__") and not listed:
                found.setdefault(id(value), (value, []))[1].append(f"{name}.{word}")
    return {names[0]: (value, names) for value, names in found.values()}


def methods() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the methods of objects, bound to a new object for each."""
    import mindspore  # noqa: PLC0415 - only where it is installed
    from mindspore.parallel.auto_parallel import AutoParallel  # noqa: PLC0415

    def made(name: str) -> object:
        if name.endswith("Dataset"):
            return mindspore.dataset.NumpySlicesDataset([1, 2, 3], ["x"], shuffle=False)
        net = mindspore.nn.Dense(4, 4)
        return AutoParallel(net) if name.endswith("AutoParallel") else net

    for name in OBJECTS:
        own = (
            type(made(name))
            if name.endswith("AutoParallel")
            else next(one for one in type(made(name)).__mro__ if one.__name__ == name.rpartition(".")[2])
        )
        for word in vars(own):
            method = getattr(own, word, None)
            if not word.startswith("_") and inspect.isfunction(method):

                def call(*args: object, name: str = name, word: str = word, **more: object) -> object:
                    return getattr(made(name), word)(*args, **more)

                call.__signature__ = inspect.signature(method)  # type: ignore[attr-defined]
                yield f"{name}.{word}", call


def candidates(name: str) -> list[Any]:
    """Return values for a required argument, the likely ones first."""
    import mindspore  # noqa: PLC0415
    import mindspore.experimental.optim  # noqa: PLC0415

    net, tensor = mindspore.nn.Dense(4, 4), mindspore.Tensor([[1.0, 2.0], [3.0, 4.0]])
    likely: Mapping[str, list[Any]] = {
        "param": [net.trainable_params()],
        "net|cell|backbone|model": [net],
        "fn|func|operation|callable": [lambda x: x],
        "optim": [
            mindspore.experimental.optim.Adam(net.trainable_params()),
            mindspore.nn.SGD(net.trainable_params(), 0.1),
        ],
        "^min_": [0.01],
        "^max_": [1.0],
        "level": ["O2"],
        "save_obj": [net],
        "shape|size": [4, (4,)],
        "input|^x$|tensor|weight|other|^y$|grad": [tensor],
        "source|data": [[1, 2, 3]],
        "column": [["x"]],
        "lr|rate": [0.1],
        "type": [mindspore.float32],
    }
    found = [one for key, values in likely.items() if re.search(key, name) for one in values]
    return [*found, 4, 0.5, "x", tensor, net, net.trainable_params(), (4,), [1, 2, 3], lambda x: x, True]


def answer(call: Callable[..., Any], given: Mapping[str, Any]) -> str:
    """Return an empty text if a call is accepted, else what it says."""
    try:
        call(**given)
    except _REFUSALS as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())[:600]}"
    except BaseException as error:  # noqa: BLE001 - anything else is no answer about the argument
        return f"?{error!r}"
    return ""


def accepted(call: Callable[..., Any], required: Sequence[str], optional: Sequence[str]) -> list[dict[str, Any]]:
    """Return up to three sets of required arguments that are accepted, of different values where that is possible."""
    found: list[dict[str, Any]] = []
    lists = [candidates(one) for one in required]
    further = [*({name: value} for name, value in _BESIDE.items() if name in optional), {}]
    for values, beside in product(islice(product(*lists), _MOST_TRIED), further):
        given = dict(zip(required, values, strict=True)) | beside
        if not answer(call, given):
            found.append(given)
            break
    for scale in (3, 16):
        if found:
            larger = {name: one * scale if type(one) in (int, float) else one for name, one in found[0].items()}
            if larger != found[0] and not answer(call, larger):
                found.append(larger)
    return found


def constraints(
    call: Callable[..., Any], bases: Sequence[dict[str, Any]], name: str, default: object
) -> dict[str, Any]:
    """Return what an argument refuses; nothing if no value that was tried is accepted beside the default."""
    if isinstance(default, tuple) and len(default) > 1 and all(isinstance(one, float) for one in default):
        numbers = sorted({float(one) for one in NUMBERS})
        refused = [_refuses_items(call, bases[0], name, default, one) for one in numbers]
        return {f"items_{word}": value for word, value in _bounds(numbers, refused).items()}
    answers: dict[tuple[str, Any], str] = {}
    for value in PROBES:
        texts = [answer(call, {**base, name: value}) for base in bases]
        answers[type(value).__name__, value] = texts[0] if all(texts) else ""
    if any(text.startswith("?") for text in answers.values()) or (all(answers.values()) and name not in bases[0]):
        return _words(call, bases[0], name, answers["str", WORDS[0]], default) or _companion(
            call, bases[0], name, answers["int", 2]
        )
    found = _numbers(answers, name, default)
    word = answers["str", WORDS[0]]
    if word and not _MACHINE.search(word):
        told = _words(call, bases[0], name, word, default)
        found |= told
        if not told and not isinstance(default, str) and answers["str", ""] and "type" in word.lower():
            found.setdefault("types", []).append("str")
    switch = [answers["bool", one] for one in (True, False)]
    if all(switch) and not isinstance(default, bool) and all("type" in one.lower() or "bool" in one for one in switch):
        found.setdefault("types", []).append("bool")
    return found


def _numbers(answers: Mapping[tuple[str, Any], str], name: str, default: object) -> dict[str, Any]:
    """Return the numbers and the types of numbers that an argument refuses."""
    found: dict[str, Any] = {}
    for kind in ("int", "float"):
        numbers = sorted((value, text) for (one, value), text in answers.items() if one == kind)
        texts = [text for _, text in numbers]
        if all(texts):
            if type(default).__name__ != kind and all("type" in text.lower() or "must be" in text for text in texts):
                found.setdefault("types", []).append(kind)
            continue
        values = [value for value, _ in numbers]
        bounds = _bounds(values, texts)
        low, high = bounds.get("below", -math.inf), bounds.get("above", math.inf)
        inside = [value for value, text in numbers if text and low < value < high]
        if len(bounds) > 1 and texts.count("") == 1:
            continue  # anything but 0 needs another argument
        if not _SHARES.fullmatch(name) or _MACHINE.search(" ".join(texts)):
            bounds.pop("above", None)
        if inside == [0] and kind == "int" and not isinstance(default, bool):
            bounds["refused"] = [0]
        found |= {f"{kind}_{word}": value for word, value in bounds.items()}
    return found


def _bounds(numbers: Sequence[float], refused: Sequence[object]) -> dict[str, Any]:
    """Return the highest number from below, and the lowest from above, up to which all are refused."""
    below = [one for at, one in enumerate(numbers) if all(refused[: at + 1])]
    above = [one for at, one in enumerate(numbers) if all(refused[at:])]
    return {**({"below": below[-1]} if below else {}), **({"above": above[0]} if above else {})}


def _companion(call: Callable[..., Any], base: Mapping[str, Any], name: str, text: str) -> dict[str, str]:
    """Return the argument that another one is refused without, if the message names it."""
    others = [
        one for one in signature_of(call).parameters if one not in (name, *base) and re.search(rf"\b{one}\b", text)
    ]
    needed = [one for one in others if not answer(call, {**base, name: 2, one: 1})]
    return {"needs": needed[0]} if needed else {}


def _refuses_items(
    call: Callable[..., Any], base: Mapping[str, Any], name: str, default: tuple[float, ...], value: float
) -> bool:
    """Return whether a number is refused at every place of a tuple."""
    tried = ([value if at == place else one for at, one in enumerate(default)] for place in range(len(default)))
    return all(answer(call, {**base, name: tuple(one)}) for one in tried)


def _words(
    call: Callable[..., Any], base: Mapping[str, Any], name: str, text: str, default: object
) -> dict[str, list[str] | str]:
    """Return the choices, or the pattern, that a refusal of a word gives."""
    pattern = re.search(r"regular ?'(.+?)' by flags", text)
    listed = _choices(call, base, name, text, default)
    return {"choices": listed} if listed else {"pattern": pattern[1]} if pattern else {}


def _choices(call: Callable[..., Any], base: Mapping[str, Any], name: str, text: str, default: object) -> list[str]:
    """Return the words that a refusal lists, if each is accepted or refused for another reason; the default is one of them."""
    if not text or WORDS[0] not in text:
        return []
    told = _LISTING.split(text, maxsplit=1)[-1].partition("but got")[0]
    written = re.search(r"\[[^\[\]]*\]", told)
    words = [one or other for one, other in _QUOTED.findall(written[0] if written else told)]
    listed = [
        one for one in dict.fromkeys(words) if one not in (WORDS[0], name) and not one.startswith(("For", "Mind"))
    ]
    for one in listed:
        said = answer(call, {**base, name: one})
        if said and said.replace(one, WORDS[0]) == text.replace(one, WORDS[0]):
            return []
        if said.replace(one, "") == text.replace(WORDS[0], ""):
            return []
    taken = [one for one in listed if not answer(call, {**base, name: one})]
    return listed if taken and (not isinstance(default, str) or default in listed) else []


def signature_of(call: Callable[..., Any]) -> inspect.Signature:
    """Return the signature, also of a class whose decorator hides that of ``__init__``."""
    found = inspect.signature(call)
    start = getattr(call, "__init__", None)
    if set(found.parameters) == {"args", "kwargs"} and inspect.isclass(call) and inspect.isfunction(start):
        inner = [one.cell_contents for one in start.__closure__ or () if inspect.isfunction(one.cell_contents)]
        return inspect.signature(inner[0]) if inner else found
    return found


def examine(call: Callable[..., Any], name: str) -> dict[str, Any]:
    """Return the row of a function or class."""
    parameters = [one for one in signature_of(call).parameters.values() if one.name not in ("self", "cls")]
    kinds = {one.kind for one in parameters}
    varied = {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}
    plain = [one for one in parameters if one.kind not in varied]
    row: dict[str, Any] = {"order": [one.name for one in plain]}
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        row["order"] = []
    if inspect.Parameter.VAR_KEYWORD in kinds:
        row["more"] = True
    required = [one.name for one in plain if one.default is inspect.Parameter.empty]
    bases = accepted(call, required, row["order"])
    if not bases:
        return row
    if row.get("more"):
        keys = _further_keys(call, bases[0], name)
        if keys:
            del row["more"]
            row["keys"] = keys
    defaults = {one.name: one.default for one in plain} | dict.fromkeys(row.get("keys", ()))
    refused = {name: constraints(call, bases, name, default) for name, default in defaults.items()}
    row["refuses"] = {name: one for name, one in refused.items() if one}
    return row


def _further_keys(call: Callable[..., Any], base: Mapping[str, Any], name: str) -> list[str]:
    """Return the further keywords that a refusal of an unknown one lists, or those of its own table."""
    if name.endswith(".set_auto_parallel_context"):
        table = importlib.import_module("mindspore.parallel._auto_parallel_context")
        return sorted(table._set_auto_parallel_context_func_map)
    said = answer(call, {**base, "unknown_": 1})
    found = [one or other for one, other in _QUOTED.findall(said)]
    keys = [one for one in found if one.isidentifier() and one != "unknown_" and "_" in one]
    known = [one for one in keys if "not recogni" not in answer(call, {**base, one: True})]
    return known if "unknown_" in said and keys and known == keys else []


def bounded(call: Callable[..., Any], name: str) -> dict[str, Any]:
    """Run :func:`examine` in a process of its own: calls change the process, and some end it."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        with contextlib.suppress(BaseException):
            resource.setrlimit(resource.RLIMIT_AS, (12 << 30, 12 << 30))
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(1, 2)
            os.write(write, json.dumps(examine(call, name)).encode())
        os._exit(0)
    os.close(write)
    said, ready = b"", True
    while ready:
        ready = bool(select.select([read], [], [], _SECONDS * (8 if _ONCE.search(name) else 1))[0])
        part = os.read(read, 1 << 20) if ready else b""
        said, ready = said + part, bool(part)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(read)
    return cast("dict[str, Any]", json.loads(said)) if said else {}


def apart(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that makes each call in a new process: MindSpore accepts these settings once."""

    def run(**given: object) -> None:
        read, write = os.pipe()
        child = os.fork()
        if not child:
            os.write(write, answer(call, given).encode()[:4000])
            os._exit(0)
        os.close(write)
        said = os.read(read, 4096).decode(errors="replace")
        os.close(read)
        os.waitpid(child, 0)
        if said:
            raise ValueError(said)

    run.__signature__ = inspect.signature(call)  # type: ignore[attr-defined]
    return run


def main() -> None:
    """Write the table."""
    import mindspore  # noqa: PLC0415

    rows: dict[str, Any] = {}
    calls = {name: (value, names) for name, (value, names) in public().items()}
    calls |= {name: (call, [name]) for name, call in methods()}
    chosen = [one for one in sys.argv[1:] if not one.startswith("-")]
    os.chdir(tempfile.mkdtemp())
    for name, (call, names) in sorted(calls.items()):
        if _LEFT_OUT.search(name) or (chosen and not any(one in name for one in chosen)):
            continue
        row = bounded(apart(call) if _ONCE.search(name) else call, name)
        if row:
            rows[name] = {**({"names": names[1:]} if names[1:] else {}), **row}
            print(name, row.get("refuses", ""), file=sys.stderr, flush=True)  # noqa: T201 - it takes minutes
    path = Path(query.__file__).parent / "data" / "mindspore_arguments.json"
    if chosen:  # the other rows stay
        rows = dict(sorted({**json.loads(path.read_text("utf-8"))["functions"], **rows}.items()))
    if rows:
        text = ",\n".join(f" {json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
        path.write_text(f'{{\n "version": "{mindspore.__version__}", "functions": {{\n{text}\n }}\n}}\n', "utf-8")


if __name__ == "__main__":
    main()
