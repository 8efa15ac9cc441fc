"""Bodies that are hostile, too large or in pieces."""

import json

import httpx
import pytest
from starlette.testclient import TestClient


def error_of(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not json",
        b'{"model": "mood", "input": "\\ud800"}',
        b'{"model": "mood", "input": "x", "options": {"threshold": NaN}}',
        b'{"model": "mood", "input": ' + b"[" * 100_000,
        b'{"model": "mood", "input": ' + b'{"text":' * 20_000 + b"1" + b"}" * 20_001,
        b'{"model": "mood", "input": "x", "options": ' + b'{"window":' * 10_000 + b"{}" + b"}" * 10_001,
        b'{"model": "mood", "input": "\xff"}',
        b'{"model": "mood", "input": "x"} {"model": "mood"}',
        b'[{"model": "mood"}]',
        b"null",
    ],
)
def test_a_hostile_body_is_a_400_with_a_message(client: TestClient, content: bytes) -> None:
    assert error_of(client.post("/v1/classify", content=content)) == (400, "invalid_request")


def test_a_nul_and_control_characters_are_text(client: TestClient) -> None:
    response = client.post("/v1/classify", json={"model": "names", "input": "a\x00b\x1f\u200b\ufeff"})

    assert response.status_code == 200
    assert "error" not in response.json()["results"][0]


def test_a_body_over_the_limit_is_413_by_its_header_and_by_its_bytes(client: TestClient) -> None:
    whole = json.dumps({"model": "mood", "input": "x" * 200_000}).encode()

    declared = client.post("/v1/classify", content=whole)
    streamed = client.post("/v1/classify", content=(whole[at : at + 1000] for at in range(0, len(whole), 1000)))

    assert error_of(declared) == error_of(streamed) == (413, "request_too_large")


def test_a_body_in_small_pieces_is_answered(client: TestClient) -> None:
    whole = json.dumps({"model": "mood", "input": "x"}).encode()

    response = client.post("/v1/classify", content=(whole[at : at + 1] for at in range(len(whole))))

    assert response.status_code == 200
