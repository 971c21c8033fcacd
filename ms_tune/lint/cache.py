"""The values of a YAML file that never changes, kept as JSON: YAML is twenty times as slow to read.

An installed ms-tune has the JSON beside the file (``hatch_build.py`` makes it); a checkout writes it into ``MS_TUNE_CACHE``,
else into ``ms-tune`` in the user's own cache folder. It counts only if it was made of the very bytes of the file. Without a
folder that can be written everything works, and starts a little later.
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from typing import TYPE_CHECKING, Any

import yaml

from ms_tune.source.yaml_loader import Loader

if TYPE_CHECKING:
    from pathlib import Path

_FORM = 2  # of the JSON
_TEXT = "tag:yaml.org,2002:str"


def read_values(path: Path) -> Any:  # noqa: ANN401 - whatever YAML holds
    """The values in a YAML file of ours."""
    content = path.read_bytes()
    key = _key(content)
    kept = _kept_in(path)
    for place in (f"{str(path).removesuffix('.yaml')}.json", kept):
        if place is not None:
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError), open(place, "rb") as file:  # noqa: PTH123
                found = json.loads(file.read())
                if found["key"] == key:
                    return found["values"]
    values = _read(content)
    if kept is not None:
        _keep(kept, key, values)
    return values


def parsed(content: bytes) -> str:
    """The JSON that stands for a YAML file; of an empty text if JSON would change its values, as it would dates."""
    return _as_json(_key(content), _read(content)) or ""


def _key(content: bytes) -> list[int]:
    return [_FORM, len(content), zlib.crc32(content)]


def _read(content: bytes) -> Any:  # noqa: ANN401 - as above
    # Without positions, which nobody asks for here.
    loader = Loader(content)
    return _values(loader, loader.get_single_node())


def _values(loader: Any, node: yaml.Node | None) -> Any:  # noqa: ANN401 - whatever YAML holds
    """What ``yaml.load`` gives, in half the time: nearly all of a checklist is texts, which need no constructor."""
    if isinstance(node, yaml.SequenceNode):
        return [_values(loader, one) for one in node.value]
    if isinstance(node, yaml.MappingNode) and all(key.tag == _TEXT for key, _ in node.value):
        return {key.value: _values(loader, one) for key, one in node.value}
    if node is None:  # an empty file
        return None
    return node.value if node.tag == _TEXT else loader.construct_object(node, deep=True)


def _kept_in(path: Path) -> str | None:
    folder = os.environ.get("MS_TUNE_CACHE")
    if not folder:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 - "~" may stay
        folder = os.path.join(base, "ms-tune")  # noqa: PTH118 - start-up time
    if not os.path.isabs(folder):  # noqa: PTH117 - start-up time
        return None
    return os.path.join(folder, "checklists", f"{path.stem}-{zlib.crc32(str(path).encode()):08x}.json")  # noqa: PTH118


def _as_json(key: list[int], values: object) -> str | None:
    text = json.dumps({"key": key, "values": values}, ensure_ascii=False, default=str)
    return text if json.loads(text)["values"] == values else None


def _keep(kept: str, key: list[int], values: object) -> None:
    text = _as_json(key, values)
    if text is None:
        return
    folder = os.path.dirname(kept)  # noqa: PTH120 - start-up time
    with contextlib.suppress(OSError):
        os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103 - start-up time
        fresh = f"{kept}.{os.getpid()}"  # tempfile would be slow to import
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(fresh, kept)  # noqa: PTH105 - `fresh` is a text
        except OSError:
            os.unlink(fresh)  # noqa: PTH108 - as above
            raise
