"""Answer inputs in this process, without a server: what `vela predict` calls."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from vela.graphs import bundle as bundles
from vela.graphs import heads
from vela.serve import answers, policy, question, registry
from vela.serve import device as devices
from vela.serve.deployment import Deployment
from vela.serve.model import Demand, ServedModel
from vela.serve.reading import Item

SHOWN_NUMBERS = 6  # of a vector or of many scores, on a terminal


def demand_of(*, unverified: bool) -> Demand:
    """Say what must be proven before answering: a pass on the device, or nothing where the caller said so."""
    return "nothing" if unverified else "this_engine"


def load_from_store(path: Path, name: str, device: devices.Device, demand: Demand) -> ServedModel:
    """Load a published model.

    Raises:
        StoreError, ModelNotFound: the store has no such model.
        BundleError, EngineError: as `ServedModel.open`.
    """
    (source,) = registry.sources_from_store(path, [name])
    return ServedModel.open(source.find().open(), Deployment(device), demand=demand)


def load_from_bundle(folder: Path, device: devices.Device, demand: Demand) -> ServedModel:
    """Load a bundle that need not be published.

    Raises:
        BundleError, EngineError: as `ServedModel.open`.
    """
    return ServedModel.open(bundles.Bundle.open(folder), Deployment(device), demand=demand)


def predict(model: ServedModel, items: Sequence[Item]) -> list[answers.Answer | answers.FailedAnswer]:
    """Ask a model what it is for, with its own defaults: one answer for each item, in order."""
    options, whole = policy.Options(), question.Exit()
    match model.head.kind:
        case "embedding":
            return [*question.answer(question.embed(model, options, whole), items)]
        case "rerank":
            return [*question.answer(question.rank(model, options, whole), items)]
        case _:
            return [*question.answer(question.classify(model, options), items)]


def json_line(answer: answers.Answer | answers.FailedAnswer) -> str:
    """Give an answer as one line of JSON, in the shape of the HTTP surface."""
    return msgspec.json.encode(answer, enc_hook=lambda vector: vector.tolist()).decode()


def text_lines(model: ServedModel, answer: answers.Answer | answers.FailedAnswer) -> list[str]:
    """Give an answer as lines for people; the first one starts with the input's number."""
    if isinstance(answer, answers.FailedAnswer):
        return [f"{answer.index}: {answer.error.code}: {answer.error.message}"]
    report = answer.input
    tokens = f"at least {report.tokens}" if report.tokens_lower_bound else str(report.tokens)
    length = f"{report.processed_tokens} of {tokens} tokens" if report.truncated else f"{tokens} tokens"
    windows = f", {report.windows} windows" if report.windows else ""
    head, *rest = _facts(model, answer)
    return [f"{answer.index}: {head}  ({length}{windows})", *rest]


def _facts(model: ServedModel, answer: answers.Answer) -> list[str]:
    labels = heads.labels_of(model.head.decoder)
    match answer:
        case answers.SequenceAnswer():
            return [f"{answer.label} {max(answer.probabilities):.4f}"]
        case answers.ScoresAnswer():
            ranked = sorted(zip(answer.scores, labels, strict=True), reverse=True)[:SHOWN_NUMBERS]
            listed = ", ".join(f"{label} {score:.4f}" for score, label in ranked)
            more = ", …" if len(labels) > SHOWN_NUMBERS else ""
            selected = "" if answer.selected is None else f"selected {', '.join(answer.selected) or 'nothing'}; "
            return [f"{selected}{listed}{more}"]
        case answers.TokenAnswer():
            spans = [
                f"   {span.label} {span.start}-{span.end} {span.text!r} {span.probability:.4f}" for span in answer.spans
            ]
            return [f"{len(spans)} spans", *spans]
        case answers.EmbeddingAnswer():
            shown = ", ".join(f"{number:.4f}" for number in answer.embedding[:SHOWN_NUMBERS])
            return [f"{len(answer.embedding)} numbers: {shown}, …"]
        case answers.RerankAnswer():
            return [f"{answer.relevance_score:.4f} (logit {answer.logit:.4f})"]
