"""Describe the model of a MindSpeed-MM job by arguments of Megatron-LM, so that its memory is estimated like a language model's.

The settings of a language model are Megatron's own (``mindspeed_mm/models/vlm_model.py``, 2.0 to 26.0). A block of a video model
counts as a layer with as many weights; ``multimodal.json`` has them in squares of the hidden size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from ms_tune.dialects.job_parts import Encoder, MultimodalModel
from ms_tune.dialects.mindspeed_mm.read import PIPELINE, MultimodalSource, takes_yaml
from ms_tune.dialects.sections import find_section, is_count
from ms_tune.errors import UnsupportedError
from ms_tune.facts.multimodal import arguments_for, find_text_model, find_vision_encoder, table
from ms_tune.records import Any
from ms_tune.text import msg

_MOST_TOKENS = 75_600  # 81 frames of 720 x 1280, the longest of the examples
_LATENT_FRAMES, _LATENT_SIDE = 4, 8  # frames and pixels that a video's latent joins (`mindspeed_mm/models/ae`)
_PATCH, _PIXELS = 14, 448 * 448  # pixels of a vision encoder's patch (a side), and of an image without a limit
_PLAIN = 4  # attention's weights, in squares of the hidden size
# Share of mixed precision's 18 bytes per parameter if gradients and moments are half precision like the weights
# (`mindspeed_mm/fsdp/distributed/fully_shard_parallel.py`).
_HALF_STATE, _HALF_OPTIMIZER = 8 / 18, "fused_torch_adamw"
_WAYS = ("ring_attention_size", "ulysses_parallel_size", "cp_size")
_SEQUENCE = 2048  # `cutoff_len` (`data/data_utils/func_utils/convert.py`)


def describe_model(source: MultimodalSource) -> MultimodalModel:
    """Describe the model of a script's program, whose sizes must be in the script's files."""
    config = source.file("config")
    if config is not None:
        return describe_yaml(config.data)
    if takes_yaml(source.command.launch):
        raise UnsupportedError(msg("check.multimodal.no-yaml"), msg("check.multimodal.no-yaml.hint"))
    found = _describe_by_files(source)
    half = source.value_of("--optimizer-selection") == _HALF_OPTIMIZER
    return found._replace(least=_HALF_STATE) if half else found


def _describe_by_files(source: MultimodalSource) -> MultimodalModel:
    word = next((word for option, word, _ in source.files() if option == "--mm-model"), None)
    model, data = source.file("--mm-model"), source.file("--mm-data")
    if model is None or not isinstance(model.data, dict):
        name = (word.text if word is not None else None) or "--mm-model"
        raise UnsupportedError(
            msg("check.multimodal.no-file", file=name), msg("check.multimodal.no-file.hint", file=name)
        )
    numbers = dict(_numbers(data.data if data is not None else {}))
    values, stages = model.data, source.integer(PIPELINE, 1) or 1
    predictor, decoder = values.get("predictor"), values.get("text_decoder", values.get("mllm"))
    if isinstance(predictor, dict):
        found = _describe_video_model(predictor, numbers)
        return found._replace(frozen_bytes=_frozen_bytes(values, numbers))
    if not isinstance(decoder, dict):
        raise _no_sizes(model.path.name)
    encoders = tuple(_list_encoders(values, numbers))
    named = values.get("init_from_hf_path")
    if isinstance(named, str) and find_text_model(named):
        return _describe_public_model(named, numbers, frozen=_is_frozen(values, "image_encoder"))
    if "vocab_size" not in decoder and source.command.last_of("--vocab-size") is None:
        decoder = {**decoder, "vocab_size": decoder.get("language_vocab_size")}
    decoder = {"untie_embeddings_and_output_weights": True, **decoder}  # the default of `vlm_model.py`
    arguments = [*arguments_for(decoder), *_sequence(decoder, numbers, source.integer("--seq-length", None))]
    counts = decoder.get("pipeline_num_layers")
    if isinstance(counts, list) and len(counts) == stages > 1 and all(isinstance(one, int) for one in counts):
        arguments += ["--num-layer-list", ",".join(map(str, counts))]
    if decoder.get("freeze") is True:  # like one with the smallest adapter
        arguments += ["--lora-r", "1", "--lora-target-modules", "linear_proj"]
    if source.command.launch.name.endswith("dpo.py"):
        arguments += ["--stage", "dpo"]
    return MultimodalModel(tuple(arguments), encoders)


def describe_yaml(values: Mapping[str, Any], file: str = "") -> MultimodalModel:
    """Describe the training of an FSDP2 YAML of MindSpeed-MM or MindSpeed-LLM, which must name a public model of known sizes."""
    model, parallel, training = (find_section(values, name) for name in ("model", "parallel", "training"))
    numbers, frozen, data = dict(_numbers(values.get("data"))), model.get("freeze"), values.get("data")
    names = [model.get("model_name_or_path"), model.get("init_from_hf_path"), *_names(data), file]
    named = [one for one in names if isinstance(one, str) and one]
    name = next(filter(find_text_model, named), named[0] if named else "model_name_or_path")
    is_frozen = isinstance(frozen, list) and any("visual" in str(one) for one in frozen)
    found = _describe_public_model(name, numbers, frozen=is_frozen or _is_frozen(model, "image_encoder"))
    given = find_section(values, "gpt_args")  # arguments of Megatron-LM
    ways = prod(_count(parallel, name) for name in _WAYS)
    added = {
        "tensor_model_parallel_size": _count(parallel, "tensor_parallel_size", "tp_size"),
        "context_parallel_size": ways,
        "expert_model_parallel_size": _count(parallel, "expert_parallel_size", "ep_size"),
        "micro_batch_size": _count(training, "micro_batch_size", "per_device_train_batch_size"),
        **given,
    }
    written = {f"--{name.replace('_', '-')}": value for name, value in added.items()}
    words = [word for name, value in written.items() if is_count(value) for word in (name, str(value))]
    words += [name for name, value in written.items() if value is True]
    sections = (find_section(values, "features"), model, parallel)
    if "recompute_granularity" in given or any(section.get("recompute") is True for section in sections):
        words += ["--recompute-granularity", "full", "--recompute-method", "uniform", "--recompute-num-layers", "1"]
    return found._replace(arguments=(*found.arguments, *words, "--bf16", "--use-torch-fsdp2"), least=_HALF_STATE)


def _describe_public_model(name: str, numbers: Mapping[str, int], *, frozen: bool) -> MultimodalModel:
    public, vision = find_text_model(name), find_vision_encoder(name)
    if public is None:
        raise UnsupportedError(msg("check.multimodal.no-model", name=name), msg("check.multimodal.no-model.hint"))
    tied = public.config.get("tie_word_embeddings") is True
    words = [*arguments_for(public.config), "--swiglu", *_sequence({}, numbers, None)]
    words += [] if tied else ["--untie-embeddings-and-output-weights"]
    encoders = () if vision is None else (_read_encoder(vision, numbers, trained=not frozen),)
    return MultimodalModel(tuple(words), encoders, name=public.name, key=name)


def _describe_video_model(values: Mapping[str, Any], numbers: Mapping[str, int]) -> MultimodalModel:
    kind = table("predictors").get(str(values.get("model_id")))
    heads, size = values.get("num_heads"), values.get("head_dim")
    hidden = values.get("hidden_size") or (heads * size if isinstance(heads, int) and isinstance(size, int) else 0)
    depths = [] if kind is None else [(_depth(values.get(name)), count) for name, count in kind["blocks"].items()]
    layers = sum(depth for depth, _ in depths)
    if not (isinstance(hidden, int) and isinstance(heads, int) and hidden and heads and layers):
        raise _no_sizes(str(values.get("model_id")))
    squares = sum(depth * count for depth, count in depths) / layers
    inner = values.get("ffn_dim")
    wide = round((squares - _PLAIN) * hidden / 2) + (inner if isinstance(inner, int) else 0)
    sizes = {"num_layers": layers, "hidden_size": hidden, "num_attention_heads": heads, "ffn_hidden_size": wide}
    tokens = _video_tokens(values, numbers)
    words = [*arguments_for({**sizes, "vocab_size": 1, "seq_length": tokens}), "--normalization", "RMSNorm"]
    return MultimodalModel(tuple(words))


def _video_tokens(values: Mapping[str, Any], numbers: Mapping[str, int]) -> int:
    # Of a video of the largest size in the data settings; of the longest one if they have none (features hide it).
    patch = values.get("patch_size_thw", values.get("patch_size"))
    frames, sides = numbers.get("num_frames", 0), [numbers.get("max_height", 0), numbers.get("max_width", 0)]
    if not (frames and all(sides)) or not isinstance(patch, (int, list)):
        return _MOST_TOKENS
    by = patch if isinstance(patch, list) and len(patch) == 3 else [1, patch, patch]  # noqa: PLR2004 - time, height, width
    if not all(isinstance(one, int) and one > 0 for one in by):
        return _MOST_TOKENS
    lengths = [-(-(frames - 1) // _LATENT_FRAMES) + 1, *(side // _LATENT_SIDE for side in sides)]
    return prod(max(1, length // one) for length, one in zip(lengths, by, strict=True))


def _depth(value: object) -> int:
    return sum(map(_depth, value)) if isinstance(value, list) else value if isinstance(value, int) else 0


def _frozen_bytes(values: Mapping[str, Any], numbers: Mapping[str, int]) -> int:
    # Of encoders that run in the same process unless their results are read from files.
    found, listed = 0, values.get("text_encoder")
    if values.get("load_text_features") is not True:
        encoders = [one for one in (listed if isinstance(listed, list) else [listed]) if isinstance(one, dict)]
        found += sum(2 * table("frozen").get(str(one.get("model_id")), 0) for one in encoders)
    if values.get("load_video_features") is not True:
        pixels = prod(numbers.get(name, 0) for name in ("num_frames", "max_height", "max_width"))
        found += pixels * table("bytes_per_pixel").get(str(find_section(values, "ae").get("model_id")), 0)
    return found


def _list_encoders(values: Mapping[str, Any], numbers: Mapping[str, int]) -> Iterator[Encoder]:
    for group, name in (("image_encoder", "vision_encoder"), ("audio_encoder", "audio_encoder")):
        sizes = find_section(find_section(values, group), name)
        sizes = {**table("vision").get(str(sizes.get("model_name")), {}), **sizes}
        if isinstance(sizes.get("num_layers"), int) and isinstance(sizes.get("hidden_size"), int):
            yield _read_encoder(sizes, numbers, trained=not _is_frozen(values, group))


def _is_frozen(values: Mapping[str, Any], group: str) -> bool:
    return any(isinstance(one, dict) and one.get("freeze") is True for one in find_section(values, group).values())


def _read_encoder(sizes: Mapping[str, Any], numbers: Mapping[str, int], *, trained: bool) -> Encoder:
    hidden, times = sizes["hidden_size"], 3 if sizes.get("gated_linear_unit") is True else 2
    names = (name for name, option in table("values").items() if option == "--ffn-hidden-size")
    inner = next((sizes[name] for name in names if isinstance(sizes.get(name), int)), 0) or 4 * hidden
    tiles = numbers.get("max_dynamic_patch", 1)
    tokens = max(tiles * _PIXELS, numbers.get("image_max_pixels", 0)) // _PATCH**2
    listed = sizes.get("pipeline_num_layers")
    stages = tuple(map(_depth, listed)) if isinstance(listed, list) else ()
    weights = _PLAIN * hidden**2 + times * hidden * inner
    return Encoder(stages, sizes["num_layers"], weights, 10 * hidden + times * inner, tokens, trained)


def _sequence(values: Mapping[str, Any], numbers: Mapping[str, int], given: int | None) -> Iterator[str]:
    longest = max(given or 0, numbers.get("cutoff_len", 0)) or (0 if "seq_length" in values else _SEQUENCE)
    yield from ("--seq-length", str(longest)) if longest else ()


def _count(values: Mapping[str, Any], *names: str) -> int:
    return next((found for name in names if is_count(found := values.get(name))), 1)


def _names(values: object) -> Iterator[object]:
    # All paths of models in nested sections.
    for key, value in values.items() if isinstance(values, dict) else ():
        yield from _names(value) if isinstance(value, dict) else [value] if key == "model_name_or_path" else []


def _numbers(values: object) -> Iterator[tuple[str, int]]:
    # All whole numbers of nested sections, by their last names.
    for key, value in values.items() if isinstance(values, dict) else ():
        if isinstance(value, dict):
            yield from _numbers(value)
        elif isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 32:
            yield str(key), value


def _no_sizes(name: str) -> UnsupportedError:
    return UnsupportedError(msg("check.multimodal.no-sizes", name=name), msg("check.multimodal.no-sizes.hint"))
