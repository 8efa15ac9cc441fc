"""What is wrong in one word, and the sentence that tells most."""

import pytest

from vela.graphs import errors, mutation, record
from vela.verify import naming, static_checks


def check(name: str, status: record.CheckStatus = "failed", **more) -> record.Check:
    return record.Check(name, status, f"{name} says so", 0.0, **more)


def diagnosis(cause) -> mutation.Diagnosis:
    return mutation.Diagnosis(cause, "the diagnosis says so", (), 3)


PARITY = check("parity.strict")
WEIGHTS = check("weights.identity", cause="other weights")


def test_a_passed_check_names_nothing() -> None:
    assert naming.name([check("graph.lint", "passed")]) is None
    assert naming.say([check("graph.lint", "passed")]) == ""


def test_a_check_that_did_not_run_names_nothing_but_is_said() -> None:
    assert naming.name([check("graph.lint", "not_run")]) is None
    assert naming.say([check("graph.lint", "not_run")]) == "graph.lint: graph.lint says so"


def test_numbers_that_differ_name_nothing_by_themselves() -> None:
    assert naming.name([PARITY]) is None
    assert naming.name([PARITY], diagnosis(None)) is None


def test_what_a_mutant_reproduces_goes_before_what_a_check_saw() -> None:
    assert naming.name([WEIGHTS, PARITY], diagnosis("label order")) == "label order"
    assert naming.name([WEIGHTS, PARITY], diagnosis(None)) == "other weights"


def test_another_model_explains_what_else_failed() -> None:
    found = [check("graph.digest"), check("manifest.facts"), check("sources.identity", cause="tokenizer"), WEIGHTS]

    assert naming.name(found) == "other weights"
    assert naming.say(found) == "weights.identity: weights.identity says so"


def test_of_two_checks_that_saw_one_cause_the_more_telling_is_said() -> None:
    found = [check("sources.identity", cause="other weights"), WEIGHTS]

    assert naming.say(found) == "weights.identity: weights.identity says so"


def test_what_does_not_repeat_explains_what_padding_seems_to_change() -> None:
    found = [check("laws.poison", cause="padding mask"), check("engine.repeatable", cause="not repeatable")]

    assert naming.name(found) == "not repeatable"


def test_a_failure_is_said_before_what_did_not_run() -> None:
    assert naming.say([check("engine.placement", "not_run"), PARITY]).startswith("parity.strict")


def test_numbers_are_said_after_what_they_are_nearest_to() -> None:
    assert naming.say([PARITY], diagnosis("window")) == "the diagnosis says so (parity.strict: parity.strict says so)"
    assert naming.say([WEIGHTS], diagnosis(None)).endswith("; the diagnosis says so")


def test_the_cause_that_is_named_is_said_first_unless_a_check_saw_it_itself() -> None:
    files = check("sources.identity", cause="config altered")

    assert naming.say([files, PARITY], diagnosis("local theta")).startswith("the diagnosis says so (sources.identity: ")
    assert naming.say([WEIGHTS], diagnosis("other weights")).startswith("weights.identity: ")


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        (errors.PlacementMismatch, "engine fell back"),
        (errors.CompileCacheInvalid, "compile cache stale"),
        (errors.EngineError, "engine refuses"),
    ],
)
def test_an_error_that_can_have_one_cause_names_it(kind, cause) -> None:
    def fail() -> str:
        raise kind("a", expected="b", where="c", fix="d")

    assert naming.cause_of(static_checks.run_check("engine.placement", fail)) == cause


def test_every_word_has_a_place_among_those_that_explain_each_other() -> None:
    assert {*naming.SEEN_BY.values()} <= {*naming.EXPLAINING}
    assert len(naming.EXPLAINING) == len({*naming.EXPLAINING})
