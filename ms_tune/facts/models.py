"""Resolve model settings as the frameworks' own classes do, including the values that a config omits.

In MindFormers (1.6 to 2.1, static and dynamic graph) a model's settings pass three stages: the class that ``model_type``
names (``models/*/configuration_*.py``) fills in what is omitted, a table of keys turns its settings into fields
(``COMMON_CONFIG_MAPPING`` up to 1.8, ``ConfigConverter`` since), and ``TransformerConfig`` has defaults for the rest. Legacy
models have a class only (``model.model_config.type``); MindSpeed-Core-MS r0.1.0 has one class for all models.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import Enum
from functools import cache
from types import MappingProxyType

from ms_tune.enums import Dialect
from ms_tune.facts.query import ABSENT, REQUIRED, all_at, at, load, order
from ms_tune.records import Any, Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol, TypeAlias

    class Source(Protocol):
        """Any object with the values of a config."""

        @property
        def data(self) -> dict[Any, Any]:
            """Return the values."""
            ...


UNKNOWN = ABSENT  # used instead of a value
MODEL_CONFIG = "config.json"  # next to a model's weights
LAYERS, MTP_LAYERS = "num_layers", "mtp_num_layers"  # the fields that count layers
# Swap settings of non-legacy models (1.7 to 2.1): on or off, by layers, by operators.
CORE_SWAP = ("cpu_offloading", "cpu_offloading_num_layers", "op_swap")
FREE = (1, 9)  # since this release a field can be read under its own name without a line in the table
_EQUAL = (2, 0)  # since this release two names of one field may both be written if the values are equal
_SCORES = {True: "sigmoid", False: "softmax"}
_DROPS = {True: "position", False: "probs"}


class ValueOrigin(Enum):
    """The origin of a value."""

    WRITTEN = "written"
    ALIAS = "alias"  # written under another name than the field's own
    CLASS_DEFAULT = "class default"
    GENERAL_DEFAULT = "general default"
    UNKNOWN = "unknown"


class Field(Record):
    """One field of a model."""

    name: str  # the framework's name of the field
    value: Any  # the value that the framework's class receives; `UNKNOWN` if it cannot be determined
    origin: ValueOrigin  # the origin of the value
    path: tuple[str, ...] | None = None  # the key path of the value, if the config itself contains it


class ModelFacts(Record):
    """The facts of one release about a model class."""

    name: str | None  # the name of the class; None if unknown
    kind: str | None  # its `model_type`; the name of the class for a legacy one
    architectures: Sequence[str] = ()  # the networks built for it
    modes: Sequence[str] = ()  # `static`, `dynamic`: the graph modes that can train it
    stages: bool = False  # whether the dynamic graph can split it into pipeline stages
    ties: bool = True  # whether the dynamic graph's network reads `tie_word_embeddings`
    latent: bool = False  # whether it has multi-latent attention
    # Layer settings that the network of each mode sets itself, by field: the config's values are not read.
    says: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
    ignored: Sequence[str] = ()  # keys that the class discards
    twice: Sequence[str] = ()  # keys that are read twice, which the framework refuses like two names of one field
    renamed: Mapping[str, str] = MappingProxyType({})  # keys that the class moves to another key
    # Each setting with the setting whose value replaces a null; if both are the same, its default does.
    fills: Mapping[str, str] = MappingProxyType({})
    derived: Mapping[str, list[str]] = MappingProxyType({})  # settings computed from others
    defaults: Mapping[str, Any] = MappingProxyType({})  # the defaults of the class, by its own keys
    # Keys with their field and optionally the function that converts their value.
    aliases: Mapping[str, list[str]] = MappingProxyType({})
    field_names: Mapping[str, str] = MappingProxyType({})  # the field of each key that is not a field name itself
    fields: Mapping[str, Any] = MappingProxyType({})  # the defaults of the general class
    around: Collection[str] = ()  # other keys that are let through although they are not fields
    listed: bool = False  # whether a field is read under its own name only if the table lists it (up to 1.8)
    legacy: bool = False  # whether it is a legacy class

    def names(self, name: str) -> tuple[str, ...]:
        """Return the keys that a field (given by any of its names) is read from, the one that takes precedence first."""
        name = self.field_names.get(name, name)
        keys = [key for key, rule in self.aliases.items() if rule[0] == name]
        if name not in self.aliases and not (self.listed and name in self.fields):
            keys.append(name)
        keys.sort(key=name.__ne__)  # the field's own name first,
        keys.sort(key=self.defaults.__contains__, reverse=True)  # but after names for which the class has a default
        return tuple(keys)

    def valid_keys(self) -> set[str]:
        """Return every key of the model's section that has a meaning."""
        read = [key for key, rule in self.aliases.items() if rule[0] in self.fields]
        return {*read, *self.around, *self.ignored, *self.renamed, *(() if self.listed else self.fields)}

    def knows(self, key: str) -> bool:
        """Return whether a key of the model's section has a meaning; for many keys use :meth:`valid_keys`."""
        return key in self.valid_keys()


