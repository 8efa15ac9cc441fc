"""Run the app in this process until a signal: bind, load, say that it is ready, drain, give the exit status."""

import gc
import logging
import os
import signal
import socket
import stat
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from vela.graphs import attestation, errors
from vela.serve.http.app import build_app
from vela.serve.http.protocol import BoundedProtocol
from vela.serve.http.service import Settings
from vela.serve.model import Choice
from vela.serve.registry import Plan, Registry

logger = logging.getLogger(__name__)

BACKLOG = 2_048
GRACE_S = 30.0  # what Kubernetes gives a pod before it kills it
FAILED_EXIT_S = 4.0  # after that a process whose lane died ends, whatever hangs in it
RELOAD_S = 5.0
# Objects between collections: a request makes some hundreds, hardly any of them in a cycle, and by default it would
# meet a collection with the caches that its forward left cold.
GC_THRESHOLDS = (20_000, 20, 20)


@dataclass(frozen=True, slots=True)
class Address:
    """Where the server listens: on a Unix socket, or on a host and port.

    Attributes:
        host: Host name or address.
        port: 0 takes a free one.
        uds: Path of the socket; the host is not used then.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    uds: Path | None = None


def serve(
    plan: Plan, address: Address, settings: Settings, announce: Callable[[str], None], *, reload_s: float = RELOAD_S
) -> int:
    """Serve until SIGTERM or SIGINT.

    The socket is bound first and models load behind it, so that probes get answers meanwhile; so do bundles that are
    published later.

    Args:
        plan: The models.
        address: Where to listen.
        settings: How the surface behaves.
        announce: Called once with the address when every model answers, with each reason when one cannot, and with
            what is served anew.
        reload_s: How often the store is looked at for newer bundles; 0 for never.

    Returns:
        0 after a drained stop; 1 when a model could not be loaded or a lane died.

    Raises:
        NotReady: the address cannot be bound.
    """
    listener, where = _bind(address)
    run = _Run(plan, settings)
    _outlive_signals(run.server)
    loading = threading.Thread(target=run.load, args=(where, announce, reload_s), name="load", daemon=True)
    loading.start()
    try:
        run.server.run(sockets=[listener])
    finally:
        run.stopping.set()
        run.registry.close()
        loading.join(GRACE_S)  # a process that ends inside ONNX Runtime's loading code crashes
        if address.uds is not None:
            address.uds.unlink(missing_ok=True)
    return 1 if run.failed else 0


class _Run:
    """One run of the server: the registry behind it, and whether it must end in a failure."""

    def __init__(self, plan: Plan, settings: Settings) -> None:
        self.failed = False
        self.stopping = threading.Event()
        self.registry = Registry(plan, on_lane_death=self._fail)
        self.server = uvicorn.Server(_config(self.registry, settings))

    def load(self, where: str, announce: Callable[[str], None], reload_s: float) -> None:
        """Load every model in this thread, say that the server is ready, or why it stops, and look for newer ones."""
        try:
            problems = [f"{entry.name}: {entry.reason}" for entry in self.registry.load()]
        except Exception as bug:  # the thread's edge: without this the server would wait for ever
            logger.exception("a bug while loading")
            problems = [f"{type(bug).__name__}: {bug}"]
        for problem in problems:
            announce(f"not served: {problem}")
        if problems:
            self._fail()
        elif not self.registry.problems():  # a stop may have come before every model was loaded
            gc.collect()
            gc.freeze()  # what was loaded stays; a collection during a request need not look at it
            gc.set_threshold(*GC_THRESHOLDS)
            devices = ", ".join(map(str, self.registry.lanes))
            announce(f"ready: {', '.join(self.registry.entries)} on {devices} at {where}")
            self._reload(announce, reload_s)

    def _reload(self, announce: Callable[[str], None], every_s: float) -> None:
        while every_s and not self.stopping.wait(every_s):
            try:
                for entry in self.registry.refresh():
                    announce(f"{entry.name}: {entry.reason or f'serves bundle {entry.digest} now'}")
            except Exception:  # the thread's edge: what is served is served on
                logger.exception("a bug while looking for newer bundles")

    def _fail(self) -> None:
        """End the process with a failure; a lane that hangs must not keep it."""
        self.failed = True
        self.server.should_exit = True
        killer = threading.Timer(FAILED_EXIT_S, os._exit, (1,))
        killer.daemon = True
        killer.start()


def check(plan: Plan, announce: Callable[[str], None]) -> int:
    """Say of every model what would be loaded and where, or what is wrong, without reading a graph or a weight.

    Returns:
        0 when nothing is wrong, else 1.
    """
    failed = False
    for source in plan.sources:
        deployment = plan.deployment(source)
        try:
            opened = source.find().open()
            if plan.public_key is not None:
                attestation.require_signed(opened, plan.public_key)
            chosen = Choice.of(opened, deployment, plan.demand)
        except errors.VelaError as error:
            failed = True
            announce(f"{source.name}: {error}")
        else:
            graphs = ", ".join(graph.id for graph in chosen.graphs)
            announce(f"{source.name}: {deployment.device}, up to {chosen.head.max_tokens} tokens: {graphs}")
    return 1 if failed else 0


def rehearse(plan: Plan, announce: Callable[[str], None]) -> int:
    """Load every model, run each graph once, and say what came of it.

    Returns:
        0 when all of them answer, else 1.
    """
    registry = Registry(plan)
    problems = registry.load()
    for entry in registry.entries.values():
        announce(f"{entry.name}: {entry.status}{f': {entry.reason}' if entry.reason else ''}")
    registry.close()
    return 1 if problems else 0


def _config(registry: Registry, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        build_app(registry, settings),
        http=BoundedProtocol,
        loop="uvloop",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=int(GRACE_S),
        backlog=BACKLOG,
    )


def _bind(address: Address) -> tuple[socket.socket, str]:
    """Bind and listen, so that connections wait in the kernel until the loop takes them."""
    try:
        if address.uds is not None:
            listener = _bind_unix(address.uds)
            where = f"unix:{address.uds}"
        else:
            family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
            listener = socket.create_server((address.host, address.port), family=family, backlog=BACKLOG)
            host = f"[{address.host}]" if family == socket.AF_INET6 else address.host
            where = f"http://{host}:{listener.getsockname()[1]}"
    except OSError as cause:
        raise errors.NotReady(
            f"an address that cannot be bound ({cause})",
            expected="a free address of this machine",
            where=str(address.uds or f"{address.host}:{address.port}"),
            fix="Stop what listens there, or name another one; --port 0 takes a free port.",
        ) from cause
    return listener, where


def _bind_unix(path: Path) -> socket.socket:
    """Bind a Unix socket in place of one that a server left; anything else in its place is an error of `bind`."""
    if path.exists() and stat.S_ISSOCK(os.lstat(path).st_mode):
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen(BACKLOG)
    return listener


def _outlive_signals(server: uvicorn.Server) -> None:
    """Make a drained stop end in an exit status, and a stop before the loop runs a stop.

    After its graceful stop uvicorn raises the signal again for whoever handled it before; the default there would
    kill the process, so the stop would not be told from a crash.
    """

    def stop(*_: object) -> None:
        server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
