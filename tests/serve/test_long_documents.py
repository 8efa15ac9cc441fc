"""Long documents: a span across each window's edge is found whole, and the last token of 32,768 counts."""

import numpy as np
import pytest

from vela.graphs import bundle as bundles
from vela.graphs import heads
from vela.serve import policy, question
from vela.serve.model import ServedModel

LIMIT = 32_768
O, B, I = 0, 1, 2  # noqa: E741 - what the labels are called
WINDOW = heads.Window(64, 16)  # of which 62 tokens are content
STRIDE = 62 - 16
NAME = "Xyyyyy"


@pytest.fixture(scope="module")
def finder(make_bundle) -> ServedModel:
    """A token model to which X begins a name, y continues one, and nothing else is any."""
    table = np.zeros((259, 3), dtype=np.float32)
    table[:, O] = 9.0
    for letter, label in (("X", B), ("y", I)):
        table[id_of(letter)] = np.eye(3, dtype=np.float32)[label] * 9
    head = heads.Head("default", "text", heads.BioDecoder(("O", "B-NAME", "I-NAME")), LIMIT, "window", WINDOW)
    return ServedModel.open(bundles.Bundle.open(make_bundle("finder", head, table)))


@pytest.fixture(scope="module")
def alarm(make_bundle) -> ServedModel:
    """A multi-label model that scores the share of exclamation marks in a window."""
    table = np.zeros((259, 2), dtype=np.float32)
    table[id_of("!")] = 1e4
    head = heads.Head("default", "text", heads.ScoresDecoder(("a", "b")), LIMIT, "window", heads.Window(2048, 256))
    return ServedModel.open(bundles.Bundle.open(make_bundle("alarm", head, table)))


def id_of(letter: str) -> int:
    """Give a printable letter's id in the byte alphabet, which begins with `!`."""
    return ord(letter) - ord("!")


def one(model: ServedModel, text: str, **options):
    return question.answer(question.classify(model, policy.Options(**options)), [text])[0]


def test_a_span_across_every_edge_is_found_whole(finder: ServedModel) -> None:
    """Windows begin every 46 tokens and end 62 after they begin; names lie across all of these places, by each cut."""
    length = 10 * STRIDE
    edges = sorted({*range(STRIDE, length, STRIDE), *range(62, length, STRIDE)})
    for shift in range(len(NAME) + 1):
        for edge in edges:
            start = edge - shift
            text = f"{'a' * start}{NAME}{'a' * (length - start)}"

            found = one(finder, text)

            assert found.input.windows > 1
            assert [(span.start, span.end, span.text) for span in found.spans] == [(start, start + len(NAME), NAME)]


def test_a_span_longer_than_a_windows_overlap_is_found_whole(finder: ServedModel) -> None:
    text = f"{'a' * 30}X{'y' * 99}{'a' * 30}"

    (span,) = one(finder, text).spans

    assert (span.start, span.end) == (30, 130)


@pytest.mark.parametrize("letter", ["!", "a"])
def test_the_last_token_of_the_longest_document_counts(alarm: ServedModel, letter: str) -> None:
    text = f"{'a' * (LIMIT - 3)}{letter}"

    found = one(alarm, text)

    assert (found.input.tokens, found.input.truncated) == (LIMIT, False)
    assert (max(found.scores) > 0.99) is (letter == "!")


def test_one_token_more_is_refused_and_not_cut(alarm: ServedModel) -> None:
    assert one(alarm, "a" * (LIMIT - 1)).error.code == "scan_budget_exceeded"


def test_in_one_piece_the_last_token_counts_too(alarm: ServedModel) -> None:
    found = one(alarm, f"{'a' * (LIMIT - 3)}!", overflow="reject")

    assert found.input.windows is None
    assert found.scores[0] > 0.5
