"""Measure what a run costs by its tokens, for `vela plan-buckets --costs`.

    python scripts/bench/costs.py BUNDLE [--device cpu] [--runs 20] [--lengths 64,128,…] > costs.json

Runs what serve would run there, through its own engine, one full row at a time: on the CPU the dynamic graph at each
length, elsewhere each fixed graph of one row. Lengths take turns, so that other work on the machine meets all alike.
"""

import argparse
import importlib.metadata
import platform
import statistics
import time
from pathlib import Path

import msgspec
import numpy as np

from vela.graphs import bundle, costs, ladder, manifest
from vela.serve import buckets, engine, host
from vela.serve.device import Device

WARM_UP_RUNS = 2  # the first run of a shape allocates, the second may still pick kernels


def measure(opened: bundle.Bundle, device: Device, runs: int, lengths: list[int]) -> costs.CostTable:
    """Time the graphs of a bundle's last output; files must be the manifest's."""
    content = opened.manifest
    opened.check_files()
    output = buckets.outputs_of(content.head(), content)[-1]
    graphs = [g for g in buckets.build_ladder(content, content.head(), output, device).graphs if g.batch in (None, 1)]
    sessions = {graph.id: engine.Session.open(opened.path(graph.file), graph, device) for graph in graphs}
    timed = {
        tokens: (sessions[graph.id], _full_row(content, graph, tokens)) for graph, tokens in _runs(graphs, lengths)
    }
    times_ms: dict[int, list[float]] = {tokens: [] for tokens in timed}
    for number in range(WARM_UP_RUNS + runs):
        for tokens, (session, inputs) in timed.items():
            started = time.perf_counter()
            session.run(inputs)
            if number >= WARM_UP_RUNS:
                times_ms[tokens].append(1000 * (time.perf_counter() - started))
    return costs.CostTable(
        schema_version=costs.SCHEMA_VERSION,
        model=content.model.name,
        target=graphs[0].target,
        engine=next(iter(sessions.values())).facts,
        machine=f"{platform.machine()}, {host.available_cores()} cores",
        tools={name: importlib.metadata.version(name) for name in ("vela-onnx", "numpy")},
        runs=runs,
        points=tuple(costs.CostPoint(tokens, statistics.median(times)) for tokens, times in sorted(times_ms.items())),
    )


def _runs(graphs: list[manifest.Graph], lengths: list[int]) -> list[tuple[manifest.Graph, int]]:
    """Pair graphs with the lengths to run them at; a fixed graph has one."""
    return [(graph, size) for graph in graphs for size in ([graph.sequence] if graph.sequence else lengths)]


def _full_row(content: manifest.Manifest, graph: manifest.Graph, tokens: int) -> dict[str, np.ndarray]:
    ids = np.random.default_rng(tokens).integers(content.tokenizer.vocabulary_size, size=tokens)
    return engine.pad_rows([ids.tolist()], graph, content.tokenizer.pad_id)


def _lengths(text: str | None, opened: bundle.Bundle) -> list[int]:
    limit = opened.manifest.head().max_tokens
    return [size for size in (map(int, text.split(",")) if text else ladder.DEFAULT_BUCKETS) if size <= limit]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--lengths", help="where the graph is dynamic; by default the default ladder's")
    arguments = parser.parse_args()
    source = bundle.Bundle.open(arguments.bundle)
    sizes = _lengths(arguments.lengths, source)
    if arguments.runs < 1 or not sizes:
        parser.error("at least one run, and one length that the model takes")
    table = measure(source, Device.parse(arguments.device), arguments.runs, sizes)
    print(msgspec.json.format(msgspec.json.encode(table), indent=1).decode())
