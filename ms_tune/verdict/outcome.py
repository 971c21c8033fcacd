"""Judge whether a job fits in device memory: fits, tight, does not fit, or no verdict.

``fits``: the footprint (the peak with fragmentation) and the reserve are within the limit. ``does-not-fit``: the allocated
blocks alone exceed it. ``tight`` lies between: the job runs only without fragmentation, or only by using the reserve.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

from ms_tune.facts.devices import communicator_bytes, workspace_bytes
from ms_tune.records import Record
from ms_tune.text import Message, msg
from ms_tune.units import mib, short_gib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ms_tune.verdict.limit import Limit


class Fit(str, Enum):
    """The outcome of a verdict."""

    FITS = "fits"
    TIGHT = "tight"
    DOES_NOT_FIT = "does-not-fit"


_SHOWN = 12  # communicators listed in a line
_LONGEST = 24  # characters of a communicator's name
_SEVERITY = (Fit.FITS, Fit.TIGHT, None, Fit.DOES_NOT_FIT)  # from best to worst; the worst rank decides


class Need(Record):
    """The memory that a rank needs."""

    peak_bytes: int  # the most bytes in use
    # The most device memory that the pool uses, including fragmentation; the upper bound if only a range is known.
    footprint_bytes: int
    least_footprint_bytes: int  # the lower bound
    source: Message  # how the footprint was determined
    remark: Message = msg("verdict.line.vmm")  # how fragmentation can be avoided

    @classmethod
    def of_trace(cls, peak: int, footprint: int) -> Need:
        """Return the need from a trace; without a footprint column only the peak is known."""
        whole = max(peak, footprint)
        return cls(peak, whole, whole, msg("verdict.footprint.traced"))

    @classmethod
    def of_dry_run(cls, peak: int, footprint: int, setting: str) -> Need:
        """Return the need of logical tensors that were placed in PyTorch's allocator; ``setting`` is its variable."""
        source, remark = msg("verdict.footprint.torch"), msg("verdict.line.expandable", setting=setting)
        return cls(peak, footprint, footprint, source, remark)

    @classmethod
    def of_derived_stage(cls, peak: int, runs: Sequence[tuple[int, int]]) -> Need:
        """Return the need of an extrapolated stage: fragmentation is between zero and the largest run's share of its peak.

        Fragmentation grows more slowly than allocated memory: with more layers, its share of the peak falls. Even its
        bytes may decrease (last of 4 stages of Qwen3-8B: 1,080 MiB with 2 layers, 1,027 with all 9).
        """
        lost = [(used, max(foot - used, 0)) for used, foot in runs if used] or [(1, 0)]
        used, fragments = max(lost)
        high = peak + round(peak * fragments / used)
        params = {"low": short_gib(peak), "high": short_gib(high), "share": f"{(high - peak) / max(peak, 1):.1%}"}
        return cls(peak, high, peak, msg("verdict.footprint.derived", **params))


class UntracedNeeds(Record):
    """Memory that a device needs in addition to the memory in a trace."""

    simulated: bool = True  # a simulation's trace: without workspaces and communication buffers
    workspaces_traced: bool = False  # a simulation that requested workspaces (levels 2 and 3, on a device)
    communicators: int | None = None  # number of communicators that the rank creates; None if unknown
    # Their names, with the number of ranks if known; empty if they were not counted.
    groups: tuple[str, ...] = ()
    counted: bool = True  # whether they were counted in the run's output, not derived from the parallel split
    buffer_mib: int | None = None  # `HCCL_BUFFSIZE`, if it is set
    reserve_bytes: int = 0  # reserve requested by the user
    torch: bool = False  # a trace of PyTorch's tensors, without workspaces
    measured_bytes: int | None = None  # reserved in a run beyond its trace, workspaces included; None if not measured

    def with_groups(self, groups: Mapping[str, int] | None) -> UntracedNeeds:
        """Return a copy with these communicators: ranks by name, 0 where unknown; None if nothing is known."""
        if groups is None:
            return self._replace(communicators=None, groups=())
        names = tuple(f"{name} ({ranks})" if ranks else name for name, ranks in groups.items())
        return self._replace(communicators=len(groups), groups=names)


class ReserveItem(Record):
    """A part of the reserve: its name in JSON, its bytes and the reason."""

    name: str
    bytes: int
    why: Message
    is_unknown: bool = False  # whether the need is unknown; 0 bytes is then not a result


