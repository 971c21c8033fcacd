"""Compare the arguments in the data with the sources, where these are available."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ms_tune.enums import Dialect
from ms_tune.facts import query
from ms_tune.facts.query import load, served
from tests.oracle.make_megatron import PROGRAMS, RELEASES, SOURCES, make_facts, written

needs_sources = pytest.mark.skipif(SOURCES not in os.environ, reason=f"{SOURCES} names no sources of MindSpeed-LLM")


@needs_sources
@pytest.mark.slow
def test_the_arguments_are_those_of_the_sources() -> None:
    assert json.loads(written(make_facts(Path(os.environ[SOURCES])))) == load("megatron")


def test_the_file_is_as_it_was_made() -> None:
    content = load("megatron")
    assert content["programs"] == PROGRAMS
    assert content["releases"] == RELEASES
    assert tuple(RELEASES) == served(Dialect.MEGATRON)
    assert (Path(query.__file__).with_name("data") / "megatron.json").read_text("utf-8") == written(content)
