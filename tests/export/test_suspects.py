"""Suspects: a mistake in one place of the checkpoint, made where a failed graph differs, and taken back."""

import numpy as np
import pytest

from vela.export import verification
from vela.verify import checkpoint

ROW = tuple(range(5, 53))
OTHER = {"tiny-intent": (2, 5), "tiny-pii": (2, 5), "tiny-embedding": (2, 5), "tiny-reranker": (1, 2)}


class Sample:
    """A sample's reference, and what its suspects do to an answer."""

    def __init__(self, folder) -> None:
        self.references = verification.make_references(checkpoint.Checkpoint.read(folder))

    def suspects(self, layers):
        return {mutant.facts.statement: mutant for mutant in self.references.suspects(layers, 6)}

    def effect(self, mutant) -> float:
        (wanted,), (found,) = self.references.exact.answer([ROW]), mutant.answer([ROW])
        return max(float(np.abs(found[name] - wanted[name]).max()) for name in wanted)


@pytest.fixture(scope="module", params=OTHER)
def sample(request, checkpoints) -> Sample:
    found = Sample(checkpoints[request.param])
    found.layers = OTHER[request.param]
    return found


@pytest.mark.parametrize("which", ["first", "both", "none"])
def test_every_suspect_differs_and_leaves_the_reference_as_it_was(sample, which) -> None:
    layers = {"first": sample.layers[:1], "both": sample.layers, "none": ()}[which]
    before = sample.references.exact.answer([ROW])[0]

    effects = {statement: sample.effect(mutant) for statement, mutant in sample.suspects(layers).items()}

    assert effects
    # a rounded bias or norm may move nothing; whatever else is changed moves the answer
    assert not [said for said, effect in effects.items() if effect == 0.0 and " rounded to " not in said]
    after = sample.references.exact.answer([ROW])[0]
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_one_layer_is_suspected_of_all_that_can_be_wrong_in_it(checkpoints) -> None:
    sample = Sample(checkpoints["tiny-intent"])

    found = sample.suspects((2,))

    assert {mutant.facts.cause for mutant in found.values()} == {
        *("activation", "window", "padding mask", "precision", "other computation")
    }
    assert {
        "a half-window of 17 in layer 2",
        "mlp in layer 2 left out",
        "queries and keys in layer 2 exchanged",
    } <= set(found)


def test_a_layer_that_sees_everything_is_suspected_of_a_window(checkpoints) -> None:
    found = Sample(checkpoints["tiny-intent"]).suspects((1,))

    assert "a half-window of 16 in layer 1" in found
    assert "no window in layer 1" not in found


def test_two_layers_are_suspected_of_reading_tensors_for_each_other(checkpoints) -> None:
    sample = Sample(checkpoints["tiny-intent"])

    exchanged = sample.suspects((2, 5))["mlp.Wo.weight of layers 2 and 5 exchanged"]

    assert sample.effect(exchanged) > 1e-3
    assert not any(" and 5 exchanged" in statement for statement in sample.suspects((2, 3, 5)))


def test_where_no_layer_differs_what_follows_them_is_suspected(checkpoints) -> None:
    found = Sample(checkpoints["tiny-guard"]).suspects(())

    assert {"tanh GELU in the head", "pooling of the second token instead of the first"} <= set(found)
    assert "head.dense outside the layers read transposed" in found


def test_a_reranker_may_pool_another_token(checkpoints) -> None:
    sample = Sample(checkpoints["tiny-reranker"])

    assert sample.effect(sample.suspects(())["pooling of the last token instead of the first"]) > 1e-3


def test_a_suspect_that_fails_leaves_the_reference_as_it_was(checkpoints) -> None:
    sample = Sample(checkpoints["tiny-intent"])
    before = sample.references.exact.answer([ROW])[0]

    for mutant in sample.suspects((2, 5)).values():
        with pytest.raises((IndexError, RuntimeError)):
            mutant.answer([(10**6,)])

    assert np.array_equal(sample.references.exact.answer([ROW])[0]["logits"], before["logits"])
