"""Texts that take long to read: one far too long is refused by a part of it, and a deadline does not wait for it.

Their numbers are in test_failure_catalogue.py.
"""

import asyncio
import json
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest
from starlette.testclient import TestClient
from starlette.types import Message

from vela.serve import registry, tokenization
from vela.serve.http.app import CLIENT_CLOSED, build_app
from vela.serve.http.service import OFFLOAD_ABOVE, READ_AT_ONCE
from vela.serve.model import ServedModel
from vela.serve.reading import READ_CHARACTERS

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
    assert sum(read) < 2 * READ_CHARACTERS


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


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Read slowly; gives the characters that were read at a time."""
    read_lengths, inner = list[int](), ServedModel.read

    def read(self: ServedModel, items: Sequence[str], rules: Any) -> Any:
        read_lengths.append(sum(map(len, items)))
        time.sleep(0.02)
        return inner(self, items, rules)

    monkeypatch.setattr(ServedModel, "read", read)
    return read_lengths


LONG_TEXTS = ["x" * 4000] * 1000


def test_many_texts_are_read_some_at_a_time_and_answered_in_order(own: registry.Registry, groups: list[int]) -> None:
    inputs = [*LONG_TEXTS[:40], "hello"]

    with TestClient(build_app(own)) as client:
        results = client.post("/v1/classify", json={"input": inputs}).json()["results"]

    assert [result["index"] for result in results] == list(range(41))
    assert ["error" in result for result in results] == [True] * 40 + [False]
    assert len(groups) > 1
    assert max(groups) <= READ_AT_ONCE
    assert sum(groups) == sum(map(len, inputs))


def test_nothing_more_is_read_once_the_time_is_up(own: registry.Registry, groups: list[int]) -> None:
    with TestClient(build_app(own)) as client:
        found = client.post("/v1/classify", json={"input": LONG_TEXTS, "options": {"deadline_ms": 100}})
        read = len(groups)
        time.sleep(0.2)

    assert {result["error"]["code"] for result in found.json()["results"]} == {"deadline_exceeded"}
    assert read < 20  # of 63
    assert len(groups) <= read + 1


def test_nothing_more_is_read_for_a_client_that_has_gone(own: registry.Registry, groups: list[int]) -> None:
    messages: list[Message] = [{"type": "http.request", "body": json.dumps({"input": LONG_TEXTS}).encode()}]
    sent: list[Message] = []

    async def receive() -> Message:
        return messages.pop() if messages else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/classify", "headers": [], "query_string": b""}
    asyncio.run(build_app(own)(scope, receive, send))

    assert sent[0]["status"] == CLIENT_CLOSED
    assert len(groups) < 3  # of 63


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
