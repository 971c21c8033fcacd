"""Find all oddities of a config in one pass, so that checks whose kind of oddity is absent need not run."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from ms_tune.dialects.check_context import per_job
from ms_tune.enums import Dialect
from ms_tune.facts.keys import Key, arguments_of, by_section
from ms_tune.facts.models import facts_of
from ms_tune.lint.expressions import is_number
from ms_tune.records import Any
from ms_tune.source.yaml import find_values, is_same

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ms_tune.dialects import JobView

NESTED = 10  # the nesting depth of mappings that MindFormers accepts
_MODELS = {Dialect.MINDFORMERS: ("model", "model_config"), Dialect.MINDFORMERS_PYNATIVE: ("model",)}
_CLASSES = (("optimizer",), ("lr_schedule",), ("lr_scheduler",), ("runner_wrapper",), ("callbacks", "*"))
_KINDS = {"callbacks": "callback", "lr_scheduler": "lr_schedule"}
_PYTHON = {"int": int, "float": float, "str": str, "bool": bool, "list": list, "dict": dict}
# Where the text may contain a number that YAML reads as text (`1e-5`) or in another base (`010`, `12:30`), or a None.
_ODD_SCALAR = re.compile(
    r"[-+.\d](?<![\w.].)(?:\d*[eE][-+]?\d|[\d.]*[eE]\d|(?<=[-+])\.\d+[eE]"
    r"|(?<=0)[0-7_]|(?<=[-+])0[0-7_]|[\d_]*:[0-5]?\d)|None(?<![\w.]None)\b"
)
# Compiled when needed, which is rare.
_COUNT, _EXPONENT = (
    r"^num_|_(?:size|heads|dim|layers|num|groups|rank|position_embeddings)$",
    r"[-+]?\d+\.?\d*[eE][-+]?\d+",
)


@per_job
def find_oddities(job: JobView) -> dict[str, list[Any]]:
    """Find the oddities of a config by kind; a check's row lists the kinds that it needs in ``odd``.

    Keys with their paths and values: ``dead``, which are never read; ``type``, ``bound``, ``choice``, strict keys whose
    values the framework refuses for that reason; ``no-section``, which contain no section, or no list of sections;
    ``switch``, whose values are not switches (no key for those of a class or the model). Others: ``duplicate``; ``scalar``,
    path and text of values that YAML may read differently from how they look; ``depth``, mappings nested too deep;
    ``unknown``, section and name of keys unknown to a section in this release; ``no-mapping``, paths of sections that are not
    mappings; ``two-names``, the model's section, if two keys name one field; ``field-switch``, ``field-number``, paths of
    model fields that must be a switch or number, with the message; ``class``, path, kind and name, and section of a class.
    """
    odd: defaultdict[str, list[Any]] = defaultdict(list)
    source, level = job.source, [job.source.data]
    if source.duplicates:
        odd["duplicate"] += source.duplicates
    for match in _ODD_SCALAR.finditer(source.text):
        if scalar := source.scalar_at(match.start()):
            odd["scalar"].append(scalar)
    for _ in range(NESTED + 1):
        level = [inner for value in level if isinstance(value, dict) for inner in value.values()]
    if level:
        odd["depth"] += level
    _look_at_keys(job, odd)
    if job.dialect in _MODELS:
        _look_at_model(job, odd)
        if "type" in source.key_names:
            _look_at_classes(job, odd)
    return dict(odd)


def _look_at_keys(job: JobView, odd: dict[str, list[Any]]) -> None:
    current = by_section(job.dialect, job.release.version or None)
    for section, keys in by_section(job.dialect).items():
        known = current.get(section, {})
        for path, values in find_values(job.source.data, section):
            for name, value in values.items() if isinstance(values, dict) else ():
                if name not in known and path == section:
                    odd["unknown"].append((section, name))
                key = keys.get(name)
                for kind in _find_kinds(key, value, job.dialect, is_known=name in known) if key else ():
                    odd[kind].append((key, (*path, name), value))
            if not isinstance(values, dict):
                odd["no-mapping"].append(path)


def _find_kinds(key: Key, value: Any, dialect: Dialect, *, is_known: bool) -> Iterator[str]:  # noqa: ANN401 - of any type
    if key.state == "dead" and value is not None and not is_same(value, key.default):
        yield "dead"
    if len(key.path) == 1 and key.types in (("dict",), ("list",)):
        fits = isinstance(value, _PYTHON[key.types[0]])
        if not fits or (key.name == "callbacks" and not all(isinstance(item, dict) and item for item in value)):
            yield "no-section"
    if is_known and "bool" in key.types and {"bool", "null"}.issuperset(key.types) and _is_no_switch(value):
        yield "switch"
    if not is_known or not key.strict:
        return
    if key.types and not _fits(value, key.types, dialect):
        yield "type"
    if is_number(value) and broken_bound(key, value):
        yield "bound"
    if key.choices and value is not None and not isinstance(value, (list, dict)):
        is_beside_names = not isinstance(value, str) and "str" in key.types and type(value).__name__ in key.types
        if not is_beside_names and not any(is_same(value, one) for one in key.choices):
            yield "choice"


def broken_bound(key: Key, value: float) -> str:
    """Return the bound that a number violates, or an empty text."""
    if key.above is not None and value <= key.above:
        return f"> {key.above:g}"
    if key.least is not None and value < key.least:
        return f">= {key.least:g}"
    return f"<= {key.most:g}" if key.most is not None and value > key.most else ""


def _fits(value: object, types: tuple[str, ...], dialect: Dialect) -> bool:
    if isinstance(value, list):
        inner = [one[5:-1] for one in types if one.startswith("list[")]
        return "list" in types or any(all(_fits(item, (one,), dialect) for item in value) for one in inner)
    if value is None or isinstance(value, bool):
        return ("null" if value is None else "bool") in types
    is_float = "float" in types and dialect is Dialect.MINDFORMERS_PYNATIVE
    wanted = [_PYTHON[one] for one in types if one in _PYTHON]
    return isinstance(value, (*wanted, int) if is_float else tuple(wanted))


def _look_at_model(job: JobView, odd: dict[str, list[Any]]) -> None:
    section, model = _MODELS[job.dialect], job.model
    written, facts = job.source.get(section), model.facts
    values = written if isinstance(written, dict) else {}
    field_names = facts_of(model.release).field_names
    if len(set(map(field_names.get, values, values))) < len(values):
        odd["two-names"].append(section)
    for key, value in values.items():
        name, path = str(key), (*section, str(key))
        field, *turned = facts.aliases.get(name) or [name]
        if name not in facts.defaults and field not in facts.fields:
            continue
        # The default of the field: None if its value is converted, or it has no default.
        own = facts.defaults.get(name)
        default = None if turned else facts.fields.get(field) if own is None else own
        if not isinstance(default, bool):
            if message := _number_message(name, value, default):
                odd["field-number"].append((path, message))
        elif _is_no_switch(value):
            odd["field-switch"].append(path)
            odd["switch"].append((None, path, value))


def _number_message(name: str, value: Any, default: Any) -> str:  # noqa: ANN401 - of any type
    """Return the message for a value that is not a valid number: sizes and counts must be whole and not negative; else empty."""
    has_number, counts = is_number(default), re.search(_COUNT, name) is not None
    if isinstance(value, str):  # texts that only YAML does not read as numbers (`1e-5`) are left to another check
        return "default" if (has_number or (counts and default is None)) and not re.fullmatch(_EXPONENT, value) else ""
    if isinstance(value, list) and isinstance(default, float) and "coeff" not in name:
        return "default"  # there may be one coefficient per loss
    if value is None or isinstance(value, bool) or not (counts and has_number and default > 0):
        return ""
    return "" if is_number(value) and value >= 0 and value % 1 == 0 else "count"


def _look_at_classes(job: JobView, odd: dict[str, list[Any]]) -> None:
    """Find the arguments of classes, except classes that the config itself registers."""
    for pattern in _CLASSES:
        kind = _KINDS.get(pattern[0], pattern[0])
        for path, section in find_values(job.source.data, pattern):
            name = section.get("type") if isinstance(section, dict) else None
            if isinstance(name, str) and "auto_register" not in section:
                odd["class"].append((path, (kind, name), section))
                takes = arguments_of(kind, name, job.release.version)
                for key in sorted(takes.switches) if takes else ():
                    if _is_no_switch(section.get(key)):
                        odd["switch"].append((None, (*path, key), section[key]))


def _is_no_switch(value: object) -> bool:
    return bool(value) and (isinstance(value, (str, list)) or (isinstance(value, (int, float)) and value != 1))
