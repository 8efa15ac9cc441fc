"""A newer bundle is served when it can be; one that cannot leaves the older at work, and says why."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from vela.graphs import bundle as bundles
from vela.graphs import store
from vela.serve import registry


class Published:
    """A model's pointer in a store, moved by hand."""

    def __init__(self, folder: Path) -> None:
        self.now = store.PublishedBundle("mood", folder, "first")

    def find(self) -> store.PublishedBundle:
        return self.now


@pytest.fixture
def published(bags: dict[str, Path]) -> Published:
    return Published(bags["mood"])


@pytest.fixture
def serving(published: Published) -> Iterator[registry.Registry]:
    made = registry.Registry(registry.Plan((registry.Source("mood", published.find),)))
    assert made.load() == []
    yield made
    made.close()


@pytest.fixture
def newer(bags: dict[str, Path], make_bundle) -> store.PublishedBundle:
    head = bundles.Bundle.open(bags["mood"]).manifest.head()
    return store.PublishedBundle("mood", make_bundle("mood", head, np.ones((259, 3), np.float32)), "second")


def test_nothing_new_changes_nothing(serving: registry.Registry) -> None:
    before = serving.entries["mood"]

    assert serving.refresh() == []
    assert serving.entries["mood"] is before


def test_a_newer_bundle_takes_over(serving: registry.Registry, published: Published, newer) -> None:
    before = serving.find("mood")
    published.now = newer

    (entry,) = serving.refresh()

    assert (entry.status, entry.digest) == ("ready", "second")
    assert serving.find("mood") is entry.model is not before
    assert serving.refresh() == []


def test_one_that_cannot_be_served_leaves_the_older_at_work_and_is_tried_once(
    serving: registry.Registry, published: Published, tmp_path: Path
) -> None:
    before = serving.find("mood")
    published.now = store.PublishedBundle("mood", tmp_path, "broken")

    (entry,) = serving.refresh()

    assert entry.status == "degraded"
    assert "cannot be served" in entry.reason
    assert serving.find("mood") is before
    assert serving.problems() == {}
    assert serving.refresh() == []


def test_when_it_is_taken_back_the_model_is_ready_again(
    serving: registry.Registry, published: Published, tmp_path: Path
) -> None:
    good = published.now
    published.now = store.PublishedBundle("mood", tmp_path, "broken")
    serving.refresh()
    published.now = good

    (entry,) = serving.refresh()

    assert (entry.status, entry.reason) == ("ready", "")
    assert serving.refresh() == []


def test_after_one_that_cannot_a_better_one_is_served(
    serving: registry.Registry, published: Published, newer, tmp_path: Path
) -> None:
    published.now = store.PublishedBundle("mood", tmp_path, "broken")
    serving.refresh()
    published.now = newer

    (entry,) = serving.refresh()

    assert (entry.status, entry.digest, entry.refused) == ("ready", "second", "")
