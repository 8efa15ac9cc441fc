"""A server in this process: the app over loaded table models, asked through Starlette's client."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from vela.serve import registry
from vela.serve.http.app import build_app
from vela.serve.http.service import Settings

LIMIT_BYTES = 200_000


@pytest.fixture(scope="session")
def loaded(bag_store: Path) -> Iterator[registry.Registry]:
    made = registry.Registry(registry.Plan(registry.sources_from_store(bag_store)))
    assert made.load() == []
    yield made
    made.close()


@pytest.fixture(scope="session")
def client(loaded: registry.Registry) -> Iterator[TestClient]:
    with TestClient(build_app(loaded, Settings(max_request_bytes=LIMIT_BYTES))) as made:
        yield made


@pytest.fixture
def own(bag_store: Path) -> Iterator[registry.Registry]:
    """A registry that a test may harm."""
    made = registry.Registry(registry.Plan(registry.sources_from_store(bag_store, ["mood"])))
    assert made.load() == []
    yield made
    made.close()