class ModelConfig:
    """The model of a config.

    Args:
        facts: The framework's facts about its class.
        kind: ``model_type`` as written, or else that of the class that ``architectures`` names; for a legacy model the name
            of its class. None if the config does not name one.
        architecture: The network as written (the first of several), or else the one built for the class.
        release: The release that reads the config.
        values: The written values by key, with the key path if the config itself contains them.
        sealed: Whether the values of omitted settings are unknown.
    """

    def __init__(  # noqa: PLR0913 - one a field
        self,
        facts: ModelFacts,
        kind: str | None,
        architecture: str | None,
        release: str,
        values: Mapping[str, tuple[Any, tuple[str, ...] | None]],
        *,
        sealed: bool,
    ) -> None:
        self.facts, self.kind, self.architecture, self.release = facts, kind, architecture, release
        self._values, self._sealed = values, sealed
        self._fields: dict[str, Field] = {}
        self._fields_by_name: dict[str, list[Field]] = {}
        for name in dict.fromkeys([facts.aliases.get(key, (key,))[0] for key in values]):
            for key in facts.names(name):
                if key in values and key not in facts.ignored:
                    origin = ValueOrigin.WRITTEN if key == name else ValueOrigin.ALIAS
                    field = Field(name, self._read_key(key), origin, values[key][1])
                    self._fields_by_name.setdefault(name, []).append(field)
        self.known = facts.name is not None  # whether the framework's class is known
        self.layers = self.number(LAYERS)  # without prediction layers; None if unknown
        self.mtp_layers = self.number(MTP_LAYERS) or 0  # prediction layers; 0 by default

    @property
    def has_own_layers(self) -> bool:
        """Return whether the layers are those of the class's own networks.

        ``architectures`` names the network that is built (``get_instance_type_from_cfg`` in ``tools/register/register.py``).
        Its specification decides the parts of a layer, from settings that ``model_type``'s class fills in: with another
        model's network, the layers belong to neither model, or the network refuses the settings. Two networks with latent
        attention read the same settings and build the same layers (found in networks of 1.9 and 2.1).
        """
        if self.architecture is None or self.architecture in self.facts.architectures:
            return True
        return self.facts.latent and facts_of(self.release, architecture=self.architecture).latent

    def written_fields(self, name: str) -> Sequence[Field]:
        """Return all written values of a field, under any name; several are refused if they differ."""
        return self._fields_by_name.get(self.facts.field_names.get(name, name), ())

    def clashes(self, *fields: str) -> Iterator[tuple[str, Field]]:
        """Yield each value that conflicts with another name of its field, with that name; the framework refuses both together.

        The other name may be written, too, or always have a default in the model's class. A key that is read twice is yielded
        with a name that is not. Without ``fields`` (given by any of their names), all are checked.
        """
        facts = self.facts
        for name in dict.fromkeys([facts.field_names.get(one, one) for one in fields or self._values]):
            names = [key for key in facts.names(name) if key not in facts.ignored and name in facts.fields]
            first, *others = [key for key in names if key in self._values or key in facts.defaults] or [""]
            found = {one.path: one for one in self.written_fields(name)}
            for key in others:
                same = order(self.release) >= _EQUAL and self._read_key(key) == self._read_key(first)
                if key in self._values and not same:
                    yield first, found[self._values[key][1]]
            if first in self._values and first in facts.twice:
                yield next(key for key in names if key not in facts.twice), found[self._values[first][1]]

    def field(self, name: str) -> Field:
        """Return a field (given by any of its names) with the value that the framework's class receives."""
        facts = self.facts
        name = facts.field_names.get(name, name)
        if name in self._fields_by_name:
            return self._fields_by_name[name][0]
        if name in self._fields:
            return self._fields[name]
        filled = [key for key in facts.names(name) if key in facts.defaults and key not in facts.ignored]
        field = Field(name, UNKNOWN, ValueOrigin.UNKNOWN)
        if filled and not self._sealed:
            value = self._read_key(filled[0])
            field = Field(name, value, ValueOrigin.UNKNOWN if value is UNKNOWN else ValueOrigin.CLASS_DEFAULT)
        elif self.known and name in facts.fields and not self._sealed:
            field = Field(name, facts.fields[name], ValueOrigin.GENERAL_DEFAULT)
        self._fields[name] = field
        return field

    def value(self, name: str) -> Any:  # noqa: ANN401 - fields are of all types
        """Return the value of a field; :data:`UNKNOWN` if it cannot be determined."""
        return self.field(name).value

    def number(self, name: str) -> int | None:
        """Return the value of a field as a whole number; None if it is not one, or unknown."""
        value = self.field(name).value
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def _read_key(self, key: str) -> Any:  # noqa: ANN401 - fields are of all types
        """Return the value that the field gets from a key, written or not.

        Another key may replace it, and a function of the table (``transformer_config_utils.py``) may convert it.
        """
        facts, function = self.facts, self.facts.aliases.get(key, [])[1:]
        while True:
            if key in self._values:
                value = self._values[key][0]
            elif not self._values.keys().isdisjoint(facts.derived.get(key, ())):
                value = UNKNOWN
            else:
                value = facts.defaults.get(key)
            other = facts.fills.get(key) if value is None else None
            if other is None:
                break
            if other == key:
                value = facts.defaults[key]
                break
            key = other
        if function == ["is_use_gated_sigmoid"] and not isinstance(value, str):
            return _SCORES[bool(value)]
        if function == ["get_drop_policy"] and isinstance(value, bool):
            return _DROPS[value]
        if function == ["is_float_32"] and isinstance(value, str):
            return value in ("fp32", "float32")
        return value


