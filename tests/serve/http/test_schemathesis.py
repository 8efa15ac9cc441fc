"""Requests drawn from the API's own description: no answer breaks it, and none is a failure of the server.

schemathesis draws bodies that fit the schemas and bodies that do not; seeds are fixed, so that a failure is met again.
Draws still differ with what else was imported, whose constants hypothesis uses too: few answers make for more draws.
"""

from collections import Counter

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from starlette.testclient import TestClient

from vela.serve import question, registry
from vela.serve.http import handlers, routes
from vela.serve.http.app import build_app
from vela.serve.http.service import Settings

EXAMPLES = 500  # for each operation
SEED = 20261130
PATIENCE_MS = 60_000
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
MODELS = ("mood", "topics", "names", "claims", "vectors", "ranks", "nobody")
FITTING = {"/v1/classify": "mood", "/v1/embeddings": "vectors", "/v1/rerank": "ranks"}


OPERATIONS = [("POST", post.path) for post in routes.POSTS] + [
    ("GET", path) for get in routes.GETS for path in get.paths
]
GOLDEN = {"model": "mood", "input": "hello"}


@pytest.fixture(scope="module")
def app(bag_store):
    """A server of the profile `batching`; what is drawn for `max_speed` is refused for want of it."""
    made = registry.Registry(registry.Plan(registry.sources_from_store(bag_store), profile="batching"))
    assert made.load() == []
    yield build_app(made, Settings(max_request_bytes=200_000))
    made.close()


@pytest.fixture(scope="module")
def api(app):
    return schemathesis.openapi.from_asgi("/openapi.json", app)


def draw(api, method: str, path: str, count: int, number: int = SEED) -> Counter:
    """Send so many requests to an operation, and count the statuses that they got."""
    operation = api[path][method]
    negative = operation.as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE)
    statuses = Counter[int]()

    @given(case=operation.as_strategy() | negative)
    @seed(number)
    @settings(
        max_examples=count, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=[*HealthCheck]
    )
    def check(case) -> None:
        _name_a_model(case.body, path)
        statuses[case.call_and_validate(checks=CHECKS).status_code] += 1

    check()
    return statuses


def _name_a_model(body: object, path: str) -> None:
    """Put one of the server's models where any name was drawn: else all that is drawn is refused at once."""
    if not isinstance(body, dict):
        return
    tasks = body.get("tasks")
    for part in tasks if isinstance(tasks, list) else ():
        for name, request in part.items() if isinstance(part, dict) else ():
            _name_a_model(request, f"/v1/{name}")
    if "tasks" not in body:
        number = sum(repr(body).encode())
        body["model"] = FITTING.get(path, "mood") if number % 2 else MODELS[number // 2 % len(MODELS)]
    options = body.get("options")
    given = options.get("deadline_ms") if isinstance(options, dict) else None
    if isinstance(options, dict) and type(given) in (int, float) and 0 < given < PATIENCE_MS:
        options["deadline_ms"] = PATIENCE_MS  # else most are late at once


@pytest.mark.parametrize(("method", "path"), OPERATIONS, ids=lambda part: part.strip("/"))
def test_no_request_breaks_the_description(api, app, method: str, path: str) -> None:
    client = TestClient(app)
    before = client.post("/v1/classify", json=GOLDEN).json()

    statuses = draw(api, method, path, EXAMPLES if method == "POST" else 25)
    for number in range(SEED + 1, SEED + 4):
        if method == "POST" and statuses[200] < EXAMPLES // 50:
            statuses += draw(api, method, path, EXAMPLES, number)

    assert client.post("/v1/classify", json=GOLDEN).json() == before
    if method == "POST":
        assert statuses.total() >= EXAMPLES
        assert {200, 400} <= statuses.keys()
        assert statuses[200] >= EXAMPLES // 50


def test_a_bug_in_a_handler_is_found(api, monkeypatch) -> None:
    def bug(*_) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(question, "classify", bug)

    with pytest.raises(BaseExceptionGroup) as found:
        draw(api, "POST", "/v1/classify", 50)

    assert "ServerError" in {type(failure).__name__ for failure in found.value.exceptions}


def test_an_answer_of_another_shape_is_found(api, monkeypatch) -> None:
    monkeypatch.setattr(handlers, "_processed", lambda results: "many")

    with pytest.raises(BaseExceptionGroup) as found:
        draw(api, "POST", "/v1/embeddings", 200)

    assert {"JsonSchemaError"} == {type(failure).__name__ for failure in found.value.exceptions}
