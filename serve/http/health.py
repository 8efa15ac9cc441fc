"""What the server says of itself: cards, readiness, liveness, metrics."""

from dataclasses import dataclass

import msgspec

from vela.serve.http import cards, metrics, schema
from vela.serve.http.service import Service

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Report:
    """A response.

    Attributes:
        status: HTTP status.
        media_type: Of the content.
        content: The body.
    """

    status: int
    media_type: str
    content: bytes


def report_models(service: Service) -> Report:
    """Answer GET /v1/models."""
    response = cards.models_response(service.registry, service.settings.max_request_bytes)
    return Report(200, JSON, msgspec.json.encode(response))


def report_ready(service: Service) -> Report:
    """Answer GET /health: 200 only while every model answers."""
    problems = service.registry.problems()
    response = schema.HealthResponse("not_ready" if problems else "ready", problems or None)
    return Report(503 if problems else 200, JSON, msgspec.json.encode(response))


def report_live(service: Service) -> Report:
    """Answer GET /health/live: 200 while the loop that runs this and the lanes' threads live."""
    dead = any(lane.death is not None for lane in service.registry.lanes.values())
    return Report(503 if dead else 200, JSON, msgspec.json.encode(schema.HealthResponse("dead" if dead else "alive")))


def report_metrics(service: Service) -> Report:
    """Answer GET /metrics."""
    registry, found = service.registry, service.metrics
    problems = registry.problems()
    found.queue_tokens.set(sum(lane.waiting_tokens for lane in registry.lanes.values()))
    for name in registry.entries:
        found.ready.labels(name).set(name not in problems)
    return Report(200, metrics.CONTENT_TYPE, found.render())
