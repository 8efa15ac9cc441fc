"""What a request asks of a model, settled before any text is read: rules, output, and how an answer is made.

One constructor for each surface; the server and the command line run what it gives in the same way.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from vela.graphs import contract, errors, heads
from vela.serve import answers, assembly, policy
from vela.serve.model import ServedModel
from vela.serve.reading import Item, Reading

AnyAnswer = TypeVar("AnyAnswer", answers.Classified, answers.EmbeddingAnswer, answers.RerankAnswer)


@dataclass(frozen=True, slots=True)
class Exit:
    """Which part of an embedder or reranker answers; None is the whole model.

    Attributes:
        layer: One of its exit depths.
        dimension: One of its widths.
    """

    layer: int | None = None
    dimension: int | None = None


class Question(msgspec.Struct, Generic[AnyAnswer], frozen=True):
    """A settled request.

    Attributes:
        model: Who answers.
        rules: How inputs are read.
        output: Which of the model's outputs is run.
        finish: Makes an answer of an input's index, its reading and one output for each row.
    """

    model: ServedModel
    rules: policy.Policy
    output: str
    finish: Callable[[int, Reading, assembly.Outputs], AnyAnswer]


def classify(model: ServedModel, options: policy.Options) -> Question[answers.Classified]:
    """Ask a classifier for labels, scores or spans.

    Raises:
        UnsupportedSurface: the model does not classify.
        InvalidRequest: an option does not suit it.
    """
    if model.head.kind not in ("sequence", "scores", "token"):
        raise _unsupported(model, "/v1/classify")
    rules = model.settle(options, model.default_output)

    def finish(index: int, reading: Reading, outputs: assembly.Outputs) -> answers.Classified:
        return assembly.classify(index, reading, outputs, model.head, rules)

    return Question(model, rules, model.default_output, finish)


def embed(model: ServedModel, options: policy.Options, part: Exit) -> Question[answers.EmbeddingAnswer]:
    """Ask an embedder for unit vectors.

    Raises:
        UnsupportedSurface: the model is no embedder.
        InvalidRequest: an option does not suit it, or it has no such layer or dimension.
    """
    decoder = model.head.decoder
    if not isinstance(decoder, heads.EmbeddingDecoder):
        raise _unsupported(model, "/v1/embeddings")
    dimension = decoder.dimensions[0] if part.dimension is None else part.dimension
    if dimension not in decoder.dimensions:
        raise _no_such("dimensions", dimension, decoder.dimensions)
    layer = decoder.exits[-1] if part.layer is None else part.layer
    output = contract.embedding_output(layer)
    if output not in model.ladders:
        raise _no_such("layer", layer, embedding_exits(model, decoder))
    rules = model.settle(options, output)

    def finish(index: int, reading: Reading, outputs: assembly.Outputs) -> answers.EmbeddingAnswer:
        return assembly.embed(index, reading, outputs, dimension)

    return Question(model, rules, output, finish)


def rank(model: ServedModel, options: policy.Options, part: Exit) -> Question[answers.RerankAnswer]:
    """Ask a reranker for the relevance of pairs.

    Raises:
        UnsupportedSurface: the model is no reranker.
        InvalidRequest: an option does not suit it, or it has no scorer for that layer and dimension.
    """
    decoder = model.head.decoder
    if not isinstance(decoder, heads.RerankDecoder):
        raise _unsupported(model, "/v1/rerank")
    dimension = decoder.dimensions[0] if part.dimension is None else part.dimension
    layer = decoder.exits[-1] if part.layer is None else part.layer
    output = contract.score_output(layer, dimension)
    if output not in model.ladders:
        raise _no_such("layer and dimensions", (layer, dimension), list(model.ladders))
    return Question(model, model.settle(options, output), output, assembly.rank)


def embedding_exits(model: ServedModel, decoder: heads.EmbeddingDecoder) -> list[int]:
    """Give the exit depths that the bundle has graphs for."""
    return [layer for layer in decoder.exits if contract.embedding_output(layer) in model.ladders]


def answer(question: Question[AnyAnswer], items: Sequence[Item]) -> list[AnyAnswer | answers.FailedAnswer]:
    """Answer in this thread, one input after the other: one answer for each item, in order."""
    results: list[AnyAnswer | answers.FailedAnswer] = []
    for index, reading in enumerate(question.model.read(items, question.rules)):
        try:
            if isinstance(reading, errors.ItemError):
                raise reading
            outputs = [forward.run() for forward in question.model.forwards(reading, question.output)]
            results.append(question.finish(index, reading, outputs))
        except errors.ItemError as error:
            results.append(answers.FailedAnswer.from_error(index, error))
    return results


def _unsupported(model: ServedModel, surface: str) -> errors.UnsupportedSurface:
    return errors.UnsupportedSurface(
        f"the {model.head.kind} model {model.name!r}",
        expected=f"a model that answers {surface}",
        where="model",
        fix="GET /v1/models lists each model's surfaces.",
    )


def _no_such(field: str, found: object, known: Sequence[object]) -> errors.InvalidRequest:
    return errors.InvalidRequest(
        str(found),
        expected=f"one of {', '.join(map(str, known))}",
        where=field,
        fix="The model's card in GET /v1/models lists what it has.",
    )