class Verdict(Record):
    """A verdict with its evidence."""

    outcome: Fit | None  # None without a verdict
    no_verdict_because: Message | None  # the reason for a missing verdict
    need: Need | None  # the memory needed; None if unknown
    limit: Limit | None  # the limit it was compared with; None if unknown
    reserve: tuple[ReserveItem, ...]  # the reserved memory

    @property
    def reserve_bytes(self) -> int:
        """Return the sum of the reserve."""
        return sum(item.bytes for item in self.reserve)

    @property
    def spare_bytes(self) -> int:
        """Return usable memory minus footprint and reserve; negative if there is too little."""
        if self.need is None or self.limit is None:
            return 0
        return self.limit.bytes - self.need.footprint_bytes - self.reserve_bytes

    @property
    def severity(self) -> int:
        """Return 0 for ``fits``, more for worse outcomes; no verdict is worse than tight."""
        return _SEVERITY.index(self.outcome)

    def is_good(self, *, allow_tight: bool) -> bool:
        """Return whether the job fits, so that it can be started."""
        return self.outcome is Fit.FITS or (allow_tight and self.outcome is Fit.TIGHT)

    @property
    def sentence(self) -> Message:
        """Return a sentence with state, need, limit and difference, the same in every command."""
        return self.sentence_about(None)

    def sentence_about(self, stage: int | None) -> Message:
        """Return the same sentence, with the decisive pipeline stage as its subject, if given."""
        if self.outcome is None or self.need is None or self.limit is None:
            return msg("verdict.none", reason=self.no_verdict_because or msg("verdict.none.unknown"))
        whole = self.need.footprint_bytes + self.reserve_bytes
        who = msg("verdict.subject.none") if stage is None else msg("verdict.subject.stage", stage=stage)
        limit = short_gib(self.limit.bytes)
        if self.outcome is Fit.FITS:
            return msg("verdict.fits", who=who, need=short_gib(whole), limit=limit, size=short_gib(self.spare_bytes))
        if self.outcome is Fit.DOES_NOT_FIT:
            peak, over = short_gib(self.need.peak_bytes), short_gib(self.need.peak_bytes - self.limit.bytes)
            return msg("verdict.does-not-fit", who=who, need=peak, limit=limit, size=over)
        inside = self.need.footprint_bytes <= self.limit.bytes
        without = self.need.peak_bytes + self.reserve_bytes <= self.limit.bytes
        why = "reserve" if inside and not without else "fragments" if without and not inside else "either"
        sizes = {"need": short_gib(whole), "limit": limit, "size": short_gib(-self.spare_bytes)}
        return msg(f"verdict.tight.{why if inside or without else 'both'}", who=who, **sizes)

    @property
    def grounds(self) -> tuple[Message, ...]:
        """Return the evidence for the verdict in sentences: need, reserve and limit."""
        found = []
        if self.need is not None:
            sizes = {"peak": short_gib(self.need.peak_bytes), "footprint": short_gib(self.need.footprint_bytes)}
            found.append(msg("verdict.line.need", **sizes, source=self.need.source))
            if self.outcome is Fit.TIGHT and self.need.footprint_bytes > self.need.peak_bytes:
                found.append(self.need.remark)
        found += [
            msg("verdict.line.reserve", size=mib(item.bytes), why=item.why)
            for item in self.reserve
            if item.bytes or item.is_unknown
        ]
        if self.limit is not None:
            found.append(msg("verdict.line.limit", size=short_gib(self.limit.bytes), source=self.limit.source))
        return tuple(found)


def judge(need: Need, limit: Limit, outside: UntracedNeeds, doubts: Iterable[Message] = ()) -> Verdict:
    """Return the verdict about one rank."""
    reserve = reserve_of(outside, limit)
    doubt = next(iter(doubts), None)
    if doubt is not None:
        return Verdict(None, doubt, need, limit, reserve)
    total = need.footprint_bytes + sum(item.bytes for item in reserve)
    outcome = Fit.FITS if total <= limit.bytes else Fit.TIGHT
    if need.peak_bytes > limit.bytes:
        outcome = Fit.DOES_NOT_FIT
    return Verdict(outcome, None, need, limit, reserve)


def no_verdict(reason: Message) -> Verdict:
    """Return a verdict without an outcome, need or limit."""
    return Verdict(None, reason, None, None, ())


def reserve_of(outside: UntracedNeeds, limit: Limit) -> tuple[ReserveItem, ...]:
    """Return the parts of the usable memory that must be reserved.

    A trace of a device run already contains workspaces, and its communicators got memory outside the pool.
    """
    items = []
    if outside.simulated:
        items.append(_communication_item(outside, limit))
    if outside.measured_bytes is not None:
        items.append(ReserveItem("measured", max(outside.measured_bytes, 0), msg("verdict.reserve.measured")))
    elif outside.simulated and not outside.workspaces_traced:
        why = msg("verdict.reserve.workspaces.torch" if outside.torch else "verdict.reserve.workspaces")
        items.append(ReserveItem("workspaces", workspace_bytes(torch=outside.torch), why))
    if outside.torch:
        items.append(
            ReserveItem("context", 0, msg("verdict.reserve.context", device=limit.device.name), is_unknown=True)
        )
    if outside.reserve_bytes:
        items.append(ReserveItem("user", outside.reserve_bytes, msg("verdict.reserve.user")))
    return tuple(items)


def _communication_item(outside: UntracedNeeds, limit: Limit) -> ReserveItem:
    if outside.communicators is None:
        return ReserveItem("communication", 0, msg("verdict.reserve.communication.unknown"), is_unknown=True)
    each = communicator_bytes(outside.buffer_mib)
    whole = outside.communicators * each
    params = {"count": outside.communicators, "each": mib(each), "outside": mib(limit.outside_pool_bytes)}
    if not outside.counted:
        why = msg("verdict.reserve.communication.expected", **params)
    elif outside.groups:
        why = msg("verdict.reserve.communication.named", **params, groups=_join_names(outside.groups))
    else:
        why = msg("verdict.reserve.communication.counted", **params)
    return ReserveItem("communication", max(whole - limit.outside_pool_bytes, 0), why)


def _join_names(groups: Sequence[str]) -> str:
    # The first names; long generated names are shortened in the middle.
    short = [name if len(name) <= _LONGEST else f"{name[: _LONGEST // 2]}…{name[-_LONGEST // 2 :]}" for name in groups]
    more = len(short) - _SHOWN
    return ", ".join(short if more <= 0 else [*short[:_SHOWN], f"… +{more}"])
