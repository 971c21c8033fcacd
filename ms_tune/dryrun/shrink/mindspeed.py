"""``mindspeed-ms`` configs, run with the real framework on synthetic tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.dryrun.job import MindSpeedJob
from ms_tune.dryrun.request import STEPS
from ms_tune.dryrun.shrink.config_copy import ConfigCopy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ms_tune.config.model import Change
    from ms_tune.config.source import SourceFile
    from ms_tune.frameworks.training import Framework

_CONFIG_FILE = "config.yaml"
# What reads, writes or waits, and what a run of a few steps has no use for.
_SURROUNDINGS = (
    *("training_config.load_checkpoint", "training_config.resume_training", "training_config.save_interval"),
    *("training_config.eval_interval", "training_config.profile", "training_config.check_for_nan_in_grad"),
    *("dataset_config.dataset_dir", "parallel_config.deterministic_mode"),
)


def framework_job(
    source: SourceFile, changes: Iterable[Change], framework: Framework
) -> tuple[MindSpeedJob, dict[str, str], tuple[Change, ...]]:
    """The config as the framework will read it.

    Args:
        source: The user's config.
        changes: What is not run as it says: layers, micro-batches.
        framework: The installed library.

    Returns:
        The job, its files, and all that was changed.
    """
    config = ConfigCopy(source.data, source.path)
    for change in changes:
        config.set(change.key, change.after)
    for key in _SURROUNDINGS:
        if config.get(key):
            config.remove(key)
    config.set("training_config.training_iters", STEPS)
    job = MindSpeedJob(framework.package, _CONFIG_FILE, STEPS)
    return job, {_CONFIG_FILE: config.text()}, config.changes
