"""Layouts: over how many ranks each dimension of a job is split, and which other ones the same devices allow."""

from __future__ import annotations

from collections import Counter

from ms_tune.errors import UsageError
from ms_tune.records import Record
from ms_tune.text import msg

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# What the command line calls each dimension, and its field.
DIMENSIONS = {
    "dp": "data",
    "tp": "tensor",
    "pp": "pipeline",
    "vpp": "chunks",
    "cp": "context",
    "ep": "expert",
    "mbs": "size",
}
MOST_DEVICES, MOST_LAYOUTS = 131_072, 2_000
_MOST_CHUNKS, _MOST_CONTEXT, _MOST_SIZE, _MOST_TRIED = 8, 1024, 1024, 200_000


class Layout(Record):
    """How a job is split."""

    tensor: int = 1  # ranks that share each layer
    pipeline: int = 1  # stages
    chunks: int = 1  # chunks of a stage
    context: int = 1  # ranks that share a sequence
    expert: int = 1  # ranks that share a layer's experts
    size: int = 1  # samples of a micro-batch
    data: int = 1  # ranks, or groups of them, that hold the same
    micro_batches: int = 1  # of a step, for each of these

    @property
    def devices(self) -> int:
        """Ranks of the job."""
        return self.data * self.tensor * self.pipeline * self.context

    @property
    def samples(self) -> int:
        """Samples of a step of the whole job."""
        return self.data * self.size * self.micro_batches

    def __str__(self) -> str:
        """Every dimension that is split, by its short name."""
        named = [f"{name}{getattr(self, field)}" for name, field in DIMENSIONS.items() if getattr(self, field) > 1]
        return " ".join(named) or "dp1"


class LayoutSpace(Record):
    """What may be otherwise."""

    now: Layout  # the layout that there is
    devices: int  # ranks of the job
    layers: int  # of the model
    heads: int  # query heads
    groups: int | None  # key and value heads; None where they need not be split
    experts: int  # of a layer; 1 without
    node: int  # devices of a machine: tensor parallelism stays within one
    free: tuple[str, ...]  # dimensions that may be otherwise, by their short names
    keep: Mapping[str, int]  # what dimensions are to be, by their short names

    def choices(self, name: str) -> tuple[int, ...]:
        """What a dimension may be; data parallelism takes what the others leave."""
        if name in self.keep:
            return (self.keep[name],)
        if name not in self.free:
            return (getattr(self.now, DIMENSIONS[name]),)
        most = {
            "tp": min(self.node, self.heads),
            "pp": self.layers,
            "vpp": min(_MOST_CHUNKS, self.layers),
            "cp": _MOST_CONTEXT,
            "ep": self.experts,
            "mbs": _MOST_SIZE,
        }[name]
        if name in ("pp", "tp", "cp"):
            return _divisors(self.devices, most)
        if name == "ep":
            return _divisors(self.experts, most)
        return _divisors(self.now.samples, most) if name == "mbs" else tuple(range(1, most + 1))


class Layouts(Record):
    """What there is."""

    found: tuple[Layout, ...]  # layouts that may be tried, the present one among them where it is one of them
    refused: Mapping[str, int]  # how many were not, by the reason: a text id of `layouts.refused`


def list_layouts(space: LayoutSpace) -> Layouts:
    """Every layout of as many devices and samples of a step."""
    if space.devices > MOST_DEVICES:
        raise UsageError(msg("layouts.too-many-devices", devices=space.devices, most=MOST_DEVICES))
    refused: Counter[str] = Counter()
    found: list[Layout] = []
    for tried, one in enumerate(_combine_choices(space)):
        if tried > _MOST_TRIED or len(found) > MOST_LAYOUTS:
            raise UsageError(msg("layouts.too-many", most=MOST_LAYOUTS), msg("layouts.too-many.hint"))
        reason = _why_refused(space, one)
        if reason is None:
            found.append(one)
        else:
            refused[reason] += 1
    return Layouts(tuple(found), dict(refused))


def _combine_choices(space: LayoutSpace) -> Iterator[Layout]:
    for tensor in space.choices("tp"):
        for pipeline in space.choices("pp"):
            for context in space.choices("cp"):
                data, rest = divmod(space.devices, tensor * pipeline * context)
                if rest or not data or ("dp" not in space.free and data != space.keep.get("dp", space.now.data)):
                    continue
                if space.keep.get("dp", data) != data:
                    continue
                for size in space.choices("mbs"):
                    micro_batches, left = divmod(space.now.samples, data * size)
                    if left or not micro_batches:
                        continue
                    for chunks in space.choices("vpp"):
                        for expert in space.choices("ep"):
                            yield Layout(tensor, pipeline, chunks, context, expert, size, data, micro_batches)


def _why_refused(space: LayoutSpace, one: Layout) -> str | None:
    cells = one.pipeline * one.chunks
    reasons = {
        "heads": space.heads % one.tensor or (space.groups or one.tensor) % one.tensor,
        "node": one.tensor > space.node,
        "chunks": one.chunks > 1 and one.pipeline == 1,
        "layers": cells > space.layers or (one.chunks > 1 and space.layers % cells),
        "micro-batches": one.pipeline > 1 and one.micro_batches < one.pipeline,
        "experts": space.experts % one.expert or one.expert > one.data * one.context * one.tensor,
    }
    return None if one == space.now else next((name for name, bad in reasons.items() if bad), None)


def _divisors(number: int, most: int) -> tuple[int, ...]:
    return tuple(one for one in range(1, min(number, most) + 1) if number % one == 0)
