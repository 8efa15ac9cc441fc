import numpy as np
import pytest

from vela.graphs import errors, heads
from vela.verify import cases, compare

SEQUENCE = heads.Head("default", "text", heads.SequenceDecoder(("no", "yes")), 64, "reject")
CASE = cases.Case("c1", (2, 7, 8, 1), "ab", 1, ((0, 1), (1, 2)))


def head_of(decoder: heads.Decoder) -> heads.Head:
    return heads.Head("default", "text", decoder, 64, "reject")


def compare_logits(head: heads.Head, actual: list, expected: list) -> compare.Difference:
    return compare.compare_answers(
        head, CASE, {"logits": np.array(actual, np.float32)}, {"logits": np.array(expected, np.float64)}, "none"
    )


def test_equal_logits_differ_by_nothing_and_agree():
    found = compare_logits(SEQUENCE, [1.0, 2.0], [1.0, 2.0])

    assert found.probability.tolist() == [0.0, 0.0]
    assert found.logit.tolist() == [0.0, 0.0]
    assert found.agrees
    assert found.margin == float("inf")


def test_two_class_probabilities_match_the_hand_computed_softmax():
    # softmax(0, ln 3) = (1/4, 3/4); softmax(0, 0) = (1/2, 1/2): each differs by 1/4, the second logit by ln 3
    found = compare_logits(SEQUENCE, [0.0, np.log(3.0)], [0.0, 0.0])

    assert found.probability == pytest.approx([0.25, 0.25], abs=1e-7)
    assert found.logit == pytest.approx([0.0, np.log(3.0)], abs=1e-6)


def test_a_flip_carries_the_margin_of_the_reference():
    found = compare_logits(SEQUENCE, [0.0, 1.0], [np.log(3.0), 0.0])

    assert not found.agrees
    assert (found.actual, found.expected) == ("yes", "no")
    assert found.margin == pytest.approx(0.5)  # 3/4 - 1/4


def test_huge_logits_do_not_overflow():
    found = compare_logits(SEQUENCE, [-90.0, 0.0], [-90.0, 0.0])

    assert np.isfinite(found.probability).all()


def test_multi_label_heads_use_sigmoid_and_thresholds():
    point = heads.OperatingPoint("score >= threshold", (0.5, 0.5), "0" * 64)
    head = head_of(heads.ScoresDecoder(("a", "b"), point))

    found = compare_logits(head, [0.0, 1.0], [-0.1, 1.0])

    # sigmoid(0) = 0.5 is selected by >=, sigmoid(-0.1) = 0.47502 is not
    assert not found.agrees
    assert (found.actual, found.expected) == ("a, b", "b")
    assert found.margin == pytest.approx(0.5 - 1 / (1 + np.exp(0.1)))
    assert found.probability[0] == pytest.approx(0.5 - 1 / (1 + np.exp(0.1)))


def test_the_same_score_is_not_selected_by_a_strict_comparison():
    point = heads.OperatingPoint("score > threshold", (0.5,), "0" * 64)
    head = head_of(heads.ScoresDecoder(("a",), point))

    assert compare_logits(head, [0.0], [-0.1]).agrees


def test_span_sets_are_compared_and_the_least_certain_token_does_not_hide_a_certain_one():
    head = head_of(heads.BioDecoder(("O", "B-X", "I-X")))
    certain = [[0, 9, 0], [9, 0, 0], [9, 0, 0], [9, 0, 0]]  # specials around: content is tokens 1 and 2
    spanned = [[0, 9, 0], [0, 9, 0], [0.01, 0, 0], [9, 0, 0]]

    found = compare_logits(head, spanned, certain)

    assert found.actual == "X 0 1"
    assert found.expected == "nothing"
    assert found.margin > 0.99


def test_span_probabilities_are_compared_on_every_token_also_where_sets_agree():
    head = head_of(heads.BioDecoder(("O", "B-X", "I-X")))

    found = compare_logits(head, [[9, 0, 0]] * 4, [[9, 0, 0]] * 3 + [[9, 1, 0]])

    assert found.agrees
    assert found.probability.max() > 1e-4


def test_embeddings_are_compared_as_unit_vectors_of_every_dimension():
    head = head_of(heads.EmbeddingDecoder((4,), (2, 1)))

    found = compare.compare_answers(
        head, CASE, {"embedding_l4": np.array([3.0, 4.0], np.float32)}, {"embedding_l4": np.array([4.0, 3.0])}, "none"
    )

    assert found.cosine == pytest.approx(0.96)
    assert found.probability == pytest.approx([0.2, 0.2, 0.0])  # (0.6, 0.8) vs (0.8, 0.6), then 1 vs 1
    assert found.logit == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("side", ["actual", "expected"])
def test_a_number_that_is_not_finite_is_refused_on_either_side(value, side):
    pair = {"actual": [0.0, 1.0], "expected": [0.0, 1.0]}
    pair[side] = [0.0, value]

    with pytest.raises(errors.NotFinite, match=r"\(1,\)"):
        compare_logits(SEQUENCE, pair["actual"], pair["expected"])


def test_another_shape_is_refused_before_any_number_is_compared():
    with pytest.raises(errors.ShapeMismatch):
        compare_logits(SEQUENCE, [[0.0, 1.0]], [0.0, 1.0])


def test_another_output_name_is_refused():
    with pytest.raises(errors.ShapeMismatch):
        compare.compare_answers(SEQUENCE, CASE, {"scores": np.zeros(2)}, {"logits": np.zeros(2)}, "none")


def test_a_pair_s_logits_are_compared_with_their_sigmoid_and_decide_nothing_alone():
    head = head_of(heads.RerankDecoder((4,), (2, 1)))
    actual = {"score_l4_d2": np.float32(np.log(3.0)), "score_l4_d1": np.float32(1.0)}
    expected = {"score_l2_d2": np.array(7.0), "score_l4_d2": np.array(0.0), "score_l4_d1": np.array(1.0)}

    found = compare.compare_answers(head, CASE, actual, expected, "none")

    assert found.probability == pytest.approx([0.25, 0.0], abs=1e-7)  # sigmoid(ln 3) = 3/4, sigmoid(0) = 1/2
    assert found.logit == pytest.approx([np.log(3.0), 0.0], abs=1e-6)
    assert (found.agrees, found.margin) == (True, float("inf"))
    assert [(score.output, score.expected) for score in found.scores] == [("score_l4_d2", 0.0), ("score_l4_d1", 1.0)]


def test_one_score_of_several_that_is_not_finite_is_refused():
    head = head_of(heads.RerankDecoder((4,), (2, 1)))
    expected = {"score_l4_d2": np.array(0.0), "score_l4_d1": np.array(1.0)}

    with pytest.raises(errors.NotFinite, match="score_l4_d1"):
        compare.compare_answers(head, CASE, expected | {"score_l4_d1": np.float32("nan")}, expected, "none")


@pytest.mark.parametrize("side", ["actual", "expected"])
def test_an_embedding_of_length_zero_is_refused_on_either_side(side):
    head = head_of(heads.EmbeddingDecoder((4,), (2, 1)))
    pair = {"actual": np.array([3.0, 4.0]), "expected": np.array([3.0, 4.0])}
    pair[side] = np.array([0.0, 4.0])  # whole, it has a direction; cut to one dimension, it has none

    with pytest.raises(errors.NotFinite, match="length 0"):
        compare.compare_answers(
            head, CASE, {"embedding_l4": pair["actual"]}, {"embedding_l4": pair["expected"]}, "none"
        )
