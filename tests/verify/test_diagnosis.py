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


def test_two_mutants_that_reproduce_it_alike_name_neither() -> None:
    twin = Shifted(mutants.Facts("no window", "window"), 0.3, beyond=20)

    found = diagnose(lambda tokens: 0.3 * (tokens > 20) * np.array([1.0, -1.0]), (LEFT, twin, LABELS))

    assert found.cause is None
    assert "reproduce it alike" in found.statement


def test_a_mutant_of_padding_is_asked_with_just_the_pads_of_each_run() -> None:
    class Padded(Shifted):
        def answer(self, rows, *, pads=0):
            return [{"logits": LOGITS + 0.01 * pads * np.array([1.0, -1.0])} for _ in rows]

    facts = mutants.Facts("the padding mask ignored", "padding mask", needs_pads=True)

    found = diagnose(lambda tokens: 0.01 * (64 - tokens) * np.array([1.0, -1.0]), (LEFT, Padded(facts, 0.0)), 64)

    assert found.cause == "padding mask"


def test_answers_that_are_not_finite_tell_nothing() -> None:
    assert diagnose(lambda tokens: np.array([np.nan, 0.0])) is None
