"""Inspect the repository around a file: its framework and release, and the arguments and classes that its sources define.

The list of sources is read for every job; definitions are cached by path, size and modification time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from ms_tune.diagnostics import KeyPath
from ms_tune.dialects.megatron.arguments import read
from ms_tune.enums import Dialect
from ms_tune.facts.keys import Key, releases_registering
from ms_tune.facts.megatron import definitions, names, programs, releases_with
from ms_tune.facts.models import UNKNOWN
from ms_tune.facts.query import load, order, served
from ms_tune.facts.training import package_folder
from ms_tune.job.definitions import (
    INSTALLED_FOLDERS,
    OwnArgument,
    SourceStamp,
    list_entries,
    list_sources,
    read_arguments,
    read_class_names,
    read_classes,
    read_config_fields,
    read_target_arguments,
    stamp_source,
)
from ms_tune.job.detect import PACKAGES, PARSER
from ms_tune.source.files import read_source_text

_COPIES = ("megatron", "mindspeed")  # the other packages of the parser, if they are copied into the repository
# Parts of MindSpeed-LLM with their own parsers (2.0 to 26.1), unless they belong to a feature.
_OWN_PARSERS = re.compile(r"checkpoint|convert_ckpt|rejection_sampling|preprocess|fsdp2|data_handler|scripts|tools")
_FEATURES = "features_manager"
_RELEASE = re.compile(r"[vr]?(\d{1,4}\.\d+)(?!\d)")
_TRAINERS_PACKAGE = "hyper_parallel"
_DATE = re.compile(r"20\d\d\.")  # versions of MindFormers before 1.0, such as 2023.09.dev
_RELEASE_BRANCH = re.compile(r"[vr]?\d+\.\d+\.\d+")
_VERSION = re.compile(r"""^[^#\n]*?(?<![\w.-])_*version_*\s*=\s*["']([^"'\n]+)["']""", re.MULTILINE)
_VERSION_FILES = ("setup.py", "{package}/__init__.py", "{package}/version.py", "pyproject.toml")


@dataclass(frozen=True)
class Checkout:
    """A repository, read lazily; files that cannot be read or exceed the limits are ignored."""

    root: Path
    package: str | None  # the framework's package in it; None for a git repository that only uses frameworks

    @property
    def framework(self) -> str | None:
        """Return the framework of its package, by its name in ``facts/data/releases.json``."""
        return PACKAGES.get(self.package or "")

    @cached_property
    def releases(self) -> tuple[str, ...]:
        """Return the supported releases that it may be, oldest first; empty if unknown.

        The ``setup.py`` of MindSpeed-LLM has 0.0.1 from 1.0 to 2.3 and 26.0.0dev0 since, also in commits whose arguments are
        still nearer to 2.3; MindFormers r2.0.0 has 1.9.0, its ``master`` had 1.7.0 until 1.9.
        """
        if self.package == "mindspeed_llm" and (found := releases_with("MindSpeed-LLM", frozenset(self.own_arguments))):
            stated = [one[1] for version, _ in self._versions if (one := _RELEASE.match(version))]
            if not stated or order(stated[0]) <= order(found[-1]):
                return found
        about = [one for one in load("releases").values() if one["framework"] == self.framework]
        for version, of_git in self._versions if self.package in [one["package"] for one in about] else ():
            release = _RELEASE.match(version)
            if release is None or not any(release[1] in one["served"] for one in about):
                continue
            likely: tuple[str, ...] = ()
            if not of_git and self.package == "mindformers":
                likely = releases_registering((kind, name) for kind, names in self.classes.items() for name in names)
            return tuple(one for one in likely if order(one) > order(release[1])) or (release[1],)
        return ()

    def releases_of(self, framework: str) -> tuple[str, ...]:
        """Return ``releases`` if the repository is of this framework; otherwise nothing."""
        return self.releases if self.framework == framework else ()

    def nearest_release(self, dialect: Dialect) -> tuple[str, str] | None:
        """Return the supported release of a dialect nearest to the repository's version, and that version; None if unknown.

        If all supported releases are later, it is its own release.
        """
        about, among = load("releases"), served(dialect)
        framework = about[dialect.value]["framework"]
        own = [(release, release) for release in self.releases_of(framework)] or [
            (found[1], version)
            for version, _ in self._versions
            if self.framework == "MindFormers" and (found := _RELEASE.match(version))
        ][:1]
        if not own:
            return None
        release, version = own[-1]
        if _DATE.match(version):
            return about[Dialect.MINDFORMERS.value]["outdated"]["version"], version
        first = min((one["served"][0] for one in about.values() if one["framework"] == self.framework), key=order)
        if order(release) < order(first):  # MindFormers 1.3 to 1.5 also had configs in the form of MindSpeed-Core-MS
            return release, version
        if framework != self.framework:
            return None
        return next((one for one in reversed(among) if order(one) <= order(release)), among[0]), version

    @cached_property
    def _versions(self) -> tuple[tuple[str, bool], ...]:
        """Return the versions that the repository states, by precedence, each with whether it comes from git."""
        head = read_git_head(self.root)
        names = (*head.tags, *([head.branch] if head.branch and _RELEASE_BRANCH.fullmatch(head.branch) else ()))
        texts = (read_source_text(self.root / name.format(package=self.package)) for name in _VERSION_FILES)
        written = [found[1] for text in texts if (found := _VERSION.search(text))]
        return (*((name, True) for name in names), *((version, False) for version in written))

    @cached_property
    def own_parser(self) -> Path | None:
        """Return the name of the repository's own parser; None if it is that of a supported MindSpeed-LLM.

        MindSpeed-Core-MS has its own (branch ``br_master``), ModelLink and MindSpeed-LLM 1.0 an earlier one.
        """
        about = load("releases")[Dialect.MEGATRON.value]
        is_other = self.framework == about["framework"] and self.package != about["package"]
        is_earlier = set(about["outdated"]["arguments"]) <= self.own_arguments.keys()
        if not (self.package == "mindspeed_ms" or is_other or is_earlier):
            return None
        files = (self.root / str(self.package) / name for name in (PARSER, "arguments.py"))
        return next((file for file in files if file.is_file()), None)

    @cached_property
    def own_arguments(self) -> Mapping[str, tuple[OwnArgument, ...]]:
        """Return the training arguments that its package defines, each with its definitions."""
        return _group_arguments(self._list_parsers(self.package)) if self.package else {}

    @cached_property
    def arguments(self) -> Mapping[str, tuple[OwnArgument, ...]]:
        """Return the training arguments that the package, its programs and copied packages of the parser define."""
        return _group_arguments(self._parsers)

    def takes_value(self, name: str, value: str) -> bool:
        """Return whether an argument may have a value here; the argument itself may be defined elsewhere.

        ``add_parser_argument_choices_value`` of MindSpeed (2.0 to 26.1) adds a choice to any argument of the parser.
        """
        further = (pair for source in self._parsers for pair in read_arguments(source).further)
        return (name, value) in further or any(
            one.choices is None or value in one.choices
            for one in self.arguments.get(name, ())
            if one.type not in ("int", "float") or read(value, one.type) is not UNKNOWN
        )

    def registers_anew(self, name: str, release: str) -> bool:
        """Return whether the package itself defines an argument that this release leaves to other packages."""
        parts = {one.part for one in definitions(name, release)}
        return name in self.own_arguments and "MindSpeed-LLM" not in parts

    @cached_property
    def is_parser_known(self) -> bool:
        """Return whether the parser is that of a release, or all packages that define it are here and can be read."""
        known = frozenset().union(*map(names, self.releases))
        if known.issuperset(self.arguments):
            return self.package != "mindspeed_llm" or bool(self.releases)
        has_copies = all((self.root / folder).is_dir() for folder in _COPIES)
        return has_copies and all(read_arguments(source).is_complete for source in self._parsers)

    @cached_property
    def classes(self) -> Mapping[str, Mapping[str, frozenset[str] | None]]:
        """Return the parameters of each class that it registers, by kind and name; None if they are unknown.

        Kinds as for :func:`ms_tune.facts.keys.registered`, and Core-MS's ``library_optimizer``, ``activation``, ``loss``.
        """
        found: dict[str, dict[str, frozenset[str] | None]] = {}
        is_installed = self.root.name in INSTALLED_FOLDERS
        for source in list_sources(self.root / (self.package or "") if is_installed else self.root):
            for kind, name, parameters in read_classes(source):
                before = found.setdefault(kind, {}).get(name)
                found[kind][name] = parameters if before is None or parameters is None else before | parameters
        return found

    @cached_property
    def config_fields(self) -> Mapping[KeyPath, Mapping[str, Key]] | None:
        """Return the fields of the config classes of HyperParallel's Trainer, by section; None if it has none."""
        is_other = self.package != _TRAINERS_PACKAGE
        return None if is_other else read_config_fields(list_sources(self.root / _TRAINERS_PACKAGE))

    def read_target_arguments(self, target: str) -> frozenset[str] | None:
        """Return the arguments of a target of HyperParallel's Trainer; None if it takes any, or they are unknown."""
        return read_target_arguments(self.root, target) if self.package == _TRAINERS_PACKAGE else None

    def has_class(self, name: str) -> bool:
        """Return whether one of its sources defines a class of this name: a program may build it without a register."""
        return any(name in read_class_names(source) for source in list_sources(self.root))

    @cached_property
    def _parsers(self) -> tuple[SourceStamp, ...]:
        folders = (self.package, *(() if self.root.name in INSTALLED_FOLDERS else _COPIES)) if self.package else ()
        started = [entry for entry in list_entries(self.root) if entry.name in programs() and entry.is_file()]
        return (*(source for folder in folders for source in self._list_parsers(folder)), *map(stamp_source, started))

    def _list_parsers(self, folder: str) -> tuple[SourceStamp, ...]:
        sources, start = list_sources(self.root / folder), len(str(self.root))
        return tuple(one for one in sources if _FEATURES in one.path or not _OWN_PARSERS.search(one.path, start))


def find_trainer(around: tuple[Path, str | None] | None) -> tuple[Path, str | None] | None:
    """Return the repository around a file if it is HyperParallel's; else the folder of its installed package, if there is one."""
    installed = None if around is not None and around[1] == _TRAINERS_PACKAGE else package_folder(_TRAINERS_PACKAGE)
    return around if installed is None else (installed.parent, _TRAINERS_PACKAGE)


def _group_arguments(sources: Iterable[SourceStamp]) -> dict[str, tuple[OwnArgument, ...]]:
    found: dict[str, tuple[OwnArgument, ...]] = {}
    for source in sources:
        for one in read_arguments(source).defined:
            found[one.name] = (*found.get(one.name, ()), one)
    return found


class GitHead(NamedTuple):
    """The branch and tags that are checked out in a git repository."""

    branch: str | None  # None for a detached HEAD
    tags: tuple[str, ...]  # the tags of the commit


def read_git_head(root: Path) -> GitHead:
    """Read the branch and tags from the files in ``.git`` (``gitrepository-layout`` of git 2.x) without running git."""
    references: dict[str, str] = {}
    name = ""
    for line in read_source_text(root / ".git" / "packed-refs").splitlines():
        commit, _, named = line.partition(" ")
        name = named or name  # an annotated tag is followed by a line with the commit that it points to
        references[name] = commit.removeprefix("^")
    for file in list_entries(root / ".git" / "refs" / "tags"):
        references[f"refs/tags/{file.name}"] = read_source_text(root / ".git" / "refs" / "tags" / file.name).strip()
    head = read_source_text(root / ".git" / "HEAD").strip()
    branch = head.removeprefix("ref: refs/heads/") if head.startswith("ref: refs/heads/") else None
    if branch is not None:
        loose = "" if ".." in branch else read_source_text(root / ".git" / "refs" / "heads" / branch).strip()
        head = loose or references.get(f"refs/heads/{branch}", "")
    tags = (name for name, commit in references.items() if head and commit == head and name.startswith("refs/tags/"))
    return GitHead(branch, tuple(sorted(tag.removeprefix("refs/tags/") for tag in tags)))
