"""Held-out span F1 of tiny-pii: unseen templates with unseen values, and unseen templates of presidio-research."""

from typing import Any

import baselines
from data.fill import Labelled, Span
from data.pii import TYPES, PiiWriter
from decoding import bio_spans
from inference import Checkpoint, token_logits
from scores import of_label, report, span_f1
from tasks.pii import LABELS, SEED, plain_texts, read_presidio
from workspace import Workspace

_SHORT, _LONG = 2000, 300


def predict(checkpoint: Checkpoint, rows: list[Labelled]) -> list[list[Span]]:
    """Find the spans of texts."""
    encodings = checkpoint.tokenizer.encode_batch([row.text for row in rows])
    logits = token_logits(checkpoint, [encoding.ids for encoding in encodings])
    return [
        bio_spans(row.text, encoding.offsets, [LABELS[tag] for tag in values.argmax(1)])
        for row, encoding, values in zip(rows, encodings, logits, strict=True)
    ]


def measure(workspace: Workspace, checkpoint: Checkpoint) -> dict[str, Any]:
    """Compare with the regex and list baseline on every held-out set."""
    writer, plain = PiiWriter(SEED + 100, held_out=True), plain_texts(workspace, "test")
    sets = {
        "held_out_templates": [writer.text() for _ in range(_SHORT)],
        "held_out_documents": [writer.document(3 + index % 10, plain) for index in range(_LONG)],
        "presidio_test": read_presidio(workspace, "test"),
    }
    results: dict[str, Any] = {}
    baseline: dict[str, Any] = {}
    for name, rows in sets.items():
        expected, predicted = [row.spans for row in rows], predict(checkpoint, rows)
        results[name] = {"n": len(rows), **span_f1(predicted, expected)}
        baseline[name] = span_f1([baselines.regex_spans(row.text) for row in rows], expected)
        if name == "held_out_templates":
            by_type = {kind: span_f1(of_label(predicted, kind), of_label(expected, kind))["f1"] for kind in TYPES}
            results["f1_by_type"] = by_type
    data = "project templates and values that training never saw; presidio-research templates that training never saw"
    return report("exact span F1", results, {"regex_and_lists": baseline}, n=_SHORT, data=data)
