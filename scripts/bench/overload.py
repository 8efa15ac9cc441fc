"""Give `vela serve` ten times what it can do, then callers that leave: what it answers, how late, and what stays.

    python scripts/bench/overload.py BUNDLE [--seconds 60] [--tokens 64] [--times 10]

BUNDLE is a verified bundle of a text classifier. Requests arrive at a fixed rate whether or not earlier ones were
answered, each on a connection of its own, so that nothing slows the load down but the server's refusals. Prints JSON:
statuses, the 99th percentile of what was admitted beside the same unloaded, memory before and after, and what became of
1,000 requests whose callers left and of those after them. Exits with 1 where a status is none of 200, 429 and 503, the
99th percentile is above twice the unloaded one and the queue's bound, memory grew, or the server did not recover.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import report
import served
import serving

from vela.graphs import bundle as bundles
from vela.graphs import store
from vela.serve.lane import DEFAULT_BOUNDS
from vela.serve.model import ServedModel

LEAVING = 1_000
AFTER = 100
GROWTH = 1.1  # of resident memory: allocators keep a little
SETTLE_S = 2.0


async def ask(port: int, text: str, *, leave_after_s: float | None = None) -> tuple[int, float]:
    """Send one request; give its status and seconds, 0 where the caller left first."""
    began = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        content = json.dumps({"input": text}).encode()
        head = f"POST /v1/classify HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len(content)}\r\n\r\n"
        writer.write(head.encode() + content)
        if leave_after_s is not None:
            await asyncio.sleep(leave_after_s)
            return 0, 0.0
        answer = await reader.read()
        return int(answer.split(b" ", 2)[1]), time.monotonic() - began
    finally:
        writer.close()


async def load(port: int, texts: Sequence[str], rate: float, seconds: float) -> list[tuple[int, float]]:
    """Send requests at a rate, whatever becomes of them."""
    tasks = []
    started = time.monotonic()
    for number in range(int(rate * seconds)):
        await asyncio.sleep(max(0.0, started + number / rate - time.monotonic()))
        tasks.append(asyncio.create_task(ask(port, texts[number % len(texts)])))
    return list(await asyncio.gather(*tasks))


async def leave(port: int, texts: Sequence[str]) -> list[int]:
    """Send requests whose callers go away, then some that stay; give the statuses of these."""
    for start in range(0, LEAVING, 50):
        await asyncio.gather(
            *(ask(port, texts[number % len(texts)], leave_after_s=0.02) for number in range(start, start + 50))
        )
    return [(await ask(port, texts[number % len(texts)]))[0] for number in range(AFTER)]


def percentile(found: Sequence[tuple[int, float]], rank: float) -> float:
    """Give a percentile of the seconds of what was answered."""
    return float(np.percentile([seconds for status, seconds in found if status == 200], rank))


def measure(server: served.Server, texts: Sequence[str], arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure unloaded, overload, and give callers that leave."""
    alone = [asyncio.run(ask(server.port, text)) for text in texts]
    capacity = serving.measure_rate(server, serving.Asking(texts, {}), serving.CALLERS, arguments.capacity_s)
    before = server.memory_bytes()
    found = asyncio.run(load(server.port, texts, arguments.times * capacity, arguments.seconds))
    time.sleep(SETTLE_S)
    middle = server.memory_bytes()
    after_leaving = Counter(asyncio.run(leave(server.port, texts)))
    bound = 2 * percentile(alone, 99) + DEFAULT_BOUNDS.wait_s
    statuses = Counter(status for status, _ in found)
    return {
        "capacity_per_s": capacity,
        "offered_per_s": arguments.times * capacity,
        "statuses": {str(status): count for status, count in sorted(statuses.items())},
        "p99_s": {"unloaded": percentile(alone, 99), "admitted": percentile(found, 99), "bound": bound},
        "resident_bytes": {"before": before, "after": middle, "after callers left": server.memory_bytes()},
        "after_1000_left": {str(status): count for status, count in after_leaving.items()},
        "holds": {
            "only 200, 429 and 503": statuses.keys() <= {200, 429, 503},
            "admitted in time": percentile(found, 99) <= bound,
            "memory": max(middle, server.memory_bytes()) <= GROWTH * before,
            "recovers": after_leaving == {200: AFTER},
        },
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--times", type=float, default=10.0, help="what the server can do")
    parser.add_argument("--capacity-s", type=float, default=5.0, help="for how long that is measured before")
    arguments = parser.parse_args()
    model = ServedModel.open(bundles.Bundle.open(arguments.bundle))
    texts = served.make_texts(model, arguments.tokens, 64, seed=5)
    del model
    with tempfile.TemporaryDirectory(prefix="overload-", dir=arguments.bundle.parent) as work:
        published = store.Store.create_or_open(Path(work) / "store")
        published.publish(arguments.bundle)
        with served.serving(published.path) as server:
            found = measure(server, texts, arguments)
    head = {"command": "python scripts/bench/overload.py BUNDLE", "machine": report.describe_machine()}
    print(json.dumps(head | vars(arguments) | found, indent=1, default=str))
    sys.exit(not all(found["holds"].values()))


if __name__ == "__main__":
    main()
