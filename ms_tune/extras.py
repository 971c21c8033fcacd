"""Report missing optional packages and the command that installs them from the origin of this installation."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import platform
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import unquote, urlsplit

from ms_tune.errors import MissingExtraError, UnsupportedError
from ms_tune.text import msg

# The Python versions for which MindSpore 2.9.0 has wheels; the markers of the extra `dryrun` list the same.
_MINDSPORE_PYTHONS = ((3, 10), (3, 11), (3, 12))
_CHECKOUT = Path(__file__).resolve().parent.parent
_NAMES = {
    "numpy": "NumPy",
    "mindspore": "MindSpore",
    "mindformers": "MindFormers",
    "ray": "Ray",
    "scipy": "SciPy",
    "jsonschema": "jsonschema",
    "pygls": "pygls",
}


def need(command: str, extra: str, module: str) -> None:
    """Raise the error of :func:`refuse` unless a module can be imported."""
    if importlib.util.find_spec(module) is None:
        refuse(command, extra, module)


def refuse(command: str, extra: str, module: str) -> NoReturn:
    """Raise an error naming the package that a command needs, and how to install it."""
    line, origin_known = install_line(extra)
    if "dryrun" in extra and sys.version_info[:2] not in _MINDSPORE_PYTHONS:
        first, last = (".".join(map(str, _MINDSPORE_PYTHONS[end])) for end in (0, -1))
        here = platform.python_version()
        raise UnsupportedError(
            msg("extras.no-wheel", command=command, here=here, first=first, last=last),
            msg("extras.no-wheel.hint", python=f"python{last}", what=shlex.join(_source(extra)[0])),
        )
    hint = "extras.missing.hint" if origin_known else "extras.missing.hint-checkout"
    raise MissingExtraError(msg("extras.missing", command=command, package=_NAMES[module]), msg(hint, line=line))


def install_line(extra: str) -> tuple[str, bool]:
    """Return a command that adds an extra to this installation, and whether it works in any folder.

    ms-tune need not be on any index, so pip is given the origin of this installation: the folder, archive or
    repository. Where that is unknown or gone, the command assumes a checkout of ms-tune.
    """
    source, known = _source(extra)
    on_path = shutil.which("python")
    python = "python" if on_path and Path(on_path).parent == Path(sys.executable).parent else sys.executable
    installer = [python, "-m", "pip", "install"]
    if importlib.util.find_spec("pip") is None and shutil.which("uv"):
        installer = ["uv", "pip", "install", "--python", sys.executable]
    return shlex.join([*installer, *source]), known


def _source(extra: str) -> tuple[list[str], bool]:
    """Return pip's arguments and whether the origin of this installation is known (PEP 610)."""
    record = _record()
    if (_CHECKOUT / "pyproject.toml").is_file():
        editable = bool(record and record.get("dir_info", {}).get("editable"))
        return [*(["-e"] if editable else []), f"{_CHECKOUT}[{extra}]"], True
    if record is None:
        return [f".[{extra}]"], False
    url = str(record.get("url", ""))
    if url.startswith("file:") and "vcs_info" not in record:
        path = Path(unquote(urlsplit(url).path))
        return ([f"{path}[{extra}]"], True) if path.exists() else ([f".[{extra}]"], False)
    if not url:  # pip records every origin except an index
        return [f"ms-tune[{extra}]"], True
    if vcs := record.get("vcs_info"):
        url = f"{vcs['vcs']}+{url}@{vcs.get('requested_revision') or vcs['commit_id']}"
    if folder := record.get("subdirectory"):
        url += f"#subdirectory={folder}"
    return [f"ms-tune[{extra}] @ {url}"], True


def _record() -> dict[str, Any] | None:
    """Return pip's record of ms-tune's origin: empty for an index, None if ms-tune is not installed."""
    try:
        text = importlib.metadata.distribution("ms-tune").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return None
    return dict(json.loads(text)) if text else {}
