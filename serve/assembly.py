"""From a reading and its outputs to an answer: which decoder a head uses, and what its answer holds."""

from collections.abc import Sequence
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from vela.graphs import heads
from vela.serve import answers, policy, windows
from vela.serve.decode import activation, bio, embedding, grounded, rerank, scores, sequence
from vela.serve.reading import Reading

Outputs = Sequence[NDArray[np.float32]]


def classify(
    index: int, reading: Reading, outputs: Outputs, head: heads.Head, rules: policy.Policy
) -> answers.Classified:
    """Decode one input of a classification head.

    Args:
        index: The input's place in its request.
        reading: How it was read.
        outputs: One array for each of its rows: (C,), or (count, C) of content tokens for token heads.
        head: Its decoder is one of a classification head.
        rules: What holds for the request.

    Raises:
        ValueError: the head is an embedder's or a reranker's.
    """
    match head.decoder:
        case heads.SequenceDecoder(labels=labels):
            return _sequence(index, reading, outputs, labels)
        case heads.ScoresDecoder():
            return _scores(index, reading, outputs, head.decoder)
        case heads.BioDecoder(labels=labels):
            return _bio(index, reading, outputs, labels, rules)
        case heads.GroundedDecoder():
            return _grounded(index, reading, outputs, head.decoder, rules)
        case heads.EmbeddingDecoder() | heads.RerankDecoder():
            raise ValueError(f"a {head.kind} head does not classify")
        case _:
            assert_never(head.decoder)


def embed(index: int, reading: Reading, outputs: Outputs, dimension: int) -> answers.EmbeddingAnswer:
    """Make one input's unit vector.

    Args:
        index: The input's place in its request.
        reading: How it was read; in one piece.
        outputs: One pooled vector, (H,).
        dimension: At most H.
    """
    return answers.EmbeddingAnswer(index, embedding.unit_vector(outputs[0], dimension), reading.report)


def rank(index: int, reading: Reading, outputs: Outputs) -> answers.RerankAnswer:
    """Make one pair's relevance from its logit, ()."""
    logit = float(outputs[0])
    return answers.RerankAnswer(index, rerank.relevance_score(logit), logit, reading.report)


def _sequence(index: int, reading: Reading, outputs: Outputs, labels: Sequence[str]) -> answers.SequenceAnswer:
    found = sequence.decode_windows(outputs)
    winner, merged = sequence.reduce_windows(found)
    listed = [
        answers.ProbabilityWindow(piece.start, piece.end, values)
        for piece, values in zip(reading.slices, found, strict=False)  # a text in one piece has no slices to list
    ]
    return answers.SequenceAnswer(index, labels[winner], merged, reading.report, listed or None)


def _scores(index: int, reading: Reading, outputs: Outputs, decoder: heads.ScoresDecoder) -> answers.ScoresAnswer:
    found = scores.decode_windows(outputs)
    merged = scores.reduce_windows(found)
    point = decoder.operating_point
    selected = None if point is None else scores.select_labels(merged, decoder.labels, point)
    listed = [
        answers.ScoreWindow(piece.start, piece.end, values)
        for piece, values in zip(reading.slices, found, strict=False)  # as above
    ]
    return answers.ScoresAnswer(index, merged, reading.report, selected, listed or None)


def _bio(
    index: int, reading: Reading, outputs: Outputs, labels: Sequence[str], rules: policy.Policy
) -> answers.TokenAnswer:
    found = [activation.softmax_rows(rows) for rows in outputs]
    merged = windows.merge_tokens(reading.slices, found) if reading.slices else found[0]
    offsets, placed = reading.offsets, merged
    if not reading.slices:
        # Tokens without a place in the text are dropped as special tokens are, but only where it was read in one
        # piece. Source: the router's model runtime, heads/token.py.
        keep = [place for place, offset in enumerate(offsets) if offset != (0, 0)]
        offsets, placed = tuple(offsets[place] for place in keep), merged[keep]
    spans = bio.decode_spans(reading.text, offsets, placed, labels)
    if rules.threshold is not None:
        spans = [span for span in spans if span.probability >= rules.threshold]
    return answers.TokenAnswer(index, spans, reading.report, _token_rows(reading, merged, rules))


def _grounded(
    index: int, reading: Reading, outputs: Outputs, decoder: heads.GroundedDecoder, rules: policy.Policy
) -> answers.TokenAnswer:
    found = activation.softmax_rows(outputs[0])
    threshold = decoder.threshold if rules.threshold is None else rules.threshold
    label = decoder.labels[decoder.positive]
    spans = grounded.decode_spans(reading.text, reading.offsets, found[:, decoder.positive], threshold, label)
    return answers.TokenAnswer(index, spans, reading.report, _token_rows(reading, found, rules))


def _token_rows(
    reading: Reading, probabilities: NDArray[np.float64], rules: policy.Policy
) -> list[answers.TokenRow] | None:
    if not rules.return_tokens:
        return None
    return [
        answers.TokenRow(start, end, values)
        for (start, end), values in zip(reading.offsets, probabilities.tolist(), strict=True)
    ]
