"""Define every error that ms-tune raises on purpose, and the exit codes of its commands.

::

    MsTuneError              a text, a hint, a place in a file, an exit code
    ├── UsageError           the command line is wrong
    │   └── TooFewLayersError    too few layers for the chunks of a stage
    ├── ConfigError          a config cannot be read or is impossible
    │   ├── ForeignFileError     a file has nothing to do with MindSpore
    │   ├── UnknownSizesError    nothing here states the sizes of the config's model
    │   └── DefectError          ms-tune itself failed on a file (with a stack trace)
    ├── UnsupportedError     this machine, version or model is not supported; the text names those that are
    │   └── UncutLayersError     a stage cannot be run with fewer layers
    ├── MissingExtraError    an optional dependency is not installed
    ├── StandInBuildError    the stand-in CANN libraries could not be built
    ├── RunError             a simulated training run failed
    └── TraceError           a tracker file cannot be read
        ├── NoStepsError         a log contains no training step
        └── NoTraceError         a folder contains no tracker files

The message of an error is a :class:`~ms_tune.text.Message`, not a sentence: the command line renders it in the
user's language, ``str(error)`` renders it in English.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable
from enum import IntEnum
from functools import lru_cache
from itertools import islice
from pathlib import Path

from ms_tune.text import Language, Message, msg, render

# Errors caused by the machine or its administrator; each has a text.
USUAL = {
    *(errno.EACCES, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOENT),
    *(errno.ENOMEM, errno.ENOSPC, errno.ENOTDIR, errno.EPERM, errno.EROFS),
}
_ALIKE = 0.7  # names of checks have much in common, so they must be more similar than other names
_NUMBERED, _ID = r"[A-Za-z]*[\s_-]*(\d+)", r"[A-Z]{2,8}\d*"
_MOST_NAMES = 10_000  # the most names of a folder to compare with a misspelt one


class ExitCode(IntEnum):
    """The exit code of a command."""

    OK = 0
    FINDINGS = 1  # findings, or "does not fit"
    USAGE = 2  # the user's command line, config, machine or run is at fault
    INTERNAL = 3  # ms-tune itself is at fault


class MsTuneError(Exception):
    """A failure that the user can understand and act on, at a place in a file if one is at fault.

    Args:
        message: What is wrong.
        hint: What to do about it.
        path: The file.
        line: Its line, from 1.
        column: The character in it, from 1.
    """

    exit_code = ExitCode.USAGE

    def __init__(
        self,
        message: Message,
        hint: Message | None = None,
        *,
        path: Path | str | None = None,
        line: int | None = None,
        column: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.path = path
        self.line = line
        self.column = column

    def __str__(self) -> str:
        where, text = self.location(), render(self.message, Language.EN)
        return f"{where}: {text}" if where else text

    def location(self) -> str:
        """Return the location of the fault as ``file:line:column``, or an empty string."""
        return ":".join(str(part) for part in (self.path, self.line, self.column) if part is not None)


class UsageError(MsTuneError):
    """A command line with invalid or contradictory arguments."""


class TooFewLayersError(UsageError):
    """There are too few layers for the chunks of a stage."""


class UnsupportedError(MsTuneError):
    """This platform, framework version, dialect or model is not supported."""


class UncutLayersError(UnsupportedError):
    """A stage cannot be run with fewer layers."""


class MissingExtraError(MsTuneError):
    """A command needs an extra that is not installed."""


class StandInBuildError(MsTuneError):
    """The stand-in CANN libraries could not be built."""


class RunError(MsTuneError):
    """The simulated training run failed or left no usable result."""


class ConfigError(MsTuneError):
    """A config cannot be read, or its content is impossible."""


class ForeignFileError(ConfigError):
    """A file has nothing to do with MindSpore, or belongs to another program."""


class UnknownSizesError(ConfigError):
    """Nothing here states the sizes of the model of a config."""


class DefectError(ConfigError):
    """ms-tune itself failed on a file, which must not hide the findings in others."""

    exit_code = ExitCode.INTERNAL
    trace = ""


class TraceError(MsTuneError):
    """A file of the memory tracker cannot be read."""


class NoStepsError(TraceError):
    """A log contains no training step."""


class NoTraceError(TraceError):
    """A folder contains no memory tracker files."""


def closest(name: str, known: Iterable[str], least: float = 0.6) -> str:
    """Return the known name with the same words, or the most similar one, or an empty text; for hints.

    ``least`` is the least similarity, from 0 to 1 (``difflib.SequenceMatcher.ratio``).
    """
    return _closest(name, frozenset(known), least)


# Cached: the configs of a folder often have the same unknown keys.
@lru_cache(maxsize=4096)
def _closest(name: str, known: frozenset[str], least: float) -> str:
    import difflib  # noqa: PLC0415 - only where somebody made a mistake

    words = sorted(name.split("_"))
    same = (one for one in sorted(known) if len(words) > 1 and sorted(one.split("_")) == words)
    return next(same, "") or next(iter(difflib.get_close_matches(name, known, 1, least)), "")


def closest_check(name: str, known: Iterable[str]) -> str:
    """Return the check whose id or name is most similar, or an empty text; ids with different numbers never match."""
    number, ids = re.fullmatch(_NUMBERED, name), {one for one in known if re.fullmatch(_ID, one)}
    if number is None:
        return closest(name, set(known) - ids, _ALIKE)
    return closest(name.upper(), (one for one in ids if re.sub(_NUMBERED, r"\1", one) == number[1]))


def shell_line(*words: str) -> str:
    """Return words as a line that a shell splits into the same words."""
    import shlex  # noqa: PLC0415 - only where somebody made a mistake

    return shlex.join(words)


def trace_of(error: Exception) -> str:
    """Return the stack trace of a defect of ms-tune."""
    import traceback  # noqa: PLC0415 - slow to import

    return "".join(traceback.format_exception(error))


def error_of_file(error: Exception, path: Path) -> MsTuneError:
    """Return any exception as an error of the file that was read when it was raised."""
    if isinstance(error, MsTuneError):
        return error
    if isinstance(error, OSError) and error.errno in USUAL:
        return ConfigError(msg("config.unreadable", reason=reason_of(error)), path=path)
    defect = DefectError(msg("cli.defect", error=f"{type(error).__name__}: {error}"), path=path)
    defect.trace = trace_of(error)
    return defect


def reason_of(error: Exception) -> Message | str:
    """Return the reason of an error, in the user's language where it is a common system error."""
    number = error.errno if isinstance(error, OSError) else None
    if number in USUAL:
        return msg(f"cli.os.{errno.errorcode[number].lower()}")
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def nearby(path: Path) -> Message:
    """Return a hint for a file that does not exist: a similar name in its folder, or the folder that was searched."""
    folder = path.parent
    try:
        if path.is_symlink():
            return msg("config.not-found.link", target=path.readlink())
        names = [one.name for one in islice(folder.iterdir(), _MOST_NAMES)]
    except OSError:
        return msg("config.not-found.folder", folder=folder)
    similar = closest(path.name, names)
    return (
        msg("config.not-found.similar", similar=folder / similar)
        if similar
        else msg("config.not-found.hint", folder=folder)
    )
