"""The API described by the structs that decode its requests and encode its answers, so it cannot say otherwise."""

import re
from typing import Any

import msgspec

from vela.serve.http import errors as http_errors
from vela.serve.http import routes, structs
from vela.serve.http.cards import API_VERSION

VERSION = "3.1.0"
# Which of the error statuses a route may answer with, and what each means to a caller.
ERRORS = {
    "400": "The body or a field of it is wrong; the message names the field.",
    "401": "The server asks for a key, and none or another was given.",
    "404": "No model of that name is loaded.",
    "413": "The body is larger than the server takes.",
    "422": "The model does not answer this route.",
    "429": "Too much is waiting; Retry-After says when to try again.",
    "500": "A bug, or an answer that is no number; the server's log has the trace.",
    "503": "Not ready, stopping, or out of time.",
}
HEADERS = {
    "server-timing": "Milliseconds by stage.",
    "x-request-id": "The request's id, as given or made.",
    "x-vela-model": "Who answered.",
    "x-vela-model-sha256": "Of which checkpoint.",
    "x-vela-ep": "On which execution provider.",
    "x-vela-bucket": "Through which graphs.",
    "x-vela-truncated": "1 where an input was cut, as asked.",
}


def describe_api(*, has_key: bool) -> dict[str, Any]:
    """Give the OpenAPI document.

    Args:
        has_key: Whether requests need a key.
    """
    described = [struct for post in routes.POSTS for struct in (post.request, post.response)]
    described += [get.response for get in routes.GETS if get.response is not None]
    described.append(http_errors.ErrorResponse)
    references, components = structs.describe(described)
    schema_of = dict(zip(described, references, strict=True))
    failure = _json(schema_of[http_errors.ErrorResponse])
    paths: dict[str, Any] = {}
    for post in routes.POSTS:
        answered = _json(schema_of[post.response]) | {"description": "Answered.", "headers": _headers()}
        paths[post.path] = {
            "post": {
                "operationId": _operation_id(post.path),
                "summary": _summary(post.request),
                "requestBody": {"required": True} | _json(schema_of[post.request]),
                "responses": {"200": answered} | {code: failure | {"description": why} for code, why in ERRORS.items()},
            }
        }
    for get in routes.GETS:
        content: dict[str, Any] = _json(schema_of[get.response]) if get.response else {"content": {get.media_type: {}}}
        for path in get.paths:
            answers = {"200": content | {"description": "Answered."}}
            answers |= {code: content | {"description": ERRORS[code]} for code in get.failures}
            paths[path] = {
                "get": {
                    "operationId": _operation_id(path),
                    "summary": get.summary,
                    "responses": answers,
                    "security": [],
                }
            }
    document: dict[str, Any] = {
        "openapi": VERSION,
        "info": {"title": "Vela", "version": API_VERSION, "summary": "Proven ONNX graphs of text models."},
        "paths": paths,
        "components": {"schemas": components},
    }
    if has_key:
        document["components"] |= {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}}
        document["security"] = [{"key": []}]
    return document


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": schema}}}


def _headers() -> dict[str, Any]:
    return {name: {"description": why, "schema": {"type": "string"}} for name, why in HEADERS.items()}


def _operation_id(path: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", path).strip("_")


def _summary(struct: type[msgspec.Struct]) -> str:
    return (struct.__doc__ or "").strip().partition("\n")[0]
