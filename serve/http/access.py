"""Who may ask, and what is logged of each request: a key, an id, and a line of JSON.

The line holds no text of a request: prompts are not the log's business.
"""

import hmac
import itertools
import json
import logging
import re
import time
import uuid
from collections.abc import Mapping
from typing import Any

from vela.graphs import errors
from vela.serve.http.exchange import Exchange

REQUEST_ID = b"x-request-id"
_GIVEN_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")

_PROCESS = uuid.uuid4().hex[:16]
_numbers = itertools.count()

logger = logging.getLogger("vela.access")


def request_id_of(headers: Mapping[bytes, bytes]) -> str:
    """Give the id that a caller sent, where it can stand in a header and a log line, else a new one."""
    given = headers.get(REQUEST_ID)
    return given.decode() if given and _GIVEN_ID.fullmatch(given) else f"{_PROCESS}{next(_numbers):016x}"


def require_key(headers: Mapping[bytes, bytes], key: str | None) -> None:
    """Refuse a request without the server's key, if it has one.

    Raises:
        Unauthorized: none was given, or another.
    """
    if key is None:
        return
    scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() == b"bearer" and hmac.compare_digest(given.strip(), key.encode()):
        return
    raise errors.Unauthorized(
        "another key" if given else "no key",
        expected="the server's key, as `Authorization: Bearer KEY`",
        where="authorization header",
        fix="Ask whoever runs the server for it.",
    )


def log(method: str, path: str, status: int, exchange: Exchange) -> None:
    """Write a request's line."""
    if logger.isEnabledFor(logging.INFO):
        facts = {
            "request_id": exchange.request_id,
            "method": method,
            "path": path,
            "status": status,
            "model": exchange.model_name,
            "graphs": exchange.graph_ids,
            "timing_ms": exchange.timing_ms(),
        }
        logger.info("%s %s %d", method, path, status, extra={"facts": facts})


class JsonFormatter(logging.Formatter):
    """Log records as JSON, one a line."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter.format`."""
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "facts", {}),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)
