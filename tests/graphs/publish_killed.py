"""Kill a publisher at every file-changing call it makes, and say what each death left. Run by test_store_crash.py.

For each call (create, write, clone, chmod, fsync, mkdir, rename, link, unlink, rmdir) that one publish makes through
`vela.graphs.durable`, a forked process publishes and is killed with SIGKILL inside it and after it, which is before
the next one; a write also after half of its bytes. One JSON line is printed for each death.

Usage: publish_killed.py STORE BUNDLE. STORE is a store, whose publisher is killed, or no folder, and then the process
that makes the store is. After each death the store is looked at, BUNDLE is published and it is looked at again.
"""

import fcntl
import itertools
import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from vela.graphs import durable, store

CALLS = ("open", "write", "fsync", "fchmod", "chmod", "mkdir", "rename", "link", "unlink", "rmdir", "ftruncate")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


class KillingModule:
    """Stands in for a module in `durable`: counts its file-changing calls and dies at the chosen one."""

    count = 0  # over all instances: calls are numbered in the order they are made

    def __init__(self, module: Any, names: tuple[str, ...], at: int, phase: str, report: Callable[[str], None]) -> None:
        self.module, self.names, self.at, self.phase, self.report = module, names, at, phase, report

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.module, name)
        return self._guard(name, real) if name in self.names else real

    def _guard(self, name: str, real: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            if name == "open" and not arguments[1] & os.O_CREAT:
                return real(*arguments, **options)
            KillingModule.count += 1
            if KillingModule.count != self.at:
                return real(*arguments, **options)
            self.report(name)
            if self.phase == "before":
                die()
            if self.phase == "half":
                real(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
                die()
            if self.phase == "inside":
                kill_during_next_call()
            try:
                real(*arguments, **options)
            finally:  # a clone fails where the file system has none; it dies all the same
                die()

        return call


def kill_during_next_call() -> None:
    """Let another thread kill this process at the moment this one gives up the interpreter: inside its next call."""
    sys.setswitchinterval(10)  # nothing but a blocking call makes this thread yield
    gate = threading.Lock()
    gate.acquire()

    def wait_and_kill() -> None:
        gate.acquire()
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait_and_kill, daemon=True).start()
    time.sleep(0.002)  # until it waits at the gate
    gate.release()


def publish_and_die(path: Path, bundle: Path, at: int, phase: str, pipe: int) -> None:
    """Publish in this process, or make the store where there is none; killed at call `at`, or done with exit code 0."""
    report = lambda name: os.write(pipe, name.encode())  # noqa: E731
    durable.os = KillingModule(os, CALLS, at, phase, report)  # type: ignore[assignment]
    durable.fcntl = KillingModule(fcntl, ("ioctl",), at, phase, report)  # type: ignore[assignment]
    if (path / store.STORE_FILE).exists():
        store.Store.open(path).publish(bundle)
    else:
        store.Store.create_or_open(path)
    os._exit(0)


def die_once(path: Path, bundle: Path, at: int, phase: str) -> str | None:
    """Fork a publisher that dies; give the name of the call it died in, or None where it finished."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            publish_and_die(path, bundle, at, phase, writer)
        finally:
            os._exit(3)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        name = stream.read().decode()
    status = os.waitpid(child, 0)[1]
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
        return None
    if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
        raise SystemExit(f"call {at} {phase}: the publisher ended with status {status}")
    return name


def look(path: Path) -> dict[str, Any]:
    """Open a store as a reader does and read every byte of it."""
    if not (path / "store.json").exists():
        return {"models": {}}
    models = store.Store.open(path).models()
    for published in models.values():
        published.check()
    return {"models": {name: published.digest for name, published in models.items()}}


def publish_again(path: Path, bundle: Path) -> None:
    """Publish in this process, unharmed; nothing here crashes any more, so nothing is synced."""
    sync, os.fsync = os.fsync, lambda descriptor: None
    try:
        store.Store.create_or_open(path).publish(bundle)
    finally:
        os.fsync = sync


def survive(path: Path, bundle: Path, at: int, phase: str, keep: Path) -> dict[str, Any] | None:
    """Die once on a fresh copy of the store, look at what is left, publish again and look again."""
    shutil.rmtree(path, ignore_errors=True)
    if keep.exists():
        shutil.copytree(keep, path)
    call = die_once(path, bundle, at, phase)
    if call is None:
        return None
    left = look(path)
    publish_again(path, bundle)
    again = look(path)
    junk = [str(entry.relative_to(path)) for entry in (path / "staging").iterdir()]
    bundles = sorted(entry.name for entry in (path / "bundles").iterdir())
    return {"at": at, "phase": phase, "call": call, **left, "again": again["models"], "junk": junk, "bundles": bundles}


def deaths(path: Path, bundle: Path, keep: Path) -> Iterator[dict[str, Any] | None]:
    """Die at each call in turn; dying after one is dying before the next."""
    yield survive(path, bundle, 1, "before", keep)
    for at in itertools.count(1):
        death = survive(path, bundle, at, "after", keep)
        if death is None:
            return
        yield death
        for phase in ("inside", "half") if death["call"] == "write" else ("inside",):
            yield survive(path, bundle, at, phase, keep)


def main() -> None:
    path, bundle = Path(sys.argv[1]), Path(sys.argv[2])
    keep = path.with_name("keep")
    if path.exists():
        path.rename(keep)
    for death in deaths(path, bundle, keep):
        print(json.dumps(death))


main()
