"""The one table of routes: paths, bodies and handlers; compatible surfaces and the API document read it too."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from vela.serve.http import cards, handlers, health, schema
from vela.serve.http.exchange import Exchange
from vela.serve.http.service import Service


@dataclass(frozen=True, slots=True)
class Post:
    """A route that takes a JSON body.

    Attributes:
        path: Where it is.
        request: Struct of its body.
        response: Struct of its answer.
        handle: From a decoded body to the answer.
    """

    path: str
    request: type[msgspec.Struct]
    response: type[msgspec.Struct]
    handle: Callable[[Service, Exchange, Any], Awaitable[msgspec.Struct]]


@dataclass(frozen=True, slots=True)
class Get:
    """A route that reports on the server.

    Attributes:
        paths: Where it is; the first is its name, the others are aliases.
        response: Struct of its answer; None for plain text.
        handle: Gives the status, the media type and the body.
    """

    paths: tuple[str, ...]
    response: type[msgspec.Struct] | None
    handle: Callable[[Service], health.Report]


POSTS = (
    Post("/v1/classify", schema.ClassifyRequest, schema.ClassifyResponse, handlers.classify),
    Post("/v1/embeddings", schema.EmbeddingsRequest, schema.EmbeddingsResponse, handlers.embeddings),
    Post("/v1/rerank", schema.RerankRequest, schema.RerankResponse, handlers.rank),
)

GETS = (
    Get(("/v1/models",), cards.ModelsResponse, health.report_models),
    Get(("/health", "/readyz", "/ping"), schema.HealthResponse, health.report_ready),
    Get(("/health/live", "/livez"), schema.HealthResponse, health.report_live),
    Get(("/metrics",), None, health.report_metrics),
)
