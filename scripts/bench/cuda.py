"""Time a bundle's fixed graphs on an NVIDIA GPU against PyTorch's CUDA graph, alternately in one run, batch 1, FP32.

    python scripts/bench/cuda.py CHECKPOINT BUNDLE [--lengths 16,64,128,512,2048,8192] [--rounds 7] [--profile 64,2048]

BUNDLE was exported from CHECKPOINT with `--for cuda,portable`. Every graph runs as a CUDA graph with inputs and output
bound on the device, TF32 off, attention_mask consumed, with full rows and at 60 % fill; so does PyTorch (SDPA), whose
eager form stands beside it from EAGER_FROM_TOKENS on, where users meet it. Prints JSON: median milliseconds, ratios to
PyTorch, the largest difference of logits, and for lengths under --profile the kernels: how many, how long, which.

It needs torch, transformers and onnxruntime-gpu, and no part of Vela: a GPU machine has what it has.
"""

import argparse
import collections
import importlib.metadata
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from transformers import ModernBertForSequenceClassification

FILLS = (1.0, 0.6)
FORMS = ("cuda", "portable")
EAGER_FROM_TOKENS = 8192
SESSION_MS = 60  # how long one engine runs before the next one's turn
WARM_UP_RUNS = 5
# As `vela serve` sets them (serve/engine.py): FP32 products without TF32, and memory-efficient attention at any length.
PROVIDER_OPTIONS = {"use_tf32": "0", "sdpa_kernel": "2", "enable_cuda_graph": "1"}


class Peer:
    """PyTorch's SDPA model, replayed as a CUDA graph or run as it is."""

    def __init__(self, model: torch.nn.Module, tokens: int, *, is_graph: bool) -> None:
        self._model = model
        self._ids = torch.zeros((1, tokens), dtype=torch.int64, device="cuda")
        self._mask = torch.ones_like(self._ids)
        self._graph = torch.cuda.CUDAGraph() if is_graph else None
        if self._graph is not None:
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(3):
                    self._forward()
            torch.cuda.current_stream().wait_stream(stream)
            with torch.cuda.graph(self._graph):
                self._logits = self._forward()

    def feed(self, ids: np.ndarray, mask: np.ndarray) -> None:
        """Put (1, T) int64 inputs where they are read."""
        self._ids.copy_(torch.from_numpy(ids))
        self._mask.copy_(torch.from_numpy(mask))

    def run(self) -> None:
        """Run once, to the end."""
        if self._graph is None:
            self._logits = self._forward()
        else:
            self._graph.replay()
        torch.cuda.synchronize()

    def logits(self) -> np.ndarray:
        """Give the last run's logits."""
        found: np.ndarray = self._logits.cpu().numpy()
        return found

    def _forward(self) -> torch.Tensor:
        with torch.inference_mode():
            logits: torch.Tensor = self._model(input_ids=self._ids, attention_mask=self._mask).logits
        return logits


class Graph:
    """An ONNX graph as a CUDA graph, its inputs and output bound on the device.

    Args:
        path: The graph, of fixed shape.
        told: Provider options besides the usual ones, or in their place.
    """

    def __init__(self, path: Path, told: Mapping[str, str] | None = None) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        providers = [("CUDAExecutionProvider", PROVIDER_OPTIONS | dict(told or {}))]
        self._session = onnxruntime.InferenceSession(str(path), options, providers=providers)
        self._binding = self._session.io_binding()
        self._inputs = {}
        for tensor in self._session.get_inputs():
            value = onnxruntime.OrtValue.ortvalue_from_numpy(np.ones(tensor.shape, np.int64), "cuda", 0)
            self._inputs[tensor.name] = value
            self._binding.bind_ortvalue_input(tensor.name, value)
        (output,) = self._session.get_outputs()
        self._output = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(output.shape, np.float32), "cuda", 0)
        self._binding.bind_ortvalue_output(output.name, self._output)

    def operators(self) -> int:
        """Count the operators after ONNX Runtime's own fusions, all of which must lie on CUDA."""
        placed = self._session.get_provider_graph_assignment_info()
        if any(part.ep_name != "CUDAExecutionProvider" and part.get_nodes() for part in placed):
            raise SystemExit("operators were placed off the GPU")
        return sum(len(part.get_nodes()) for part in placed)

    def feed(self, ids: np.ndarray, mask: np.ndarray) -> None:
        """Put (1, T) int64 inputs where they are read."""
        self._inputs["input_ids"].update_inplace(ids)
        self._inputs["attention_mask"].update_inplace(mask)

    def run(self) -> None:
        """Run once, to the end."""
        self._session.run_with_iobinding(self._binding)

    def logits(self) -> np.ndarray:
        """Give the last run's logits."""
        found: np.ndarray = self._output.numpy()
        return found


Engine = Peer | Graph


