"""A request's body: bounded before it is parsed, then decoded into its struct."""

from collections.abc import Mapping
from typing import TypeVar

import msgspec
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from vela.graphs import errors

Body = TypeVar("Body", bound=msgspec.Struct)


async def read_body(headers: Mapping[bytes, bytes], receive: Receive, limit_bytes: int) -> bytes:
    """Read a body of at most `limit_bytes`, counting what arrives and not what a header promises.

    Raises:
        RequestTooLarge: it is larger; the rest is not read.
        ClientDisconnect: the client went away before its end.
    """
    length = headers.get(b"content-length", b"")
    if length.isdigit() and int(length) > limit_bytes:
        raise _too_large(f"{int(length)} bytes", limit_bytes)
    chunks, size, is_more = list[bytes](), 0, True
    while is_more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunks.append(message.get("body", b""))
        size, is_more = size + len(chunks[-1]), message.get("more_body", False)
        if size > limit_bytes:
            raise _too_large(f"more than {limit_bytes} bytes", limit_bytes)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def decode_body(content: bytes, decoder: msgspec.json.Decoder[Body]) -> Body:
    """Decode and validate JSON.

    Raises:
        InvalidRequest: it is no JSON, nested too deeply, not UTF-8, or does not fit; the message names the field.
    """
    try:
        return decoder.decode(content)
    except (msgspec.MsgspecError, RecursionError, ValueError) as cause:
        raise errors.InvalidRequest(
            str(cause) or "JSON nested too deeply",
            expected="the JSON body that the route takes",
            where="body",
            fix="The fields and their types are in the API's documentation; unknown fields are refused.",
        ) from cause


async def wait_until_gone(receive: Receive) -> None:
    """Return when the client has closed the connection; the body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _too_large(found: str, limit_bytes: int) -> errors.RequestTooLarge:
    return errors.RequestTooLarge(
        f"a body of {found}",
        expected=f"at most {limit_bytes} bytes",
        where="body",
        fix="Send fewer inputs at a time; limits.max_request_bytes in GET /v1/models is the bound.",
    )
