"""Models as the frameworks' own classes see them: what a config leaves out is filled in as the class does it.

A model's settings go through three hands in MindFormers (1.6 to 2.1, static and dynamic graph): the class that
``model_type`` names (``models/*/configuration_*.py``) fills in what is left out, a table of keys turns its settings into
fields (``COMMON_CONFIG_MAPPING`` up to 1.8, ``ConfigConverter`` since), and ``TransformerConfig`` has values for the rest.
Legacy models have a class only (``model.model_config.type``); MindSpeed-Core-MS r0.1.0 has one class for all models.
"""

from __future__ import annotations

from enum import Enum
from functools import cache
from types import MappingProxyType

from ms_tune.enums import Dialect
from ms_tune.facts.query import ABSENT, REQUIRED, all_at, at, load, order
from ms_tune.records import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from typing import Any, Protocol, TypeAlias

    class Source(Protocol):
        """Anything that holds the values of a config."""

        @property
        def data(self) -> dict[Any, Any]:
            """The values."""
            ...


UNKNOWN = ABSENT  # in place of a value
MODEL_CONFIG = "config.json"  # beside a model's weights
LAYERS, MTP_LAYERS = "num_layers", "mtp_num_layers"  # the fields that count layers
# Swap of models that are not legacy ones (1.7 to 2.1): whether, of layers, of operators.
CORE_SWAP = ("cpu_offloading", "cpu_offloading_num_layers", "op_swap")
FREE = (1, 9)  # since then a field needs no line in a table to be read under its own name
_EQUAL = (2, 0)  # since then two names for one field may have one value
_SCORES = {True: "sigmoid", False: "softmax"}
_DROPS = {True: "position", False: "probs"}


class ValueOrigin(Enum):
    """Where a value comes from."""

    WRITTEN = "written"
    ALIAS = "alias"  # written, under another name than the field's own
    CLASS_DEFAULT = "class default"
    GENERAL_DEFAULT = "general default"
    UNKNOWN = "unknown"


class Field(Record):
    """One field of a model."""

    name: str  # the field, in the framework's word for it
    value: Any  # what the framework's class gets; `UNKNOWN` if nobody can say
    origin: ValueOrigin  # where the value comes from
    path: tuple[str, ...] | None = None  # the key path at which it is written, if the config itself holds it


class ModelFacts(Record):
    """What a release knows of a class of models."""

    name: str | None  # the name of the class; None if it is not known
    kind: str | None  # the `model_type` that stands for it; the name of the class if it is a legacy one
    architectures: Sequence[str] = ()  # the networks that are built for it
    modes: Sequence[str] = ()  # `static`, `dynamic`: the modes in which it trains
    stages: bool = False  # whether the dynamic graph can cut it into pipeline stages
    ties: bool = True  # whether the dynamic graph's network reads `tie_word_embeddings`
    latent: bool = False  # whether its attention has latent queries, keys and values
    # What the network of each mode says itself of its layers, by field: what a config says of that is not read.
    says: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
    ignored: Sequence[str] = ()  # keys that the class throws away
    twice: Sequence[str] = ()  # keys that are read twice, which is refused as if they were two
    renamed: Mapping[str, str] = MappingProxyType({})  # keys that the class writes to another one
    # Settings that another one stands in for when they are null, or their own default.
    fills: Mapping[str, str] = MappingProxyType({})
    derived: Mapping[str, list[str]] = MappingProxyType({})  # settings that follow from others
    defaults: Mapping[str, Any] = MappingProxyType({})  # what the class fills in, by its own keys
    # Keys, each with its field and perhaps the function that turns its value.
    aliases: Mapping[str, list[str]] = MappingProxyType({})
    field_names: Mapping[str, str] = MappingProxyType({})  # the fields of keys that are none themselves
    fields: Mapping[str, Any] = MappingProxyType({})  # what the general class fills in
    around: Collection[str] = ()  # keys that are no fields and let through
    listed: bool = False  # whether a field is read under its own name only if the table says so (up to 1.8)
    legacy: bool = False  # whether it is a legacy class

    def names(self, name: str) -> tuple[str, ...]:
        """The keys that a field (any name of it will do) is read from: that of the class itself first."""
        name = self.field_names.get(name, name)
        keys = [key for key, rule in self.aliases.items() if rule[0] == name]
        if name not in self.aliases and not (self.listed and name in self.fields):
            keys.append(name)
        keys.sort(key=name.__ne__)  # the field's own name first,
        keys.sort(key=self.defaults.__contains__, reverse=True)  # but behind those that the class has a value for
        return tuple(keys)

    def keys_known(self) -> set[str]:
        """Every key of the model's section that has a meaning."""
        read = [key for key, rule in self.aliases.items() if rule[0] in self.fields]
        return {*read, *self.around, *self.ignored, *self.renamed, *(() if self.listed else self.fields)}

    def knows(self, key: str) -> bool:
        """Whether a key of the model's section has a meaning; of many keys :meth:`keys_known` tells sooner."""
        return key in self.keys_known()


