"""Measure two answers to one input: are they comparable, what do they decide, how far apart are their numbers.

Pure functions. A pair is always (actual, expected): the candidate's, and the baseline's.
"""

import dataclasses
import math
from collections.abc import Iterable, Sequence

import numpy as np

from vela.verify.parity import figures, jobs, lines, spans

Labelled = lines.SequenceResult | lines.ScoresResult
FLOAT32_MAX = 3.4028235e38  # engines answer in float32, where anything larger is infinite


def measure(job: jobs.Job, item_id: str, actual: lines.Result, expected: lines.Result) -> figures.Difference:
    """Measure two answers of a job; both are results of the job's kind."""
    block = _not_finite(actual, expected) or _mismatch(job, actual, expected)
    if block is not None:
        return figures.Difference.not_comparable(item_id, expected.input.tokens, block)
    plans = _windows(actual, expected)
    found = dataclasses.replace(_compare(job, item_id, actual, expected), tokens=expected.input.tokens)
    return dataclasses.replace(found, blocks=(plans,)) if plans else found


def _compare(job: jobs.Job, item_id: str, actual: lines.Result, expected: lines.Result) -> figures.Difference:
    match actual, expected:
        case lines.SequenceResult(), lines.SequenceResult():
            return _compare_labels(item_id, actual, expected)
        case lines.ScoresResult(), lines.ScoresResult():
            return _compare_scores(job, item_id, actual, expected)
        case lines.TokenResult(), lines.TokenResult():
            return spans.compare_spans(item_id, actual, expected, is_grounded=job.mode == "grounded")
        case lines.EmbeddingResult(), lines.EmbeddingResult():
            return _compare_embeddings(item_id, actual, expected)
        case lines.RerankResult(), lines.RerankResult():
            return _compare_orders(item_id, actual, expected)
    raise ValueError(f"{type(actual).__name__} and {type(expected).__name__} are not answers of one kind")


def _not_finite(actual: lines.Result, expected: lines.Result) -> figures.Blocked | None:
    """Find the first number that is none: upstream's comparator lets NaN through, this one never."""
    for side, result in (("candidate", actual), ("baseline", expected)):
        for name, values in result.numbers():
            for index, value in enumerate(values):
                if value is None or not abs(value) <= FLOAT32_MAX:
                    said = "null" if value is None else str(value)
                    return figures.Blocked("non-finite", f"{name}[{index}] of the {side} is {said}")
    return None


def _mismatch(job: jobs.Job, actual: lines.Result, expected: lines.Result) -> figures.Blocked | None:
    """Find what makes numbers not pair up, where they do not."""
    found, wanted = _outline(actual), _outline(expected)
    if isinstance(actual, lines.TokenResult) and isinstance(expected, lines.TokenResult):
        if actual.tokens is None or expected.tokens is None:
            return None
        widths = {len(token.probabilities) for token in (*actual.tokens, *expected.tokens)}
        if len(widths) > 1 or 0 in widths:
            return figures.Blocked("shape", f"tokens have {sorted(widths)} probabilities where they have as many each")
    elif not found or not wanted:
        return figures.Blocked("shape", "an answer holds no number, or a vector without a direction")
    elif job.labels and job.kind in ("sequence", "scores") and len(found) != len(job.labels):
        return figures.Blocked("shape", f"the candidate has {len(found)} values for {len(job.labels)} labels")
    if found == wanted:
        return None
    return figures.Blocked("shape", f"the candidate has {len(found)} values where the baseline has {len(wanted)}")


def _outline(result: lines.Result) -> Sequence[object]:
    """Say what an answer's numbers stand for; those of two answers pair up where it is the same."""
    match result:
        case lines.SequenceResult() | lines.ScoresResult():
            return range(len(result.values))
        case lines.TokenResult(tokens=tokens):
            return [(token.start, token.end) for token in tokens or ()]
        case lines.EmbeddingResult(embedding=embedding):
            return range(len(embedding)) if 0.0 < _length(embedding) < figures.INFINITE else ()
        case lines.RerankResult(results=results):
            return sorted(ranked.index for ranked in results)


def _windows(actual: lines.Result, expected: lines.Result) -> figures.Blocked | None:
    """Compare the plans of windows, where the baseline states one."""
    read, asked = actual.input, expected.input
    if None not in (read.processed_tokens, asked.processed_tokens) and _how(read) != _how(asked):
        return figures.Blocked("windows", f"read otherwise: {_how(read)} for {_how(asked)}")
    wanted, found = _plan(expected), _plan(actual)
    if wanted is None or wanted == (found or []):
        return None
    return figures.Blocked("windows", "windows differ", expected=wanted, actual=found)


