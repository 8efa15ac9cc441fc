"""Keys and request ids."""

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from vela.serve.http.app import build_app
from vela.serve.http.service import Settings

KEY = "s3cret"
BODY = {"model": "mood", "input": "hello"}


@pytest.fixture
def locked(loaded):
    with TestClient(build_app(loaded, Settings(api_key=KEY))) as client:
        yield client


@pytest.mark.parametrize("header", [None, "Bearer", "Bearer other", f"Basic {KEY}", f"Bearer {KEY} x", KEY])
def test_without_the_key_nothing_is_answered(locked: TestClient, header: str | None) -> None:
    headers = {} if header is None else {"authorization": header}

    answers = [locked.post("/v1/classify", json=BODY, headers=headers), locked.get("/v1/models", headers=headers)]

    assert [(answer.status_code, answer.json()["error"]["code"]) for answer in answers] == [(401, "unauthorized")] * 2
    assert all(KEY not in answer.text for answer in answers)


def test_with_the_key_everything_is(locked: TestClient) -> None:
    headers = {"authorization": f"bearer {KEY}"}

    assert locked.post("/v1/classify", json=BODY, headers=headers).status_code == 200
    assert locked.get("/v1/models", headers=headers).status_code == 200


def test_of_two_keys_the_first_counts(locked: TestClient) -> None:
    right, wrong = ("authorization", f"Bearer {KEY}"), ("authorization", "Bearer other")

    statuses = [
        locked.post("/v1/classify", json=BODY, headers=[*order]).status_code
        for order in ((right, wrong), (wrong, right))
    ]

    assert statuses == [200, 401]


@pytest.mark.parametrize("path", ["/health", "/livez", "/metrics", "/docs", "/openapi.json"])
def test_probes_scrapers_and_the_description_need_no_key(locked: TestClient, path: str) -> None:
    assert locked.get(path).status_code == 200


def test_the_description_says_that_a_key_is_needed(locked: TestClient, client: TestClient) -> None:
    assert locked.get("/openapi.json").json()["security"] == [{"key": []}]
    assert "security" not in client.get("/openapi.json").json()


@pytest.mark.parametrize("line", ["", "  ", "schlüssel", "tab\tinside"])
def test_a_key_that_clients_could_send_in_several_ways_is_refused(bag_store: Path, tmp_path: Path, vela, line) -> None:
    file = tmp_path / "key.txt"
    file.write_text(f"{line}\nanother line\n", encoding="utf-8")

    status, _, err = vela("serve", "--store", str(bag_store), "--port", "0", "--api-key-file", str(file))

    assert status == 1
    assert "expected a key of printable ASCII" in err


def test_settings_do_not_show_the_key() -> None:
    assert KEY not in repr(Settings(api_key=KEY))


def test_a_request_keeps_the_id_that_it_came_with(client: TestClient) -> None:
    answer = client.post("/v1/classify", json=BODY, headers={"x-request-id": "a-1.b:2_c"})

    assert answer.headers["x-request-id"] == "a-1.b:2_c"


@pytest.mark.parametrize("given", [None, "", "two words", "x" * 129, "späť".encode()])
def test_an_id_that_cannot_stand_in_a_log_line_is_replaced(client: TestClient, given) -> None:
    headers = {} if given is None else {"x-request-id": given}

    ids = [client.post("/v1/classify", json=BODY, headers=headers).headers["x-request-id"] for _ in range(2)]

    assert all(len(one) == 32 and one.isalnum() for one in ids)
    assert ids[0] != ids[1]
