"""Compare one answer of a graph with the reference's: numbers first, then what they decide.

Pure functions. A pair is always (actual, expected); probabilities are computed here in float64, apart from serve's
decoders, which give the decisions, so that a mistake in one is not repeated in the other.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vela.graphs import errors, heads
from vela.serve.decode import bio, grounded
from vela.verify import cases

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Difference:
    """How far one answer is from the reference's.

    Attributes:
        case: The input.
        padding_class: `none`, `some` or `window`.
        probability: |Δp| of every number, flat; components of unit vectors for embedders.
        logit: |Δlogit| of every number, flat; components of the raw pooled vector for embedders.
        agrees: Whether the decision is the same.
        margin: How clearly the reference decided where the two differ; infinity where they agree.
        actual: The graph's decision, for people.
        expected: The reference's.
        cosine: Of the two vectors, smallest over dimensions; 1.0 for other forms.
        scores: Of a pair, one for each output; they decide only beside those of the query's other documents
            (verify/order.py), so a pair alone agrees.
    """

    case: cases.Case
    padding_class: str
    probability: Values
    logit: Values
    agrees: bool
    margin: float
    actual: str
    expected: str
    cosine: float = 1.0
    scores: tuple["Score", ...] = ()


@dataclass(frozen=True, slots=True)
class Score:
    """A pair's relevance logit from one output: the graph's and the reference's."""

    output: str
    actual: float
    expected: float


@dataclass(frozen=True, slots=True)
class Decision:
    """What an answer decides.

    Attributes:
        value: Comparable: a label, a frozen set of labels or spans, or None where nothing is decided.
        choices: The choices behind it, one per label or token, comparable element by element.
        margins: How clearly each was made; same length as `choices`.
    """

    value: object
    choices: NDArray[np.int64]
    margins: Values


def compare_answers(
    head: heads.Head,
    case: cases.Case,
    actual: Mapping[str, NDArray[np.floating]],
    expected: Mapping[str, NDArray[np.floating]],
    padding_class: str,
) -> Difference:
    """Compare one answer with the reference's.

    Args:
        head: Whose answer it is.
        case: The input.
        actual: The graph's outputs, one entry but for rerankers, without batch dimension and padding.
        expected: The reference's outputs by name.
        padding_class: How the graph's row was padded.

    Raises:
        ShapeMismatch: names or shapes differ; nothing was compared.
        NotFinite: a number is nan or infinite.
    """
    if isinstance(head.decoder, heads.RerankDecoder):
        return _compare_scores(head.decoder, case, actual, expected, padding_class)
    (name,) = actual
    found, wanted = _aligned(case, name, actual, expected)
    if isinstance(head.decoder, heads.EmbeddingDecoder):
        return _compare_embeddings(head.decoder, case, found, wanted, padding_class)
    return _compare_decisions(head.decoder, case, found, wanted, padding_class)


def probabilities(decoder: heads.Decoder, logits: Values) -> Values:
    """Turn logits into probabilities: sigmoid for multi-label heads and rerankers, else softmax over the last axis."""
    if isinstance(decoder, heads.ScoresDecoder | heads.RerankDecoder):
        result: Values = 0.5 * (1.0 + np.tanh(0.5 * logits))
        return result
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    normalised: Values = shifted / shifted.sum(axis=-1, keepdims=True)
    return normalised


def decide(decoder: heads.Decoder, case: cases.Case, values: Values) -> Decision:
    """Decide from probabilities, (C,) or (T, C), as serve's decoders do, and say how clearly."""
    match decoder:
        case heads.SequenceDecoder(labels):
            winner = int(np.argmax(values))
            return Decision(labels[winner], np.array([winner]), _top_margins(values[None]))
        case heads.ScoresDecoder(labels, point):
            if point is None:
                return Decision(None, np.zeros(0, np.int64), np.zeros(0))
            thresholds = np.asarray(point.thresholds)
            chosen = values >= thresholds if point.comparison == "score >= threshold" else values > thresholds
            selected = frozenset(label for label, is_chosen in zip(labels, chosen, strict=True) if is_chosen)
            return Decision(selected, chosen.astype(np.int64), np.abs(values - thresholds))
        case heads.BioDecoder(labels):
            content = values[case.content]
            spans = bio.decode_spans(case.text, case.offsets, content, labels)
            found = frozenset((span.label, span.start, span.end) for span in spans)
            return Decision(found, np.argmax(content, axis=-1), _top_margins(content))
        case heads.GroundedDecoder(labels, positive, threshold, _):
            scores = values[case.content, positive]
            marked = grounded.decode_spans(case.text, case.offsets, scores, threshold, labels[positive])
            unsupported = frozenset((span.label, span.start, span.end) for span in marked)
            return Decision(unsupported, (scores > threshold).astype(np.int64), np.abs(scores - threshold))
        case _:
            raise ValueError(f"no decision is defined for {type(decoder).__name__}")