class ModelConfig:
    """The model of a config.

    Args:
        facts: What the framework knows of its class.
        kind: ``model_type`` as written, or else that of the class that ``architectures`` names; of a legacy model the
            name of its class. None where the config names none.
        architecture: The network as written (the first of several), or else the one built for the class.
        release: The release that was asked.
        values: What is written, by key, with its key path if the config itself holds it.
        sealed: Whether nothing is known of what is not written.
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
        self._written: dict[str, list[Field]] = {}
        for name in dict.fromkeys([facts.aliases.get(key, (key,))[0] for key in values]):
            for key in facts.names(name):
                if key in values and key not in facts.ignored:
                    origin = ValueOrigin.WRITTEN if key == name else ValueOrigin.ALIAS
                    field = Field(name, self._read_key(key), origin, values[key][1])
                    self._written.setdefault(name, []).append(field)
        self.known = facts.name is not None  # whether the framework's class is known
        self.layers = self.number(LAYERS)  # but for those that predict further tokens; None if that is not known
        self.mtp_layers = self.number(MTP_LAYERS) or 0  # those that do; 0 if nothing says so

    @property
    def has_own_layers(self) -> bool:
        """Whether the layers are those that the class's own networks have.

        ``architectures`` names the network that is built (``get_instance_type_from_cfg`` in ``tools/register/register.py``), and
        its specification decides what a layer consists of, from settings that ``model_type``'s class fills in: with another
        model's network, layers are neither model's, or the network refuses the settings. Two networks with latent
        attention read the same of them and build the same (seen in networks of 1.9 and 2.1).
        """
        if self.architecture is None or self.architecture in self.facts.architectures:
            return True
        return self.facts.latent and facts_of(self.release, architecture=self.architecture).latent

    def written(self, name: str) -> Sequence[Field]:
        """All that is written for a field, under whatever name; more than one is refused where they differ."""
        return self._written.get(self.facts.field_names.get(name, name), ())

    def clashes(self, *fields: str) -> Iterator[tuple[str, Field]]:
        """What is written for a field that has a value under another name, with that name: the framework refuses it.

        The other name may be written, too, or be one that the model's class has a value for in any case. A key that is
        read twice comes with a name that is not.

        Args:
            fields: The fields to look at (any name of each will do); all if none is given.
        """
        facts = self.facts
        for name in dict.fromkeys([facts.field_names.get(one, one) for one in fields or self._values]):
            names = [key for key in facts.names(name) if key not in facts.ignored and name in facts.fields]
            first, *others = [key for key in names if key in self._values or key in facts.defaults] or [""]
            found = {one.path: one for one in self.written(name)}
            for key in others:
                same = order(self.release) >= _EQUAL and self._read_key(key) == self._read_key(first)
                if key in self._values and not same:
                    yield first, found[self._values[key][1]]
            if first in self._values and first in facts.twice:
                yield next(key for key in names if key not in facts.twice), found[self._values[first][1]]

    def field(self, name: str) -> Field:
        """The value of a field (any name of it will do) as the framework's class gets it."""
        facts = self.facts
        name = facts.field_names.get(name, name)
        if name in self._written:
            return self._written[name][0]
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
        """The value of a field; :data:`UNKNOWN` if nobody can say."""
        return self.field(name).value

    def number(self, name: str) -> int | None:
        """A whole number; None where there is none, or it is not known."""
        value = self.field(name).value
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def _read_key(self, key: str) -> Any:  # noqa: ANN401 - fields are of all types
        """The value that the field gets from a key, written or not.

        Another key may stand in for it, and a function of the table (``transformer_config_utils.py``) turn it.
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
    """The model of a config, as one release of its framework sees it.

    Args:
        source: The config.
        dialect: The family that it belongs to.
        release: A served release, see :mod:`ms_tune.facts.query`.
        beside: The content of the ``config.json`` beside the weights (``pretrained_model_dir``), whose values stand
            behind those of the config and before the class's. Where such a folder is named and not given, what the
            config leaves out is unknown.
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
    """The folder that a config names for its model: at its top (which MindFormers puts over the other), or below ``model``."""
    model = data.get("model")
    named = data.get("pretrained_model_dir") or (isinstance(model, dict) and model.get("pretrained_model_dir"))
    return named if isinstance(named, str) and "\0" not in named else None


