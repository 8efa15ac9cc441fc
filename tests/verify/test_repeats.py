"""A graph answers alike however it is asked: twice, without rewrites, in fresh processes, whatever lies under the mask.

Equal to the bit on the CPU, within a stated bound on a GPU, never a number and nan.
"""

import contextlib
import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest

from vela.graphs import contract
from vela.verify import bars, cases, engine_checks, meter, repeats, runs

CASE = cases.Case("p1", (2, 7, 1), "a", 0, ())
LONG = cases.Case("p2", (2, 7, 8, 9, 1), "b", 0, ())
RUN = runs.Run(CASE)
NEXT = float(np.nextafter(np.float32(1), np.float32(2)))
OUTCOMES = [
    (1.0, "cpu", "passed"),
    (NEXT, "cpu", "failed"),
    (1.00001, "cuda", "passed"),
    (1.0001, "cuda", "failed"),
    (math.nan, "cuda", "failed"),
    (math.inf, "cuda", "failed"),
]


def answer(value: float) -> engine_checks.Answer:
    return {"logits": np.full(2, value, np.float32)}


class Session:
    """A session that answers everything with one number."""

    def __init__(self, value: float) -> None:
        self._value = value
        self.facts = SimpleNamespace(options={"threads": "1"}, device="cpu")
        self.graph = SimpleNamespace(
            outputs=(contract.TensorSpec("logits", "float32", ("batch", 2)),),
            takes_mask=True,
            batch=None,
            sequence=None,
            fits=lambda rows, tokens: True,
        )

    def run(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"logits": np.full((len(inputs["input_ids"]), 2), self._value, np.float32)}


def judged(first: float, second: float) -> engine_checks.Judged:
    """A session that answered `first`, answers `second` now, and so does one without rewrites."""
    session = Session(second)
    return engine_checks.Judged(session, lambda options: session, {RUN: answer(first)}, 0, contextlib.nullcontext)


def verdict(second: float, device_kind: str) -> str:
    return engine_checks.check_repeats(judged(1.0, second), [RUN], bars.repeat_bound(device_kind)).status


@pytest.mark.parametrize(("second", "device_kind", "expected"), OUTCOMES)
def test_a_graph_that_differs_from_itself_fails(second: float, device_kind: str, expected: str) -> None:
    assert verdict(second, device_kind) == expected


def test_runs_that_are_made_again_count_as_forwards() -> None:
    gauge = meter.Meter(print, 0.0)
    counted = dataclasses.replace(judged(1.0, 1.0), forward=gauge.forward)

    engine_checks.check_repeats(counted, [RUN, RUN], 0.0)

    assert gauge.forward_s > 0.0


def test_two_answers_of_nan_are_left_to_the_check_of_finite_outputs() -> None:
    assert engine_checks.check_repeats(judged(math.nan, math.nan), [RUN], 0.0).status == "passed"


def test_a_run_without_an_answer_fails_and_shows_no_cause() -> None:
    found = engine_checks.check_repeats(judged(1.0, 1.0), [runs.Run(LONG)], 0.0)

    assert (found.status, found.cause) == ("failed", None)


def test_what_differs_shows_its_cause() -> None:
    session = judged(1.0, 2.0)

    assert engine_checks.check_repeats(session, [RUN], 0.0).cause == "not repeatable"
    assert engine_checks.check_rewrites(session, [RUN], 0.0).cause == "fusion"


@pytest.mark.parametrize(
    ("second", "noise", "expected"),
    [
        (1.0, 0, "passed"),
        (1.00001, 0, "passed"),
        (1.0001, 0, "failed"),
        (1.0001, 1e-4, "passed"),
        (math.nan, 1e-4, "failed"),
    ],
)
def test_rewrites_may_change_the_order_of_sums_and_no_more(second: float, noise: float, expected: str) -> None:
    assert engine_checks.check_rewrites(judged(1.0, second), [RUN], noise).status == expected


@pytest.mark.parametrize(("second", "device_kind", "expected"), OUTCOMES)
def test_a_fresh_process_answers_as_the_gate_s_own(second: float, device_kind: str, expected: str) -> None:
    fresh = [engine_checks.FreshAnswer(RUN, answer(value), "") for value in (1.0, second, 1.0)]

    found = engine_checks.check_processes(judged(1.0, 1.0), fresh, bars.repeat_bound(device_kind))

    assert found.status == expected
    assert ("fresh process 2" in found.detail) is (expected == "failed")


def test_a_fresh_process_that_died_is_no_pass_and_its_last_words_are_kept() -> None:
    fresh = [engine_checks.FreshAnswer(RUN, None, "ended with 139")]

    found = engine_checks.check_processes(judged(1.0, 1.0), fresh, 1.0)

    assert found.status == "failed"
    assert "ended with 139" in found.detail


