"""What each route does between a decoded body and a response struct."""

import asyncio
import base64
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from vela.graphs import errors, heads
from vela.serve import answers, offsets, policy, question
from vela.serve.decode import rerank
from vela.serve.http import errors as http_errors
from vela.serve.http import schema
from vela.serve.http.exchange import Exchange
from vela.serve.http.service import Service
from vela.serve.inputs import item_from_input
from vela.serve.question import AnyAnswer
from vela.serve.reading import Grounded, Item, Pair
from vela.serve.runtime import installed_build


async def classify(service: Service, exchange: Exchange, body: schema.ClassifyRequest) -> schema.ClassifyResponse:
    """Answer POST /v1/classify."""
    model = service.registry.find(body.model)
    if body.head not in (None, model.head.name):
        raise errors.InvalidRequest(
            repr(body.head), expected=model.head.name, where="head", fix="The model's card lists its heads."
        )
    options = body.options
    asked = question.classify(
        model,
        policy.Options(
            overflow=options.overflow,
            max_tokens=options.max_tokens,
            window=_window(options.window),
            threshold=options.threshold,
            return_tokens=options.return_tokens,
            profile=options.profile,
        ),
    )
    inputs = [body.input] if isinstance(body.input, str) else body.input
    items = [item_from_input(given, f"input[{place}]") for place, given in enumerate(inputs)]
    results = await service.answer(asked, items, exchange, options.deadline_ms)
    results = [_placed(result, items, options.offset_unit) for result in results]
    return schema.ClassifyResponse(
        model=model.name,
        head=model.head.name,
        kind=cast("schema.ClassifierKind", model.head.kind),
        labels=list(heads.labels_of(model.head.decoder)),
        results=results,
        usage=schema.Usage(_processed(results)),
        meta=_meta(exchange, asked) if options.return_meta else None,
    )


async def embeddings(service: Service, exchange: Exchange, body: schema.EmbeddingsRequest) -> schema.EmbeddingsResponse:
    """Answer POST /v1/embeddings; an input that fails fails the request, because OpenAI's shape has no place for it."""
    model = service.registry.find(body.model)
    options = body.options
    asked = question.embed(
        model,
        policy.Options(overflow=options.overflow, max_tokens=options.max_tokens, profile=options.profile),
        question.Exit(body.layer, body.dimensions),
    )
    inputs = [body.input] if isinstance(body.input, str) else body.input
    found = _all_answered(await service.answer(asked, inputs, exchange, options.deadline_ms), "input")
    tokens = _processed(found)
    return schema.EmbeddingsResponse(
        object="list",
        data=[
            schema.EmbeddingData("embedding", item.index, _encode_vector(item, body.encoding_format), item.input)
            for item in found
        ],
        model=model.name,
        usage=schema.EmbeddingsUsage(tokens, tokens),
        meta=_meta(exchange, asked) if options.return_meta else None,
    )


async def rank(service: Service, exchange: Exchange, body: schema.RerankRequest) -> schema.RerankResponse:
    """Answer POST /v1/rerank; a pair that fails fails the request, because an order needs every score."""
    model = service.registry.find(body.model)
    options = body.options
    asked = question.rank(
        model,
        policy.Options(max_tokens=options.max_tokens, profile=options.profile),
        question.Exit(body.layer, body.dimensions),
    )
    pairs = [Pair(body.query, document) for document in body.documents]
    found = _all_answered(await service.answer(asked, pairs, exchange, options.deadline_ms), "documents")
    order = rerank.order_documents([item.logit for item in found])[: body.top_n]
    tokens = _processed(found)
    return schema.RerankResponse(
        model=model.name,
        results=[
            schema.RerankResult(
                index=found[place].index,
                relevance_score=found[place].relevance_score,
                logit=found[place].logit,
                input=found[place].input,
                document=body.documents[place] if body.return_documents else None,
            )
            for place in order
        ],
        usage=schema.EmbeddingsUsage(tokens, tokens),
        meta=_meta(exchange, asked) if options.return_meta else None,
    )


async def bundle(service: Service, exchange: Exchange, body: schema.BundleRequest) -> schema.BundleResponse:
    """Answer POST /v1/bundle: all tasks at once, each with its own outcome."""
    parts = [exchange.part(body.options.deadline_ms) for _ in body.tasks]
    running = [
        asyncio.create_task(_answer_task(service, part, task)) for part, task in zip(parts, body.tasks, strict=True)
    ]
    try:
        results = await asyncio.gather(*running)
    finally:
        for one in running:
            one.cancel()  # does nothing to one that has ended
        await asyncio.gather(*running, return_exceptions=True)
        exchange.sum_up(parts)
    return schema.BundleResponse(results)


async def _answer_task(service: Service, exchange: Exchange, task: schema.BundleTask) -> schema.BundleResult:
    try:
        if task.classify is not None:
            return schema.BundleResult(task.id, 200, await classify(service, exchange, task.classify))
        if task.embeddings is not None:
            return schema.BundleResult(task.id, 200, await embeddings(service, exchange, task.embeddings))
        if task.rerank is not None:
            return schema.BundleResult(task.id, 200, await rank(service, exchange, task.rerank))
        raise ValueError(f"task {task.id} asks for nothing; its struct forbids that")
    except errors.VelaError as error:
        status, code = http_errors.status_of(error)
        if isinstance(error, errors.Overloaded):
            exchange.ask_later(error.retry_after_s)
        service.metrics.rejected.labels(code).inc()
        return schema.BundleResult(task.id, status, error=answers.Problem(code, str(error)))


def _placed(
    result: answers.Classified | answers.FailedAnswer, items: Sequence[Item], unit: offsets.OffsetUnit
) -> answers.Classified | answers.FailedAnswer:
    """Give a token answer's offsets in the caller's unit."""
    if not isinstance(result, answers.TokenAnswer):
        return result
    item = items[result.index]
    return offsets.in_unit(result, item.answer if isinstance(item, Grounded) else str(item), unit)


def _window(option: schema.WindowOption | None) -> heads.Window | None:
    return None if option is None else heads.Window(option.tokens, option.overlap)


def _all_answered(results: Sequence[AnyAnswer | answers.FailedAnswer], field: str) -> list[AnyAnswer]:
    answered: list[AnyAnswer] = []
    for result in results:
        if isinstance(result, answers.FailedAnswer):
            kind = http_errors.ITEM_ERRORS.get(result.error.code, errors.EngineError)
            raise kind(
                f"{result.error.code} ({result.error.message})",
                expected="inputs that can all be answered",
                where=f"{field}[{result.index}]",
                fix="Send the others without it.",
            )
        answered.append(result)
    return answered


def _processed(results: Sequence[answers.Answer | answers.FailedAnswer]) -> int:
    return sum(0 if isinstance(item, answers.FailedAnswer) else item.input.processed_tokens for item in results)


def _encode_vector(item: answers.EmbeddingAnswer, encoding: str) -> list[float] | str:
    if encoding == "float":
        numbers: list[float] = item.embedding.tolist()
        return numbers
    return base64.b64encode(item.embedding.astype(np.dtype("<f4")).tobytes()).decode("ascii")


def _meta(exchange: Exchange, asked: question.Question[Any]) -> schema.Meta:
    engine, device = " ".join(installed_build()), str(asked.model.device)
    return schema.Meta(asked.rules.profile, engine, device, exchange.graph_ids, exchange.timing_ms())
