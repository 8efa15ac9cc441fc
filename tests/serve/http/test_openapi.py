"""The description of the API: every route is in it, and what the server says fits it."""

import jsonschema
import pytest
from starlette.testclient import TestClient

from vela.serve.http import routes


@pytest.fixture(scope="module")
def api(client: TestClient) -> dict:
    return client.get("/openapi.json").json()


def validate(api: dict, schema: dict, value: object) -> None:
    jsonschema.Draft202012Validator({**schema, "components": api["components"]}).validate(value)


def schema_of(api: dict, path: str, method: str, status: str = "200") -> dict:
    return api["paths"][path][method]["responses"][status]["content"]["application/json"]["schema"]


def test_every_route_is_described(api: dict) -> None:
    assert set(api["paths"]) == {post.path for post in routes.POSTS} | {
        path for get in routes.GETS for path in get.paths
    }
    assert api["openapi"] == "3.1.0"


def test_ids_of_operations_are_unique_and_each_has_a_summary(api: dict) -> None:
    operations = [operation for methods in api["paths"].values() for operation in methods.values()]

    assert len({operation["operationId"] for operation in operations}) == len(operations)
    assert all(operation["summary"].endswith(".") for operation in operations)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/classify", {"model": "mood", "input": ["hello", ""], "options": {"return_meta": True}}),
        ("/v1/classify", {"model": "topics", "input": "a longer text than its window"}),
        ("/v1/classify", {"model": "names", "input": "Ann", "options": {"return_tokens": True}}),
        ("/v1/embeddings", {"model": "vectors", "input": "hello", "encoding_format": "base64"}),
        ("/v1/rerank", {"model": "ranks", "query": "a", "documents": ["b"], "return_documents": True}),
        ("/v1/bundle", {"tasks": [{"id": "a", "classify": {"model": "mood", "input": "x"}}]}),
    ],
)
def test_requests_and_answers_fit_their_schemas(client: TestClient, api: dict, path: str, body: dict) -> None:
    request = api["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    answer = client.post(path, json=body)

    validate(api, request, body)
    assert answer.status_code == 200
    validate(api, schema_of(api, path, "post"), answer.json())


@pytest.mark.parametrize(
    ("path", "body"),
    [("/v1/classify", {}), ("/v1/classify", {"model": "nobody", "input": "x"}), ("/v1/rerank", {"model": "mood"})],
)
def test_refusals_fit_theirs(client: TestClient, api: dict, path: str, body: dict) -> None:
    answer = client.post(path, json=body)

    validate(api, schema_of(api, path, "post", str(answer.status_code)), answer.json())


@pytest.mark.parametrize("path", ["/v1/models", "/health", "/livez"])
def test_reports_fit_theirs(client: TestClient, api: dict, path: str) -> None:
    validate(api, schema_of(api, path, "get"), client.get(path).json())


def test_unknown_fields_do_not_fit(api: dict) -> None:
    request = api["paths"]["/v1/classify"]["post"]["requestBody"]["content"]["application/json"]["schema"]

    with pytest.raises(jsonschema.ValidationError):
        validate(api, request, {"input": "x", "odd": 1})


def test_the_page_needs_no_other_host(client: TestClient) -> None:
    page = client.get("/docs")

    assert page.headers["content-type"].startswith("text/html")
    assert "://" not in page.text
    assert 'fetch("openapi.json")' in page.text
