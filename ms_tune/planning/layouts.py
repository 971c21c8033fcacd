"""Define layouts, the number of ranks of each parallel dimension, and list those possible on the same devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from ms_tune.errors import UsageError
from ms_tune.records import Record
from ms_tune.text import msg

# Command line name of each dimension, and its field.
DIMENSIONS = {
    "dp": "data",
    "tp": "tensor",
    "pp": "pipeline",
    "vpp": "chunks",
    "cp": "context",
    "ep": "expert",
    "mbs": "size",
}
MOST_DEVICES, MOST_LAYOUTS = 131_072, 10_000
_MOST_CHUNKS, _MOST_SIZE, _MOST_TRIED = 8, 16, 1_000_000
_LEAST_TOKENS = 4096  # of a CP rank: with fewer, attention does not hide the exchange of keys


class Layout(Record):
    """Sizes of a job's parallel dimensions."""

    tensor: int = 1  # ranks that share each layer
    pipeline: int = 1  # pipeline stages
    chunks: int = 1  # chunks per stage
    context: int = 1  # ranks that share a sequence
    expert: int = 1  # ranks that share a layer's experts
    size: int = 1  # samples per micro-batch
    data: int = 1  # ranks, or groups of them, with the same weights
    micro_batches: int = 1  # per step, for each of these

    @property
    def devices(self) -> int:
        """Return the number of devices of the job."""
        return self.data * self.tensor * self.pipeline * self.context

    @property
    def samples(self) -> int:
        """Return the samples per step of the whole job."""
        return self.data * self.size * self.micro_batches

    def __str__(self) -> str:
        """Return every dimension above 1, by its short name."""
        named = [f"{name}{getattr(self, field)}" for name, field in DIMENSIONS.items() if getattr(self, field) > 1]
        return " ".join(named) or "dp1"


class LayoutSpace(Record):
    """Constraints of a layout search."""

    now: Layout  # the current layout
    devices: int  # devices of the job
    layers: int  # number of layers of the model
    heads: int  # query heads
    groups: int | None  # key and value heads; None if they need not be split
    experts: int  # experts per layer; 1 without experts
    node: int  # devices per machine, an upper bound of TP
    free: tuple[str, ...]  # short names of dimensions that may change
    keep: Mapping[str, int]  # fixed values of dimensions, by their short names
    samples: int  # per step, of the whole job
    tokens: int  # per sequence

    def choices(self, name: str) -> tuple[int, ...]:
        """Return the possible values of a dimension; DP follows from the others."""
        if name in self.keep:
            return (self.keep[name],)
        if name not in self.free:
            return (getattr(self.now, DIMENSIONS[name]),)
        most = {
            "tp": min(self.node, self.heads),
            "pp": self.layers,
            "vpp": min(_MOST_CHUNKS, self.layers),
            "cp": max(self.tokens // _LEAST_TOKENS, self.now.context),
            "ep": self.experts,
            "mbs": _MOST_SIZE,
        }[name]
        if name in ("pp", "tp", "cp"):
            return _divisors(self.devices, most)
        if name == "ep":
            return _divisors(self.experts, most)
        return _divisors(self.samples, most) if name == "mbs" else tuple(range(1, most + 1))


class Layouts(Record):
    """Result of listing layouts."""

    found: tuple[Layout, ...]  # layouts to try, including the current one if it is possible
    refused: Mapping[str, int]  # number of rejected layouts by reason, a text id of `layouts.refused`


def list_layouts(space: LayoutSpace) -> Layouts:
    """List every layout with this number of devices and the same samples per step."""
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
                    micro_batches, left = divmod(space.samples, data * size)
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
