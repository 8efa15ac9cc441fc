"""Whole answers of the table models, against a computation that shares nothing with them."""

import itertools
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vela.graphs import bundle as bundles
from vela.graphs import heads
from vela.serve import answers, policy, question
from vela.serve.model import ServedModel
from vela.serve.reading import Grounded

BOS, EOS = 256, 257
TEXTS = st.text(min_size=1, max_size=20).filter(lambda text: len(text.encode()) <= 60 and "<" not in text)


def softmax(row: np.ndarray) -> list[float]:
    powers = [math.exp(float(value) - float(max(row))) for value in row]
    return [power / sum(powers) for power in powers]


def ids_of(model: ServedModel, text: str) -> list[int]:
    return list(model.tokenizer.encode([text], with_offsets=False)[0].ids)


def mean_row(table: np.ndarray, ids: list[int]) -> np.ndarray:
    return table[[BOS, *ids, EOS]].astype(np.float64).mean(axis=0)


def one(model: ServedModel, text: str, **options: object) -> answers.Classified:
    found = question.answer(question.classify(model, policy.Options(**options)), [text])[0]
    assert not isinstance(found, answers.FailedAnswer), found
    return found


@given(text=TEXTS)
@settings(max_examples=30)
def test_a_label_is_the_arg_max_of_the_mean_row(
    served: dict[str, ServedModel], tables: dict[str, np.ndarray], text: str
) -> None:
    expected = softmax(mean_row(tables["mood"], ids_of(served["mood"], text)))

    found = one(served["mood"], text)

    assert isinstance(found, answers.SequenceAnswer)
    assert found.probabilities == pytest.approx(expected, abs=1e-5)
    assert found.label == ("calm", "angry", "sad")[int(np.argmax(found.probabilities))]


@given(text=TEXTS)
@settings(max_examples=30)
def test_windowed_scores_are_the_maximum_over_every_window(
    served: dict[str, ServedModel], tables: dict[str, np.ndarray], text: str
) -> None:
    ids = ids_of(served["topics"], text)
    starts = [0]
    while starts[-1] + 14 < len(ids):
        starts.append(starts[-1] + 9)
    scores = [1 / (1 + np.exp(-mean_row(tables["topics"], ids[start : start + 14]))) for start in starts]
    expected = np.max(scores, axis=0)

    found = one(served["topics"], text)

    assert isinstance(found, answers.ScoresAnswer)
    assert found.windows is not None
    assert [(window.start, window.end) for window in found.windows] == [
        (start, min(start + 14, len(ids))) for start in starts
    ]
    assert found.scores == pytest.approx(expected.tolist(), abs=1e-5)
    passed = [label for label, score, least in zip("abc", found.scores, (0.5, 0.6, 0.7), strict=True) if score >= least]
    assert found.selected == passed


@given(text=TEXTS, width=st.integers(1, 9), overlap=st.integers(0, 8))
@settings(max_examples=40)
def test_spans_do_not_depend_on_windows_where_tokens_do_not_see_each_other(
    served: dict[str, ServedModel], text: str, width: int, overlap: int
) -> None:
    window = heads.Window(width + 2, min(overlap, width - 1))

    whole, cut = one(served["names"], text), one(served["names"], text, overflow="window", window=window)

    assert isinstance(whole, answers.TokenAnswer)
    assert isinstance(cut, answers.TokenAnswer)
    assert cut.spans == whole.spans
    assert all(span.text == text[span.start : span.end] for span in whole.spans)


@given(text=TEXTS)
@settings(max_examples=20)
def test_token_rows_are_the_tables_rows_at_each_tokens_place(
    served: dict[str, ServedModel], tables: dict[str, np.ndarray], text: str
) -> None:
    ids = ids_of(served["names"], text)

    found = one(served["names"], text, return_tokens=True)

    assert isinstance(found, answers.TokenAnswer)
    assert found.tokens is not None
    assert len(found.tokens) == len(ids)
    for row, token in zip(found.tokens, ids, strict=True):
        assert row.probabilities == pytest.approx(softmax(tables["names"][token]), abs=1e-6)


def test_a_threshold_drops_the_spans_below_it(served: dict[str, ServedModel]) -> None:
    everything, some = one(served["names"], "hello you"), one(served["names"], "hello you", threshold=0.6)

    assert isinstance(everything, answers.TokenAnswer)
    assert isinstance(some, answers.TokenAnswer)
    assert some.spans == [span for span in everything.spans if span.probability >= 0.6]
    assert 0 < len(some.spans) < len(everything.spans)


@given(answer=TEXTS)
@settings(max_examples=20)
def test_a_grounded_span_is_a_run_of_answer_tokens_above_the_threshold(
    served: dict[str, ServedModel], tables: dict[str, np.ndarray], answer: str
) -> None:
    model = served["claims"]
    content = model.tokenizer.encode([answer], with_offsets=True)[0]
    marked = [softmax(tables["claims"][token])[1] > 0.5 for token in content.ids]
    runs = itertools.groupby(zip(marked, content.offsets, strict=True), key=lambda pair: pair[0])
    expected = [(places[0][1][0], places[-1][1][1]) for hit, group in runs if hit and (places := list(group))]

    found = question.answer(question.classify(model, policy.Options()), [Grounded("c", "q", answer)])[0]

    assert isinstance(found, answers.TokenAnswer)
    assert [(span.start, span.end) for span in found.spans] == expected
    assert all(span.text == answer[span.start : span.end] for span in found.spans)


@pytest.mark.parametrize(("layer", "dimension"), [(None, None), (4, 4), (2, 8), (2, 4)])
def test_an_embedding_is_the_mean_row_cut_and_normalised(
    served: dict[str, ServedModel], tables: dict[str, np.ndarray], layer: int | None, dimension: int | None
) -> None:
    table = tables["vectors"] if layer in (None, 4) else tables["vectors"][::-1]
    expected = mean_row(table, ids_of(served["vectors"], "abc"))[: dimension or 8]

    asked = question.embed(served["vectors"], policy.Options(), question.Exit(layer, dimension))
    found = question.answer(asked, ["abc"])[0]

    assert isinstance(found, answers.EmbeddingAnswer)
    assert found.embedding == pytest.approx(expected / np.linalg.norm(expected), abs=1e-6)


def test_an_output_that_is_not_finite_is_an_error_and_never_a_number(
    make_bundle: Callable[..., Path], served: dict[str, ServedModel]
) -> None:
    table = np.zeros((259, 3), dtype=np.float32)
    table[ids_of(served["mood"], "x")] = np.nan
    model = ServedModel.open(bundles.Bundle.open(make_bundle("broken", served["mood"].head, table)))

    found = question.answer(question.classify(model, policy.Options()), ["good", "x"])

    assert isinstance(found[0], answers.SequenceAnswer)
    assert isinstance(found[1], answers.FailedAnswer)
    assert found[1].error.code == "invalid_model_output"
