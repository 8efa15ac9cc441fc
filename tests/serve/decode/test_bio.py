"""Token labels to spans, rule by rule."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vela.serve.answers import Span
from vela.serve.decode import bio

LABELS = ("O", "B-A", "I-A", "B-B", "I-B")


def rows(*tags: str, top: float = 0.8) -> np.ndarray:
    """Give (N, 5) probabilities whose winners are the tags."""
    probabilities = np.full((len(tags), len(LABELS)), (1 - top) / (len(LABELS) - 1))
    for place, tag in enumerate(tags):
        probabilities[place, LABELS.index(tag)] = top
    return probabilities


def spans(text: str, *tags: str) -> list[tuple[str, int, int]]:
    offsets = tuple((place, place + 1) for place in range(len(text)))
    return [(span.label, span.start, span.end) for span in bio.decode_spans(text, offsets, rows(*tags), LABELS)]


def test_b_opens_and_i_continues() -> None:
    assert spans("abcd", "O", "B-A", "I-A", "O") == [("A", 1, 3)]


def test_b_right_after_a_span_opens_another() -> None:
    assert spans("abc", "B-A", "B-A", "I-A") == [("A", 0, 1), ("A", 1, 3)]


def test_an_orphan_i_opens_a_span() -> None:
    assert spans("abc", "O", "I-A", "I-A") == [("A", 1, 3)]


def test_an_i_of_another_kind_closes_and_opens() -> None:
    assert spans("abcd", "B-A", "I-B", "I-B", "I-A") == [("A", 0, 1), ("B", 1, 3), ("A", 3, 4)]


def test_o_closes() -> None:
    assert spans("abc", "B-A", "O", "I-A") == [("A", 0, 1), ("A", 2, 3)]


def test_a_span_is_open_until_the_text_ends() -> None:
    assert spans("ab", "O", "B-B") == [("B", 1, 2)]


def test_the_first_label_wins_a_tie() -> None:
    tied = np.array([[0.1, 0.4, 0.4, 0.05, 0.05]])

    assert bio.decode_spans("a", ((0, 1),), tied, LABELS)[0].label == "A"


def test_a_spans_probability_is_the_mean_of_its_tokens_winners() -> None:
    probabilities = np.vstack([rows("B-A", top=0.9), rows("I-A", top=0.6), rows("I-A", top=0.75)])

    found = bio.decode_spans("abc", ((0, 1), (1, 2), (2, 3)), probabilities, LABELS)

    assert found[0].probability == pytest.approx(0.75, rel=1e-15)


def test_white_space_at_the_edges_is_trimmed() -> None:
    found = bio.decode_spans("x \u3000ab\n", ((0, 1), (1, 6)), rows("O", "B-A"), LABELS)

    assert (found[0].start, found[0].end, found[0].text) == (3, 5, "ab")


@pytest.mark.parametrize("separator", ["\x1c", "\x1d", "\x1e", "\x1f"])
def test_separators_that_only_python_calls_space_are_kept(separator: str) -> None:
    found = bio.decode_spans(f"{separator}a", ((0, 2),), rows("B-A"), LABELS)

    assert separator.isspace()
    assert found[0].text == f"{separator}a"


@pytest.mark.parametrize("space", list(bio.WHITE_SPACE))
def test_everything_with_the_white_space_property_is_trimmed(space: str) -> None:
    assert bio.trim(f"{space}a{space}", 0, 3) == (1, 2)


def test_the_white_space_property_has_25_characters() -> None:
    assert len(set(bio.WHITE_SPACE)) == 25


def test_a_span_without_width_is_dropped() -> None:
    assert bio.decode_spans("ab", ((1, 1),), rows("B-A"), LABELS) == []


def test_a_span_of_white_space_alone_stays() -> None:
    assert bio.trim("a  b", 1, 3) == (1, 3)


@given(text=st.text(min_size=1, max_size=30), seed=st.integers(0, 2**32 - 1))
def test_a_spans_text_is_the_slice_and_spans_are_in_order(text: str, seed: int) -> None:
    winners = np.random.default_rng(seed).integers(0, len(LABELS), len(text))
    offsets = tuple((place, place + 1) for place in range(len(text)))

    found = bio.decode_spans(text, offsets, rows(*(LABELS[winner] for winner in winners)), LABELS)

    assert all(span.text == text[span.start : span.end] and span.end > span.start for span in found)
    assert all(earlier.end <= later.start for earlier, later in itertools.pairwise(found))


def test_no_tokens_give_no_spans() -> None:
    assert bio.decode_spans("", (), np.empty((0, 5)), LABELS) == list[Span]()
