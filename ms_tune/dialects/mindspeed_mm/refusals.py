"""Settings that MindSpeed-MM refuses (26.0, 26.1): launch scripts (``validate_args_patch.py`` and the models), FSDP2 YAML, ``tools.json``.

Each rule names its file. A rule applies only where all its values are known without running the script.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from ms_tune.diagnostics import KeyPath, dotted
from ms_tune.dialects.check_context import CheckContext, Violation
from ms_tune.dialects.mindspeed_mm.detect import is_tools
from ms_tune.dialects.mindspeed_mm.read import (
    CONTEXT,
    PIPELINE,
    TENSOR,
    MultimodalSource,
    declared_settings,
    of_scripts,
    violation_at,
)
from ms_tune.errors import closest
from ms_tune.facts.mindspeed_mm import OWN_TOOLS
from ms_tune.source.files import read_source_text
from ms_tune.source.shell.read import find_above, has_folder_above
from ms_tune.source.yaml import SourceFile, is_same
from ms_tune.units import is_number

_PARTS = (("text_decoder",), ("image_encoder", "vision_encoder"), ("audio_encoder", "audio_encoder"), ("predictor",))


@of_scripts
def find_missing_files(source: MultimodalSource) -> Iterator[Violation]:
    """Report files that are missing although their folder exists (``mindspeed_mm/configs/config.py``)."""
    for option, word, path in source.files():
        if path is None and has_folder_above(source.path, word.text or ""):
            yield violation_at(source, option, {"file": word.text, "option": option}, span=source.span_of(word))


@of_scripts
def find_uneven_stages(source: MultimodalSource) -> Iterator[Violation]:
    """Report a ``pipeline_num_layers`` of the wrong length (``vlm_model.py``, ``deepseekvl_model.py``, ``predict_model.py``)."""
    pipeline, model = source.integer(PIPELINE, 1), source.file("--mm-model")
    if pipeline is None or pipeline <= 1 or model is None:
        return
    for part in _PARTS:
        listed = model.get((*part, "pipeline_num_layers"))
        if not isinstance(listed, list) or not listed:
            continue
        rows = [len(row) for row in listed if isinstance(row, list)] or [len(listed)]
        if any(row != pipeline for row in rows):
            params = {"part": ".".join(part), "found": rows[0], "stages": pipeline, "file": model.path.name}
            yield violation_at(source, PIPELINE, params)


@of_scripts
def find_uneven_heads(source: MultimodalSource) -> Iterator[Violation]:
    """Report heads of the language model that are not divisible by TP x CP (Ulysses); projectors have no attention."""
    model, tensor, cut = source.file("--mm-model"), source.integer(TENSOR, 1), source.integer(CONTEXT, 1)
    algorithm = source.value_of("--context-parallel-algo") or ""
    if model is None or not tensor or not cut or (cut > 1 and algorithm != "ulysses_cp_algo"):
        return
    for part in (("text_decoder",), ("predictor",)):
        number = model.get((*part, "num_attention_heads"))
        if isinstance(number, int) and number > 0 and number % (tensor * cut):
            params = {"part": ".".join(part), "heads": number, "tensor": tensor, "cut": cut, "file": model.path.name}
            yield violation_at(source, TENSOR if tensor > 1 else CONTEXT, params)


@of_scripts
def find_uneven_shards(source: MultimodalSource) -> Iterator[Violation]:
    """Report parallel sizes that do not divide the number of processes (``ParallelArguments.model_post_init``)."""
    config, processes = source.file("config"), source.command.launch.processes
    if config is None or not processes:
        return
    sizes = {name: config.get(("parallel", name), 1) for name in ("ring_attention_size", "ulysses_parallel_size")}
    whole = [size for size in sizes.values() if isinstance(size, int) and size > 0]
    if len(whole) == len(sizes) and processes % prod(whole):
        yield violation_at(
            source, "config", {"processes": processes, "sizes": " x ".join(map(str, whole)), "file": config.path.name}
        )
    shards = config.get(("parallel", "fully_shard_parallel_size"), "auto")
    if isinstance(shards, int) and shards > 0 and processes % shards:
        yield violation_at(source, "config", {"processes": processes, "sizes": str(shards), "file": config.path.name})


def find_unlisted_choices(context: CheckContext) -> Iterator[Violation]:
    """Report values outside the declared choices, which pydantic refuses."""
    for path, value, setting in declared_settings(context):
        if not setting.choices or (value is None and "null" in setting.types):
            continue
        if not any(is_same(value, one) for one in setting.choices):
            similar = closest(str(value), [str(one) for one in setting.choices])
            params = {"choices": ", ".join(map(str, setting.choices)), "similar": similar}
            yield Violation(path, "similar" if similar else "default", params)


def find_wrong_types(context: CheckContext) -> Iterator[Violation]:
    """Report values that pydantic cannot convert to the declared type."""
    for path, value, setting in declared_settings(context):
        if setting.types and not setting.choices and not any(_fits(value, kind) for kind in setting.types):
            found = "null" if value is None else type(value).__name__
            if value is None and setting.default is None:
                continue  # declared as text with the default null
            yield Violation(path, params={"wanted": " | ".join(setting.types), "found": found})


# Keys that the readers of ``tools.json`` require (``ConfigReader`` raises AttributeError): the first since 2.2, the
# other since 26.0. A repository of another release around the file has its own readers.
_ASKED = {("memory_profile", "mem_info"): "mem_profiler.py", ("profile", "static_param", "analyse_flag"): "profiler.py"}


@of_scripts
def find_missing_tool_settings(source: MultimodalSource) -> Iterator[Violation]:
    """Report required keys that are missing in the ``tools.json`` of a script's program."""
    found = source.file("--mm-tool")
    if found is not None:
        for path in _missing_in(found):
            yield violation_at(source, "--mm-tool", {"file": found.path.name, "name": dotted(path)})


def find_missing_keys(context: CheckContext) -> Iterator[Violation]:
    """Report required keys that are missing in a ``tools.json``."""
    for path in _missing_in(context.source) if is_tools(context.source.data) else ():
        yield Violation(path, params={"section": dotted(path[:-1]), "name": path[-1]}, at_key=True)


def _missing_in(tools: SourceFile) -> Iterator[KeyPath]:
    own = find_above(tools.path, OWN_TOOLS)
    for path, reader in _ASKED.items():
        section = tools.get(path[:-1])
        is_read = own is None or path[-1] in read_source_text(own.with_name(reader))
        if is_read and isinstance(section, dict) and path[-1] not in section:
            yield path


def _fits(value: object, kind: str) -> bool:
    """Return whether pydantic accepts a value for a type in its default (lax) mode."""
    if kind == "null":
        return value is None
    if kind == "bool":
        return (
            isinstance(value, bool)
            or value in (0, 1)
            or str(value).lower() in ("true", "false", "yes", "no", "on", "off", "0", "1")
        )
    if kind in ("int", "float"):
        return isinstance(value, (int, float)) or (isinstance(value, str) and is_number(value))
    if kind == "str":
        return isinstance(value, str)
    return isinstance(value, dict if kind == "dict" else list)
