"""Which mutant a failed graph is: named where one reproduces it and no other comes near, else unknown."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from vela.graphs import contract, manifest
from vela.verify import cases, diagnosis, mutants, reference, runs

NOISE = 1e-6
LOGITS = np.array([0.5, -0.5])
CASES = tuple(cases.Case(f"c{tokens}", tuple(range(tokens)), "text", 1, ()) for tokens in (8, 32, 48))


def graph(sequence: int | None = None) -> manifest.Graph:
    tokens: int | str = sequence or contract.SEQUENCE
    inputs = (contract.TensorSpec("input_ids", "int64", (1, tokens)),)
    outputs = (contract.TensorSpec("logits", "float32", (1, 2)),)
    return manifest.Graph(
        "g", "g.onnx", "0" * 64, 1, "ort", "fp32", "reference", 18, "default", 2, inputs, outputs, {}, ()
    )


@dataclass(frozen=True)
class Shifted:
    """A mutant whose logits are off by so much on inputs of more than some tokens."""

    facts: mutants.Facts
    by: float
    beyond: int = 0

    def answer(self, rows: Sequence[tuple[int, ...]], *, pads: int = 0) -> list[reference.Answer]:
        return [{"logits": LOGITS + self.by * (len(row) > self.beyond) * np.array([1.0, -1.0])} for row in rows]


EXPECTED = {made.id: {"logits": LOGITS} for made in CASES}
LEFT = Shifted(mutants.Facts("a half-window of 15", "window"), 0.3, beyond=20)
LABELS = Shifted(mutants.Facts("labels swapped", "label order"), -0.7)
EQUAL = Shifted(mutants.Facts("theta 10,000", "local theta", equal_because="config.json states it"), 0.0)


def diagnose(shift, made=(LEFT, LABELS, EQUAL), sequence=None):
    """Diagnose a graph whose logits are off by `shift` of a case's length."""
    asked = {runs.Run(each): each for each in CASES}
    answers = {run: {"logits": np.float32(LOGITS + shift(each.tokens))} for run, each in asked.items()}
    measured = tuple(
        mutants.Measured(
            mutant.facts,
            {} if mutant.facts.equal_because else {each.id: mutant.answer([each.ids])[0] for each in CASES},
        )
        for mutant in made
    )
    found = mutants.Mutants(mutants.Pool(CASES, 35), measured, tuple(made))
    symptoms = diagnosis.Symptoms(graph(sequence), answers)
    return diagnosis.diagnose(found, symptoms, EXPECTED, NOISE)


def test_the_mutant_that_reproduces_a_graph_is_named_with_its_margin() -> None:
    found = diagnose(lambda tokens: 0.3 * (tokens > 20) * np.array([1.0, -1.0]))

    assert found.cause == "window"
    assert "a half-window of 15" in found.statement
    assert "runner-up" in found.statement
    assert [one.cause for one in found.hypotheses] == ["window", None, "label order"]
    assert found.hypotheses[0].distance < 1e-6


def test_a_rest_on_top_of_a_fault_still_names_it() -> None:
    found = diagnose(lambda tokens: 0.3 * (tokens > 20) * np.array([1.0, -1.0]) + 2e-3)

    assert found.cause == "window"


@pytest.mark.parametrize("shift", [0.15, -0.3, 3.0])
def test_what_no_mutant_reproduces_is_unknown_and_says_what_was_ruled_out(shift) -> None:
    found = diagnose(lambda tokens: shift * np.array([1.0, 1.0]))

    assert found.cause is None
    assert found.statement.startswith("cause unknown")
    assert "window, label order" in found.statement or "label order, window" in found.statement


@pytest.mark.parametrize(("cause", "named"), [("local theta", None), ("window", "window")])
def test_mutants_of_two_causes_that_reproduce_it_alike_name_neither_and_those_of_one_do(cause, named) -> None:
    twin = Shifted(mutants.Facts("a twin", cause), 0.3, beyond=20)

    found = diagnose(lambda tokens: 0.3 * (tokens > 20) * np.array([1.0, -1.0]), (LEFT, twin, LABELS))

    assert found.cause == named
    assert ("reproduce it alike" in found.statement) is (named is None)


