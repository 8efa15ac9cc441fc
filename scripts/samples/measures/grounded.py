"""Held-out F1 of tiny-grounded: unseen kinds of facts with unseen values, and unseen real passages."""

from typing import Any

import baselines
import numpy as np
from data.fill import Span
from data.grounded import GroundedExample, GroundedWriter
from decoding import score_spans
from inference import Checkpoint, token_logits
from numpy.typing import NDArray
from scores import report, rounded, span_f1
from tasks.grounded import SEED, framed, passages, token_labels
from tokenizers import Encoding
from workspace import Workspace

_COUNT = 1500
_THRESHOLD = 0.5


def _token_f1(found: list[NDArray[np.bool_]], true: list[NDArray[np.bool_]]) -> float:
    guess, truth = np.concatenate(found), np.concatenate(true)
    return rounded(2 * float((guess & truth).sum()) / max(1.0, float(guess.sum() + truth.sum())))


def _covered(encoding: Encoding, text: str, spans: list[Span]) -> list[bool]:
    """Tell which answer tokens a list of spans covers."""
    covered = []
    for (start, end), sequence in zip(encoding.offsets, encoding.sequence_ids, strict=True):
        inner = min(end - 1, start + len(text[start:end]) - len(text[start:end].lstrip()))
        if sequence == 1:
            covered.append(any(inner < span.end and end > span.start for span in spans))
    return covered


def _measure_set(checkpoint: Checkpoint, examples: list[GroundedExample]) -> tuple[dict[str, Any], dict[str, Any]]:
    encodings = checkpoint.tokenizer.encode_batch([framed(example) for example in examples])
    logits = token_logits(checkpoint, [encoding.ids for encoding in encodings])
    spans, base_spans, tokens, base_tokens, truth = [], [], [], [], []
    for example, encoding, values in zip(examples, encodings, logits, strict=True):
        text = example.answer.text
        exponents = np.exp(values - values.max(1, keepdims=True))
        inside = np.array([sequence == 1 for sequence in encoding.sequence_ids])
        scores = (exponents[:, 1] / exponents.sum(1))[inside]
        offsets = [offset for offset, kept in zip(encoding.offsets, inside, strict=True) if kept]
        spans.append(score_spans(text, offsets, scores, "hallucinated", _THRESHOLD))
        base_spans.append(baselines.absent_words(f"{example.question} {example.context}", text))
        tokens.append(scores > _THRESHOLD)
        base_tokens.append(np.array(_covered(encoding, text, base_spans[-1]), dtype=bool))
        truth.append(np.array(token_labels(encoding, example))[inside] == 1)
    expected = [example.answer.spans for example in examples]
    model = {"n": len(examples), "token_f1": _token_f1(tokens, truth), "span": span_f1(spans, expected)}
    return model, {"token_f1": _token_f1(base_tokens, truth), "span": span_f1(base_spans, expected)}


def measure(workspace: Workspace, checkpoint: Checkpoint) -> dict[str, Any]:
    """Compare with the rule that absent words are hallucinated."""
    writer = GroundedWriter(SEED + 100, passages(workspace, "test"), held_out=True)
    sets = {
        "held_out_facts": [writer.fact_example() for _ in range(_COUNT)],
        "held_out_passages": [writer.passage_example() for _ in range(_COUNT)],
    }
    measured = {name: _measure_set(checkpoint, examples) for name, examples in sets.items()}
    return report(
        "token F1 and exact span F1 of the hallucinated class",
        {name: result for name, (result, _) in measured.items()},
        {"absent_words": {name: base for name, (_, base) in measured.items()}},
        n=_COUNT,
        data="project facts of unseen kinds with unseen values; BEGIN (Wizard of Wikipedia) test passages with swaps",
    )
