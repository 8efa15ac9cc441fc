"""Texts that take long to read: one far too long is refused by a part of it, and a deadline does not wait for it.

Their numbers are in test_failure_catalogue.py.
"""

import threading
from collections.abc import Sequence
from typing import Any

import pytest
from starlette.testclient import TestClient

from vela.serve import registry, tokenization
from vela.serve.http.app import build_app
from vela.serve.http.service import OFFLOAD_ABOVE
from vela.serve.model import ServedModel

PATIENCE_S = 10.0


def test_a_text_that_is_far_too_long_is_refused_without_reading_all_of_it(
    own: registry.Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, inner = [], tokenization.Tokenizer.encode

    def encode(self: tokenization.Tokenizer, texts: Sequence[str], *, with_offsets: bool) -> Any:
        read.extend(map(len, texts))
        return inner(self, texts, with_offsets=with_offsets)

    monkeypatch.setattr(tokenization.Tokenizer, "encode", encode)
    with TestClient(build_app(own)) as client:
        results = client.post("/v1/classify", json={"input": ["x" * 1_000_000, "hello"]}).json()["results"]

    assert results[0]["error"]["code"] == "max_length_exceeded"
    assert "error" not in results[1]
    assert sum(read) < 10_000


def test_a_deadline_ends_the_reading_of_a_text(own: registry.Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    released, inner = threading.Event(), ServedModel.read

    def read(self: ServedModel, *given: Any) -> Any:
        assert released.wait(PATIENCE_S)
        return inner(self, *given)

    monkeypatch.setattr(ServedModel, "read", read)
    body = {"input": ["x" * (OFFLOAD_ABOVE + 1), "y"], "options": {"deadline_ms": 50}}
    with TestClient(build_app(own)) as client:
        found = client.post("/v1/classify", json=body)
        released.set()

    assert found.status_code == 200
    assert [result["error"]["code"] for result in found.json()["results"]] == ["deadline_exceeded"] * 2


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/embeddings", {"model": "vectors", "input": "x"}),
        ("/v1/rerank", {"model": "ranks", "query": "x", "documents": ["y"]}),
    ],
)
def test_a_deadline_that_passed_is_no_5xx_where_one_input_cannot_fail_alone(
    client: TestClient, path: str, body: dict[str, Any]
) -> None:
    found = client.post(path, json={**body, "options": {"deadline_ms": 0.001}})

    assert (found.status_code, found.json()["error"]["code"]) == (429, "overloaded")
    assert found.headers["retry-after"] == "1"