def make_inputs(tokens: int, fill: float, vocabulary: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw one row of which `fill` is tokens and the rest padding: ids and mask, (1, T) int64."""
    ids, mask = np.zeros((1, tokens), np.int64), np.zeros((1, tokens), np.int64)
    filled = max(2, round(tokens * fill))
    ids[0, :filled] = np.random.default_rng(tokens).integers(5, vocabulary, filled)
    mask[0, :filled] = 1
    return ids, mask


def mean_ms(run: Callable[[], None], count: int) -> float:
    """Run `count` times and give the milliseconds of one."""
    started = time.perf_counter()
    for _ in range(count):
        run()
    return (time.perf_counter() - started) / count * 1000


def time_alternately(engines: dict[str, Engine], inputs: tuple[np.ndarray, np.ndarray], rounds: int) -> dict[str, Any]:
    """Time engines in turn; the first is the one that the others are compared to."""
    logits, counts = {}, {}
    for name, engine in engines.items():
        engine.feed(*inputs)
        mean_ms(engine.run, WARM_UP_RUNS)
        logits[name] = engine.logits()
        counts[name] = max(3, int(SESSION_MS / mean_ms(engine.run, WARM_UP_RUNS)))
    spent: dict[str, list[float]] = {name: [] for name in engines}
    for _ in range(rounds):
        for name, engine in engines.items():
            spent[name].append(mean_ms(engine.run, counts[name]))
    medians = {name: statistics.median(values) for name, values in spent.items()}
    first = next(iter(engines))
    differences = {name: float(np.abs(values - logits[first]).max()) for name, values in logits.items()}
    return {
        "median_ms": {name: round(value, 3) for name, value in medians.items()},
        "ratio_to_peer": {name: round(value / medians[first], 3) for name, value in medians.items()},
        "paired_ratio": {name: _paired(values, spent[first]) for name, values in spent.items()},
        "max_logit_difference": {name: float(f"{value:.1e}") for name, value in differences.items()},
        "all_ms": {name: [round(value, 3) for value in values] for name, values in spent.items()},
    }


def _paired(actual: list[float], expected: list[float]) -> float:
    """Give the median of the rounds' own ratios: a GPU's clock moves between rounds, and less within one."""
    return round(statistics.median(one / other for one, other in zip(actual, expected, strict=True)), 3)


def profile(engine: Engine) -> dict[str, Any]:
    """List the kernels of one run by name: how many, and microseconds together."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiler

    with profiler(activities=[ProfilerActivity.CUDA]) as profiled:
        engine.run()
        torch.cuda.synchronize()
    kernels: dict[str, list[float]] = collections.defaultdict(list)
    for event in profiled.events() or ():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            kernels[event.name[:80]].append(event.device_time)
    total = sorted(((sum(times), len(times), name) for name, times in kernels.items()), reverse=True)
    return {
        "kernels": sum(count for _, count, _ in total),
        "microseconds": round(sum(spent for spent, _, _ in total), 1),
        "largest": [f"{spent:.1f} us in {count} x {name}" for spent, count, name in total[:8]],
    }


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure every length."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    onnxruntime.preload_dlls()
    load = ModernBertForSequenceClassification.from_pretrained
    model = load(arguments.checkpoint, attn_implementation="sdpa", dtype=torch.float32).cuda().eval()
    rows = []
    for tokens in arguments.lengths:
        is_eager = tokens >= EAGER_FROM_TOKENS
        engines: dict[str, Engine] = {
            "torch eager" if is_eager else "torch graph": Peer(model, tokens, is_graph=not is_eager)
        }
        for form in FORMS:
            path = arguments.bundle / f"{form}-b1-s{tokens}.onnx"
            if path.exists():
                engines[form] = Graph(path)
        for fill in FILLS:
            row = time_alternately(engines, make_inputs(tokens, fill, model.config.vocab_size), arguments.rounds)
            rows.append({"tokens": tokens, "fill": fill, **row})
            print(tokens, fill, row["median_ms"], row["ratio_to_peer"], row["max_logit_difference"], file=sys.stderr)
        rows[-1]["operators"] = {name: graph.operators() for name, graph in engines.items() if isinstance(graph, Graph)}
        if tokens in arguments.profile:
            rows[-1]["profile"] = {name: profile(engine) for name, engine in engines.items()}
        del engines
        torch.cuda.empty_cache()
    versions = ("torch", "transformers", "onnxruntime-gpu", "numpy")
    return {
        "device": torch.cuda.get_device_name(0),
        "versions": {name: importlib.metadata.version(name) for name in versions},
        "provider_options": PROVIDER_OPTIONS,
        "lengths": rows,
    }


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--lengths", type=_numbers, default=[16, 64, 128, 512, 2048, 8192])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--profile", type=_numbers, default=[64, 2048])
    print(json.dumps(measure(parser.parse_args()), indent=1))
