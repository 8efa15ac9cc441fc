"""The native surface: shapes, statuses and headers, as http.md has them."""

import base64
import re
from collections.abc import Callable
from pathlib import Path

import httpx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from vela.serve import policy, question, registry
from vela.serve.http.app import build_app
from vela.serve.model import ServedModel


def classify(client: TestClient, body: object) -> httpx.Response:
    return client.post("/v1/classify", json=body)


def window(tokens: int, overlap: int) -> dict[str, object]:
    return {"overflow": "window", "window": {"tokens": tokens, "overlap": overlap}}


def error_of(response: httpx.Response) -> tuple[int, str]:
    body = response.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"code", "message"}
    return response.status_code, body["error"]["code"]


def test_a_string_gets_one_result(client: TestClient) -> None:
    body = classify(client, {"model": "mood", "input": "hello"}).json()

    assert list(body) == ["model", "head", "kind", "labels", "results", "usage"]
    assert (body["model"], body["head"], body["kind"]) == ("mood", "default", "sequence")
    assert body["labels"] == ["calm", "angry", "sad"]
    assert body["usage"] == {"input_tokens": 7, "output_tokens": 0}
    result = body["results"][0]
    assert set(result) == {"index", "label", "probabilities", "input"}
    assert result["input"] == {"tokens": 7, "processed_tokens": 7, "truncated": False}


def test_scores_name_what_is_selected_and_every_window(client: TestClient) -> None:
    result = classify(client, {"model": "topics", "input": "a text of some length"}).json()["results"][0]

    assert set(result) == {"index", "scores", "input", "selected", "windows"}
    assert result["input"]["windows"] == len(result["windows"]) == 2
    assert set(result["windows"][0]) == {"start", "end", "scores"}


def test_token_answers_hold_spans_that_are_slices(client: TestClient) -> None:
    text = "héllo 🙂 wörld"
    options = {"return_tokens": True}

    result = classify(client, {"model": "names", "input": [text], "options": options}).json()["results"][0]

    assert set(result) == {"index", "spans", "input", "tokens"}
    assert result["spans"]
    for span in result["spans"]:
        assert list(span) == ["label", "start", "end", "text", "probability"]
        assert span["text"] == text[span["start"] : span["end"]]
    assert len(result["tokens"]) == len(text.encode())


def test_a_grounded_item_is_answered_as_token_kind(client: TestClient) -> None:
    item = {"context": "a", "question": "b", "answer": "c d e"}

    body = classify(client, {"model": "claims", "input": [item]}).json()

    assert body["kind"] == "token"
    assert all(span["text"] == "c d e"[span["start"] : span["end"]] for span in body["results"][0]["spans"])


def test_a_failed_input_carries_only_its_error_and_its_neighbours_are_answered(client: TestClient) -> None:
    response = classify(client, {"model": "mood", "input": ["good", "", "x" * 100, {"text": "fine"}]})

    results = response.json()["results"]
    assert response.status_code == 200
    assert [result["index"] for result in results] == [0, 1, 2, 3]
    assert [result.get("error", {}).get("code") for result in results] == [
        None, "invalid_input", "max_length_exceeded", None,
    ]  # fmt: skip
    assert set(results[1]) == {"index", "error"}
    assert response.json()["usage"]["input_tokens"] == 12


def test_truncation_is_reported_in_body_and_header(client: TestClient) -> None:
    body = {"model": "mood", "input": "x" * 100, "options": {"overflow": "truncate"}}

    response = classify(client, body)

    assert response.json()["results"][0]["input"] == {"tokens": 102, "processed_tokens": 64, "truncated": True}
    assert response.headers["x-vela-truncated"] == "1"


def test_windows_can_be_asked_for(client: TestClient) -> None:
    options = {"overflow": "window", "window": {"tokens": 10, "overlap": 2}}

    result = classify(client, {"model": "mood", "input": "x" * 20, "options": options}).json()["results"][0]

    assert [(window["start"], window["end"]) for window in result["windows"]] == [(0, 8), (6, 14), (12, 20)]


def test_every_answer_says_who_gave_it_and_how_long_each_stage_took(client: TestClient) -> None:
    response = classify(client, {"model": "mood", "input": "x"})

    stages = re.findall(r"(\w+);dur=(\d+(?:\.\d+)?)", response.headers["server-timing"])
    assert [name for name, _ in stages] == ["parse", "tokenize", "queue", "forward", "post", "serialize", "total"]
    assert sum(float(value) for _, value in stages[:-1]) <= float(stages[-1][1]) + 0.01
    assert response.headers["x-vela-model"] == "mood"
    assert response.headers["x-vela-model-sha256"] == "ab" * 32
    assert response.headers["x-vela-ep"] == "CPUExecutionProvider"
    assert response.headers["x-vela-bucket"] == "model"


