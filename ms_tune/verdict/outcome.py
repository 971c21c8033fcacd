"""Three outcomes, or none: fits, tight, does not fit.

``fits``: the footprint (the peak with fragmentation) and the reserve are within the limit. ``does-not-fit``: the allocated
blocks alone exceed it. ``tight`` lies between: the job runs only without fragmentation, or only by using the reserve.
"""

from __future__ import annotations

from enum import Enum

from ms_tune.facts.devices import communicator_bytes, workspace_bytes
from ms_tune.records import Record
from ms_tune.text import Message, msg
from ms_tune.units import mib, short_gib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ms_tune.verdict.limit import Limit


class Fit(str, Enum):
    """The outcome of a verdict."""

    FITS = "fits"
    TIGHT = "tight"
    DOES_NOT_FIT = "does-not-fit"


_SHOWN = 12  # communicators in a line
_LONGEST = 24  # characters of a communicator's name
_SEVERITY = (Fit.FITS, Fit.TIGHT, None, Fit.DOES_NOT_FIT)  # one rank that does not fit decides for all


class Need(Record):
    """The memory that a rank needs."""

    peak_bytes: int  # the most bytes in use
    # The most of the device that the pool takes for it, fragments included; the upper end where only a range is known.
    footprint_bytes: int
    least_footprint_bytes: int  # the lower end
    source: Message  # how the footprint is known

    @classmethod
    def of_trace(cls, peak: int, footprint: int) -> Need:
        """Return the need from a trace; without a footprint column only the peak is known."""
        whole = max(peak, footprint)
        return cls(peak, whole, whole, msg("verdict.footprint.traced"))

    @classmethod
    def of_derived_stage(cls, peak: int, runs: Sequence[tuple[int, int]]) -> Need:
        """Return the need of an extrapolated stage: fragmentation is between none and the share of the largest run.

        What a pool loses grows more slowly than what it holds: with more layers its share of the peak falls. It may even be
        fewer bytes than with fewer layers (last stage of a Qwen3-8B in 4: 1,080 MiB with 2 layers, 1,027 with all 9).
        """
        lost = [(used, max(foot - used, 0)) for used, foot in runs if used] or [(1, 0)]
        used, fragments = max(lost)
        high = peak + round(peak * fragments / used)
        params = {"low": short_gib(peak), "high": short_gib(high), "share": f"{(high - peak) / max(peak, 1):.1%}"}
        return cls(peak, high, peak, msg("verdict.footprint.derived", **params))


class UntracedNeeds(Record):
    """Memory that a device needs and no trace contains."""

    simulated: bool = True  # the trace is of a simulation, which asks for no workspaces and no communication buffers
    workspaces_traced: bool = False  # it is of a simulation that asks for workspaces (levels 2 and 3, on a device)
    communicators: int | None = None  # communicators that the rank creates; None where nothing tells
    # Their names, with the number of ranks where that is known; empty where they were not counted.
    groups: tuple[str, ...] = ()
    counted: bool = True  # they were counted in what the run left; otherwise they follow from the split of the job
    buffer_mib: int | None = None  # `HCCL_BUFFSIZE`, if it is set
    reserve_bytes: int = 0  # what the user sets aside

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
    is_unknown: bool = False  # nothing shows how much is needed: 0 bytes is no finding


class Verdict(Record):
    """A verdict with its evidence."""

    outcome: Fit | None  # None where there is no verdict
    no_verdict_because: Message | None  # why there is none
    need: Need | None  # what is needed; None where it is not known
    limit: Limit | None  # what it was compared with; None where it is not known
    reserve: tuple[ReserveItem, ...]  # what was set aside

    @property
    def reserve_bytes(self) -> int:
        """Return the sum of the reserve."""
        return sum(item.bytes for item in self.reserve)

    @property
    def spare_bytes(self) -> int:
        """Return usable memory minus footprint and reserve; negative if it is not enough."""
        if self.need is None or self.limit is None:
            return 0
        return self.limit.bytes - self.need.footprint_bytes - self.reserve_bytes

    @property
    def severity(self) -> int:
        """Return 0 for what fits, and more for what is worse; no verdict is worse than tight."""
        return _SEVERITY.index(self.outcome)

    def is_good(self, *, allow_tight: bool) -> bool:
        """Return whether a job can be started."""
        return self.outcome is Fit.FITS or (allow_tight and self.outcome is Fit.TIGHT)

    @property
    def sentence(self) -> Message:
        """Return state, need, limit and difference, the same in every command."""
        return self.sentence_about(None)

    def sentence_about(self, stage: int | None) -> Message:
        """Return the same sentence with the pipeline stage that decides as its subject, where there is one."""
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
        """Return the evidence, a sentence each: what is needed, reserved and usable."""
        found = []
        if self.need is not None:
            sizes = {"peak": short_gib(self.need.peak_bytes), "footprint": short_gib(self.need.footprint_bytes)}
            found.append(msg("verdict.line.need", **sizes, source=self.need.source))
            if self.outcome is Fit.TIGHT and self.need.footprint_bytes > self.need.peak_bytes:
                found.append(msg("verdict.line.vmm"))
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
    held = need.footprint_bytes + sum(item.bytes for item in reserve)
    outcome = Fit.FITS if held <= limit.bytes else Fit.TIGHT
    if need.peak_bytes > limit.bytes:
        outcome = Fit.DOES_NOT_FIT
    return Verdict(outcome, None, need, limit, reserve)


def no_verdict(reason: Message) -> Verdict:
    """Return a verdict without an outcome, because nothing is known."""
    return Verdict(None, reason, None, None, ())


def reserve_of(outside: UntracedNeeds, limit: Limit) -> tuple[ReserveItem, ...]:
    """Return what must be reserved of the usable memory.

    A run on a device has its workspaces in its trace, and its communicators found their place beside the pool.
    """
    items = []
    if outside.simulated:
        items.append(_communication_item(outside, limit))
    if outside.simulated and not outside.workspaces_traced:
        items.append(ReserveItem("workspaces", workspace_bytes(), msg("verdict.reserve.workspaces")))
    if outside.reserve_bytes:
        items.append(ReserveItem("user", outside.reserve_bytes, msg("verdict.reserve.user")))
    return tuple(items)


def _communication_item(outside: UntracedNeeds, limit: Limit) -> ReserveItem:
    if outside.communicators is None:
        return ReserveItem("communication", 0, msg("verdict.reserve.communication.unknown"), is_unknown=True)
    each = communicator_bytes(outside.buffer_mib)
    whole = outside.communicators * each
    params = {"count": outside.communicators, "each": mib(each), "outside": mib(limit.beside_bytes)}
    if not outside.counted:
        why = msg("verdict.reserve.communication.expected", **params)
    elif outside.groups:
        why = msg("verdict.reserve.communication.named", **params, groups=_join_names(outside.groups))
    else:
        why = msg("verdict.reserve.communication.counted", **params)
    return ReserveItem("communication", max(whole - limit.beside_bytes, 0), why)


def _join_names(groups: Sequence[str]) -> str:
    # The first of these names; of a long one, as compilers make them, both ends.
    short = [name if len(name) <= _LONGEST else f"{name[: _LONGEST // 2]}…{name[-_LONGEST // 2 :]}" for name in groups]
    more = len(short) - _SHOWN
    return ", ".join(short if more <= 0 else [*short[:_SHOWN], f"… +{more}"])
