"""Time what `vela serve` gives on an NVIDIA GPU against PyTorch, and against the design that it replaces.

    python scripts/bench/cuda_serving.py CHECKPOINT BUNDLE [--fixed GRAPH.onnx] [--lengths 16,128,512,2048,8192]

BUNDLE was exported from CHECKPOINT with `--for cpu,cuda`, with or without `--reduced`, and passed on both. For each
length, in turn within each round: PyTorch (SDPA, FP32) as it is and as a CUDA graph, and the session as serve runs it,
inputs from the host and outputs back to it, where PyTorch's stay on the device; its 16-bit copies likewise; the same
graph with TF32 besides. GRAPH.onnx is a plain dense graph fixed at 8,192 tokens (cpu_graphs.py plain --tokens 8192): it
is asked a median prompt, in turn with the session of the smallest graph. Two sessions, as two models have, are run by
one thread and by two. Then a server is started, and a client asks, under `max_speed` too where a copy passed; and a
newer bundle is published while others ask. Prints JSON.
"""

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import cuda
import numpy as np
import onnxruntime
import reloading
import report
import served
import torch
from numpy.typing import NDArray
from transformers import ModernBertForSequenceClassification

from vela.graphs import bundle as bundles
from vela.graphs import errors, manifest, store
from vela.serve import engine
from vela.serve.deployment import Deployment
from vela.serve.device import Device
from vela.serve.model import Choice, ServedModel

DEVICE = "cuda:0"
ROUND_MS = 80.0  # how long one engine runs before the next one's turn
FILL = 0.95  # of a length: some padding, as texts leave
FIXED_TOKENS = 8_192
MEDIAN_PROMPT = 15  # tokens, of the router's prompts
TOGETHER = (128, 512)  # tokens at which two models run
TOGETHER_S = 2.0
RELOADED_TOKENS, RELOAD_CALLERS = 128, 4
Run = Callable[[], None]


class Served:
    """A session as serve runs it: from arrays of the host to arrays of the host."""

    def __init__(self, opened: bundles.Bundle, graph: manifest.Graph) -> None:
        self.session = engine.Session.open(opened.path(graph.file), graph, Device.parse(DEVICE))
        self._feeds: dict[str, NDArray[Any]] = {}
        self._outputs: engine.Outputs = {}

    def feed(self, ids: NDArray[np.int64], mask: NDArray[np.int64]) -> None:
        """Keep what every run is given."""
        self._feeds = {"input_ids": ids, "attention_mask": mask}

    def run(self) -> None:
        """Run once, to the end."""
        self._outputs = self.session.run(self._feeds)

    def logits(self) -> NDArray[np.float32]:
        """Give the last run's logits."""
        return self._outputs["logits"]


def summary(spent: Sequence[float]) -> dict[str, float]:
    """Give the median and the 95th percentile of milliseconds."""
    return {"p50_ms": round(statistics.median(spent), 3), "p95_ms": round(statistics.quantiles(spent, n=20)[-1], 3)}


def time_runs(runs: Mapping[str, Run], rounds: int) -> dict[str, dict[str, float]]:
    """Time single runs of engines that take turns."""
    counts = {name: max(3, int(ROUND_MS / cuda.mean_ms(run, cuda.WARM_UP_RUNS))) for name, run in runs.items()}
    spent: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            for _ in range(counts[name]):
                began = time.perf_counter()
                run()
                spent[name].append((time.perf_counter() - began) * 1000)
    return {name: summary(values) for name, values in spent.items()}


def time_lengths(
    opened: bundles.Bundle, graphs: Mapping[int, manifest.Graph], model: Any, rounds: int
) -> list[dict[str, Any]]:
    """Time every engine at every length."""
    rows = []
    for tokens, graph in graphs.items():
        path = opened.path(graph.file)
        engines: dict[str, Served | cuda.Engine] = {
            "torch eager": cuda.Peer(model, tokens, is_graph=False),
            "torch graph": cuda.Peer(model, tokens, is_graph=True),
            "session": Served(opened, graph),
            "bound": cuda.Graph(path),
            "bound, TF32": cuda.Graph(path, {"use_tf32": "1"}),
        }
        engines |= {f"session, {copy.precision}": Served(opened, copy) for copy in _copies_of(opened, graph)}
        ids, mask = cuda.make_inputs(tokens, FILL, model.config.vocab_size)
        for one in engines.values():
            one.feed(ids, mask)
            one.run()
        expected = engines["torch eager"].logits()
        found = time_runs({name: one.run for name, one in engines.items()}, rounds)
        for name, one in engines.items():
            found[name]["max_logit_difference"] = float(f"{np.abs(one.logits() - expected).max():.1e}")
        placed = {name: one.operators() for name, one in engines.items() if isinstance(one, cuda.Graph)}
        rows.append({"tokens": tokens, "engines": found, "operators_all_on_cuda": placed})
        print(tokens, {name: values["p50_ms"] for name, values in found.items()}, file=sys.stderr)
        del engines
        torch.cuda.empty_cache()
    return rows


def _copies_of(opened: bundles.Bundle, graph: manifest.Graph) -> list[manifest.Graph]:
    return [copy for copy in opened.manifest.graphs if copy.is_reduced and opened.exact_of(copy) == graph]


