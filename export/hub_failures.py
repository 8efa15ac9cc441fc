"""What goes wrong between a Hub and its cache, in the words of whoever releases: which of it passes, and what to do.

What a server says is never shown but for numbers, and no request is, because it may hold a token.
"""

from pathlib import Path

import httpx2
from huggingface_hub.utils import parse_ratelimit_headers  # type: ignore[attr-defined]

from vela.graphs import errors, model_table

LONGEST_WAIT_S = 60.0  # for one file; whoever is asked to wait longer runs again later
BACK_OFF_S = 1.0  # doubled each time, where a Hub does not say how long
TOO_MANY_REQUESTS = 429
PASSING_STATUS = (408, TOO_MANY_REQUESTS, 500, 502, 503, 504)  # as huggingface_hub takes them
DIGITS = 9  # of seconds to wait; more are never waited for
LONGEST_HEADER = 200  # characters that are parsed; the Hub's has 30
LATER = "Run again later; files that were fetched stay."
TOKEN = "a token of an account that may read it: `hf auth login`, or HF_TOKEN"


class Busy(Exception):
    """The Hub cannot answer now.

    Args:
        status: Its HTTP status.
        seconds: How long it asks to wait; None where it does not say.
    """

    def __init__(self, status: int, seconds: float | None) -> None:
        super().__init__(f"HTTP status {status}")
        self.status = status
        self.seconds = seconds

    @classmethod
    def from_response(cls, response: httpx2.Response) -> "Busy":
        """Read what a Hub's headers say; the Hub's own is `ratelimit`, a mirror's mostly `retry-after`."""
        headers = response.headers
        limit = parse_ratelimit_headers({"ratelimit": headers.get("ratelimit", "")[:LONGEST_HEADER]})
        if response.status_code == TOO_MANY_REQUESTS and limit is not None and limit.remaining == 0:
            return cls(response.status_code, float(limit.reset_in_seconds) + 1)  # it rounds down
        text = headers.get("retry-after", "").strip()
        return cls(response.status_code, float(text[:DIGITS]) if text.isdecimal() else None)


PASSING = (Busy, httpx2.TimeoutException, httpx2.NetworkError, httpx2.RemoteProtocolError)
_NO_CONNECTION = (httpx2.ConnectError, httpx2.ConnectTimeout)


def where(entry: model_table.ModelEntry, name: str) -> str:
    """Give the words for a file of a pinned model."""
    return f"{entry.repository} at {entry.revision[:12]}, {name}"


def pause_after(cause: Exception, attempt: int) -> float:
    """Give how many seconds to wait after a try that brought nothing.

    Args:
        cause: What stopped it, of PASSING.
        attempt: How many tries went before it.
    """
    if isinstance(cause, Busy) and cause.seconds is not None:
        return cause.seconds
    if isinstance(cause, _NO_CONNECTION) and attempt == 0:
        return float("inf")  # no network at all, mostly: said at once
    return BACK_OFF_S * 2.0**attempt


def trouble(cause: Exception, have: int) -> str:
    """Give the words for what stopped a try that goes on."""
    return f"the Hub answers {cause.status}" if isinstance(cause, Busy) else f"broken off at {have:,} bytes"


def lasting(cause: Exception, have: int, where: str) -> errors.CheckpointError:
    """Say what stops a file's transfer that might have passed by itself, and did not."""
    if isinstance(cause, Busy) and cause.seconds is not None:
        found = f"a Hub that asks to wait {cause.seconds:g} s ({cause.status})"
        expected = f"one that serves within {LONGEST_WAIT_S:g} s"
        fix = "Run again after that; with a token (`hf auth login`) a Hub allows more. Files that were fetched stay."
    elif isinstance(cause, Busy):
        found, expected, fix = f"a Hub that answers {cause.status}", "the pinned file", LATER
    elif isinstance(cause, _NO_CONNECTION):
        address = cause.request.url
        found = f"no connection to {address.scheme}://{address.netloc.decode()} ({str(cause) or 'no answer in time'})"
        expected = "a Hub, as the cache does not hold the pinned file"
        fix = "Look at the network, HF_ENDPOINT and proxies, or name a local --checkpoint."
    else:
        found = f"a transfer that broke off after {have:,} bytes ({str(cause) or type(cause).__name__})"
        expected = "the whole file"
        fix = "Run again: it goes on from there, and files that were fetched stay."
    return errors.CheckpointError(found, expected=expected, where=where, fix=fix)