def test_meta_is_given_on_request(client: TestClient) -> None:
    meta = classify(client, {"model": "mood", "input": "x", "options": {"return_meta": True}}).json()["meta"]

    assert (meta["profile"], meta["device"], meta["graphs"]) == ("exact", "cpu", ["model"])
    assert meta["engine"].startswith("onnxruntime")


@pytest.mark.parametrize(("layer", "dimensions"), [(None, None), (2, 4)])
def test_embeddings_are_openais_shape_and_base64_is_the_same_numbers(
    client: TestClient, layer: int | None, dimensions: int | None
) -> None:
    body = {"model": "vectors", "input": ["a", "bc"], "layer": layer, "dimensions": dimensions}

    floats = client.post("/v1/embeddings", json=body).json()
    packed = client.post("/v1/embeddings", json=body | {"encoding_format": "base64"}).json()

    assert set(floats) == {"object", "data", "model", "usage"}
    assert floats["usage"] == {"prompt_tokens": 7, "total_tokens": 7}
    assert [set(item) for item in floats["data"]] == [{"object", "index", "embedding", "input"}] * 2
    for plain, coded in zip(floats["data"], packed["data"], strict=True):
        decoded = np.frombuffer(base64.b64decode(coded["embedding"]), dtype="<f4")
        assert len(decoded) == (dimensions or 8)
        assert decoded.tolist() == plain["embedding"]
        assert np.linalg.norm(decoded) == pytest.approx(1, abs=1e-6)


def test_an_embedding_input_that_fails_fails_the_request_and_is_named(client: TestClient) -> None:
    response = client.post("/v1/embeddings", json={"model": "vectors", "input": ["a", "x" * 100]})

    assert error_of(response) == (400, "invalid_request")
    assert "input[1]" in response.json()["error"]["message"]
    assert "max_length_exceeded" in response.json()["error"]["message"]


def test_documents_come_most_relevant_first_with_their_sigmoid(
    client: TestClient, tables: dict[str, np.ndarray], served: dict[str, ServedModel]
) -> None:
    documents = ["one", "two", "three"]
    tokenizer = served["ranks"].tokenizer
    query, *found = (item.ids for item in tokenizer.encode(["q", *documents], with_offsets=False))
    logits = [float(tables["ranks"][list(tokenizer.frame_pair(query, ids).ids)].mean()) for ids in found]
    order = sorted(range(3), key=lambda place: -logits[place])

    body = {"model": "ranks", "query": "q", "documents": documents, "top_n": 2, "return_documents": True}
    answer = client.post("/v1/rerank", json=body).json()

    assert set(answer) == {"model", "results", "usage"}
    assert [result["index"] for result in answer["results"]] == order[:2]
    for result in answer["results"]:
        assert result["document"] == documents[result["index"]]
        assert result["logit"] == pytest.approx(logits[result["index"]], abs=1e-5)
        assert result["relevance_score"] == pytest.approx(1 / (1 + np.exp(-result["logit"])), abs=1e-12)


def test_a_pair_that_is_too_long_fails_the_request_and_is_named(client: TestClient) -> None:
    response = client.post("/v1/rerank", json={"model": "ranks", "query": "q", "documents": ["a", "d" * 100]})

    assert error_of(response) == (400, "invalid_request")
    assert "documents[1]" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("/v1/classify", {"input": "x"}, 400, "invalid_request"),
        ("/v1/classify", {"model": "nope", "input": "x"}, 404, "model_not_found"),
        ("/v1/classify", {"model": "vectors", "input": "x"}, 422, "unsupported_surface"),
        ("/v1/embeddings", {"model": "mood", "input": "x"}, 422, "unsupported_surface"),
        ("/v1/rerank", {"model": "mood", "query": "q", "documents": ["d"]}, 422, "unsupported_surface"),
        ("/v1/classify", {"model": "mood", "input": "x", "head": "other"}, 400, "invalid_request"),
        ("/v1/classify", {"model": "mood", "input": []}, 400, "invalid_request"),
        ("/v1/classify", {"model": "mood", "input": ["x"] * 2049}, 400, "invalid_request"),
        ("/v1/classify", {"model": "mood", "input": [3]}, 400, "invalid_request"),
        ("/v1/classify", {"model": "mood", "input": "x", "inputs": "y"}, 400, "invalid_request"),
        ("/v1/classify", {"model": "mood", "input": "x", "options": {"overflw": "reject"}}, 400, "invalid_request"),
        ("/v1/classify", {"model": "mood", "input": "x", "options": {"overflow": "cut"}}, 400, "invalid_request"),
        ("/v1/classify", {"model": "mood", "input": "x", "options": {"deadline_ms": 0}}, 400, "invalid_request"),
        ("/v1/classify", {"model": "mood", "input": "x", "options": {"max_tokens": 65}}, 400, "invalid_request"),
        ("/v1/classify", {"model": "mood", "input": "x", "options": {"profile": "fast"}}, 400, "invalid_request"),
        ("/v1/classify", {"model": "mood", "input": [{"text": "a", "answer": "b"}]}, 400, "invalid_request"),
        ("/v1/classify", {"model": "mood", "input": "x", "options": window(8, 8)}, 400, "invalid_request"),
        ("/v1/classify", {"model": "mood", "input": "x", "options": window(8, 6)}, 400, "invalid_request"),
        ("/v1/classify", {"model": "mood", "input": "x", "options": window(1, 0)}, 400, "invalid_request"),
        ("/v1/classify", {"model": "mood", "input": [{}]}, 400, "invalid_request"),
        ("/v1/embeddings", {"model": "vectors", "input": "x", "dimensions": 5}, 400, "invalid_request"),
        ("/v1/embeddings", {"model": "vectors", "input": "x", "layer": 3}, 400, "invalid_request"),
        ("/v1/embeddings", {"model": "vectors", "input": [1, 2]}, 400, "invalid_request"),
        ("/v1/classify", {"model": "ranks", "input": [{"text": "a", "text_pair": "b"}]}, 422, "unsupported_surface"),
        ("/v1/rerank", {"model": "ranks", "query": "q", "documents": []}, 400, "invalid_request"),
        ("/v1/rerank", {"model": "ranks", "query": "q", "documents": ["d"], "layer": 1}, 400, "invalid_request"),
        ("/v1/nothing", {}, 404, "invalid_request"),
        ("/health", {}, 405, "invalid_request"),
    ],
)
def test_a_wrong_request_gets_its_status_and_code(
    client: TestClient, path: str, body: object, status: int, code: str
) -> None:
    assert error_of(client.post(path, json=body)) == (status, code)