def _legacy(data: dict[Any, Any], release: str) -> ModelConfig:
    """A legacy model: the settings of its class, and those of ``moe_config``, each under its own name."""
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
    """A name; of a list of names the first."""
    value = values.get(key, (None,))[0]
    value = value[0] if isinstance(value, list) and value else value
    return value if isinstance(value, str) else None


# What is known of a class, as the fields of `ModelFacts`.
_OF_CLASS = (
    *("architectures", "modes", "stages", "ties", "latent", "says"),
    *("ignored", "twice", "renamed", "fills", "derived"),
)


@cache
def facts_of(release: str, *, kind: str | None = None, architecture: str | None = None) -> ModelFacts:
    """What a release of MindFormers knows of the models of a ``model_type``, or of a network (not a legacy one)."""
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
    """Every key that the newest release reads a field of a model from (any name of it will do), the field's own first."""
    return facts_of(load("models")["releases"][-1]).names(name)


@cache
def _legacy_facts(release: str, kind: str | None) -> ModelFacts:
    """What a release knows of a legacy class; of one that is not known, what names mean and what fills up ``moe_config``."""
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
    """The one class of MindSpeed-Core-MS r0.1.0 (``TransformerConfig`` of ``mindspeed_ms/core/config.py``)."""
    rows = ((row["path"].split("."), row.get("default")) for row in load("keys_mindspeed-ms")["keys"])
    fields = {path[-1]: default for path, default in rows if path[:-1] == ["model_config"] and default != REQUIRED}
    return ModelFacts("TransformerConfig", None, fields=fields)


def is_legacy(data: Mapping[Any, Any]) -> bool:
    """Whether a config's network is built of the legacy classes.

    All that builds the network asks ``is_legacy_model`` (``core/context/build_context.py`` since 1.7, in 1.6 ``get_context``
    of ``tools/utils.py``, which answers alike): the value counts as true or false, a null as left out, and that of the
    section ``context`` stands before the one at the top.
    """
    context = data.get("context")
    value = data.get("use_legacy")
    if isinstance(context, dict) and "use_legacy" in context:
        value = context["use_legacy"]
    return value is None or bool(value)


# What one family calls some parts, and what another one calls the same parts.
Row: TypeAlias = "tuple[tuple[str, ...], tuple[str, ...]]"


@cache
def rows(source: str, target: str) -> tuple[Row, ...]:
    """The rows in which both families have names, in order: the first that fits counts. A family has its own names."""
    both = [] if source == target else [row for row in load("names")["rows"] if source in row and target in row]
    return tuple((tuple(row[source]), tuple(row[target])) for row in both)


def models(family: str) -> tuple[str, ...]:
    """The models of a family whose layers are known."""
    return tuple(load("names")["families"][family])


def cells_of(family: str) -> tuple[str, ...]:
    """The cells that every layer of a family of the static graph has."""
    return tuple(load("names")["cells"][family])


def family_of(model: str) -> str:
    """The family of a model of the static graph; models that are not known have the names of ``core``."""
    families = load("names")["families"]
    return next((family for family in ("legacy", "glm") if model in families[family]), "core")


def counterpart(model: str, family: str) -> str:
    """The model of another family that has the same layers, or the ones most like them."""
    found = load("names")["counterparts"].get(model, {}).get(family)
    return str(found or models(family)[0])