def refused(cause: httpx2.HTTPError, entry: model_table.ModelEntry, where: str) -> errors.CheckpointError:
    """Say what a Hub's refusal means, or an answer that is none."""
    if isinstance(cause, httpx2.HTTPStatusError):
        found, fix = _status(cause.response, entry)
    elif isinstance(cause, httpx2.TooManyRedirects):
        found = "redirections without an end"
        fix = "The Hub, or something before it, is set up wrong: try another HF_ENDPOINT, or later."
    elif isinstance(cause, httpx2.LocalProtocolError):  # its words may hold the token
        found, fix = "a request that HTTP does not allow", "Look at HF_TOKEN and HF_ENDPOINT for stray characters."
    elif isinstance(cause, httpx2.ProxyError | httpx2.UnsupportedProtocol):
        found, fix = f"no way to the Hub ({cause})", "Look at HF_ENDPOINT and proxies, or name a local --checkpoint."
    else:
        found, fix = f"an answer that cannot be used ({cause})", LATER
    return errors.CheckpointError(found, expected="the pinned file", where=where, fix=fix)


def _status(response: httpx2.Response, entry: model_table.ModelEntry) -> tuple[str, str]:
    """Give what a status and the Hub's code beside it mean, and what to do."""
    status = response.status_code
    match response.headers.get("x-error-code", ""), status:
        case "RevisionNotFound", _:
            fix = "The revision was removed, or the table pins another Hub's: look at the repository's history."
            return f"no revision {entry.revision} of {entry.repository}", fix
        case "EntryNotFound", _:
            fix = "The Hub's repository is not what the table pins: look at its history, or name a local --checkpoint."
            return "no such file in the repository", fix
        case "GatedRepo", _:
            return f"a repository that asks for consent ({status})", f"Accept its terms on the Hub, then give {TOKEN}."
        case ("RepoNotFound", _) | (_, 401):
            return f"no repository that this account may read ({status})", f"If it is private, give {TOKEN}."
        case _, 403:
            return f"an account that may not read it ({status})", f"Give {TOKEN}."
        case _, 404:
            fix = "Look at HF_ENDPOINT: a mirror may lack it. Or name a local --checkpoint."
            return f"no such file at that address ({status})", fix
    return f"a Hub that answers {status}", LATER


def other_bytes(found: str, expected: str, where: str) -> errors.CheckpointError:
    """Say that what was served is not what is pinned."""
    return errors.CheckpointError(
        f"sha256 {found}",
        expected=f"sha256 {expected}, as pinned",
        where=where,
        fix="The Hub, or something before it, serves other bytes than the pinned ones; they were thrown away. "
        "Run again, and if it stays so, look who altered them.",
    )


def no_request(cause: Exception, where: str) -> errors.CheckpointError:
    """Say that a repository's name, an address or a token fits in no request."""
    return errors.CheckpointError(
        f"what no request can be made of ({cause})",
        expected="a repository, an address and a token as a Hub has them",
        where=where,
        fix="Look at the table's repository, HF_ENDPOINT and HF_TOKEN for stray characters.",
    )


def no_cache(path: Path, cause: OSError) -> errors.CheckpointError:
    """Say that the cache cannot be read or written."""
    return errors.CheckpointError(
        f"a cache that cannot be used ({cause.strerror or cause})",
        expected="one that can be read and written, with room",
        where=str(path),
        fix="Make room or give access, or name another cache by HF_HOME; what was fetched stays.",
    )


def no_client(cause: Exception) -> errors.CheckpointError:
    """Say that no connection can even be tried."""
    return errors.CheckpointError(
        f"settings of the network that cannot be used ({cause})",
        expected="certificates and proxies that are there, or none named",
        where="SSL_CERT_FILE, SSL_CERT_DIR, HTTPS_PROXY, HTTP_PROXY",
        fix="Mend or unset these variables; nothing was fetched.",
    )


def offline(found: str, expected: str, path: Path) -> errors.CheckpointError:
    """Say that the cache does not have a file, and that nothing may be fetched."""
    return errors.CheckpointError(
        f"sha256 {found}" if found else "no such file",
        expected=f"sha256 {expected}, as pinned",
        where=str(path),
        fix="HF_HUB_OFFLINE is set, so nothing is fetched: unset it once, or name a local --checkpoint.",
    )
