"""Models side by side: memory, cores, and processes that die. The workers are those of tests/crews.py."""

import multiprocessing
import os
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import crews
import pytest

from vela.graphs import errors
from vela.scripts.release import ledger, plan, workers

ROOM = 1 << 40


def release(asked: plan.ReleasePlan, crew: workers.Crew, before=None) -> list[ledger.ModelLine]:
    said: list[ledger.ModelLine] = []
    workers.release_side_by_side(asked, crew, before or {}, said.append, lambda message: None)
    return said


def ends(said: list[ledger.ModelLine]) -> dict[str, ledger.ModelLine]:
    return {line.name: line for line in said if line.outcome != "running"}


def test_every_model_is_released_and_the_workers_stay_for_the_next(tmp_path: Path) -> None:
    said = ends(release(crews.plan_of("a b c d", tmp_path), workers.Crew(1, ROOM, (0,), crews.publishes)))

    assert {name: line.outcome for name, line in said.items()} == dict.fromkeys("abcd", "published")
    assert len({line.reason.split()[0] for line in said.values()}) == 1


def test_two_work_at_the_same_time_where_memory_allows(tmp_path: Path) -> None:
    said = ends(release(crews.plan_of("a b", tmp_path), workers.Crew(2, ROOM, (0, 1), crews.waits_for_another)))

    assert [said[name].outcome for name in "ab"] == ["published", "published"]


def test_two_that_do_not_fit_together_are_released_one_after_the_other(tmp_path: Path) -> None:
    asked = crews.plan_of("a b c", tmp_path)
    room = int(1.5 * asked.models[0].memory_bytes)

    said = release(asked, workers.Crew(2, room, (0, 1), crews.publishes))

    assert [line.outcome for line in said] == ["running", "published", "published"] * 3
    assert [line.name for line in said] == [*"aaabbbccc"]


def test_a_small_model_goes_before_one_that_does_not_fit_yet(tmp_path: Path) -> None:
    asked = crews.plan_of("a b c", tmp_path, weight_bytes=1 << 30)
    asked = replace(asked, models=(*asked.models[:2], replace(asked.models[2], weight_bytes=0)))
    room = asked.models[0].memory_bytes + asked.models[2].memory_bytes

    said = release(asked, workers.Crew(2, room, (0, 1), crews.waits_for_another))

    begun = [line.name for line in said if line.outcome == "running"]
    assert ends(said)["a"].outcome == "published"
    assert begun.index("c") < begun.index("b")


def test_a_model_that_can_never_fit_is_refused_before_anything_is_begun(tmp_path: Path) -> None:
    asked = crews.plan_of("a", tmp_path, weight_bytes=8 << 30)

    with pytest.raises(errors.ExportError, match=r"--memory: found a, reckoned to need 41.0 GiB; expected .* 4.0 GiB"):
        release(asked, workers.Crew(1, 4 << 30, (0,), crews.has_a_bug))


def test_workers_share_the_cores() -> None:
    crew = workers.Crew(2, ROOM, (0, 1, 2, 3, 4), crews.publishes)

    assert [crew.cores_of(0), crew.cores_of(1)] == [(0, 2, 4), (1, 3)]
    with pytest.raises(ValueError, match="3 processes on 2 cores"):
        workers.Crew(3, ROOM, (0, 1))


def test_a_worker_that_is_killed_fails_its_model_and_no_other(tmp_path: Path) -> None:
    said = ends(release(crews.plan_of("a b c", tmp_path), workers.Crew(1, ROOM, (0,), crews.is_killed)))

    assert {name: line.outcome for name, line in said.items()} == {"a": "published", "b": "failed", "c": "published"}
    assert "was killed by signal 9; 9 is mostly want of memory" in said["b"].reason


def test_a_worker_that_is_killed_in_the_middle_of_a_word_fails_its_model_and_no_other(tmp_path: Path) -> None:
    said = ends(release(crews.plan_of("a b c", tmp_path), workers.Crew(1, ROOM, (0,), crews.is_cut_short)))

    assert {name: line.outcome for name, line in said.items()} == {"a": "published", "b": "failed", "c": "published"}


def test_a_worker_that_died_at_rest_is_replaced(tmp_path: Path) -> None:
    asked = crews.plan_of("a", tmp_path)
    ours, theirs = multiprocessing.Pipe()
    theirs.close()
    dead = workers._Worker(SimpleNamespace(join=lambda: None), ours, 0)
    crew, waiting, present = workers.Crew(1, ROOM, (0,), crews.publishes), [*asked.models], [dead]

    workers._assign(waiting, present, asked, crew, {})

    (other,) = present
    try:
        assert (waiting, other.wanted) == ([], asked.models[0])
        assert other.connection.recv().outcome == "running"
    finally:
        other.process.terminate()
        other.process.join()


def test_a_worker_keeps_to_its_cores_before_it_loads_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = multiprocessing.Pipe()
    ours.close()
    before = os.sched_getaffinity(0)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(workers, "_end_with_parent", lambda: None)
    try:
        workers.work(theirs, None, (min(before),))

        assert os.sched_getaffinity(0) == {min(before)}
    finally:
        os.sched_setaffinity(0, before)


def test_a_worker_with_a_bug_fails_its_model_and_shows_its_traceback(tmp_path: Path, capfd) -> None:
    said = ends(release(crews.plan_of("a", tmp_path), workers.Crew(1, ROOM, (0,), crews.has_a_bug)))

    assert "ended with exit code 1, a defect of Vela" in said["a"].reason
    assert "RuntimeError: a bug" in capfd.readouterr().err


def test_what_an_earlier_run_said_reaches_the_worker(tmp_path: Path) -> None:
    before = {"a": ledger.ModelLine("a", published="digest")}

    said = release(crews.plan_of("a", tmp_path), workers.Crew(1, ROOM, (0,), crews.publishes), before)

    assert ends(said)["a"].published == "digest"
