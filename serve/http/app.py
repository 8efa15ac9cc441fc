"""The Starlette app: the edge that owns requests, where every error becomes a status."""

import asyncio
import importlib.resources
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from vela.graphs import errors
from vela.serve.http import access, body, health, openapi, routes
from vela.serve.http import errors as http_errors
from vela.serve.http.exchange import Exchange, Header
from vela.serve.http.service import ClientGone, Service, Settings
from vela.serve.registry import Registry

logger = logging.getLogger(__name__)

Endpoint = Callable[[Request], Awaitable[Response]]
# From a request to the status, the headers and the body of its answer.
Answering = Callable[[Scope, Receive], Awaitable[tuple[int, list[Header], bytes]]]

# nginx's number for a client that closed the connection; nobody receives it, but logs and metrics count it.
CLIENT_CLOSED = 499
CONTENT_TYPE = health.JSON.encode()


def build_app(registry: Registry, settings: Settings | None = None) -> ASGIApp:
    """Make the app over a registry; who loads the registry, and when, is the caller's business."""
    service = Service(registry, settings or Settings())

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        service.close()

    answering = {post.path: _answering(service, post) for post in routes.POSTS}
    table = [Route(path, _as_endpoint(answer), methods=["POST"]) for path, answer in answering.items()]
    for get in routes.GETS:
        table += [Route(path, _get_endpoint(service, get), methods=["GET"]) for path in get.paths]
    document = msgspec.json.encode(openapi.describe_api(has_key=service.settings.api_key is not None))
    table += [_fixed("/openapi.json", document, health.JSON), _fixed("/docs", _read_docs(), "text/html")]
    rest = Starlette(routes=table, lifespan=lifespan, exception_handlers={HTTPException: _no_such_route})
    return _straight(answering, rest)


def _straight(answering: Mapping[str, Answering], rest: ASGIApp) -> ASGIApp:
    """Answer the routes that carry requests straight from a table, and let Starlette route the others.

    Its router, its response and the layers around them take two tenths of a millisecond of each request, met with cold
    caches after every forward, and do nothing for these.
    """

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        answer = answering.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if answer is None:
            await rest(scope, receive, send)
            return
        status, headers, content = await answer(scope, receive)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    return app


def _as_endpoint(answer: Answering) -> Endpoint:
    """Let Starlette route it too: what it answers to other methods is its own."""

    async def endpoint(request: Request) -> Response:
        status, headers, content = await answer(request.scope, request.receive)
        return Response(content, status, {name.decode(): value.decode() for name, value in headers})

    return endpoint


def _answering(service: Service, post: routes.Post) -> Answering:
    decoder = msgspec.json.Decoder(post.request)

    async def answer(scope: Scope, receive: Receive) -> tuple[int, list[Header], bytes]:
        headers = dict(reversed(scope["headers"]))  # of a name that is given twice the first counts
        watch = lambda: asyncio.create_task(body.wait_until_gone(receive))  # noqa: E731
        exchange = Exchange(watch, access.request_id_of(headers))
        status, content = await _answer(service, post, decoder, headers, receive, exchange)
        exchange.mark("serialize")
        told = exchange.headers()
        # counted and logged when the answer is on its way
        asyncio.get_running_loop().call_soon(_note, service, post.path, scope, status, exchange)
        told += [(b"content-type", CONTENT_TYPE), (b"content-length", b"%d" % len(content))]
        return status, told, content

    return answer


def _note(service: Service, path: str, scope: Scope, status: int, exchange: Exchange) -> None:
    for act in exchange.when_sent:
        act()
    service.metrics.requests.labels(path, exchange.model_name, status).inc()
    service.metrics.duration.labels(path).observe(exchange.elapsed_s())
    access.log(scope["method"], path, status, exchange)


async def _answer(
    service: Service,
    post: routes.Post,
    decoder: msgspec.json.Decoder[msgspec.Struct],
    headers: Mapping[bytes, bytes],
    receive: Receive,
    exchange: Exchange,
) -> tuple[int, bytes]:
    try:
        access.require_key(headers, service.settings.api_key)
        content = await body.read_body(headers, receive, service.settings.max_request_bytes)
        decoded = body.decode_body(content, decoder)
        exchange.mark("parse")
        return 200, msgspec.json.encode(await post.handle(service, exchange, decoded))
    except errors.VelaError as error:
        status, code = http_errors.status_of(error)
        if isinstance(error, errors.Overloaded):
            exchange.ask_later(error.retry_after_s)
        service.metrics.rejected.labels(code).inc()
        return status, http_errors.error_body(code, str(error))
    except (ClientGone, ClientDisconnect):
        service.metrics.cancelled.inc()
        return CLIENT_CLOSED, b""
    except Exception:
        logger.exception("a bug while answering %s", post.path)
        status, code = http_errors.INTERNAL
        return status, http_errors.error_body(code, "a bug in the server; its log has the trace")


def _get_endpoint(service: Service, get: routes.Get) -> Endpoint:
    is_open = not get.paths[0].startswith("/v1/")  # probes and scrapers have no key

    async def endpoint(request: Request) -> Response:
        try:
            access.require_key(dict(reversed(request.scope["headers"])), None if is_open else service.settings.api_key)
        except errors.Unauthorized as error:
            status, code = http_errors.status_of(error)
            return Response(http_errors.error_body(code, str(error)), status, media_type=health.JSON)
        report = get.handle(service)
        return Response(report.content, report.status, media_type=report.media_type)

    return endpoint


def _fixed(path: str, content: bytes, media_type: str) -> Route:
    async def endpoint(_: Request) -> Response:
        return Response(content, media_type=media_type)

    return Route(path, endpoint, methods=["GET"])


def _read_docs() -> bytes:
    return importlib.resources.files("vela.serve.http").joinpath("assets", "docs.html").read_bytes()


def _no_such_route(request: Request, refusal: Exception) -> Response:
    """Answer an unknown path or method in the surface's own shape."""
    status = refusal.status_code if isinstance(refusal, HTTPException) else http_errors.INTERNAL[0]
    headers = refusal.headers if isinstance(refusal, HTTPException) else None
    message = f"{request.method} {request.url.path}: found no such route; expected one of the documented ones."
    return Response(http_errors.error_body("invalid_request", message), status, headers, health.JSON)
