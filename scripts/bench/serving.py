"""Measure `vela serve` on this machine: what it adds to a forward, and what it gets out of the engine under load.

    python scripts/bench/serving.py BUNDLE [--rounds 5] [--seconds 10]

BUNDLE is a verified bundle of a text classifier, such as one of the 307M shape. It is published to a store of its own
and served by another process. One caller alone, 16 callers, and the bare session in a third process take turns within
each round, so that ratios hold on a noisy machine. Prints JSON: start to ready, memory, idle CPU, overhead at the
median of each round and at their median (Server-Timing's total less forward, and what a client sees less forward),
rates at 16, at 10 to 20 and at 512 tokens, and what the profile `batching` gains. Exits with 1 where an answer under
load is not the answer alone, to the last bit.
"""

import argparse
import asyncio
import json
import multiprocessing
import random
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import report
from served import Server, make_texts, measure_overhead, serving

from vela.graphs import bundle as bundles
from vela.graphs import store
from vela.serve import engine, policy
from vela.serve.model import ServedModel

CALLERS = 16
OVERHEAD_TOKENS = (16, 64)
IDLE_S = 5.0
PROFILES_APART = 1e-5  # of a probability, between the profiles


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
    short = {tokens: make_texts(model, tokens, 16, seed=3) for tokens in OVERHEAD_TOKENS}
    overheads: dict[int, list[dict[str, float]]] = {tokens: [] for tokens in short}
    context = multiprocessing.get_context("spawn")
    orders, rates = context.Queue(), context.Queue()
    bare = context.Process(target=run_bare, args=(str(folder), texts["512"], orders, rates), daemon=True)
    bare.start()
    rates.get()
    answers: dict[str, Any] = {}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in texts}
    for _ in range(rounds):
        for tokens, asked in short.items():
            overheads[tokens].append(measure_overhead(server, asked))
            print(f"{tokens} tokens, one caller: {overheads[tokens][-1]}", file=sys.stderr, flush=True)
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
        "overhead": {str(tokens): _of_rounds(rows) for tokens, rows in overheads.items()},
        "callers": CALLERS,
        "compared_answers": len(answers),
        "rates_per_s": {
            name: {key: statistics.median(one[key] for one in rows) for key in rows[0]} for name, rows in found.items()
        },
        "gain_at_16_tokens": middle("16", "callers", "alone"),
        "gain_at_10_to_20_tokens": middle("10-20", "callers", "alone"),
        "share_of_bare_session_at_512_tokens": middle("512", "callers", "bare"),
    }


def _of_rounds(rows: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Give the median of each figure over the rounds, and what the server adds in each of them."""
    middle: dict[str, Any] = {name: statistics.median(row[name] for row in rows) for name in rows[0]}
    return middle | {"total_less_forward_ms_by_round": [round(row["total_less_forward_ms"], 3) for row in rows]}


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
            load = measure_load(server, model, arguments.bundle, arguments.rounds, arguments.seconds)
            after = server.memory_bytes()
            ready_s = server.ready_s
        with serving(published.path, "--profile", "batching") as server:
            batching = measure_batching(server, model, arguments.rounds, arguments.seconds)
    found = {
        "command": "python scripts/bench/serving.py BUNDLE",
        "machine": report.describe_machine(),
        "ready_s": ready_s,
        "resident_bytes": {"ready": memory, "after load": after},
        "idle_cpu_share": idle,
        "overhead": load.pop("overhead"),
        "load": load,
        "batching": batching,
    }
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