def test_a_missing_model_name_lists_the_names(client: TestClient) -> None:
    message = classify(client, {"input": "x"}).json()["error"]["message"]

    assert "claims, mood, names, ranks, topics, vectors" in message


def test_with_one_model_loaded_its_name_may_be_left_out(bag_store: Path) -> None:
    loaded = registry.Registry(registry.Plan(registry.sources_from_store(bag_store, ["mood"])))
    loaded.load()
    with TestClient(build_app(loaded)) as client:
        assert classify(client, {"input": "x"}).json()["model"] == "mood"
    loaded.close()


@given(text=st.text(max_size=30))
@settings(max_examples=40)
def test_any_text_answers_as_it_does_without_a_server(client: TestClient, loaded: registry.Registry, text: str) -> None:
    options = policy.Options(overflow="truncate", return_tokens=True)
    expected = question.answer(question.classify(loaded.find("names"), options), [text])[0]
    body = {"model": "names", "input": [text], "options": {"overflow": "truncate", "return_tokens": True}}

    found = classify(client, body).json()["results"][0]

    if "error" in found:
        assert text == ""
    else:
        assert [span["text"] for span in found["spans"]] == [span.text for span in expected.spans]  # type: ignore[union-attr]
        assert [row["probabilities"] for row in found["tokens"]] == [row.probabilities for row in expected.tokens]  # type: ignore[union-attr]


def test_a_value_that_is_not_finite_is_an_item_error_and_is_counted(
    make_bundle: Callable[..., Path], served: dict[str, ServedModel], source_of: Callable[..., registry.Source]
) -> None:
    table = np.zeros((259, 3), dtype=np.float32)
    table[list(served["mood"].tokenizer.encode(["x"], with_offsets=False)[0].ids)] = np.inf
    folder = make_bundle("infinite", served["mood"].head, table)
    loaded = registry.Registry(registry.Plan((source_of("infinite", folder),)))
    assert loaded.load() == []

    with TestClient(build_app(loaded)) as client:
        response = classify(client, {"input": ["a", "x"]})
        metrics = client.get("/metrics").text
    loaded.close()

    assert response.status_code == 200
    assert "null" not in response.text
    assert response.json()["results"][1]["error"]["code"] == "invalid_model_output"
    assert 'vela_nonfinite_total{model="infinite"} 1.0' in metrics


def test_a_profile_that_the_server_does_not_offer_is_refused_and_one_that_it_does_holds(
    client: TestClient, bags: dict[str, Path], source_of: Callable[..., registry.Source]
) -> None:
    body = {"input": ["x", "a longer text"], "options": {"profile": "batching", "return_meta": True}}
    loaded = registry.Registry(registry.Plan((source_of("mood", bags["mood"]),), profile="batching"))
    assert loaded.load() == []

    refused = classify(client, {"model": "mood", **body})
    with TestClient(build_app(loaded)) as batching:
        card = batching.get("/v1/models").json()["data"][0]
        found = classify(batching, body).json()
        exact = classify(batching, {"input": body["input"]}).json()
    loaded.close()

    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_request")
    assert "options.profile" in refused.json()["error"]["message"]
    assert (card["profile"], card["profiles"]) == ("exact", ["exact", "batching"])
    assert (found["meta"]["profile"], found["meta"]["graphs"]) == ("batching", ["model"])
    for one, other in zip(found["results"], exact["results"], strict=True):
        assert one["probabilities"] == pytest.approx(other["probabilities"], abs=1e-6)