def describe(decision: Decision) -> str:
    """Say a decision in a few words, for a person."""
    value = decision.value
    if isinstance(value, frozenset):
        return ", ".join(sorted(map(_describe_item, value))) or "nothing"
    return str(value)


def _describe_item(item: object) -> str:
    return " ".join(map(str, item)) if isinstance(item, tuple) else str(item)


def _top_margins(values: Values) -> Values:
    """Give the distance between the two largest probabilities of each row, (N,)."""
    if values.shape[-1] < 2 or not values.size:
        return np.full(values.shape[0], np.inf)
    top = np.sort(values, axis=-1)
    margins: Values = top[..., -1] - top[..., -2]
    return margins


def _compare_decisions(
    decoder: heads.Decoder, case: cases.Case, found: Values, wanted: Values, padding_class: str
) -> Difference:
    found_p, wanted_p = probabilities(decoder, found), probabilities(decoder, wanted)
    found_decision = decide(decoder, case, found_p)
    wanted_decision = decide(decoder, case, wanted_p)
    differing = found_decision.choices != wanted_decision.choices
    agrees = found_decision.value == wanted_decision.value
    # Every choice that differs must have been close for a disagreement to be a near tie: the widest margin counts.
    margin = float("inf") if agrees else float(np.max(wanted_decision.margins[differing], initial=0.0))
    return Difference(
        case,
        padding_class,
        np.abs(found_p - wanted_p).ravel(),
        np.abs(found - wanted).ravel(),
        agrees,
        margin,
        describe(found_decision),
        describe(wanted_decision),
    )


def _compare_embeddings(
    decoder: heads.EmbeddingDecoder, case: cases.Case, actual: Values, expected: Values, padding_class: str
) -> Difference:
    differences, cosines = [], []
    for dimension in decoder.dimensions:
        found = _unit_vector(actual[:dimension], case, "the graph")
        wanted = _unit_vector(expected[:dimension], case, "the reference")
        differences.append(np.abs(found - wanted))
        cosines.append(float(found @ wanted))
    return Difference(
        case,
        padding_class,
        np.concatenate(differences),
        np.abs(actual - expected),
        agrees=True,
        margin=float("inf"),
        actual=f"cosine {min(cosines):.7f}",
        expected="cosine 1",
        cosine=min(cosines),
    )


def _unit_vector(vector: Values, case: cases.Case, role: str) -> Values:
    """Normalise a vector; one of length zero has no direction, and dividing by it would compare nan with nothing."""
    length = float(np.linalg.norm(vector))
    if not 0.0 < length < float("inf"):
        raise errors.NotFinite(
            f"a vector of length {length} from {role}",
            expected="a vector that can be normalised",
            where=f"the first {vector.size} components of case {case.id} ({case.tokens} tokens)",
            fix="An embedding without a direction never passes.",
        )
    unit: Values = vector / length
    return unit


def _compare_scores(
    decoder: heads.RerankDecoder,
    case: cases.Case,
    actual: Mapping[str, NDArray[np.floating]],
    expected: Mapping[str, NDArray[np.floating]],
    padding_class: str,
) -> Difference:
    aligned = {name: _aligned(case, name, actual, expected) for name in actual}
    found, wanted = (np.array([pair[side] for pair in aligned.values()]).ravel() for side in (0, 1))
    scores = tuple(Score(name, float(mine), float(theirs)) for name, (mine, theirs) in aligned.items())
    return Difference(
        case,
        padding_class,
        np.abs(probabilities(decoder, found) - probabilities(decoder, wanted)),
        np.abs(found - wanted),
        agrees=True,
        margin=float("inf"),
        actual=_describe_scores(found),
        expected=_describe_scores(wanted),
        scores=scores,
    )


def _describe_scores(logits: Values) -> str:
    return "logits " + ", ".join(f"{logit:.4f}" for logit in logits)


def _aligned(
    case: cases.Case,
    name: str,
    actual: Mapping[str, NDArray[np.floating]],
    expected: Mapping[str, NDArray[np.floating]],
) -> tuple[Values, Values]:
    """Check an output's name, shape and finiteness, in this order, before any number is compared."""
    if name not in expected or actual[name].shape != expected[name].shape or not actual[name].size:
        wanted = {key: value.shape for key, value in expected.items()}
        raise errors.ShapeMismatch(
            f"{name} of shape {actual[name].shape}",
            expected=f"one of {wanted}, not empty",
            where=f"case {case.id}",
            fix="The graph does not answer like the checkpoint's head; nothing was compared.",
        )
    found, wanted_values = actual[name].astype(np.float64), expected[name].astype(np.float64)
    for role, values in (("the graph", found), ("the reference", wanted_values)):
        if not np.isfinite(values).all():
            index = tuple(int(position) for position in np.argwhere(~np.isfinite(values))[0])
            raise errors.NotFinite(
                f"{values[index]} at {index} from {role}",
                expected="finite numbers",
                where=f"{name} of case {case.id} ({case.tokens} tokens)",
                fix="A graph that answers nan or infinity never passes.",
            )
    return found, wanted_values
