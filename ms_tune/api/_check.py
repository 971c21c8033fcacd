"""One screen about a job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ms_tune.dryrun.task import Observer
    from ms_tune.workflows.check.config import OverviewRequest
    from ms_tune.workflows.check.result import Overview


def check(
    file: str | Path,
    *,
    request: OverviewRequest | None = None,
    base: str | None = None,
    dryrun: bool = False,
    observer: Observer | None = None,
) -> Overview:
    """What a config or a launch script is, whether it fits, what matters most in it, and what would help.

    Args:
        file: The file.
        request: The job's devices, the device that it is judged by, the release.
        base: A commit of git, or an older version of the file, with which its memory is compared.
        dryrun: Simulate the job; otherwise nothing is run, and sizes are estimates.
        observer: Told what is simulated.

    Raises:
        ConfigError: The file cannot be read, or is of no dialect that is served.
        UsageError: There is no such base.
        MsTuneError: As :func:`dryrun` says, where one is asked for.

    Example::

        seen = api.check("train.yaml")
        print(seen.subject, seen.estimate and seen.estimate.outlook, seen.next)
    """
    from ms_tune.workflows.check import look  # noqa: PLC0415 - start-up time
    from ms_tune.workflows.check.config import OverviewRequest  # noqa: PLC0415 - as above

    if dryrun:
        from ms_tune.extras import need  # noqa: PLC0415 - start-up time

        need("ms-tune check --dryrun", "dryrun", "numpy")
        from ms_tune.dryrun.task import Observer  # noqa: PLC0415 - as above

        observer = observer or Observer()
    return look.check(Path(file), request or OverviewRequest(), base, observer if dryrun else None)


def changed_files(base: str, folder: str | Path = ".") -> list[Path]:
    """Configs and launch scripts of a folder that are other than at a commit of git.

    Args:
        base: The commit.
        folder: Where to look, with what is below it.

    Raises:
        UsageError: There is no such commit, or no git.

    Example::

        worse = [file for file in api.changed_files("origin/main") if api.check(file, base="origin/main").against]
    """
    from ms_tune.workflows.check.base import changed_since  # noqa: PLC0415 - start-up time

    return changed_since(base, Path(folder))
