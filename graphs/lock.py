"""A lock file that lets one publisher at a time change a store.

The kernel holds the lock and drops it when the process dies, so a lock is never stale. The file's content only names
the holder, for the message that another publisher gets.
"""

import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from vela.graphs import durable, errors

POLL_S = 0.05  # flock has no timeout of its own; publishing takes seconds
HOLDER_LIMIT_BYTES = 200


@contextmanager
def hold(path: Path, timeout_s: float) -> Iterator[None]:
    """Hold a lock for the length of a `with` block.

    Args:
        path: The lock file; made if it is not there, never removed.
        timeout_s: How long to wait for another holder, in seconds.

    Raises:
        StoreError: another process still holds it; the message names that process.
    """
    descriptor = durable.open_lock_file(path)
    try:
        _wait(descriptor, path, timeout_s)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        durable.overwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()} since {now}\n".encode())
        yield
    finally:
        os.close(descriptor)


def _wait(descriptor: int, path: Path, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as cause:
            if time.monotonic() >= deadline:
                raise _held(descriptor, path, timeout_s) from cause
            time.sleep(POLL_S)
        else:
            return


def _held(descriptor: int, path: Path, timeout_s: float) -> errors.StoreError:
    holder = os.pread(descriptor, HOLDER_LIMIT_BYTES, 0).decode(errors="replace").strip()
    return errors.StoreError(
        f"a store that {holder or 'another process'} is publishing to",
        expected=f"the lock within {timeout_s:g} s",
        where=str(path),
        fix="Wait until that process is done, or end it, and publish again.",
    )
