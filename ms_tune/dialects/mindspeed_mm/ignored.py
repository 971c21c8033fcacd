"""Settings that MindSpeed-MM silently ignores or changes (26.0, 26.1; each rule names its file)."""

from __future__ import annotations

from collections.abc import Iterator

from ms_tune.dialects.check_context import CheckContext, Violation
from ms_tune.dialects.megatron.commands import find_repeats
from ms_tune.dialects.mindspeed_mm.detect import FEATURE_SECTIONS
from ms_tune.dialects.mindspeed_mm.read import MultimodalSource, iterate_settings, of_scripts, violation_at
from ms_tune.errors import closest
from ms_tune.facts.mindspeed_mm import ever, read, settings, unread
from ms_tune.source.yaml import MISSING, is_same

_REPORTED = 1000
_CONTEXT_SIZE = "parallel.context_parallel_size"  # Megatron's name for two settings of MindSpeed-MM


def find_unread_keys(context: CheckContext) -> Iterator[Violation]:
    """Report keys that the release neither declares nor reads: ``BaseArguments`` keeps them, but nothing uses them."""
    release = context.version
    known = {*settings(release), *ever(), *read(release)}
    moved = {f"{section}.{name}" for section, names in FEATURE_SECTIONS.items() for name in names} | {
        "parallel.pregather"
    }
    for number, (path, _) in enumerate(iterate_settings(context)):
        dotted = ".".join(path)
        if dotted in known or dotted in moved or number >= _REPORTED:
            continue
        section, name = dotted.rpartition(".")[0], path[-1]
        names = sorted(one.rpartition(".")[2] for one in settings(release) if one.rpartition(".")[0] == section)
        similar = closest(name, names)
        message = "sizes" if dotted == _CONTEXT_SIZE else "similar" if similar else "default"
        yield Violation(path, message, {"similar": similar, "section": section}, at_key=True)


def find_moved_features(context: CheckContext) -> Iterator[Violation]:
    """Report enabled features in a section that the release does not read (``FeaturesApplier`` of ``features/apply_features.py``)."""
    if context.version == "26.0":
        return
    for section, names in FEATURE_SECTIONS.items():
        for name in names:
            value = context.source.get((section, name), MISSING)
            if value is not MISSING and value:
                other = context.source.get(("features", name), MISSING)
                params = {"section": section, "name": name}
                yield Violation((section, name), "twice" if other is not MISSING else "default", params, at_key=True)


def find_unread_settings(context: CheckContext) -> Iterator[Violation]:
    """Report declared settings that nothing reads, if their value differs from the default."""
    release = context.version
    for path, value in iterate_settings(context):
        dotted = ".".join(path)
        if dotted in unread(release) and value and not is_same(value, settings(release)[dotted].default):
            yield Violation(path, at_key=True)


@of_scripts
def find_repeated_options(source: MultimodalSource) -> Iterator[Violation]:
    """Report options that are given twice with different values: the last one wins."""
    for _, one, params in find_repeats(source.command):
        yield violation_at(source, one.name, {"option": one.name, **params}, span=source.span_of(one.word))
