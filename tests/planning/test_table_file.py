"""Test tables as JSON and SAPP's layers: reading, writing, and refusals with their position."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from ms_tune.enums import RecomputeMode
from ms_tune.errors import ConfigError
from ms_tune.planning.schedule import Schedule
from ms_tune.planning.table import CostTable, LayerCost, LayerGroup, StageEnd
from ms_tune.planning.table_file import MOST_TEXT, SappPipeline, read_sapp, read_table, table_json
from ms_tune.units import MIB
from tests.planning.tables import CASE_A, CASE_E, random_table

GOOD: dict[str, Any] = {
    "stages": 4,
    "chunks": 2,
    "micro_batches": 8,
    "limit_bytes": 1000,
    "order": "interleaved",
    "layers": [
        {
            "name": "dense",
            "count": 16,
            "forward": 180,
            "bytes": 10,
            "recompute": {"none": {"activation_bytes": 9}, "full": {"activation_bytes": 1, "backward_extra": 0.5}},
        }
    ],
}


def changed(path: str, value: object) -> str:
    """Return the valid table with one value changed; None removes it. Slashes separate the parts of the path."""
    data = copy.deepcopy(GOOD)
    place: Any = data
    *parents, last = path.split("/")
    for part in parents:
        place = place[int(part) if part.isdigit() else part]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return json.dumps(data)


def test_what_is_not_written_is_nothing() -> None:
    table = read_table(json.dumps(GOOD), "t.json")
    assert (table.head, table.constant_bytes, table.stage_bytes, table.present) == (StageEnd(), 0, (), None)
    assert table.layers[0].recompute == {RecomputeMode.NONE: LayerCost(9), RecomputeMode.FULL: LayerCost(1, 0.5)}
    assert read_table(changed("chunks", 1), "t.json").cells == 4
    assert read_table(changed("chunks", None), "t.json").chunks == 1


@pytest.mark.parametrize("table", [CASE_A, CASE_E, *(random_table(seed) for seed in range(30))])
def test_a_table_written_is_read_back(table: CostTable) -> None:
    assert read_table(json.dumps(table_json(table)), "t.json") == table


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "invalid JSON"),
        ("[" * 100_000, "invalid JSON"),
        ('{"a": ' + "1" * 5000 + "}", "invalid JSON"),
        ("[]", "must be an object"),
        ("x" * (MOST_TEXT + 1), "too long"),
        ('{"stages": 1, "stages": 2}', "duplicate key stages"),
        (changed("stages", None), "stages is missing"),
        (json.dumps(GOOD).replace('"stages": 4', '"stages": true'), "stages: true is not an integer"),
        (changed("stages", 10**6), "stages: 1000000 is not an integer from 1 to 1024"),
        (changed("micro_batches", 10**18), "micro_batches"),
        (changed("micro_batches", 90_000), "too long to simulate"),
        (changed("micro_batches", 3), "at least as many micro-batches"),
        (changed("order", "zero_bubble_v"), 'order: schedule "zero_bubble_v" is not supported'),
        (changed("order", "1f1b"), "one chunk per stage, not 2"),
        (changed("stage", 1), "unknown key stage"),
        (changed("schema_version", 2), "schema_version: version 2 of the file is not supported by this ms-tune"),
        (changed("layers", []), "layers: must be a list of 1"),
        (changed("layers/0/count", 3), "too few for 8 cells"),
        (changed("layers/0/forward", -1), r"layers\[0\].forward: -1 is not a number"),
        (changed("layers/0/forward", 0), "all layer times are zero"),
        (json.dumps(GOOD).replace("180", "NaN"), r"layers\[0\].forward: NaN"),
        (changed("layers/0/recompute", {}), "has no recompute kind"),
        (changed("layers/0/recompute/all", {}), "unknown key all"),
        (changed("layers/0/recompute/full/activation_bytes", 10), "bytes with 'full', more than"),
        (changed("layers/0/recompute/none/backward_extra", 0.6), "is faster with 'full'"),
        (changed("stage_bytes", [1, 2]), "stage_bytes has 2 entries"),
        (changed("again", {"first_bytes": [1], "layer_bytes": [0], "transient_bytes": [0]}), "again.first_bytes has 1 entry"),
        (
            changed("again", {"first_bytes": [1] * 4, "layer_bytes": [0] * 4, "transient_bytes": [0] * 3}),
            r"again.transient_bytes has 3 entries, expected 8",
        ),
        (changed("update", {"layer_bytes": [1], "stage_bytes": [0]}), "update.layer_bytes has 1 entry"),
        (changed("layers", GOOD["layers"] * 2), "two groups of layers have the same name"),
        (changed("layers", [*GOOD["layers"], {**GOOD["layers"][0], "name": "b", "recompute": {"none": {"activation_bytes": 9}}}]), "different recompute kinds"),
        (changed("plan", {"offset": [[0] * 4]}), "plan: the shape of offset must be 2 x 4"),
        (changed("plan", {"offset": 3}), "must be a list"),
        (changed("head", {"forward": "1"}), 'head.forward: "1" is not a number'),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        read_table(text, "t.json")
    assert str(caught.value).startswith("t.json")


SAPP: dict[str, Any] = {
    "name": "m",
    "layers_description": [
        {"name": "Embedding", "type": "HEAD", "time": 30, "nb_layer": 1, "memory_parameter": 11000},
        {
            "name": "Layer",
            "type": "BODY",
            "time": 540,
            "nb_layer": 96,
            "memory_parameter": 1583,
            "memory_activation": 826,
            "memory_select_rec": 700.5,
            "memory_recompute": 32,
            "recompute_time": 1500,
            "memory_select_comm": 0,
        },
        {"name": "Head", "type": "TAIL", "time": 90, "nb_layer": 1, "memory_parameter": 2000},
        {"name": "Norm", "type": "TAIL", "time": 3, "nb_layer": 1, "memory_parameter": 473},
    ],
}
PIPELINE = SappPipeline(16, 1, 16, 53_000 * MIB, Schedule.INTERLEAVED_LESS_MEMORY)


def test_the_layers_of_sapp_mean_what_they_mean_there() -> None:
    """``compute_internal_time`` of ``utils/layer.py``: ``time`` forward, twice that backward; no kind without memory."""
    table = read_sapp(json.dumps(SAPP), "s.json", PIPELINE)
    kinds = {
        RecomputeMode.NONE: LayerCost(826 * MIB),
        RecomputeMode.SELECT: LayerCost(round(700.5 * MIB), 0.04),
        RecomputeMode.FULL: LayerCost(32 * MIB, round(1500 / 1080 - 1, 9)),
    }
    assert table.layers == (LayerGroup("Layer", 96, 540.0, 1583 * MIB, kinds),)
    assert (table.head, table.tail) == (StageEnd(30.0, 11_000 * MIB), StageEnd(93.0, 2_473 * MIB))
    assert (table.stages, table.limit_bytes, table.order) == (16, 53_000 * MIB, Schedule.INTERLEAVED_LESS_MEMORY)


@pytest.mark.parametrize(
    ("said", "asked", "held"),
    [
        (955.3, None, round(955.3 * MIB)),
        (955.3, 7, 7),
        (None, None, 0),
        (1e12, None, 10**12 * MIB),
        (-1896, None, -1896 * MIB),  # as in SAPP's ``mem.yaml``
        (955.3, -1896 * MIB, -1896 * MIB),
    ],
)
def test_what_every_stage_holds_is_the_files_unless_it_is_asked_for(
    said: float | None, asked: int | None, held: int
) -> None:
    """``get_stage_const_mem`` of SAPP's ``utils/config.py``."""
    text = json.dumps({**SAPP, "stage_const_mem": said})
    assert read_sapp(text, "s.json", PIPELINE._replace(constant_bytes=asked)).constant_bytes == held
    with pytest.raises(
        ConfigError, match="stage 1 needs -10485760000 bytes without layers and 10160701440 with 6 layers"
    ):
        read_sapp(json.dumps({**SAPP, "stage_const_mem": -10_000}), "s.json", PIPELINE)
    with pytest.raises(ConfigError, match="stage_const_mem must be a number"):
        read_sapp(json.dumps({**SAPP, "stage_const_mem": -1e13}), "s.json", PIPELINE)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"type": "BODIES"}, r"layers_description\[1\]: type must be"),
        ({"type": "HEAD"}, "no layer of type BODY"),
        ({"time": "540"}, r"layers_description\[1\]: time must be a number"),
        ({"nb_layer": 0}, "an integer nb_layer"),
        ({"name": None}, "must have a name"),
        ({"memory_activation": -1}, "memory_activation must be a number"),
        ({"memory_recompute": 900}, "more than the"),
    ],
)
def test_layers_that_make_no_sense_are_refused(change: dict[str, object], words: str) -> None:
    data = copy.deepcopy(SAPP)
    data["layers_description"][1].update(change)
    with pytest.raises(ConfigError, match=words):
        read_sapp(json.dumps(data), "s.json", PIPELINE)


@pytest.mark.parametrize("text", ["{}", "[]", '{"layers_description": [1]}', '{"layers_description": []}'])
def test_a_file_without_layers_is_none_of_sapp(text: str) -> None:
    with pytest.raises(ConfigError, match="layers_description"):
        read_sapp(text, "s.json", PIPELINE)
