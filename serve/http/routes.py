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
        summary: What it tells.
        response: Struct of its answer; None where it is no JSON of a struct.
        handle: Gives the status, the media type and the body.
        media_type: Of an answer that is no JSON of a struct.
        failures: Statuses besides 200.
    """

    paths: tuple[str, ...]
    summary: str
    response: type[msgspec.Struct] | None
    handle: Callable[[Service], health.Report]
    media_type: str = "text/plain"
    failures: tuple[str, ...] = ()


POSTS = (
    Post("/v1/classify", schema.ClassifyRequest, schema.ClassifyResponse, handlers.classify),
    Post("/v1/embeddings", schema.EmbeddingsRequest, schema.EmbeddingsResponse, handlers.embeddings),
    Post("/v1/rerank", schema.RerankRequest, schema.RerankResponse, handlers.rank),
    Post("/v1/bundle", schema.BundleRequest, schema.BundleResponse, handlers.bundle),
)

GETS = (
    Get(("/v1/models",), "Every model, with its heads, limits and state.", cards.ModelsResponse, health.report_models),
    Get(
        ("/health", "/readyz", "/ping"),
        "Whether every model answers, and why not.",
        schema.HealthResponse,
        health.report_ready,
        failures=("503",),
    ),
    Get(
        ("/health/live", "/livez"),
        "Whether the server is at work at all.",
        schema.HealthResponse,
        health.report_live,
        failures=("503",),
    ),
    Get(("/metrics",), "Counters and histograms for Prometheus.", None, health.report_metrics),
)
