"""A graph whose every other explanation is ruled out computes something else, and nothing less says so."""

from types import SimpleNamespace

import msgspec
import pytest

from vela.graphs import mutation, record
from vela.serve import device as devices
from vela.verify import answering, differential, explaining, ground, recording

UNKNOWN = mutation.Diagnosis(None, "cause unknown: nothing is near", (), 3, (), (differential.UNOPTIMISED,))
IDENTITY = record.Check("weights.identity", "passed", "134 tensors found by content", 0.0)
PARITY = record.Check("parity.strict", "failed", "apart", 0.0)


def eliminate(found=UNKNOWN, static=(IDENTITY,), answered=(), device="cpu") -> mutation.Diagnosis | None:
    outcome = recording.Outcome(answering.Answered(tuple(answered), (), None), ground.Ground.nothing(), diagnosis=found)
    asked = SimpleNamespace(device=devices.Device(device))
    return explaining.eliminate(outcome, asked, static).diagnosis


def test_what_is_left_is_another_computation() -> None:
    found = eliminate()

    assert found.cause == "other computation"
    assert found.statement.startswith("other computation: every tensor is the checkpoint's")
    assert found.statement.endswith("nothing is near")


@pytest.mark.parametrize("status", ["failed", "not_run"])
def test_nothing_is_left_over_where_the_weights_were_not_identified(status) -> None:
    assert eliminate(static=(msgspec.structs.replace(IDENTITY, status=status),)).cause is None
    assert eliminate(static=()).cause is None


def test_a_cause_that_a_check_knows_is_not_overruled() -> None:
    cast = record.Check("graph.types", "failed", "a cast to float16", 0.0)
    race = record.Check("engine.repeatable", "failed", "differs", 0.0, "not repeatable")

    assert eliminate(static=(IDENTITY, cast)).cause is None
    assert eliminate(answered=(race,)).cause is None


def test_a_cause_that_a_mutant_named_stays() -> None:
    named = msgspec.structs.replace(UNKNOWN, cause="window")

    assert eliminate(named) is named
    assert eliminate(None) is None


def test_the_engine_must_have_been_ruled_out() -> None:
    untried = msgspec.structs.replace(UNKNOWN, ways=())
    both = msgspec.structs.replace(UNKNOWN, ways=(differential.UNOPTIMISED, differential.ON_CPU))

    assert eliminate(untried).cause is None
    assert eliminate(device="cuda").cause is None
    assert eliminate(both, device="cuda").cause == "other computation"
