"""A server under test: start it as users do, and ask it one request after the other.

What the benchmarks of serving share; run one of those.
"""

import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vela.serve.model import ServedModel

OVERHEAD_REQUESTS = 200
WORDS = "parcel tea seven owl river blue stone letter green wood horse night bread salt paper window".split()


@dataclass(frozen=True, slots=True)
class Server:
    """A server under test.

    Attributes:
        process: Its process.
        port: Where it listens.
        ready_s: From start to its ready line.
    """

    process: subprocess.Popen[str]
    port: int
    ready_s: float

    def memory_bytes(self) -> int:
        """Give its resident memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))

    def cpu_s(self) -> float:
        """Give the processor time that it has taken."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def serving(path: Path, *options: str) -> Iterator[Server]:
    """Serve a store until the block ends."""
    started = time.monotonic()
    program = str(Path(sys.executable).with_name("vela"))
    command = [program, "serve", "--store", str(path), "--port", "0", "--reload", "0", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        line = next((line for line in process.stderr or () if line.startswith("ready")), "")
        if not line:
            raise SystemExit("the server did not start")
        yield Server(process, int(line.rsplit(":", 1)[1]), time.monotonic() - started)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def make_texts(model: ServedModel, tokens: int, count: int, seed: int) -> list[str]:
    """Make texts of just so many tokens, special ones included, no two alike."""
    rng = random.Random(seed)
    found: dict[str, None] = {}
    while len(found) < count:
        words = rng.choices(WORDS, k=tokens)
        for _ in range(40 * tokens):
            length = len(model.tokenizer.encode([" ".join(words)], with_offsets=False)[0].ids) + model.special_count
            if length == tokens:
                found[" ".join(words)] = None
                break
            for _ in range(max(1, abs(length - tokens) * len(words) // (2 * length))):  # half of what differs
                if length > tokens:
                    words.pop(rng.randrange(len(words)))
                else:
                    words.append(rng.choice([*WORDS, *"abcdefghij"]))
    return list(found)


def measure_overhead(
    server: Server, texts: Sequence[str], requests: int = OVERHEAD_REQUESTS, *, profile: str = "exact"
) -> dict[str, float]:
    """Ask one after the other on one connection; give medians in milliseconds, and what 95 % of answers took.

    The client is a bare socket: what a library adds on its side is not the server's.
    """
    inside, outside, forwards, seen = [], [], [], []
    options = {} if profile == "exact" else {"options": {"profile": profile}}
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number in range(requests):
            content = json.dumps({"input": texts[number % len(texts)]} | options).encode()
            request = f"POST /v1/classify HTTP/1.1\r\nhost: x\r\ncontent-length: {len(content)}\r\n\r\n".encode()
            began = time.perf_counter()
            connection.sendall(request + content)
            answer = connection.recv(1 << 16)
            while not answer.endswith(b"}") or b"\r\n\r\n{" not in answer:
                answer += connection.recv(1 << 16)
            seen_ms = (time.perf_counter() - began) * 1000
            timing = answer.decode().lower().partition("server-timing: ")[2].partition("\r\n")[0]
            stages = dict(part.split(";dur=") for part in timing.split(", "))
            forward = float(stages["forward"])
            inside.append(float(stages["total"]) - forward)
            outside.append(seen_ms - forward)
            forwards.append(forward)
            seen.append(seen_ms)
    return {
        "client_p50_ms": statistics.median(seen),
        "client_p95_ms": statistics.quantiles(seen, n=20)[-1],
        "forward_ms": statistics.median(forwards),
        "total_less_forward_ms": statistics.median(inside),
        "client_less_forward_ms": statistics.median(outside),
    }