def poisoned(
    plain: float, other: float | None, again: float = 1.0
) -> tuple[engine_checks.Judged, engine_checks.Chosen]:
    """A session that answered a run, answered otherwise with other ids under the mask, and answers `again` now."""
    run = runs.Run(CASE, pad_to=9, poison=LONG)
    answers = {run.unpoisoned: answer(plain)} | ({} if other is None else {run: answer(other)})
    session = dataclasses.replace(judged(plain, again), answers=answers)
    return session, engine_checks.Chosen((), (), (run,), frozenset())


@pytest.mark.parametrize(("other", "device_kind", "expected"), [*OUTCOMES, (None, "cpu", "failed")])
def test_ids_under_the_mask_change_nothing(other: float | None, device_kind: str, expected: str) -> None:
    (found,) = engine_checks.check_poison(*poisoned(1.0, other), bars.repeat_bound(device_kind))

    assert found.status == expected


@pytest.mark.parametrize(("again", "cause"), [(2.0, "padding mask"), (1.0, "not repeatable"), (3.0, "not repeatable")])
def test_padding_is_blamed_only_where_the_run_repeats(again: float, cause: str) -> None:
    (found,) = engine_checks.check_poison(*poisoned(1.0, 2.0, again), 0.0)

    assert (found.status, found.cause) == ("failed", cause)


def test_a_graph_that_is_never_padded_is_not_under_the_law() -> None:
    session, chosen = poisoned(1.0, 1.0)

    assert engine_checks.check_poison(session, dataclasses.replace(chosen, poisoned=()), 0.0) == []


def test_poison_lies_only_under_the_mask() -> None:
    run = runs.Run(CASE, (LONG,), pad_to=7, row=1, poison=LONG)

    laid = run.inputs(Session(0.0).graph, pad_id=0)

    seen = laid["attention_mask"] != 0
    assert seen.sum(axis=1).tolist() == [5, 3]
    assert laid["input_ids"][1, :3].tolist() == list(CASE.ids)
    assert set(laid["input_ids"][~seen].tolist()) <= set(LONG.ids)
    assert (laid["input_ids"][~seen] != 0).all()


class Racing(Session):
    """A session whose threads meet in another order at one of its runs."""

    def __init__(self, at: int, threads: int = 1) -> None:
        super().__init__(1.0)
        self.facts.options["threads"] = str(threads)
        self.at = at
        self.runs = 0

    def run(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        self.runs += 1
        return {"logits": np.full((len(inputs["input_ids"]), 2), NEXT if self.runs == self.at else 1.0, np.float32)}


def status_of(session: Racing) -> str:
    asked = engine_checks.Judged(session, lambda options: session, {RUN: answer(1.0)}, 0, contextlib.nullcontext)
    return engine_checks.check_repeats(asked, [RUN], 0.0).status


def test_a_short_run_is_made_again_often() -> None:
    session = Racing(at=repeats.SHORT_REPEATS)

    assert status_of(session) == "failed"
    assert session.runs == repeats.SHORT_REPEATS


def test_where_threads_can_race_a_short_run_is_made_again_for_some_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "RACING_SECONDS", 0.2)

    assert status_of(Racing(at=repeats.SHORT_REPEATS + 1, threads=1)) == "passed"
    assert status_of(Racing(at=repeats.SHORT_REPEATS + 1, threads=2)) == "failed"


@pytest.mark.parametrize(("threads", "device", "expected"), [(1, "cpu", False), (2, "cpu", True), (1, "cuda:0", True)])
def test_threads_race_where_there_are_several(threads: int, device: str, expected: bool) -> None:
    assert repeats.can_race(threads, device) is expected


def test_the_time_of_a_graph_is_shared_by_its_short_runs_and_long_ones_are_made_again_once() -> None:
    long = runs.Run(cases.Case("p9", tuple(range(65)), "c", 0, ()))
    other = runs.Run(LONG)

    found = repeats.list_repeats([RUN, other, long], Session(1.0).graph, can_race=True)

    half = repeats.Repeats(repeats.SHORT_REPEATS, repeats.RACING_SECONDS / 2)
    assert found == [(RUN, half), (other, half), (long, repeats.Repeats(1, 0.0))]
    assert half.expected_s(1e-6) == repeats.RACING_SECONDS / 2
    assert half.expected_s(1.0) == repeats.SHORT_REPEATS


def test_a_run_in_doubt_is_made_again_for_as_long_whatever_its_length() -> None:
    long = runs.Run(cases.Case("p9", tuple(range(65)), "c", 0, ()))
    graph = Session(1.0).graph

    assert repeats.how_often(RUN, graph, can_race=True).seconds == repeats.RACING_SECONDS
    assert repeats.how_often(long, graph, can_race=True) == repeats.Repeats(2, repeats.RACING_SECONDS)
    assert repeats.how_often(long, graph, can_race=False) == repeats.Repeats(2, 0.0)
