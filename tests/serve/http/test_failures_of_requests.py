"""Failures that come with requests: too long, too many, given up, without a number for an answer, or without an end.

Their numbers are in test_failure_catalogue.py.
"""

import asyncio
import itertools
import json
import re
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Message

from vela.serve import model, policy, registry
from vela.serve.device import CPU
from vela.serve.http.app import build_app
from vela.serve.http.service import OFFLOAD_ABOVE, POOL_THREADS, Settings
from vela.serve.model import ServedModel

PATIENCE_S = 10.0


class Blocker:
    """Work that holds a lane until it is released."""

    tokens, seconds, key, most_rows = 1, 0.0, "blocker", 1

    def __init__(self) -> None:
        self.started, self.release = threading.Event(), threading.Event()

    def run_with(self, mates: Sequence["Blocker"], run_options: Any = None) -> list[NDArray[np.float32]]:
        self.started.set()
        assert self.release.wait(PATIENCE_S)
        return [np.zeros(1, np.float32)]


@pytest.fixture
def blocker(own: registry.Registry) -> Iterator[Blocker]:
    """Keep the lane of `own` at work."""
    made = Blocker()
    own.lanes[CPU].submit([made])
    assert made.started.wait(PATIENCE_S)
    yield made
    made.release.set()


async def ask(
    app: ASGIApp, receive: Callable[[], Awaitable[Message]], *headers: tuple[bytes, bytes]
) -> tuple[int, Any]:
    """Send a request to an app without a client between; give its status and its body."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/classify", "headers": [*headers], "query_string": b""}
    await app(scope, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"] or b"{}")


def caller(body: object, *, leaves: bool = False) -> Callable[[], Awaitable[Message]]:
    """Make what sends a body and then waits, or leaves."""
    messages: list[Message] = [{"type": "http.request", "body": json.dumps(body).encode()}]

    async def receive() -> Message:
        if not messages and not leaves:
            await asyncio.Event().wait()
        return messages.pop() if messages else {"type": "http.disconnect"}

    return receive


def test_a_text_that_is_too_long_is_refused_without_the_lane(own: registry.Registry, blocker: Blocker) -> None:
    body = {"input": ["x" * 63, "x" * 100_000], "options": {"deadline_ms": 1000 * PATIENCE_S}}

    with TestClient(build_app(own)) as client:
        results = client.post("/v1/classify", json=body).json()["results"]

    assert [result["error"]["code"] for result in results] == ["max_length_exceeded"] * 2


def test_texts_that_take_long_to_read_hold_no_short_one_up(
    own: registry.Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, release = threading.Semaphore(0), threading.Event()
    inner = ServedModel.read

    def read(self: ServedModel, items: Sequence[str], rules: policy.Policy) -> Any:
        if len(items[0]) > OFFLOAD_ABOVE:
            entered.release()
            assert release.wait(PATIENCE_S)
        return inner(self, items, rules)

    monkeypatch.setattr(ServedModel, "read", read)
    with TestClient(build_app(own)) as client, ThreadPoolExecutor() as callers:
        long = [
            callers.submit(client.post, "/v1/classify", json={"input": "x" * (OFFLOAD_ABOVE + 1)})
            for _ in range(POOL_THREADS + 1)
        ]
        assert all(entered.acquire(timeout=PATIENCE_S) for _ in range(POOL_THREADS))
        short, alive = client.post("/v1/classify", json={"input": "hello"}), client.get("/livez")
        was_held = not any(found.done() for found in long)
        release.set()
        codes = [found.result(PATIENCE_S).json()["results"][0]["error"]["code"] for found in long]

    assert (short.status_code, alive.status_code) == (200, 200)
    assert "error" not in short.json()["results"][0]
    assert was_held
    assert codes == ["max_length_exceeded"] * len(long)


def test_ten_times_what_may_wait_is_answered_with_200_or_429(own: registry.Registry, blocker: Blocker) -> None:
    own.lanes[CPU].bounds = replace(own.lanes[CPU].bounds, tokens=50)  # ten requests of three letters
    app = build_app(own)

    async def overload() -> list[int]:
        asked = [asyncio.create_task(ask(app, caller({"input": "abc"}))) for _ in range(100)]
        async with asyncio.timeout(PATIENCE_S):
            while sum(task.done() for task in asked) < 90:
                await asyncio.sleep(0)
        blocker.release.set()
        return [status for status, _ in await asyncio.gather(*asked)]

    statuses = Counter(asyncio.run(overload()))
    with TestClient(app) as client:
        after, ready = client.post("/v1/classify", json={"input": "abc"}), client.get("/readyz")

    assert statuses == {200: 10, 429: 90}
    assert (after.status_code, ready.status_code) == (200, 200)


def test_a_thousand_callers_that_leave_or_run_out_of_time_hold_nothing(
    own: registry.Registry, blocker: Blocker
) -> None:
    app = build_app(own)

    async def give_up() -> list[tuple[int, Any]]:
        leaving = [ask(app, caller({"input": "abc"}, leaves=True)) for _ in range(500)]
        late = [ask(app, caller({"input": "abc", "options": {"deadline_ms": 20}})) for _ in range(500)]
        return await asyncio.gather(*leaving, *late)

    found = asyncio.run(give_up())
    waiting = own.lanes[CPU].waiting_tokens
    blocker.release.set()
    with TestClient(app) as client:
        after = [client.post("/v1/classify", json={"input": "abc"}).json()["results"][0] for _ in range(20)]
        cancelled = client.get("/metrics").text

    assert [status for status, _ in found] == [499] * 500 + [200] * 500
    assert {body["results"][0]["error"]["code"] for _, body in found[500:]} == {"deadline_exceeded"}
    assert waiting == 0
    assert "vela_cancelled_total 500.0" in cancelled
    assert all("error" not in result for result in after)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    ("name", "route", "body", "place"),
    [
        ("vectors", "/v1/embeddings", {"input": ["a", "~"]}, "input[1]"),
        ("ranks", "/v1/rerank", {"query": "a", "documents": ["b", "~"]}, "documents[1]"),
    ],
)
def test_a_vector_or_a_score_that_is_no_number_is_a_500_and_counted(
    served: dict[str, ServedModel],
    tables: dict[str, np.ndarray],
    make_bundle: Callable[..., Path],
    source_of: Callable[..., registry.Source],
    name: str,
    route: str,
    body: dict[str, object],
    place: str,
    number: float,
) -> None:
    table = tables[name].copy()
    table[ord("~") - ord("!")] = number  # letters are in this order
    loaded = registry.Registry(registry.Plan((source_of("broken", make_bundle("broken", served[name].head, table)),)))
    assert loaded.load() == []

    with TestClient(build_app(loaded)) as client:
        answer = client.post(route, json=body)
        metrics = client.get("/metrics").text
    loaded.close()

    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal_error")
    assert place in answer.json()["error"]["message"]
    assert 'vela_nonfinite_total{model="broken"} 1.0' in metrics


def test_a_text_of_any_length_has_the_same_vector_padded_and_alone(
    bags: dict[str, Path], source_of: Callable[..., registry.Source]
) -> None:
    loaded = registry.Registry(registry.Plan((source_of("vectors", bags["vectors"]),), profile="batching"))
    assert loaded.load() == []
    letters = "".join(chr(ord("!") + place * 7 % 90) for place in range(62))
    body = {"input": [letters[:length] for length in range(1, 63)]}

    with TestClient(build_app(loaded)) as client:
        alone, padded = (
            np.array([item["embedding"] for item in client.post("/v1/embeddings", json=body | options).json()["data"]])
            for options in ({}, {"options": {"profile": "batching"}})
        )
        metrics = client.get("/metrics").text
    loaded.close()

    assert re.search(r'vela_pad_tokens_total\{model="vectors"\} [1-9]', metrics)
    assert np.linalg.norm(padded, axis=1) == pytest.approx(np.ones(62), abs=1e-6)
    assert padded == pytest.approx(alone, abs=1e-6)


@pytest.mark.parametrize(
    "content",
    [b"[" * 1_000_000, b'{"input": ' + b"[" * 1_000_000, b'{"input": [' + b'{"text": ' * 1_000_000],
    ids=["arrays", "arrays as input", "objects as input"],
)
def test_a_million_levels_are_a_400(loaded: registry.Registry, content: bytes) -> None:
    with TestClient(build_app(loaded)) as client:
        refused = client.post("/v1/classify", content=content)
        after = client.post("/v1/classify", json={"model": "mood", "input": "x"})

    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_request")
    assert after.status_code == 200


@pytest.mark.parametrize(
    ("headers", "pieces"), [([], 17), ([(b"content-length", b"1073741824")], 0), ([(b"content-length", b"10")], 17)]
)
def test_a_body_without_end_is_read_up_to_the_limit(
    loaded: registry.Registry, headers: list[tuple[bytes, bytes]], pieces: int
) -> None:
    app, received = build_app(loaded, Settings(max_request_bytes=1 << 20)), itertools.count()

    async def receive() -> Message:
        next(received)
        return {"type": "http.request", "body": bytes(1 << 16), "more_body": True}

    status, body = asyncio.run(ask(app, receive, *headers))

    assert (status, body["error"]["code"]) == (413, "request_too_large")
    assert next(received) == pieces


def test_what_callers_make_up_is_not_kept(own: registry.Registry) -> None:
    with TestClient(build_app(own)) as client:

        def ask_for(number: int) -> list[int]:
            options = {"max_tokens": 3 + number % 60, "overflow": ("reject", "truncate")[number // 60]}
            requests = (
                ("/v1/classify", {"input": "x", "options": options}),
                ("/v1/classify", {"input": "x", "model": f"made-up-{number}"}),
                (f"/v1/made-up-{number}", {}),
            )
            return [client.post(path, json=body).status_code for path, body in requests]

        first = ask_for(0)
        before = client.get("/metrics").text.splitlines()
        others = {tuple(ask_for(number)) for number in range(1, 120)}
        after = client.get("/metrics").text.splitlines()

    assert first == [200, 404, 404]
    assert others == {(200, 404, 404)}
    assert len(after) == len(before)
    assert len(own.find("mood").settled) == model.MOST_SETTLED
