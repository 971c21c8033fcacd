"""A dynamic-graph config by its own framework and by the reference transformer: what they need, for those who keep the reference true.

Few machines have MindFormers 2.x with HyperParallel, so whoever has one can send in what both figures are there. What is sent holds no
data: of the config the numbers and the words that the frameworks themselves use, with everything else taken out.
"""

from __future__ import annotations

import importlib.metadata
import platform
import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from ms_tune.dryrun.prepare import LoadedConfig, load_config
from ms_tune.dryrun.run import dryrun_job
from ms_tune.enums import Dialect
from ms_tune.errors import MsTuneError, UnsupportedError
from ms_tune.facts import query
from ms_tune.facts.query import data_folder
from ms_tune.facts.training import Framework, mindspeed_framework, pynative_framework
from ms_tune.source.yaml import load_source, yaml_text
from ms_tune.text import msg
from ms_tune.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ms_tune.dryrun.request import DryrunRequest
    from ms_tune.dryrun.result import DryrunResult, StageResult
    from ms_tune.dryrun.task import Observer
    from ms_tune.text import Message

_PACKAGES = ("mindspore", "mindformers", "hyper_parallel", "mindspeed_ms", "numpy")
_KEYS = ("keys_mindformers-pynative", "keys_mindformers", "keys_mindspeed-ms")
_SOURCES = (*_KEYS, "models", "registries", "names", "trees", "migration")
_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_PLAIN = re.compile(r"[\w.\\*+\-,:=\[\]()|^$?{}]{1,200}", re.ASCII)  # no blank and no slash: no sentence, no path
# Keys whose texts are their author's own, whatever words they are made of.
_OWN = re.compile(r".*(dir|path|paths|file|files|url|prefix|project|user|token|folder)")
_USUAL = frozenset((
    *("e", "E", "GB", "MB", "GiB", "MiB", "bf16", "fp16", "fp32", "fp8", "bfloat16", "float16", "float32"),
    *("select", "full", "None", "auto", "bool", "sum", "mean"),
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class SideFigures:
    """What one of the two found."""

    model: str  # what ran
    stages: tuple[StageResult, ...]  # the stages, judged; empty if it came to no end
    # Why there are none: the class of what was raised and the name of its text, without what the text says.
    failure: str = ""


@dataclass(frozen=True, slots=True)
class BothFigures:
    """A job by its own framework and by the reference transformer."""

    dialect: Dialect  # the config's dialect
    releases: Mapping[str, str | None]  # what is installed, by package; None for what is not
    real: SideFigures  # by the framework
    reference: SideFigures  # by the reference transformer
    config: str  # the config without its author's own words


def both_figures(request: DryrunRequest, observer: Observer) -> BothFigures:
    """Simulate a config twice, the same stages of both.

    Args:
        request: What to simulate; a run folder is that of the framework's run, the other one lies beside it.
        observer: Told what is going on.

    Raises:
        UnsupportedError: The config is of no dynamic graph, or its framework is not installed here.
        ConfigError: The config cannot be read.
    """
    loaded = load_config(request)
    framework = _framework_of(loaded.dialect)
    real = _run_side(request._replace(reference=False), loaded, framework.name, observer)
    folder = request.run_folder
    beside = folder.with_name(f"{folder.name}_reference") if folder is not None else None
    reference = _run_side(request._replace(reference=True, run_folder=beside), loaded, "reference", observer)
    return BothFigures(loaded.dialect, _list_releases(), real, reference, without_own_words(loaded.source.data))


def _framework_of(dialect: Dialect) -> Framework:
    if dialect not in (Dialect.MINDFORMERS_PYNATIVE, Dialect.MINDSPEED_MS):
        raise UnsupportedError(msg("dryrun.both.dialect", dialect=dialect.value))
    found = pynative_framework() if dialect is Dialect.MINDFORMERS_PYNATIVE else mindspeed_framework()
    if isinstance(found, Framework):
        return found
    missing: Message = found or msg("dryrun.both.no-mindspeed")
    raise UnsupportedError(msg("dryrun.both.missing", missing=missing), msg("dryrun.both.missing.hint"))


def _run_side(request: DryrunRequest, loaded: LoadedConfig, model: str, observer: Observer) -> SideFigures:
    try:
        found: DryrunResult = dryrun_job(request, observer, loaded)
    except MsTuneError as error:
        return SideFigures(model, (), f"{type(error).__name__}: {error.message.id}")
    return SideFigures(model, found.stages)


def _list_releases() -> dict[str, str | None]:
    found: dict[str, str | None] = {"ms-tune": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return found


def without_own_words(config: Mapping[Any, Any]) -> str:
    """A config as YAML with its numbers, switches and the words that the frameworks use, and without all that is its author's own.

    The same word always becomes the same number, so that what belonged together still does; comments are gone.

    Args:
        config: The settings.
    """
    seen: dict[str, str] = {}

    def hidden(text: str, kind: str) -> str:
        return seen.setdefault(f"{kind} {text}", f"{kind}-{sum(one.startswith(kind) for one in seen) + 1}")

    def told(value: Any, own: bool = False) -> Any:  # noqa: ANN401, FBT001, FBT002 - a value of any type, and whether its key is a path's
        if isinstance(value, dict):
            return {_shown_key(key, hidden): told(item, bool(_OWN.fullmatch(str(key)))) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [told(item, own) for item in value]
        if isinstance(value, (bool, int, float)) or value is None:
            return value
        text = str(value)
        return text if (not own and _is_known(text)) or not text else hidden(text, "text")

    return yaml_text(told(dict(config)))


def _shown_key(key: object, hidden: Any) -> object:  # noqa: ANN401 - the function that numbers words
    if isinstance(key, str):
        return key if _is_known(key) else hidden(key, "key")
    return key


def _is_known(text: str) -> bool:
    """Whether a text is made of the frameworks' own words, numbers and signs of patterns."""
    return bool(_PLAIN.fullmatch(text)) and all(
        word in _known_words() for word in _WORD.findall(_without_numbers(text))
    )


def _without_numbers(text: str) -> str:
    """Without numbers that letters follow: ``58GB``, ``1e-5``."""
    return re.sub(r"(?<![A-Za-z_\d])\d+(?:\.\d*)?", " ", text)


@cache
def _known_words() -> frozenset[str]:
    """The words of keys, models, registered classes and modules, and those of the packaged configs."""
    templates = data_folder("yaml_templates").glob("*/*.yaml")
    facts = (*(query.load(name) for name in _SOURCES), *(load_source(file).data for file in templates))
    words = {word for one in facts for text in _walk_texts(one) if " " not in text for word in _WORD.findall(text)}
    words |= {word for part in query.load("trees")["parts"] for word in _WORD.findall(part)}
    return frozenset(words | _USUAL)


def _walk_texts(value: object) -> Iterator[str]:
    """The texts in facts, keys and values; explanations are left out."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key not in ("en", "zh"):
                yield str(key)
                yield from _walk_texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _walk_texts(item)
    elif isinstance(value, str):
        yield value
