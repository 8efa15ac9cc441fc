"""Closed-loop callers over kept-alive connections: each sends its next request when its last one is answered.

All callers share one thread and wait for their sockets together. What is done between two readings of the clock is one
send and the receives of one answer: requests are made before, answers are parsed after. With threads and `http.client`
sixteen callers would also measure how they wait for each other's interpreter lock. What the client takes of the
processor is measured and recorded, so that a reader can see that it is little.
"""

import gc
import selectors
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from vela.verify.latency import response as responses

RECEIVE_BYTES = 1 << 18
TIMEOUT_S = 120.0  # the longest texts of a 307M model on two cores take 10 s, and wait behind others of their kind
CONNECT_TIMEOUT_S = 5.0
GIVE_UP_AFTER = 20  # failures in a row: a server that hangs must not hold a phase for the timeout of every request
NOT_ASKED = "not asked, after too many failures"
Clock = Callable[[], int]
default_clock: Clock = time.perf_counter_ns


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens.

    Attributes:
        host: Name or number.
        port: Of TCP.
    """

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Exchange:
    """What became of one request.

    Attributes:
        latency_ns: From just before it was sent to its answer's last byte; None where no answer came.
        response: The answer; None where none came.
        failure: Why none came.
    """

    latency_ns: int | None = None
    response: responses.Response | None = None
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Replay:
    """What became of all requests of a phase.

    Attributes:
        exchanges: One for each request, in its order.
        seconds: From the first request's begin to the last answer's end.
        client_s: Processor time of this thread meanwhile.
        connections: How many were opened; more than callers where some were not kept alive.
    """

    exchanges: tuple[Exchange, ...]
    seconds: float
    client_s: float
    connections: int


def replay(
    address: Address,
    messages: Sequence[bytes],
    callers: int,
    *,
    clock: Clock = default_clock,
    timeout_s: float = TIMEOUT_S,
) -> Replay:
    """Send every message once, so many at a time at most.

    Args:
        address: Of the server.
        messages: Whole HTTP/1.1 requests.
        callers: Connections that wait for an answer each.
        clock: Nanoseconds; tests bring their own.
        timeout_s: After which a request has failed.
    """
    with _without_collections(), selectors.DefaultSelector() as selector:
        loop = _Loop(address, messages, selector, clock, timeout_s)
        begun, spent = clock(), time.thread_time()
        loop.run(callers)
        seconds, client_s = (clock() - begun) / 1e9, time.thread_time() - spent
    return Replay(tuple(loop.exchanges), seconds, client_s, loop.connections)


@contextmanager
def _without_collections() -> Iterator[None]:
    """Keep the garbage collector from running between two readings of the clock."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@dataclass(slots=True)
class _Caller:
    """One connection and the request that it waits for."""

    connection: socket.socket | None = None
    number: int = 0
    begun_ns: int = 0
    unsent: bytes = b""
    arriving: responses.Arriving = field(default_factory=responses.Arriving)


class _Loop:
    """The callers of one phase."""

    def __init__(
        self,
        address: Address,
        messages: Sequence[bytes],
        selector: selectors.BaseSelector,
        clock: Clock,
        timeout_s: float,
    ) -> None:
        self._address, self._messages, self._selector, self._clock = address, messages, selector, clock
        self._timeout_ns = int(timeout_s * 1e9)
        self._next = 0
        self._failures_in_a_row = 0
        self.exchanges = [Exchange(failure=NOT_ASKED)] * len(messages)
        self.connections = 0

    def run(self, callers: int) -> None:
        """Send everything and wait for it."""
        busy = [caller for caller in (_Caller() for _ in range(callers)) if self._begin(caller)]
        while busy:
            oldest = min(caller.begun_ns for caller in busy)
            wait_ns = max(0, oldest + self._timeout_ns - self._clock())
            for key, events in self._selector.select(wait_ns / 1e9):
                caller: _Caller = key.data
                if not self._advance(caller, events) and not self._begin(caller):
                    busy.remove(caller)
            now = self._clock()
            for caller in [one for one in busy if now - one.begun_ns >= self._timeout_ns]:
                self._fail(caller, "timeout")
                if not self._begin(caller):
                    busy.remove(caller)

    def _begin(self, caller: _Caller) -> bool:
        """Let a caller send the next request that can be sent; say whether there was one."""
        while self._next < len(self._messages) and self._failures_in_a_row < GIVE_UP_AFTER:
            caller.number, self._next = self._next, self._next + 1
            if caller.connection is None and not self._connect(caller):
                continue
            caller.arriving, caller.unsent = responses.Arriving(), self._messages[caller.number]
            caller.begun_ns = self._clock()
            if self._send(caller):
                return True
        self._close(caller)
        return False

    def _connect(self, caller: _Caller) -> bool:
        try:
            caller.connection = socket.create_connection((self._address.host, self._address.port), CONNECT_TIMEOUT_S)
        except OSError as cause:
            self._fail(caller, f"no connection ({cause.strerror or cause})")
            return False
        caller.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        caller.connection.setblocking(False)
        self._selector.register(caller.connection, selectors.EVENT_READ, caller)
        self.connections += 1
        return True

    def _send(self, caller: _Caller) -> bool:
        """Send as much as the socket takes; say whether the connection still stands."""
        if caller.connection is None:
            return False
        try:
            sent = caller.connection.send(caller.unsent)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._fail(caller, "connection dropped")
            return False
        caller.unsent = caller.unsent[sent:]
        if caller.unsent:
            self._selector.modify(caller.connection, selectors.EVENT_READ | selectors.EVENT_WRITE, caller)
        return True

    def _advance(self, caller: _Caller, events: int) -> bool:
        """Send or receive what can be; say whether the caller still waits."""
        if events & selectors.EVENT_WRITE and caller.connection is not None:
            self._selector.modify(caller.connection, selectors.EVENT_READ, caller)
            if not self._send(caller):
                return False
        return self._receive(caller) if events & selectors.EVENT_READ else True

    def _receive(self, caller: _Caller) -> bool:
        if caller.connection is None:
            return False
        try:
            received = caller.connection.recv(RECEIVE_BYTES)
            received_ns = self._clock()
            is_whole = caller.arriving.feed(received) if received else caller.arriving.finish()
        except BlockingIOError:
            return True
        except OSError:
            self._fail(caller, "connection dropped")
            return False
        except responses.NotHttp as cause:
            self._fail(caller, f"no HTTP answer ({cause})")
            return False
        if is_whole:
            self._finish(caller, received_ns)
        elif not received:
            self._fail(caller, "connection dropped")
        return not is_whole and bool(received)

    def _finish(self, caller: _Caller, received_ns: int) -> None:
        found = caller.arriving.take()
        # A coarse clock may not have moved; no answer takes no time, and ratios need more than 0.
        self.exchanges[caller.number] = Exchange(max(1, received_ns - caller.begun_ns), found)
        self._failures_in_a_row = 0
        if not found.keeps_alive or caller.unsent:  # an answer before the request's end is one to a part of it
            self._close(caller)

    def _fail(self, caller: _Caller, failure: str) -> None:
        self.exchanges[caller.number] = Exchange(failure=failure)
        self._failures_in_a_row += 1
        self._close(caller)

    def _close(self, caller: _Caller) -> None:
        if caller.connection is not None:
            self._selector.unregister(caller.connection)
            caller.connection.close()
            caller.connection = None
