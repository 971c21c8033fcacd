"""End the frameworks that oracles share."""

from collections.abc import Iterator

import pytest

from tests.oracle import framework


@pytest.fixture(scope="session", autouse=True)
def _frameworks() -> Iterator[None]:
    yield
    framework.close_all()
