"""Time a bundle's graphs on a device: the session as `vela serve` runs it, and a server over it as a client sees it.

    python scripts/bench/device.py BUNDLE --device migraphx:0 [--rounds 200] [--compile-cache DIR]

BUNDLE was verified on that device. Prints JSON: for each graph of batch 1 the median and the 95th percentile of a run,
for each length what a client sees and what of it is the forward, start to ready, and the engine as records name it.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import report
import served

from vela.graphs import bundle as bundles
from vela.graphs import store
from vela.serve import buckets, engine
from vela.serve.deployment import Deployment
from vela.serve.device import Device
from vela.serve.model import Choice, ServedModel

WARM_UP_RUNS = 5
SHORT = 0.8  # of a bucket: what is asked leaves some padding, as texts do


def time_graphs(opened: bundles.Bundle, device: Device, rounds: int) -> list[dict[str, Any]]:
    """Time each graph that serve would run, alone."""
    found = []
    for graph in Choice.of(opened, Deployment(device), "this_engine").graphs:
        tokens = graph.sequence or buckets.build_ladder(
            opened.manifest, opened.manifest.head(), graph.outputs[0].name, device
        ).longest(512)
        row = np.random.default_rng(tokens).integers(5, 1000, int(tokens * SHORT) or 1).tolist()
        session = engine.Session.open(opened.path(graph.file), graph, device)
        feeds = engine.pad_rows([row], graph, opened.manifest.tokenizer.pad_id)
        for _ in range(WARM_UP_RUNS):
            session.run(feeds)
        spent = []
        for _ in range(max(10, min(rounds, int(rounds * 128 / tokens)))):
            began = time.perf_counter()
            session.run(feeds)
            spent.append((time.perf_counter() - began) * 1000)
        found.append({"graph": graph.id, "tokens": tokens, **_summary(spent), "options": session.facts.options})
    return found


def time_served(opened: bundles.Bundle, device: Device, options: list[str]) -> dict[str, Any]:
    """Time a server: what a client sees of texts that fill some of each graph."""
    model = ServedModel.open(opened, Deployment(device))
    lengths = sorted({graph.graph.sequence or 16 for graph in (one.session for one in model.loaded.values())})
    texts = {tokens: served.make_texts(model, max(4, int(tokens * SHORT)), 8, seed=tokens) for tokens in lengths}
    del model
    with tempfile.TemporaryDirectory(prefix="vela-device-") as folder:
        path = Path(folder) / "store"
        store.Store.create_or_open(path).publish(opened.folder)
        with served.serving(path, "--device", str(device), *options) as server:
            told = {tokens: served.measure_overhead(server, texts[tokens]) for tokens in lengths}
            return {"ready_s": round(server.ready_s, 1), "resident_bytes": server.memory_bytes(), "lengths": told}


def _summary(spent: list[float]) -> dict[str, float]:
    ordered = sorted(spent)
    return {
        "p50_ms": round(statistics.median(ordered), 3),
        "p95_ms": round(ordered[int(0.95 * len(ordered))], 3),
    }


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--device", required=True)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--compile-cache", type=Path)
    given = parser.parse_args()
    opened, device = bundles.Bundle.open(given.bundle), Device.parse(given.device)
    options = ["--compile-cache", str(given.compile_cache)] if given.compile_cache else []
    found = {
        "command": "python scripts/bench/device.py BUNDLE --device DEVICE",
        "machine": report.describe_machine(),
        "device": str(device),
        "graphs": time_graphs(opened, device, given.rounds),
        "served": time_served(opened, device, options),
    }
    json.dump(found, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
