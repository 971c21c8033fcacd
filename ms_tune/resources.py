"""Where the data files live: beside the package in a checkout, inside it in an installed wheel."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def data_folder(name: str) -> Path:
    """The folder ``checklists`` or ``yaml_templates``.

    Raises:
        FileNotFoundError: The installation is incomplete.
    """
    for folder in (_PACKAGE / "_data" / name, _PACKAGE.parent / name):
        if folder.is_dir():
            return folder
    message = f"ms-tune's data folder {name!r} is missing; reinstall ms-tune"
    raise FileNotFoundError(message)
