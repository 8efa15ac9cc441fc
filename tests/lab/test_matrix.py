"""The matrix on rows made by hand: what is let through, and which check is needed by what."""

from lab import matrix
from lab.judging import Outcome
from lab.trial import Row

CHECKS = ("bytes", "numbers", "laws")


def row(fault: str, **statuses: str) -> Row:
    found = {check: statuses.get(check, "passed") for check in CHECKS}
    verdict = "failed" if "failed" in found.values() else "not_compared" if "not_run" in found.values() else "passed"
    return Row(fault, "weights", "here", "drawn", is_planted=True, outcome=Outcome(verdict, found, "because"))


def test_a_check_is_needed_where_it_alone_fails():
    rows = [row("one", bytes="failed"), row("two", bytes="failed", numbers="failed")]

    needed = {one.check: one.alone for one in matrix.necessities(rows)}

    assert needed == {"bytes": ("one [here]",), "numbers": (), "laws": ()}


def test_a_fault_that_would_have_been_left_not_compared_is_kept_apart():
    (found,) = [one for one in matrix.necessities([row("one", bytes="failed", laws="not_run")]) if one.failed]

    assert (found.alone, found.last) == ((), ("one [here]",))


def test_what_passes_is_listed_with_what_was_drawn():
    rows = [row("caught", numbers="failed"), row("missed")]

    assert matrix.summary(rows)["let_through"] == ["missed [here]: drawn"]
    assert matrix.summary(rows)["caught"] == 1


def test_a_fault_without_a_place_counts_as_nothing():
    rows = [row("one", laws="failed"), Row("two", "weights", "here", "no window", is_planted=False, outcome=None)]

    found = matrix.as_json(rows)

    assert (found["summary"]["faults"], found["summary"]["without_a_place"]) == (1, 1)
    assert [entry["fault"] for entry in found["rows"]] == ["one"]


def test_cells_stand_in_the_order_of_checks():
    rows = [row("one", bytes="failed", laws="not_run")]

    assert matrix.as_json(rows)["rows"][0]["cells"] == "X.-"
    assert "X.-" in matrix.as_lines(rows)[-1]


def test_checks_that_a_later_row_adds_keep_their_neighbours():
    early = Row("one", "weights", "here", "", True, Outcome("failed", {"bytes": "failed", "laws": "passed"}, ""))

    assert matrix.checks_of([early, row("two")]) == ["bytes", "numbers", "laws"]
