"""A table as the layers that SAPP's pipeline balance plans with; :func:`ms_tune.planning.sapp.read_sapp` reads them back."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ms_tune.planning.sapp import KINDS, SappPipeline
from ms_tune.text import Message, msg
from ms_tune.units import MIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.planning.table import CostTable, End, LayerGroup


class Exported(NamedTuple):
    """SAPP's form of a table."""

    content: dict[str, object]  # the file's JSON
    pipeline: SappPipeline  # what SAPP takes from its command line
    left: tuple[Message, ...]  # what that form has no place for


def export_sapp(table: CostTable, name: str) -> Exported:
    """A table in SAPP's form. Sizes that it has no place for are left out and told; none is made smaller."""
    constant, head, tail = _fixed(table)
    rows = [
        _end("HEAD", table.head, head),
        *(_layer(layer) for layer in table.layers),
        _end("TAIL", table.tail, tail),
    ]
    pipeline = SappPipeline(table.stages, table.chunks, table.micro_batches, table.limit_bytes, table.order)
    return Exported(
        {"name": name, "stage_const_mem": constant / MIB, "layers_description": rows}, pipeline, tuple(_left(table))
    )


def _fixed(table: CostTable) -> tuple[int, int, int]:
    """What every stage holds beside its layers, and head and tail: what each stage holds on top goes with these three."""
    own = table.stage_bytes or (0,) * table.stages
    most = max(own[1:-1], default=min(own))
    head, tail = max(own[0] - most, 0), max(own[-1] - most, 0) if table.stages > 1 else 0
    return table.constant_bytes + most, table.head.bytes + head, table.tail.bytes + tail


def _end(kind: str, end: End, size: int) -> dict[str, object]:
    return {"name": kind.lower(), "type": kind, "time": end.forward, "nb_layer": 1, "memory_parameter": size / MIB}


def _layer(layer: LayerGroup) -> dict[str, object]:
    row: dict[str, object] = {
        "name": layer.name,
        "type": "BODY",
        "time": layer.forward,
        "nb_layer": layer.count,
        "memory_parameter": layer.bytes / MIB,
    }
    for kind, names in KINDS.items():
        kept = layer.recompute.get(kind)
        row[names.memory] = kept.activation_bytes / MIB if kept is not None else 0
        if kept is not None:
            row[names.coefficient] = kept.backward_extra
    return row


def _left(table: CostTable) -> Iterator[Message]:
    for layer in table.layers:
        for kind, kept in layer.recompute.items():
            if kind not in KINDS:
                yield msg("planning.sapp.left.swap", layer=layer.name)
            elif not kept.activation_bytes:
                yield msg("planning.sapp.left.kind", kind=kind.value, layer=layer.name)
    kinds = [kept for layer in table.layers for kept in layer.recompute.values()]
    again = table.again
    on_top = any(kept.transient_bytes or kept.again_bytes for kept in kinds)
    if table.tail.transient_bytes or on_top or (again is not None and any(again.transient_bytes)):
        yield msg("planning.sapp.left.transient")
    if any(kept.once_bytes for kept in kinds) or (again and any((*again.first_bytes, *again.layer_bytes))):
        yield msg("planning.sapp.left.once")
    if table.update is not None:
        yield msg("planning.sapp.left.update")
    own = table.stage_bytes
    if own and (len(set(own[1:-1])) > 1 or min(own) < max(own[1:-1], default=min(own))):
        yield msg("planning.sapp.left.stages")
