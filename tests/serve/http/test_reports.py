"""Cards, health and metrics, and what happens under load, deadlines, disconnects and death."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient
from starlette.types import Message

from vela.serve import forward, registry
from vela.serve.device import CPU
from vela.serve.http.app import build_app

PATIENCE_S = 10.0


def test_cards_say_what_each_model_takes_and_gives(client: TestClient) -> None:
    body = client.get("/v1/models").json()

    assert (body["object"], body["api_version"]) == ("list", "2.3.0")
    assert body["limits"]["max_request_bytes"] == 200_000
    cards = {card["id"]: card for card in body["data"]}
    assert list(cards) == ["claims", "mood", "names", "ranks", "topics", "vectors"]
    assert all(
        card["ready"] and card["status"] == "ready" and card["golden"] == "unverified" for card in cards.values()
    )
    assert [cards[name]["surfaces"] for name in ("mood", "vectors")] == [["classify"], ["embeddings"]]
    assert cards["mood"]["model_sha256"] == "ab" * 32
    assert len(cards["mood"]["manifest_sha256"]) == 64
    head = cards["topics"]["heads"][0]
    assert head["thresholds"] == [0.5, 0.6, 0.7]
    assert head["window"] == {"tokens": 16, "overlap": 5}
    assert (head["kind"], head["inputs"], head["overflow"], head["reduction"]) == ("scores", ["text"], "window", "max")
    assert cards["claims"]["heads"][0]["default_threshold"] == 0.5
    assert cards["claims"]["heads"][0]["inputs"] == ["grounded"]
    assert cards["ranks"]["rerank"] == {"layers": [2], "dimensions": [4]}
    assert cards["vectors"]["embedding"] == {"layers": [2, 4], "dimensions": [8, 4]}


@pytest.mark.parametrize("path", ["/health", "/readyz", "/ping"])
def test_ready_is_200_when_every_model_answers(client: TestClient, path: str) -> None:
    response = client.get(path)

    assert (response.status_code, response.json()) == (200, {"status": "ready"})


@pytest.mark.parametrize("path", ["/health/live", "/livez"])
def test_alive_is_200(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 200


def test_before_loading_it_is_alive_and_not_ready(bag_store: Path) -> None:
    waiting = registry.Registry(registry.Plan(registry.sources_from_store(bag_store, ["mood"])))
    with TestClient(build_app(waiting)) as client:
        ready, alive = client.get("/health"), client.get("/livez")
        answer = client.post("/v1/classify", json={"input": "x"})
        card = client.get("/v1/models").json()["data"][0]
    waiting.close()

    assert (ready.status_code, ready.json()) == (503, {"status": "not_ready", "models": {"mood": "starting"}})
    assert alive.status_code == 200
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "not_ready")
    assert (card["ready"], card["status"], card["golden"]) == (False, "starting", "pending")


def test_a_bundle_that_cannot_be_used_is_listed_with_its_reason(
    bags: dict[str, Path], tmp_path: Path, source_of: Callable[..., registry.Source]
) -> None:
    sources = (source_of("mood", bags["mood"]), source_of("gone", tmp_path))
    partly = registry.Registry(registry.Plan(sources))
    assert [entry.name for entry in partly.load()] == ["gone"]
    with TestClient(build_app(partly)) as client:
        health = client.get("/health")
        answer = client.post("/v1/classify", json={"model": "mood", "input": "x"})
        refused = client.post("/v1/classify", json={"model": "gone", "input": "x"})
        card = client.get("/v1/models").json()["data"][1]
    partly.close()

    assert health.status_code == 503
    assert "manifest.json" in health.json()["models"]["gone"]
    assert answer.status_code == 200
    assert refused.status_code == 503
    assert (card["ready"], card["status"]) == (False, "failed")


def test_metrics_count_requests_and_tokens(own: registry.Registry) -> None:
    with TestClient(build_app(own)) as client:
        client.post("/v1/classify", json={"input": "hello"})
        client.post("/v1/classify", json={"input": ["", "x" * 100]})
        client.post("/v1/classify", json={})
        text = client.get("/metrics").text

    assert 'vela_requests_total{code="200",model="mood",route="/v1/classify"} 2.0' in text
    assert 'vela_requests_total{code="400",model="",route="/v1/classify"} 1.0' in text
    assert 'vela_failed_items_total{code="max_length_exceeded",model="mood"} 1.0' in text
    assert 'vela_model_ready{model="mood"} 1.0' in text
    assert 'vela_input_tokens_sum{model="mood"} 7.0' in text


class Hold:
    """Holds every forward until released, or until it is told to stop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.started = threading.Event()
        self.release = threading.Event()
        self.stopped = threading.Event()
        inner = forward.Forward.run_with

        def run(work: forward.Forward, mates: Sequence[forward.Forward], run_options: Any = None) -> Any:
            self.started.set()
            while not self.release.wait(0.001):
                if run_options.terminate:
                    self.stopped.set()
                    break
            return inner(work, mates, run_options)

        monkeypatch.setattr(forward.Forward, "run_with", run)


@pytest.fixture
def hold(own: registry.Registry, monkeypatch: pytest.MonkeyPatch) -> Hold:
    return Hold(monkeypatch)


def test_a_deadline_ends_what_runs_and_what_waits(own: registry.Registry, hold: Hold) -> None:
    with TestClient(build_app(own)) as client:
        response = client.post("/v1/classify", json={"input": ["a", "b"], "options": {"deadline_ms": 50}})
        codes = [result["error"]["code"] for result in response.json()["results"]]
        assert hold.stopped.wait(PATIENCE_S)
        hold.release.set()
        after = client.post("/v1/classify", json={"input": "a"})

    assert codes == ["deadline_exceeded", "deadline_exceeded"]
    assert "error" not in after.json()["results"][0]
    assert own.lanes[CPU].waiting_tokens == 0


