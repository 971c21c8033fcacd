"""Read the settings that a static-graph MindFormers config includes from other files.

``base_config`` names configs whose settings it builds on (``MindFormerConfig._file2dict`` in
``mindformers/tools/register/config.py``, the same in 1.6 to 2.1): relative to the file that names them, merged section by
section, the naming file wins. ``pretrained_model_dir`` names the folder of a model, whose ``config.json`` ranks after
``model.model_config`` (``merge_model_config`` in ``mindformers/models/build_config.py``; non-legacy models). Every file that
was read is recorded. Configs are untrusted, so there are limits, and a ``base_config`` is followed only below the folder of
the config, the repository around it and the working directory.
"""

from __future__ import annotations

import json
from pathlib import Path

from ms_tune.diagnostics import KeyPath
from ms_tune.errors import ConfigError, reason_of
from ms_tune.facts.keys import BASE
from ms_tune.facts.models import LAYERS, MODEL_CONFIG, is_legacy, model_folder, names_of
from ms_tune.facts.sizes import PublicModel, find_public_model
from ms_tune.job.detect import find_repository
from ms_tune.records import Any
from ms_tune.source.files import read_bytes
from ms_tune.source.yaml import SourceFile, load_source
from ms_tune.text import msg

_LONGEST_CHAIN = 8
_MOST_FILES = 32
_LARGEST_MODEL_CONFIG = 1 << 20


def with_bases(source: SourceFile) -> SourceFile:
    """Return a config with the settings of its ``base_config``."""
    if BASE not in source.data:
        return source
    read: list[SourceFile] = []
    around = find_repository(source.path)
    folders = (source.path.absolute().parent, Path.cwd(), *(around[:1] if around is not None else ()))
    roots = tuple(folder.resolve() for folder in folders)
    data = _merged(source, (source.path.resolve(),), roots, read)
    return source.replace(data=data, others=tuple(read), read_from=tuple(one.path for one in read))


def _merged(
    source: SourceFile, chain: tuple[Path, ...], roots: tuple[Path, ...], read: list[SourceFile]
) -> dict[Any, Any]:
    own = dict(source.data)
    if BASE not in own:
        return own
    names = own.pop(BASE)
    base: dict[Any, Any] = {}
    for name in names if isinstance(names, list) else [names]:
        if not isinstance(name, str) or not name or "\0" in name:
            raise source.wrong((BASE,), msg("config.base.no-name", value=name))
        file = source.path.parent / name
        try:
            real = file.resolve()
        except (OSError, RuntimeError):
            raise source.wrong((BASE,), msg("config.base.missing", file=file)) from None
        if real in chain:
            raise source.wrong((BASE,), msg("config.base.circle", file=file))
        if len(chain) > _LONGEST_CHAIN or len(read) >= _MOST_FILES:
            raise source.wrong((BASE,), msg("config.base.too-many", depth=_LONGEST_CHAIN, files=_MOST_FILES))
        if not any(real.is_relative_to(root) for root in roots):
            raise source.wrong((BASE,), msg("config.base.outside", file=file), msg("config.base.outside.hint"))
        if not real.is_file():
            raise source.wrong((BASE,), msg("config.base.missing", file=file))
        other = load_source(file)
        read.append(other)
        base |= _merged(other, (*chain, real), roots, read)  # later bases replace sections of earlier ones
    merged: dict[Any, Any] = _over(own, base, source)
    return merged


def _over(own: dict[Any, Any], base: object, source: SourceFile) -> Any:  # noqa: ANN401 - a list stays one
    """Merge settings over those that they build on (``_merge_a_into_b``): sections are merged, all else is replaced."""
    if base is None:
        return dict(own)
    if isinstance(base, list) and not own:
        return list(base)
    if not isinstance(base, dict):
        raise source.wrong((BASE,), msg("config.base.no-section", keys=", ".join(map(str, own))))
    merged = dict(base)
    for key, value in own.items():
        merged[key] = _over(value, base[key], source) if isinstance(value, dict) and key in base else value
    return merged


def with_model_folder(source: SourceFile) -> SourceFile:
    """Return a config with the ``config.json`` of its ``pretrained_model_dir`` attached, if that file exists.

    If it names neither a folder nor a model, the program that reads it sets the folder: its own, if that has such a file.
    """
    folder = model_folder(source.data)
    if source.model_config is not None or is_legacy(source.data):
        return source
    if folder is None and source.get(("model", "model_config", "model_type")) is not None:
        return source
    file = find_model_config(folder or str(source.path.parent.absolute()), source.path)
    if file is None:
        return source
    return source.replace(model_config=read_model_config(file), read_from=(*source.read_from, file))


def with_model_config(source: SourceFile, given: Path) -> SourceFile:
    """Return a config with the ``config.json`` that the user named attached, instead of the one in ``pretrained_model_dir``."""
    file = given / MODEL_CONFIG if given.is_dir() else given
    return source.replace(model_config=read_model_config(file), read_from=(*source.read_from, file))


def find_named_model(source: SourceFile) -> tuple[str, PublicModel] | None:
    """Return the public model that a config names, and the key that does: its folder or, for a config without sizes, its name."""
    if is_legacy(source.data):
        return None
    keys: list[KeyPath] = [("pretrained_model_dir",), ("model", "pretrained_model_dir")]
    model_keys = ("model_type", *names_of(LAYERS))
    if all(source.get(("model", "model_config", key)) is None for key in model_keys):
        keys.append(("trainer", "model_name"))
    for key in keys:
        name = source.get(key)
        model = find_public_model(name) if isinstance(name, str) else None
        if model is not None:
            return ".".join(map(str, key)), model
    return None


def find_model_config(folder: str, config: Path) -> Path | None:
    """Return the ``config.json`` of a model's folder; None if it is not found.

    MindFormers looks in its working directory, which is unknown here: try this process's, then the config's folder.
    """
    places = (base / folder / MODEL_CONFIG for base in (Path(), config.parent))
    try:
        return next((place for place in places if place.is_file()), None)
    except OSError:  # an impossible file name
        return None


def read_model_config(file: Path) -> dict[str, Any]:
    """Return the content of a model's ``config.json``."""
    try:
        text = read_bytes(file, _LARGEST_MODEL_CONFIG)
        if len(text) > _LARGEST_MODEL_CONFIG:
            raise ConfigError(msg("config.model-json", reason=f"> {_LARGEST_MODEL_CONFIG} B"), path=file)
        data = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(msg("config.model-json", reason=reason_of(error)), path=file) from error
    if not isinstance(data, dict):
        raise ConfigError(msg("config.model-json", reason=type(data).__name__), path=file)
    return data