def model_of(source: Source, dialect: Dialect, release: str, beside: Mapping[str, Any] | None = None) -> ModelConfig:
    """Return the model of a config as one release of its framework reads it.

    ``beside`` is the content of the ``config.json`` next to the weights (``pretrained_model_dir``), whose values rank after
    those of the config and before the class's. If the config names such a folder and this is missing, omitted values are
    unknown.
    """
    data = source.data if isinstance(source.data, dict) else {}
    if dialect is Dialect.MINDSPEED_MS:
        return ModelConfig(_mindspeed(), None, None, release, _section(data, "model_config"), sealed=False)
    if dialect is Dialect.MINDFORMERS and is_legacy(data):
        return _legacy(data, release)
    path = ("model",) if dialect is Dialect.MINDFORMERS_PYNATIVE else ("model", "model_config")
    values = _section(data, *path)
    sealed = False
    if dialect is Dialect.MINDFORMERS:
        values = {key: (value, None) for key, value in (beside or {}).items()} | values | _section(data, "moe_config")
        sealed = bool(model_folder(data)) and beside is None
    kind, architecture = _text(values, "model_type"), _text(values, "architectures")
    facts = facts_of(release, kind=kind, architecture=None if kind else architecture)
    values |= {other: values.pop(key) for key, other in facts.renamed.items() if key in values}
    known = facts.architectures[0] if facts.architectures else None
    return ModelConfig(facts, kind or facts.kind, architecture or known, release, values, sealed=sealed)


def model_folder(data: Mapping[Any, Any]) -> str | None:
    """Return a config's model folder: at its top level (which MindFormers prefers), or below ``model``."""
    model = data.get("model")
    named = data.get("pretrained_model_dir") or (isinstance(model, dict) and model.get("pretrained_model_dir"))
    return named if isinstance(named, str) and "\0" not in named else None


def _legacy(data: dict[Any, Any], release: str) -> ModelConfig:
    """Return a legacy model: the settings of its class and of ``moe_config``, each under its own name."""
    values = _section(data, "moe_config") | _section(data, "model", "model_config")
    kind = _text(values, "type")
    facts = _legacy_facts(release, kind)
    architecture = _text(_section(data, "model", "arch"), "type")
    return ModelConfig(facts, kind, architecture, release, values, sealed=False)


def _section(data: object, *path: str) -> dict[str, tuple[Any, tuple[str, ...] | None]]:
    for name in path:
        data = data.get(name) if isinstance(data, dict) else None
    return {key: (value, (*path, key)) for key, value in data.items()} if isinstance(data, dict) else {}


def _text(values: Mapping[str, tuple[Any, Any]], key: str) -> str | None:
    """Return a name; the first if there is a list of names."""
    value = values.get(key, (None,))[0]
    value = value[0] if isinstance(value, list) and value else value
    return value if isinstance(value, str) else None


# The facts that are stored per class, as fields of `ModelFacts`.
_OF_CLASS = (
    *("architectures", "modes", "stages", "ties", "latent", "says"),
    *("ignored", "twice", "renamed", "fills", "derived"),
)


