"""POST /v1/bundle: each task gets what it would have got alone."""

import pytest
from starlette.testclient import TestClient

TASKS = {
    "mood": ("classify", {"model": "mood", "input": ["hello", ""]}),
    "names": ("classify", {"model": "names", "input": "Ann in Rome"}),
    "vectors": ("embeddings", {"model": "vectors", "input": "hello", "dimensions": 4}),
    "ranks": ("rerank", {"model": "ranks", "query": "a", "documents": ["b", "c"]}),
    "nobody": ("classify", {"model": "nobody", "input": "x"}),
    "not a classifier": ("classify", {"model": "vectors", "input": "x"}),
    "too long": ("embeddings", {"model": "vectors", "input": "x" * 1000}),
}


def ask(client: TestClient, *names: str, **options):
    tasks = [{"id": name, TASKS[name][0]: TASKS[name][1]} for name in names]
    return client.post("/v1/bundle", json={"tasks": tasks, **options})


def test_every_task_gets_the_status_and_the_body_that_it_gets_alone(client: TestClient) -> None:
    answer = ask(client, *TASKS)

    assert answer.status_code == 200
    results = answer.json()["results"]
    assert [result["id"] for result in results] == list(TASKS)
    for result in results:
        surface, body = TASKS[result["id"]]
        alone = client.post(f"/v1/{surface}", json=body)
        assert result["status"] == alone.status_code
        assert result.get("response", {"error": result.get("error")}) == alone.json()
    assert {result["status"] for result in results} == {200, 400, 404, 422}


def test_the_headers_sum_up_what_ran(client: TestClient) -> None:
    headers = ask(client, "mood", "vectors").headers

    assert headers["x-vela-bucket"] == "model"
    assert headers["x-vela-truncated"] == "0"
    stages = dict(part.split(";dur=") for part in headers["server-timing"].split(", "))
    assert float(stages["forward"]) > 0


def test_a_deadline_of_the_whole_holds_for_every_task(client: TestClient) -> None:
    results = ask(client, "mood", "vectors", options={"deadline_ms": 0.001}).json()["results"]

    assert results[0]["response"]["results"][0]["error"]["code"] == "deadline_exceeded"
    assert (results[1]["status"], results[1]["error"]["code"]) == (429, "overloaded")


@pytest.mark.parametrize(
    ("tasks", "named"),
    [
        ([], "tasks"),
        ([{"id": "a"}], "exactly one of classify, embeddings, rerank"),
        ([{"id": "a", "classify": {"input": "x"}, "rerank": {"query": "a", "documents": ["b"]}}], "exactly one of"),
        ([{"id": "a", "classify": {"input": "x"}}] * 2, "tasks of one id"),
        ([{"id": str(number), "classify": {"input": "x"}} for number in range(65)], "tasks"),
        ([{"id": "a", "classify": {"input": "x", "odd": 1}}], "odd"),
    ],
)
def test_a_bundle_that_is_wrong_is_refused_whole(client: TestClient, tasks: list, named: str) -> None:
    answer = client.post("/v1/bundle", json={"tasks": tasks})

    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")
    assert named in answer.json()["error"]["message"]


def test_its_limit_is_on_the_cards(client: TestClient) -> None:
    assert client.get("/v1/models").json()["limits"]["max_bundle_tasks"] == 64
