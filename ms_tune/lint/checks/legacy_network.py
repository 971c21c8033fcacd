"""What a config says about a legacy network and how it is split, for the checks of what such a network refuses.

Sizes are those of ``model_config`` with the defaults of the network's configuration class; ways of splitting are those of
``parallel_config``, 1 where MindFormers sets them back to 1 (:mod:`ms_tune.dialects.mindformers.startup`). MindFormers 1.6 to 2.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ms_tune.dialects.check_context import Violation
from ms_tune.dialects.mindformers import startup
from ms_tune.facts.models import UNKNOWN
from ms_tune.source.yaml import MISSING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ms_tune.diagnostics import KeyPath
    from ms_tune.dialects.check_context import CheckContext

MODEL = ("model", "model_config")
PARALLEL = "parallel_config"
EXPERTS = "moe_config"
DIMENSIONS = ("tp_x", "tp_y", "tp_z")
_DATA_PARALLEL = (0, 3, "DATA_PARALLEL", "HYBRID_PARALLEL")  # `PARALLEL_MODE` in mindformers/tools/utils.py
_AUTOMATIC = (2, "AUTO_PARALLEL")


class Network(NamedTuple):
    """What the config says about the network; a number is None where it is not known."""

    context: CheckContext  # the config

    def get(self, name: str) -> object:
        """A value of the model, which its class may have where the config says nothing; None where there is none."""
        value: object = self.context.model.value(name)
        return None if value is UNKNOWN else value

    def size(self, name: str) -> int | None:
        """A number of the model, likewise."""
        return self.context.model.number(name)

    def on(self, name: str) -> bool:
        """Whether a switch of the model is on."""
        return bool(self.get(name))

    def ways(self, name: str) -> int:
        """A number of ``parallel_config``: 1 unless the network is split."""
        return (self.context.integer(f"{PARALLEL}.{name}", 1) or 1) if self.splits else 1

    def of_experts(self, name: str) -> object:
        """A value of ``moe_config``; None where there is none."""
        return self.context.get(f"{EXPERTS}.{name}")

    @property
    def splits(self) -> bool:
        """Whether MindSpore splits the network."""
        return startup.splits(self.context)

    @property
    def splits_sequence(self) -> bool:
        """Whether the sequence goes through the pipeline in parts; this setting holds even if nothing else is split."""
        return (self.context.integer(f"{PARALLEL}.seq_split_num", 1) or 1) > 1

    @property
    def is_data_parallel(self) -> bool:
        """Whether every device has the whole network."""
        return startup.is_parallel(self.context) and self.context.get("parallel.parallel_mode", 1) in _DATA_PARALLEL

    @property
    def propagates(self) -> bool:
        """Whether MindSpore finds most ways of splitting itself: ``auto_parallel`` by propagation, its default in MindFormers."""
        told = self.context.get("parallel.search_mode", "sharding_propagation") == "sharding_propagation"
        told = told or bool(self.context.get("parallel.sharding_propagation"))
        return self.splits and self.context.get("parallel.parallel_mode", 1) in _AUTOMATIC and told

    @property
    def ulysses(self) -> int:
        """Ranks of Ulysses context parallelism, which split heads as well."""
        context = self.ways("context_parallel")
        algorithm = self.context.get(f"{PARALLEL}.context_parallel_algo", "colossalai_cp")
        degree = self.context.integer(f"{PARALLEL}.ulysses_degree_in_cp", 1) or 1
        return {"ulysses_cp": context, "hybrid_cp": degree}.get(str(algorithm), 1) if context > 1 else 1

    @property
    def is_interleaved(self) -> bool:
        """Whether layers compute and communicate in turn, which is of use to tensor parallelism only."""
        return (self.size("fine_grain_interleave") or 1) > 1 and self.ways("model_parallel") > 1

    @property
    def experts(self) -> int:
        """Experts of a layer; 1 for a plain feed-forward block."""
        return self.context.integer(f"{EXPERTS}.expert_num", 1) or 1

    @property
    def is_three_dimensional(self) -> bool:
        """Whether tensor parallelism in three dimensions is asked for and means something."""
        return self.on("use_3d_tensor_parallel") and self.ways("model_parallel") > 1

    @property
    def dimensions(self) -> tuple[object, ...]:
        """The three numbers whose product is to be ``model_parallel``."""
        written = [self.context.source.get((*MODEL, name), MISSING) for name in DIMENSIONS]
        return tuple(1 if value is MISSING else value for value in written)


class NetworkRule(NamedTuple):
    """One rule: its name, where to point, and what the network has if it is broken; None if it is not."""

    name: str
    at: KeyPath
    broken: Callable[[Network], dict[str, object] | None]


def broken_rule(network: Network, rules: Iterable[NetworkRule]) -> Iterator[Violation]:
    """Where the network breaks the rule that the option ``rule`` names; it may be about several places."""
    for rule in rules:
        found = rule.broken(network) if rule.name == network.context.options["rule"] else None
        if found is not None:
            yield Violation(written(network.context, rule.at), params=found)


def if_(condition: object, **params: object) -> dict[str, object] | None:
    """The parameters if the rule is broken."""
    return params if condition else None


def rest(one: int | None, other: int | None, ways: int | None = None) -> dict[str, object] | None:
    """The two numbers, if the second does not divide the first."""
    return if_(one is not None and other and one % other, number=one, divisor=other, ways=ways or other)


def written(context: CheckContext, path: KeyPath) -> KeyPath:
    """The key path, if it is written, or else the innermost section above it that is."""
    while len(path) > 1:
        section = context.source.get(path[:-1])
        if isinstance(section, dict) and path[-1] in section:
            return path
        path = path[:-1]
    return path