def _how(read: lines.Read) -> str:
    windows = f"{read.windows} windows" if read.windows else "one piece"
    return f"{read.processed_tokens} tokens in {windows}"


def _plan(result: lines.Result) -> list[tuple[int, int]] | None:
    match result:
        case lines.ScoresResult():  # scores without windows were read in one piece, which is a plan as well
            return [(window.start, window.end) for window in result.windows or ()]
        case lines.SequenceResult(windows=tuple(plan)) | lines.TokenResult(windows=tuple(plan)):
            return [(window.start, window.end) for window in plan]
    return None


def _compare_labels(item_id: str, actual: lines.SequenceResult, expected: lines.SequenceResult) -> figures.Difference:
    found, wanted = _array(actual.values), _array(expected.values)
    values = np.abs(found - wanted)
    top = np.sort(wanted)[-2:]
    margin = float(top[1] - top[0]) if top.size > 1 else figures.INFINITE
    flips = bool(np.argmax(found) != np.argmax(wanted))
    # The label that a system says is part of its answer, even where its numbers say another.
    says_other = None not in (actual.label, expected.label) and actual.label != expected.label
    return figures.Difference(
        item_id,
        upstream=figures.Figures(values, figures.flips(margin, differs=flips)),
        strict=figures.Figures(values, figures.flips(margin, differs=flips or says_other)),
        margin=margin,
        logit=_logit(actual, expected),
    )


def _compare_scores(
    job: jobs.Job, item_id: str, actual: lines.ScoresResult, expected: lines.ScoresResult
) -> figures.Difference:
    found, wanted = _array(actual.values), _array(expected.values)
    values = np.abs(found - wanted)
    if expected.selected is None:
        compared = figures.Figures(values)
        return figures.Difference(item_id, compared, compared, logit=_logit(actual, expected))
    differing = set(expected.selected).symmetric_difference(actual.selected or ())
    selects = not differing and actual.selected is not None
    margins = dict(zip(job.labels, np.abs(wanted - _array(job.thresholds)), strict=True)) if job.thresholds else {}
    # Every label that differs must have been close to its threshold; without thresholds nothing excuses.
    margin = max((float(margins.get(label, figures.INFINITE)) for label in differing), default=figures.INFINITE)
    return figures.Difference(
        item_id,
        upstream=figures.Figures(values),
        strict=figures.Figures(values, figures.flips(margin, differs=not selects)),
        logit=_logit(actual, expected),
        selects=selects,
    )


def _compare_embeddings(
    item_id: str, actual: lines.EmbeddingResult, expected: lines.EmbeddingResult
) -> figures.Difference:
    found, wanted = (_array(side.embedding) / _length(side.embedding) for side in (actual, expected))
    compared = figures.Figures(np.abs(found - wanted))
    return figures.Difference(item_id, compared, compared, cosine=float(found @ wanted))


def _compare_orders(item_id: str, actual: lines.RerankResult, expected: lines.RerankResult) -> figures.Difference:
    """Compare every two documents of a query: do they stand as the baseline puts them?"""
    found, wanted = (sorted(side.results, key=lambda ranked: ranked.index) for side in (actual, expected))
    logits = [_array(ranked.logit for ranked in side if isinstance(ranked.logit, float)) for side in (found, wanted)]
    scores = [_array(ranked.relevance_score for ranked in side) for side in (found, wanted)]
    has_logits = all(len(side) == len(found) for side in logits)
    ranks = logits if has_logits else scores
    first, second = np.triu_indices(len(found), k=1)
    mine, theirs = (side[first] - side[second] for side in ranks)
    turned = (mine * theirs <= 0) & ((mine != 0) | (theirs != 0))
    compared = figures.Figures(np.abs(scores[0] - scores[1]), np.abs(theirs[turned]), decisions=len(first))
    logit = float(np.max(np.abs(logits[0] - logits[1]))) if has_logits else None
    return figures.Difference(item_id, compared, compared, logit=logit)


def _logit(actual: Labelled, expected: Labelled) -> float | None:
    found, wanted = _array(actual.logits), _array(expected.logits)
    return float(np.max(np.abs(found - wanted))) if found.size and found.size == wanted.size else None


def _length(embedding: lines.Numbers) -> float:
    """Give a vector's length without the overflow and underflow of squares."""
    return math.hypot(*(value or 0.0 for value in embedding))


def _array(values: Iterable[lines.Number]) -> figures.Values:
    return np.array(tuple(values), np.float64)