@cache
def facts_of(release: str, *, kind: str | None = None, architecture: str | None = None) -> ModelFacts:
    """Return a release's facts about the class of a ``model_type`` or of a network (not a legacy one)."""
    data = load("models")
    if not (kind or architecture):
        aliases, fields = all_at(data["aliases"], release), all_at(data["fields"], release)
        names = {key: rule[0] for key, rule in aliases.items() if key not in fields}
        around, listed = all_at(data["white"], release), order(release) < FREE
        return ModelFacts(None, None, aliases=aliases, field_names=names, fields=fields, around=around, listed=listed)
    general = facts_of(release)
    for name, one in data["classes"].items():
        facts = all_at({fact: one[fact] for fact in ("names", *_OF_CLASS)}, release)
        names = facts.pop("names", ())
        if one["legacy"] or not names or not (kind in names or architecture in facts["architectures"]):
            continue
        own = all_at(one["aliases"], release)
        fields = {**general.fields, **(all_at(data["latent"], release) if facts["latent"] else {})}
        rules = own or general.aliases
        return ModelFacts(
            one["class"],
            name,
            **facts,
            defaults=all_at(one["defaults"], release),
            aliases=rules,
            field_names={key: rule[0] for key, rule in rules.items() if key not in fields},
            fields=fields,
            around=general.around,
            listed=not own,
        )
    return general


def names_of(name: str) -> tuple[str, ...]:
    """Return every key from which the newest release reads a field (given by any of its names), the field's own first."""
    return facts_of(load("models")["releases"][-1]).names(name)


@cache
def _legacy_facts(release: str, kind: str | None) -> ModelFacts:
    """Return a release's facts about a legacy class; for an unknown class, those about names and the defaults of ``moe_config``."""
    data = load("models")
    experts = all_at(data["experts"], release)
    one = data["classes"].get(kind)
    if one is None or not one["legacy"] or at(one["names"], release) is ABSENT:
        general = facts_of(release)
        names = {key: rule[0] for key, rule in general.aliases.items()}
        return ModelFacts(None, None, aliases=general.aliases, field_names=names, defaults=experts)
    facts = all_at({fact: one[fact] for fact in ("architectures", "modes", "fills", "derived")}, release)
    return ModelFacts(kind, kind, legacy=True, **facts, defaults=experts | all_at(one["defaults"], release))


@cache
def _mindspeed() -> ModelFacts:
    """Return MindSpeed-Core-MS r0.1.0's only class (``TransformerConfig`` of ``mindspeed_ms/core/config.py``)."""
    rows = ((row["path"].split("."), row.get("default")) for row in load("keys_mindspeed-ms")["keys"])
    fields = {path[-1]: default for path, default in rows if path[:-1] == ["model_config"] and default != REQUIRED}
    return ModelFacts("TransformerConfig", None, fields=fields)


def is_legacy(data: Mapping[Any, Any]) -> bool:
    """Return whether a config's network is built of the legacy classes.

    The framework calls ``is_legacy_model`` (``core/context/build_context.py`` since 1.7, in 1.6 the equivalent
    ``get_context`` of ``tools/utils.py``): null counts as omitted, and the section ``context`` overrides the top level.
    """
    context = data.get("context")
    value = data.get("use_legacy")
    if isinstance(context, dict) and "use_legacy" in context:
        value = context["use_legacy"]
    return value is None or bool(value)


# The names of the same parts in two families.
Row: TypeAlias = "tuple[tuple[str, ...], tuple[str, ...]]"


@cache
def rows(source: str, target: str) -> tuple[Row, ...]:
    """Return pairs of equivalent names of two families, of which the first match counts; empty if they are the same family."""
    both = [] if source == target else [row for row in load("names")["rows"] if source in row and target in row]
    return tuple((tuple(row[source]), tuple(row[target])) for row in both)


def models(family: str) -> tuple[str, ...]:
    """Return the models of a family whose layers are known."""
    return tuple(load("names")["families"][family])


def cells_of(family: str) -> tuple[str, ...]:
    """Return the cells that every layer of a family of the static graph has."""
    return tuple(load("names")["cells"][family])


def family_of(model: str) -> str:
    """Return the family of a model of the static graph; unknown models have the names of ``core``."""
    families = load("names")["families"]
    return next((family for family in ("legacy", "glm") if model in families[family]), "core")


def counterpart(model: str, family: str) -> str:
    """Return the model of another family that has the same layers, or the most similar ones."""
    found = load("names")["counterparts"].get(model, {}).get(family)
    return str(found or models(family)[0])
