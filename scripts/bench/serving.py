"""Measure `vela serve` on this machine: what it adds to a forward, and what it gets out of the engine under load.

    python scripts/bench/serving.py BUNDLE [--rounds 5] [--seconds 10]

BUNDLE is a verified bundle of a text classifier, such as one of the 307M shape. It is published to a store of its own
and served by another process. One caller alone, 16 callers, and the bare session in a third process take turns within
each round, so that ratios hold on a noisy machine. Prints JSON: start to ready, memory, idle CPU, overhead at the
median
(Server-Timing's total less forward, and what a client sees less forward), rates at 16, at 10 to 20 and at 512 tokens,
and what the profile `batching` gains. Exits with 1 where an answer under load is not the answer alone, to the last bit.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import report

from vela.graphs import bundle as bundles
from vela.graphs import store
from vela.serve import engine, policy
from vela.serve.model import ServedModel

CALLERS = 16
OVERHEAD_REQUESTS = 400
IDLE_S = 5.0
PROFILES_APART = 1e-5  # of a probability, between the profiles
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


def measure_overhead(server: Server, texts: Sequence[str], requests: int = OVERHEAD_REQUESTS) -> dict[str, float]:
    """Ask one after the other on one connection; give medians in milliseconds, and what 95 % of answers took.

    The client is a bare socket: what a library adds on its side is not the server's.
    """
    inside, outside, forwards, seen = [], [], [], []
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number in range(requests):
            content = json.dumps({"input": texts[number % len(texts)]}).encode()
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


@dataclass(frozen=True, slots=True)
class Asking:
    """What callers ask, and what they hold the answers against.

    Attributes:
        texts: The inputs.
        answers: Those that were given before, by text; new ones are added.
        profile: Of the requests.
        apart: Largest difference that a probability may have to the one given before.
    """

    texts: Sequence[str]
    answers: dict[str, Any]
    profile: str = "exact"
    apart: float = 0.0


async def _call(port: int, asking: Asking, until: float, first: int, step: int) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    count, place = 0, first
    while time.monotonic() < until:
        text = asking.texts[place % len(asking.texts)]
        content = json.dumps({"input": text, "options": {"profile": asking.profile}}).encode()
        head = f"POST /v1/classify HTTP/1.1\r\nhost: x\r\ncontent-length: {len(content)}\r\n\r\n"
        writer.write(head.encode() + content)
        headers = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(headers.partition("content-length: ")[2].partition("\r\n")[0])
        body = json.loads(await reader.readexactly(length))
        if " 200 " not in headers.partition("\r\n")[0]:
            raise SystemExit(f"refused under load: {body}")
        found = body["results"][0]["probabilities"]
        before = asking.answers.setdefault(text, found)
        if max(abs(one - other) for one, other in zip(found, before, strict=True)) > asking.apart:
            raise SystemExit(f"{text!r} was answered {found} in company and {before} alone")
        count, place = count + 1, place + step
    writer.close()
    return count


def measure_rate(server: Server, asking: Asking, callers: int, seconds: float) -> float:
    """Give requests a second of so many closed-loop callers; every answer must be the one that was given before."""

    async def run() -> int:
        until = time.monotonic() + seconds
        calls = (_call(server.port, asking, until, caller, callers) for caller in range(callers))
        return sum(await asyncio.gather(*calls))

    started = time.monotonic()
    return asyncio.run(run()) / (time.monotonic() - started)


def run_bare(folder: str, texts: Sequence[str], orders: Any, rates: Any) -> None:
    """Run the session alone, in a process of its own, as often as it is told to."""
    model = ServedModel.open(bundles.Bundle.open(Path(folder)))
    rules = model.settle(policy.Options(), model.default_output)
    rows = [model.forwards(reading, model.default_output)[0] for reading in model.read(texts, rules)]  # type: ignore[arg-type]
    feeds = [engine.pad_rows([row.framed.ids], row.session.graph, row.pad_id) for row in rows]
    rows[0].run()
    rates.put(0.0)
    while (seconds := orders.get()) > 0:
        count, began = 0, time.monotonic()
        while time.monotonic() - began < seconds:
            rows[0].session.run(feeds[count % len(feeds)])
            count += 1
        rates.put(count / (time.monotonic() - began))


def make_mixed(model: ServedModel) -> list[str]:
    """Make texts of 10 to 20 tokens in no order."""
    mixed = [text for tokens in range(10, 21) for text in make_texts(model, tokens, 8, seed=tokens)]
    random.Random(7).shuffle(mixed)
    return mixed


def measure_batching(server: Server, model: ServedModel, rounds: int, seconds: float) -> dict[str, Any]:
    """Let 16 callers of 10 to 20 tokens ask in both profiles in turn."""
    texts, answers, gains = make_mixed(model), dict[str, Any](), list[float]()
    exact, batching = Asking(texts, answers), Asking(texts, answers, "batching", PROFILES_APART)
    for _ in range(rounds):
        rates = [measure_rate(server, asking, CALLERS, seconds) for asking in (exact, batching)]
        gains.append(rates[1] / rates[0])
        print(f"10-20 tokens, exact and batching: {rates}", file=sys.stderr, flush=True)
    return {
        "gain_over_exact_at_10_to_20_tokens": statistics.median(gains),
        "resident_bytes": server.memory_bytes(),
        "probabilities_apart_at_most": PROFILES_APART,
    }


def measure_load(server: Server, model: ServedModel, folder: Path, rounds: int, seconds: float) -> dict[str, Any]:
    """Let one caller, 16 callers and the bare session take turns."""
    mixed = make_mixed(model)
    texts = {"16": make_texts(model, 16, 64, seed=1), "10-20": mixed, "512": make_texts(model, 512, 16, seed=2)}
    context = multiprocessing.get_context("spawn")
    orders, rates = context.Queue(), context.Queue()
    bare = context.Process(target=run_bare, args=(str(folder), texts["512"], orders, rates), daemon=True)
    bare.start()
    rates.get()
    answers: dict[str, Any] = {}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in texts}
    for _ in range(rounds):
        for name, chosen in texts.items():
            asking = Asking(chosen, answers)
            one = {"alone": measure_rate(server, asking, 1, seconds)}
            one["callers"] = measure_rate(server, asking, CALLERS, seconds)
            if name == "512":
                orders.put(seconds)
                one["bare"] = rates.get()
            found[name].append(one)
            print(f"{name} tokens: {one}", file=sys.stderr, flush=True)
    orders.put(0)
    bare.join()

    def middle(name: str, over: str, under: str) -> float:
        return statistics.median(one[over] / one[under] for one in found[name])

    return {
        "callers": CALLERS,
        "compared_answers": len(answers),
        "rates_per_s": {
            name: {key: statistics.median(one[key] for one in rows) for key in rows[0]} for name, rows in found.items()
        },
        "gain_at_16_tokens": middle("16", "callers", "alone"),
        "gain_at_10_to_20_tokens": middle("10-20", "callers", "alone"),
        "share_of_bare_session_at_512_tokens": middle("512", "callers", "bare"),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each turn")
    arguments = parser.parse_args()
    model = ServedModel.open(bundles.Bundle.open(arguments.bundle))
    with tempfile.TemporaryDirectory(prefix="serving-", dir=arguments.bundle.parent) as work:
        published = store.Store.create_or_open(Path(work) / "store")
        published.publish(arguments.bundle)
        with serving(published.path) as server:
            memory, before = server.memory_bytes(), server.cpu_s()
            time.sleep(IDLE_S)
            idle = (server.cpu_s() - before) / IDLE_S
            overhead = {
                str(tokens): measure_overhead(server, make_texts(model, tokens, 16, seed=3)) for tokens in (16, 64)
            }
            load = measure_load(server, model, arguments.bundle, arguments.rounds, arguments.seconds)
            after = server.memory_bytes()
            ready_s = server.ready_s
        with serving(published.path, "--batching") as server:
            batching = measure_batching(server, model, arguments.rounds, arguments.seconds)
    found = {
        "command": "python scripts/bench/serving.py BUNDLE",
        "machine": report.describe_machine(),
        "ready_s": ready_s,
        "resident_bytes": {"ready": memory, "after load": after},
        "idle_cpu_share": idle,
        "overhead": overhead,
        "load": load,
        "batching": batching,
    }
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
