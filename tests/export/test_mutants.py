"""Mutants of the samples: each differs as its statement says, and leaves the reference as it was."""

import numpy as np
import pytest

from vela.export import mutants, verification
from vela.verify import checkpoint, ground, rows
from vela.verify import mutants as measuring

SAMPLES = ("tiny-intent", "tiny-pii", "tiny-embedding", "tiny-reranker")
CAUSES = {"global theta", "local theta", "window", "padding mask", "activation", "norm epsilon", "precision"}


class Made:
    """A sample's reference, its mutants and some inputs."""

    def __init__(self, folder) -> None:
        self.source = checkpoint.Checkpoint.read(folder)
        self.references = verification.make_references(self.source)
        made = ground.make_cases(self.source, rows.read_corpus(None), 160)
        self.ids = [case.ids for case in made if case.tokens > 2][:: max(1, len(made) // 12)]

    def effect(self, mutant, pads=35):
        wanted = self.references.exact.answer(self.ids)
        return max(
            float(np.abs(answer[name] - other[name]).max())
            for answer, other in zip(mutant.answer(self.ids, pads=pads), wanted, strict=True)
            for name in other
        )


@pytest.fixture(scope="module", params=SAMPLES)
def made(request, checkpoints) -> Made:
    return Made(checkpoints[request.param])


def test_every_mutant_differs_by_more_than_noise_unless_config_makes_it_equal(made) -> None:
    for mutant in made.references.mutants:
        effect = made.effect(mutant)
        assert bool(mutant.facts.equal_because) == (effect < 2e-5), (mutant.facts.statement, effect)


def test_every_kind_of_mistake_that_the_model_can_have_is_made(made) -> None:
    assert {mutant.facts.cause for mutant in made.references.mutants} >= CAUSES


def test_a_mutant_leaves_the_reference_as_it_was_even_where_it_fails(made) -> None:
    before = made.references.exact.answer(made.ids)

    for mutant in made.references.mutants:
        mutant.answer(made.ids[:1], pads=5)
        with pytest.raises((IndexError, RuntimeError)):
            mutant.answer([(10**6,)])

    for answer, other in zip(made.references.exact.answer(made.ids), before, strict=True):
        assert all(np.array_equal(answer[name], other[name]) for name in other)


def test_a_window_shows_from_the_first_distance_beyond_it_on(checkpoints) -> None:
    sample = Made(checkpoints["tiny-intent"])
    half = sample.source.architecture.half_window
    narrower = next(one for one in sample.references.mutants if f"half-window of {half - 1}" in one.facts.statement)
    row = max(sample.ids, key=len)

    def effect(tokens):
        (answer,), (wanted,) = narrower.answer([row[:tokens]]), sample.references.exact.answer([row[:tokens]])
        return float(np.abs(answer["logits"] - wanted["logits"]).max())

    assert effect(half) == 0.0  # the furthest key is half - 1 away
    assert effect(half + 1) > 1e-4


def test_a_mask_that_is_ignored_changes_nothing_without_pads(made) -> None:
    of_padding = [one for one in made.references.mutants if one.facts.needs_pads]

    assert of_padding
    for mutant in of_padding:
        assert made.effect(mutant, pads=0) < 2e-5
        assert made.effect(mutant, pads=35) > 1e-3


def test_rows_whose_padding_is_hidden_answer_like_rows_without(made) -> None:
    padded = [(*ids, *(0,) * 35) for ids in made.ids]

    with made.references.exact.unseen(35):
        answers = made.references.exact.answer(padded)

    for ids, answer, wanted in zip(made.ids, answers, made.references.exact.answer(made.ids), strict=True):
        for name, values in answer.items():
            own = values[: len(ids)] if values.ndim == 2 else values
            assert np.abs(own - wanted[name]).max() < 2e-5


def test_mutants_that_would_answer_alike_are_made_once(made) -> None:
    asked = [one for one in made.references.mutants if not one.facts.equal_because]
    answers = [np.concatenate([v.ravel() for a in one.answer(made.ids, pads=9) for v in a.values()]) for one in asked]

    for place, answer in enumerate(answers):
        assert all(np.abs(answer - other).max() > 1e-6 for other in answers[:place])


def test_their_seconds_count_only_those_that_are_asked(made) -> None:
    pool = measuring.Pool((), 0)

    assert measuring.seconds_of(made.references.mutants, pool, lambda case: 1.0) == 0.0
    assert isinstance(made.references.mutants[0], mutants.PyTorchMutant)
