"""Servers that a command starts for a measurement: started once, waited for, and ended with everything they started."""

import http.client
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import IO

from vela.graphs import errors
from vela.verify.latency import side

READY_TIMEOUT_S = 300.0  # a GPU that compiles twenty graphs takes minutes
STOP_TIMEOUT_S = 20.0  # `vela serve` drains for 10 s at most
ASK_TIMEOUT_S = 5.0
PAUSE_S = 0.1
SHOWN_BYTES = 2_000  # of what a server that died had said
HEALTH = "/health"
NOT_READY = 500  # from this status on; a server without such a route answers 404, and answers


@contextmanager
def started(
    asked: Sequence[side.Asked],
    headers: tuple[tuple[str, str], ...] = (),
    *,
    timeout_s: float = READY_TIMEOUT_S,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[tuple[side.Side, ...]]:
    """Give all sides, once they answer; end those that were started here.

    Args:
        asked: As they were named.
        headers: Sent with each request.
        timeout_s: That each command has until it is ready.
        sleep: Between two looks.

    Raises:
        VerificationError: a command cannot be run, ends, or does not become ready.
    """
    for one in asked:  # what is wrong with the last is said before the first is started
        if one.is_command:
            one.words(0)
        else:
            one.running(headers)
    with ExitStack() as running:
        running.enter_context(_ending_when_told())
        found = []
        for one in asked:
            if one.is_command:
                port = _free_port()
                process, output = running.enter_context(_running(one, port))
                found.append(one.at(port, headers))
                _wait(found[-1], process, output, time.monotonic() + timeout_s, sleep)
            else:
                found.append(one.running(headers))
        yield tuple(found)


@contextmanager
def _ending_when_told() -> Iterator[None]:
    """Let a request to end, such as `timeout` sends, end what was started too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _end_self) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end_self(number: int, _: object) -> None:
    raise SystemExit(f"ended by signal {number}")


@contextmanager
def _running(one: side.Asked, port: int) -> Iterator[tuple["subprocess.Popen[bytes]", IO[bytes]]]:
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                one.words(port),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a group of its own: a shell script's children are ended with it
            )
        except OSError as cause:
            raise _not_started(one.name, f"a command that cannot be run ({cause.strerror})") from cause
        try:
            yield process, output
        finally:
            _end(process)


def _wait(
    asked: side.Side,
    process: "subprocess.Popen[bytes]",
    output: IO[bytes],
    until: float,
    sleep: Callable[[float], None],
) -> None:
    while not _is_ready(asked):
        if process.poll() is not None:
            raise _not_started(asked.name, f"a server that ended with {process.returncode}: {_tail(output)}")
        if time.monotonic() > until:
            raise _not_started(asked.name, f"a server that is not ready in time: {_tail(output)}")
        sleep(PAUSE_S)


def _is_ready(asked: side.Side) -> bool:
    connection = http.client.HTTPConnection(asked.address.host, asked.address.port, timeout=ASK_TIMEOUT_S)
    try:
        connection.request("GET", asked.prefix + HEALTH)
        return connection.getresponse().status < NOT_READY
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Ask the group to end, wait, and then end it; what is left of a group that lost its first process goes too."""
    _signal(process.pid, signal.SIGTERM)
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        _signal(process.pid, signal.SIGKILL)
        process.wait()


def _signal(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def _tail(output: IO[bytes]) -> str:
    """Give the end of what a server said; the descriptor is shared, so its place in the file stays."""
    size = os.fstat(output.fileno()).st_size
    said = os.pread(output.fileno(), SHOWN_BYTES, max(0, size - SHOWN_BYTES)).decode("utf-8", "replace").strip()
    return said or "it said nothing"


def _not_started(name: str, found: str) -> errors.VerificationError:
    return errors.VerificationError(
        found,
        expected="a server that answers on the port it was given",
        where=f"--side {name}",
        fix="Run the command by hand first; nothing was measured.",
    )