def time_fixed(opened: bundles.Bundle, smallest: manifest.Graph, fixed: Path, rounds: int) -> dict[str, Any]:
    """Time a median prompt on the smallest graph and on one that is fixed at its longest."""
    runs: dict[str, Run] = {}
    for name, engine_, tokens in (
        ("session", Served(opened, smallest), smallest.sequence or 0),
        ("fixed", cuda.Graph(fixed), FIXED_TOKENS),
    ):
        engine_.feed(*cuda.make_inputs(tokens, MEDIAN_PROMPT / tokens, 1000))
        runs[name] = engine_.run
    found = time_runs(runs, rounds)
    ratio = found["fixed"]["p50_ms"] / found["session"]["p50_ms"]
    print("fixed", found, ratio, file=sys.stderr)
    return {"prompt_tokens": MEDIAN_PROMPT, "graph": smallest.id, **found, "times": round(ratio, 1)}


def run_together(opened: bundles.Bundle, graph: manifest.Graph) -> dict[str, Any]:
    """Run two sessions by one thread in turn, as a lane does, and by a thread each; give runs a second of both."""
    tokens = graph.sequence or 0
    models = [Served(opened, graph) for _ in range(2)]
    for model in models:
        model.feed(*cuda.make_inputs(tokens, FILL, 1000))

    def count(own: Sequence[Served], ready: threading.Barrier, rates: list[float]) -> None:
        for model in [*own] * cuda.WARM_UP_RUNS:  # each thread records its own
            model.run()
        ready.wait()
        done, began = 0, time.monotonic()
        while time.monotonic() < began + TOGETHER_S:
            own[done % len(own)].run()
            done += 1
        rates.append(done / (time.monotonic() - began))

    found = {}
    for name, shares in {
        "alone": [models[:1]],
        "one thread": [models],
        "two threads": [models[:1], models[1:]],
    }.items():
        rates: list[float] = []
        ready = threading.Barrier(len(shares))
        threads = [threading.Thread(target=count, args=(share, ready, rates)) for share in shares]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found[name] = round(sum(rates), 1)
    print("together", tokens, found, file=sys.stderr)
    return {"tokens": tokens, "runs_per_s": found}


def time_served(opened: bundles.Bundle, lengths: Sequence[int]) -> dict[str, Any]:
    """Start a server and ask it, then publish a newer bundle; texts fill nearly the whole of each length."""
    profiles = ["exact"]
    with contextlib.suppress(errors.NotVerified):
        Choice.of(opened, Deployment(Device.parse(DEVICE), "max_speed"), "this_engine")
        profiles.append("max_speed")
    model = ServedModel.open(opened, Deployment(Device.parse(DEVICE)))
    texts = {tokens: served.make_texts(model, int(tokens * FILL), 8, seed=tokens) for tokens in lengths}
    del model
    with tempfile.TemporaryDirectory(prefix="vela-cuda-", dir=opened.folder.parent) as folder:
        path = Path(folder) / "store"
        store.Store.create_or_open(path).publish(opened.folder)
        with served.serving(path, "--device", DEVICE, "--profile", profiles[-1]) as server:
            told = {
                profile: {tokens: _ask(server, texts[tokens], tokens, profile) for tokens in lengths}
                for profile in profiles
            }
            found = {"ready_s": round(server.ready_s, 1), "resident_bytes": server.memory_bytes(), "lengths": told}
        print("served", found, file=sys.stderr)
        work = Path(folder) / "reload"
        work.mkdir()
        asked = texts[min(lengths, key=lambda tokens: abs(tokens - RELOADED_TOKENS))]
        found["reload"] = reloading.reload_under_load(opened, asked, RELOAD_CALLERS, work, "--device", DEVICE)
        print("reload", found["reload"], file=sys.stderr)
        return found


def _ask(server: served.Server, texts: Sequence[str], tokens: int, profile: str) -> dict[str, float]:
    found = served.measure_overhead(server, texts, _requests(tokens), profile=profile)
    return {name: round(value, 3) for name, value in found.items()}


def _requests(tokens: int) -> int:
    return max(40, min(served.OVERHEAD_REQUESTS, 400_000 // tokens))


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--fixed", type=Path)
    parser.add_argument("--lengths", type=cuda._numbers, default=[16, 128, 512, 2048, 8192])
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    onnxruntime.preload_dlls()
    opened = bundles.Bundle.open(given.bundle)
    chosen = Choice.of(opened, Deployment(Device.parse(DEVICE)), "this_engine").graphs
    graphs = {graph.sequence: graph for graph in chosen if graph.sequence and graph.sequence in given.lengths}
    load = ModernBertForSequenceClassification.from_pretrained
    model = load(given.checkpoint, attn_implementation="sdpa", dtype=torch.float32).cuda().eval()
    found = {
        "command": "python scripts/bench/cuda_serving.py CHECKPOINT BUNDLE --fixed GRAPH.onnx",
        "machine": report.describe_machine(),
        "gpu": torch.cuda.get_device_name(0),
        "versions": {"torch": torch.__version__, "onnxruntime": onnxruntime.__version__},
        "lengths": time_lengths(opened, graphs, model, given.rounds),
    }
    del model
    torch.cuda.empty_cache()
    if given.fixed:
        found["fixed_design"] = time_fixed(opened, graphs[min(graphs)], given.fixed, given.rounds)
    found["two_models"] = [run_together(opened, graphs[tokens]) for tokens in TOGETHER if tokens in graphs]
    found["served"] = time_served(opened, list(graphs))
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
