"""Who answers at an address, and whether it is still the same afterwards: its models, its process, when it began."""

import http.client
import math
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from vela.verify.latency import processes, record, side

TIMEOUT_S = 10.0
BODY_LIMIT_BYTES = 8 << 20
OK = 200
# Of a model's card. What a server of another kind says under these names is taken as it is.
CARD_FACTS = ("model_sha256", "manifest_sha256", "revision", "engine", "device", "dtype", "profiles", "status")
FACT_LIMIT = 200  # characters
# What Prometheus' clients say of a process, and of each counter; the oldest counter is as old as its process.
PROCESS_START, COUNTER_START = "process_start_time_seconds", "_created"
START_NOISE_S = 1.0  # between two readings of a start that is computed from a clock that is being set
LOCAL = ("127.0.0.1", "localhost", "::1")


def identify(asked: side.Side) -> record.Identity:
    """Ask who answers; what is not said is left out, because other servers have other routes."""
    process = processes.Process.from_port(asked.address.port) if asked.address.host in LOCAL else None
    return record.Identity(
        models=_models(_get(asked, "/v1/models")),
        started_s=_started_s(_get(asked, "/metrics")),
        process=(process.pid, process.start) if process else None,
    )


def changes(actual: record.Identity, expected: record.Identity) -> tuple[str, ...]:
    """Say what is another than it was before; what was not said at either time is no change."""
    return tuple(_changes(actual, expected))


def _changes(actual: record.Identity, expected: record.Identity) -> Iterator[str]:
    if None not in (actual.process, expected.process) and actual.process != expected.process:
        yield "another process listens"
    elif expected.process is not None and actual.process is None:
        yield "no process listens any more"
    if actual.started_s is not None and expected.started_s is not None:
        later_s = actual.started_s - expected.started_s
        if abs(later_s) > START_NOISE_S:
            yield f"the server began {later_s:.0f} s later than the one before"
    for name in sorted({*actual.models, *expected.models}):
        found, wanted = actual.models.get(name), expected.models.get(name)
        if found != wanted and actual.models:
            facts = [key for key in CARD_FACTS if (found or {}).get(key) != (wanted or {}).get(key)]
            yield f"model {name} changed: {', '.join(facts) or 'it came or went'}"
    if expected.models and not actual.models:
        yield "the server lists no models any more"


def _get(asked: side.Side, path: str) -> bytes:
    """Give a body, or nothing: a server without the route, or without a life, says nothing."""
    connection = http.client.HTTPConnection(asked.address.host, asked.address.port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", asked.prefix + path, headers=dict(asked.headers))
        found = connection.getresponse()
        body = found.read(BODY_LIMIT_BYTES)
    except (OSError, http.client.HTTPException):
        return b""
    finally:
        connection.close()
    return body if found.status == OK else b""


def _models(body: bytes) -> dict[str, dict[str, str]]:
    try:
        said = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
    cards = said.get("data") if isinstance(said, Mapping) else None
    found = [card for card in cards if isinstance(card, Mapping)] if isinstance(cards, list) else []
    return {_text(card.get("id")): {key: _text(card[key]) for key in CARD_FACTS if key in card} for card in found}


def _text(value: Any) -> str:
    said = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return "".join(one if one.isprintable() else " " for one in said[:FACT_LIMIT])


def _started_s(body: bytes) -> float | None:
    """Read when the process began from Prometheus' text."""
    created: list[float] = []
    for line in body.decode("utf-8", "replace").splitlines():
        name, _, value = line.rpartition(" ")
        bare = name.partition("{")[0]
        if bare != PROCESS_START and not bare.endswith(COUNTER_START):
            continue
        try:
            seconds = float(value)
        except ValueError:
            continue
        if bare == PROCESS_START and math.isfinite(seconds):
            return seconds
        if math.isfinite(seconds):
            created.append(seconds)
    return min(created, default=None)