def test_a_client_that_goes_away_frees_the_lane(own: registry.Registry, hold: Hold) -> None:
    app = build_app(own)
    body = json.dumps({"input": ["a", "b", "c"]}).encode()
    scope = {"type": "http", "method": "POST", "path": "/v1/classify", "headers": [], "query_string": b""}

    async def leave() -> list[Message]:
        messages: list[Message] = [{"type": "http.request", "body": body}]
        sent: list[Message] = []

        async def receive() -> Message:
            if messages:
                return messages.pop()
            await asyncio.to_thread(hold.started.wait, PATIENCE_S)
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            sent.append(message)

        await app(scope, receive, send)
        return sent

    sent = asyncio.run(leave())

    assert sent[0]["status"] == 499
    assert hold.stopped.wait(PATIENCE_S)
    assert own.lanes[CPU].waiting_tokens == 0


def test_a_full_queue_answers_429_with_retry_after(own: registry.Registry, hold: Hold) -> None:
    own.lanes[CPU].bounds = replace(own.lanes[CPU].bounds, tokens=8)
    statuses: list[int] = []

    with TestClient(build_app(own)) as client:

        def ask() -> None:
            statuses.append(client.post("/v1/classify", json={"input": "abc"}).status_code)

        first = threading.Thread(target=ask)
        first.start()
        assert hold.started.wait(PATIENCE_S)
        second = threading.Thread(target=ask)
        second.start()
        while own.lanes[CPU].waiting_tokens == 0:
            pass
        refused = client.post("/v1/classify", json={"input": "abcd"})
        hold.release.set()
        first.join(PATIENCE_S)
        second.join(PATIENCE_S)

    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "overloaded")
    assert refused.headers["retry-after"] == "1"
    assert statuses == [200, 200]


def test_a_part_of_a_bundle_that_is_refused_says_when_to_try_again_and_is_counted(
    own: registry.Registry, hold: Hold
) -> None:
    own.lanes[CPU].bounds = replace(own.lanes[CPU].bounds, tokens=8)
    tasks = [{"id": name, "classify": {"input": "abc"}} for name in ("taken", "refused", "refused too")]
    answers: list[httpx.Response] = []

    with TestClient(build_app(own)) as client:
        first = threading.Thread(target=client.post, args=("/v1/classify",), kwargs={"json": {"input": "abc"}})
        first.start()
        assert hold.started.wait(PATIENCE_S)
        whole = threading.Thread(target=lambda: answers.append(client.post("/v1/bundle", json={"tasks": tasks})))
        whole.start()
        until = time.monotonic() + PATIENCE_S
        while 'vela_rejected_total{reason="overloaded"} 2.0' not in client.get("/metrics").text:
            assert time.monotonic() < until
        hold.release.set()
        first.join(PATIENCE_S)
        whole.join(PATIENCE_S)

    (answer,) = answers
    assert [result["status"] for result in answer.json()["results"]] == [200, 429, 429]
    assert (answer.status_code, answer.headers["retry-after"]) == (200, "1")


def test_a_request_that_waited_in_vain_is_refused_as_one(own: registry.Registry, hold: Hold) -> None:
    """All of its inputs, with one status and a time to try again."""
    lane = own.lanes[CPU]
    lane.bounds = replace(lane.bounds, patience=0.0, certainty=1.0)
    answers: dict[str, httpx.Response] = {}

    with TestClient(build_app(own)) as client:

        def ask(name: str, *texts: str) -> threading.Thread:
            asking = threading.Thread(
                target=lambda: answers.update({name: client.post("/v1/classify", json={"input": list(texts)})})
            )
            asking.start()
            return asking

        threads = [ask("runs", "a")]
        assert hold.started.wait(PATIENCE_S)
        waiting = 0
        for name, texts in {"first": ["ab"], "in vain": ["abc", "abcd"], "last": ["abcde"]}.items():
            threads.append(ask(name, *texts))
            while own.lanes[CPU].waiting_tokens <= waiting:
                pass
            waiting = own.lanes[CPU].waiting_tokens
        hold.release.set()
        for thread in threads:
            thread.join(PATIENCE_S)

    assert {name: answer.status_code for name, answer in answers.items()} == {
        "runs": 200,
        "first": 200,
        "in vain": 429,
        "last": 200,
    }
    assert answers["in vain"].json()["error"]["code"] == "overloaded"
    assert int(answers["in vain"].headers["retry-after"]) >= 1


def test_a_dead_lane_fails_requests_and_health(own: registry.Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    def bug(work: forward.Forward, mates: Sequence[forward.Forward], run_options: Any = None) -> Any:
        raise RuntimeError("a bug")

    monkeypatch.setattr(forward.Forward, "run_with", bug)
    with TestClient(build_app(own)) as client:
        during = client.post("/v1/classify", json={"input": "a"})
        after = client.post("/v1/classify", json={"input": "a"})
        health, alive = client.get("/health"), client.get("/livez")
        card = client.get("/v1/models").json()["data"][0]

    assert (during.status_code, during.json()["error"]["code"]) == (503, "not_ready")
    assert after.status_code == 503
    assert health.status_code == 503
    assert "RuntimeError: a bug" in health.json()["models"]["mood"]
    assert alive.status_code == 503
    assert (card["ready"], card["status"]) == (False, "failed")
