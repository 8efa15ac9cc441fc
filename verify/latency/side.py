"""A side: a server under an address, with the options that its requests get, as the command line names it.

It is a server that runs already, or a command that starts one on a port that is chosen here.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import urlsplit

import msgspec

from vela.graphs import errors
from vela.verify.latency import callers, corpus

PORT = "{port}"
SCHEME = "http://"
DEFAULT_PORT = 80
NAME_LIMIT = 40
OPTIONS = "options"


@dataclass(frozen=True, slots=True)
class Side:
    """A server that is asked.

    Attributes:
        name: On tables and plots.
        address: Where it listens.
        prefix: Of every path; empty or beginning with a slash.
        options: Merged into each request's `options`.
        headers: Sent with each request.
        command: What started it; empty where it ran already.
    """

    name: str
    address: callers.Address
    prefix: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    headers: tuple[tuple[str, str], ...] = ()
    command: str = ""

    @property
    def url(self) -> str:
        """The address as a reader writes it."""
        host = f"[{self.address.host}]" if ":" in self.address.host else self.address.host
        return f"{SCHEME}{host}:{self.address.port}{self.prefix}"

    def messages(self, asked: corpus.Corpus) -> list[bytes]:
        """Make the whole HTTP requests, so that nothing of it is done while they are timed."""
        return [self._message(request) for request in asked.requests]

    def _message(self, request: corpus.Request) -> bytes:
        body = dict(request.body)
        if self.options:
            stated = body.get(OPTIONS)
            body[OPTIONS] = {**(stated if isinstance(stated, dict) else {}), **self.options}
        content = msgspec.json.encode(body)
        host = self.url[len(SCHEME) :].partition("/")[0]
        lines = [
            f"POST {self.prefix}{request.path} HTTP/1.1",
            f"host: {host}",
            "content-type: application/json",
            f"content-length: {len(content)}",
            *(f"{name}: {value}" for name, value in self.headers),
        ]
        return "\r\n".join([*lines, "", ""]).encode("ascii") + content


@dataclass(frozen=True, slots=True)
class Asked:
    """A side as it was named on the command line.

    Attributes:
        name: Its name.
        target: An address, or a command with `{port}` in it.
        options: For its requests.
    """

    name: str
    target: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_texts(cls, sides: Sequence[str], options: Sequence[str]) -> tuple[Self, ...]:
        """Read `NAME=URL` or `NAME=command`, and `NAME={...}` for options.

        Raises:
            VerificationError: one of them is none, or names a side twice or one that is not there.
        """
        named = dict(_split(text, "--side") for text in sides)
        given = dict(_split(text, "--options") for text in options)
        if len(named) < len(sides) or len(given) < len(options) or given.keys() - named.keys():
            raise _misnamed(sides, options)
        return tuple(cls(name, target, _options(name, given.get(name, "{}"))) for name, target in named.items())

    @property
    def is_command(self) -> bool:
        """Whether the server must be started."""
        return "://" not in self.target.split(" ", 1)[0]

    def words(self, port: int) -> list[str]:
        """Give the command's words for a port; no shell reads them."""
        try:
            found = [word.replace(PORT, str(port)) for word in shlex.split(self.target)]
        except ValueError as cause:
            raise _no_command(self.target, str(cause)) from cause
        if not found or PORT not in self.target:
            raise _no_command(self.target, f"no {PORT} in it")
        return found

    def at(self, port: int, headers: tuple[tuple[str, str], ...] = ()) -> Side:
        """Give the side that its command serves on a port of this machine."""
        return Side(self.name, callers.Address("127.0.0.1", port), "", self.options, headers, self.target)

    def running(self, headers: tuple[tuple[str, str], ...] = ()) -> Side:
        """Give the side that answers at its address already."""
        address, prefix = parse_url(self.target)
        return Side(self.name, address, prefix, self.options, headers)


def parse_url(text: str) -> tuple[callers.Address, str]:
    """Read an address such as `http://127.0.0.1:8080/models`, and the prefix of its paths.

    Raises:
        VerificationError: it is none; TLS is not spoken here, because its time would be measured too.
    """
    try:
        parts = urlsplit(text)
        port = parts.port if parts.port is not None else DEFAULT_PORT
        (parts.hostname or "").encode("idna")
    except ValueError:
        parts, port = urlsplit(""), 0
    prefix = parts.path.rstrip("/")
    is_plain = text.isascii() and text.isprintable() and " " not in text
    if parts.scheme != "http" or not parts.hostname or parts.username or parts.query or not is_plain or not port:
        raise errors.VerificationError(
            repr(text[:200]),
            expected="http://HOST:PORT, without TLS, user or query",
            where="the address of a server",
            fix="Ask the server itself, on its own port; a proxy that ends TLS would be measured with it.",
        )
    return callers.Address(parts.hostname, port), prefix


def _split(text: str, where: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not value.strip() or not name.isprintable() or not 0 < len(name.strip()) <= NAME_LIMIT:
        raise errors.VerificationError(
            repr(text[:200]),
            expected=f"NAME=…, with a name of up to {NAME_LIMIT} characters",
            where=where,
            fix="Such as --side new=http://127.0.0.1:8080.",
        )
    return name.strip(), value.strip()


def _options(name: str, text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as cause:
        raise errors.VerificationError(
            f"{text[:200]!r} ({cause})",
            expected="a JSON object",
            where=f"--options {name}",
            fix="""Such as --options new='{"profile": "batching"}'.""",
        ) from cause


def _misnamed(sides: Sequence[str], options: Sequence[str]) -> errors.VerificationError:
    return errors.VerificationError(
        f"--side {', '.join(text.partition('=')[0] for text in sides)}"
        + (f" and --options {', '.join(text.partition('=')[0] for text in options)}" if options else ""),
        expected="each name once, and options only of sides that are named",
        where="the command line",
        fix="Give each side a name of its own.",
    )


def _no_command(target: str, found: str) -> errors.VerificationError:
    return errors.VerificationError(
        f"{target[:200]!r} ({found})",
        expected=f"an address, or a command with {PORT} where the port belongs",
        where="--side",
        fix=f"Such as --side 'new=vela serve --store STORE --port {PORT}'.",
    )
