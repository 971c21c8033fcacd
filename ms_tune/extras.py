"""Optional packages: what a command lacks, and the line that installs it from where this ms-tune came from."""

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

# The Pythons for which MindSpore 2.9.0 has wheels; the markers of the extra `dryrun` say the same.
_MINDSPORE_PYTHONS = ((3, 10), (3, 11), (3, 12))
_CHECKOUT = Path(__file__).resolve().parent.parent
_NAMES = {
    "numpy": "NumPy",
    "mindspore": "MindSpore",
    "mindformers": "MindFormers",
    "ray": "Ray",
    "scipy": "SciPy",
}


def need(command: str, extra: str, module: str) -> None:
    """Call :func:`refuse` unless a module can be imported."""
    if importlib.util.find_spec(module) is None:
        refuse(command, extra, module)


def refuse(command: str, extra: str, module: str) -> NoReturn:
    """Say which package a command lacks, and how to install it.

    Args:
        command: What the user called, such as ``ms-tune memory --html``.
        extra: The extras that bring the package, as pip takes them: ``dryrun`` or ``dryrun,report``.
        module: What cannot be imported.

    Raises:
        MissingExtraError: Always, but for
        UnsupportedError: The extra `dryrun` has no wheels for this Python.
    """
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
    """A command that adds an extra to this installation, and whether it can be run anywhere.

    ms-tune need not be on any index, so pip is given what it was given before: the folder, the archive, the
    repository. Where that is gone or unknown, the command is one for a checkout of ms-tune.
    """
    source, known = _source(extra)
    beside = shutil.which("python")
    python = "python" if beside and Path(beside).parent == Path(sys.executable).parent else sys.executable
    installer = [python, "-m", "pip", "install"]
    if importlib.util.find_spec("pip") is None and shutil.which("uv"):
        installer = ["uv", "pip", "install", "--python", sys.executable]
    return shlex.join([*installer, *source]), known


def _source(extra: str) -> tuple[list[str], bool]:
    """What pip is to install, and whether it is known where this installation came from (PEP 610)."""
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
    if not url:  # pip writes down every origin but an index
        return [f"ms-tune[{extra}]"], True
    if vcs := record.get("vcs_info"):
        url = f"{vcs['vcs']}+{url}@{vcs.get('requested_revision') or vcs['commit_id']}"
    if folder := record.get("subdirectory"):
        url += f"#subdirectory={folder}"
    return [f"ms-tune[{extra}] @ {url}"], True


def _record() -> dict[str, Any] | None:
    """What the installer noted about the origin of ms-tune; empty if it was an index, None if it is not installed."""
    try:
        text = importlib.metadata.distribution("ms-tune").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return None
    return dict(json.loads(text)) if text else {}
