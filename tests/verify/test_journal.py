"""An interrupted run leaves finished parts that the same run finds again, and no other run does."""

from pathlib import Path

import numpy as np
import pytest

from vela.verify import journal

FACTS = {"manifest": "m", "engine": ["onnxruntime", "1.31", "cpu"]}
KEY = journal.key_of_ids((1, 2, 3))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "bundle").mkdir()
    return tmp_path / "bundle"


def opened(folder: Path, facts: dict = FACTS, *, is_fresh: bool = False) -> journal.Journal:
    return journal.Journal.open(folder, facts, is_fresh=is_fresh)


def test_the_same_run_finds_its_plan_and_answers_again(folder: Path) -> None:
    first = opened(folder)
    first.keep_plan({"model": 7})
    first.keep_answers("exact", {KEY: {"logits": np.array([1.5, -2.0])}})
    first.keep_answers("exact", {journal.key_of_ids((4,)): {"logits": np.array([0.1])}})

    again = opened(folder)

    assert (first.is_resumed, again.is_resumed) == (False, True)
    assert again.plan() == {"model": 7}
    found = again.answers("exact")
    assert found[KEY]["logits"].tolist() == [1.5, -2.0]
    assert len(found) == 2
    assert again.answers("wide") == {}


@pytest.mark.parametrize("change", [{"manifest": "n"}, {"engine": ["onnxruntime", "1.32", "cpu"]}, {"bar": "cpu"}])
def test_another_run_finds_nothing(folder: Path, change: dict) -> None:
    opened(folder).keep_plan({"model": 7})

    other = opened(folder, FACTS | change)

    assert not other.is_resumed
    assert other.plan() is None


def test_a_fresh_run_drops_what_was_left(folder: Path) -> None:
    first = opened(folder)
    first.keep_plan({"model": 7})
    first.keep_answers("exact", {KEY: {"logits": np.array([1.5])}})

    fresh = opened(folder, is_fresh=True)

    assert not fresh.is_resumed
    assert fresh.answers("exact") == {}


def test_a_complete_run_leaves_nothing_beside_the_bundle(folder: Path) -> None:
    first = opened(folder)
    first.keep_plan({"model": 7})
    assert len(list(folder.parent.iterdir())) == 2

    first.close()

    assert list(folder.parent.iterdir()) == [folder]


def test_nothing_of_it_lies_in_the_bundle(folder: Path) -> None:
    opened(folder).keep_plan({"model": 7})

    assert list(folder.iterdir()) == []


def test_a_folder_that_cannot_be_written_only_costs_the_resumption(folder: Path, monkeypatch, caplog) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "read-only")

    monkeypatch.setattr(Path, "mkdir", refuse)

    kept = opened(folder)
    kept.keep_plan({"model": 7})
    kept.keep_answers("exact", {KEY: {"logits": np.array([1.5])}})

    assert kept.plan() is None
    assert kept.answers("exact") == {}
    assert "will start anew" in caplog.text