def test_a_mutant_of_padding_is_asked_with_just_the_pads_of_each_run() -> None:
    class Padded(Shifted):
        def answer(self, rows, *, pads=0):
            return [{"logits": LOGITS + 0.01 * pads * np.array([1.0, -1.0])} for _ in rows]

    facts = mutants.Facts("the padding mask ignored", "padding mask", needs_pads=True)

    found = diagnose(lambda tokens: 0.01 * (64 - tokens) * np.array([1.0, -1.0]), (LEFT, Padded(facts, 0.0)), 64)

    assert found.cause == "padding mask"


def test_answers_that_are_not_finite_tell_nothing() -> None:
    assert diagnose(lambda tokens: np.array([np.nan, 0.0])) is None


def suspected(shift, made):
    """Hold a graph whose logits are off by `shift` of a case's length against suspects."""
    answers = {runs.Run(each): {"logits": np.float32(LOGITS + shift(each.tokens))} for each in CASES}
    return diagnosis.suspect(made, diagnosis.Symptoms(graph(), answers), EXPECTED, NOISE, lambda _: None)


def test_suspects_are_asked_only_about_runs_that_differ() -> None:
    found = suspected(lambda tokens: 0.3 * (tokens > 20) * np.array([1.0, -1.0]), (LEFT, LABELS))

    assert (found.cause, found.runs) == ("window", 2)
    assert found.hypotheses[0].statement == "a half-window of 15"


def test_a_suspect_that_does_not_reproduce_the_graph_names_nothing() -> None:
    assert suspected(lambda tokens: np.array([0.1, 0.1]), (LEFT, LABELS)).cause is None


def test_without_suspects_or_runs_that_differ_nothing_is_told() -> None:
    assert suspected(lambda tokens: np.array([0.1, 0.1]), ()) is None
    assert suspected(lambda tokens: np.zeros(2), (LEFT,)) is None


def test_long_runs_are_asked_about_only_where_no_short_one_differs() -> None:
    tokens = diagnosis.SUSPECTED_TOKENS + 1
    made = [
        cases.Case(f"d{count}", tuple(range(count)), "text", 1, ()) for count in (8, tokens, tokens + 1, tokens + 2)
    ]
    expected = {case.id: {"logits": LOGITS} for case in made}

    def chosen(least: int) -> list[int]:
        answers = {runs.Run(case): {"logits": np.float32(LOGITS + (case.tokens >= least))} for case in made}
        found = diagnosis.Symptoms(graph(), answers).choose_differing(expected, 1e-3)
        return [run.case.tokens for run in found]

    assert chosen(least=8) == [8]
    assert chosen(least=tokens) == [tokens, tokens + 1]


def test_what_a_suspect_names_is_told_with_all_hypotheses() -> None:
    first = diagnose(lambda tokens: 0.3 * np.array([1.0, 0.9]))
    exact = Shifted(mutants.Facts("tanh GELU in layer 3", "activation"), 0.3)
    closer = suspected(lambda tokens: 0.3 * np.array([1.0, -1.0]), (exact,))

    joined = diagnosis.join(first, closer)

    assert (joined.cause, joined.statement) == ("activation", closer.statement)
    assert {one.statement for one in joined.hypotheses} >= {"tanh GELU in layer 3", "a half-window of 15"}
    assert [one.distance for one in joined.hypotheses] == sorted(one.distance for one in joined.hypotheses)
    assert diagnosis.join(first, None) is first


def test_a_suspect_beside_which_a_mutant_of_another_cause_comes_as_near_names_nothing() -> None:
    twin = Shifted(mutants.Facts("a twin", "local theta"), 0.3, beyond=20)
    shift = lambda tokens: 0.3 * (tokens > 20) * np.array([1.0, -1.0])  # noqa: E731
    first = diagnose(shift, (LEFT, twin, LABELS))
    exact = Shifted(mutants.Facts("tanh GELU in layer 3", "activation"), 0.3, beyond=20)

    joined = diagnosis.join(first, suspected(shift, (exact,)))

    assert first.cause is None
    assert joined.cause is None
