"""Engines under comparison, each in a worker process of its own, asked in turn by cpu.py.

In one process the thread pools of several engines fight for cores. Here only the engine that was asked has anything to
do: a worker answers after its pool has stopped spinning (`_settle`), so every engine keeps its own default waiting
policy and none is timed beside another's. A worker is started as `python peers.py SETUP`, a JSON object; it prints
one JSON line when it is loaded and one for each line `{"input_ids": [...]}` that it reads.

An engine's libraries are imported where it is loaded, because OpenVINO may lie in an environment without the others.
"""

import contextlib
import importlib.metadata
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

PLAIN_FILE = "plain.onnx"
TORCH = "torch"
ROOFLINE = "roofline"
VELA_GRAPHS = {"vela": "model", "vela-unpadded": "model-unpadded"}
ENGINES = (*VELA_GRAPHS, TORCH, "plain", "openvino", ROOFLINE)
WAITING = {
    "every worker": "answers once its process used less than 1 ms of CPU in 10 ms; no OMP or KMP policy is set",
    "vela, vela-unpadded": "spinning off, as vela.serve sets it",
    "torch, plain, openvino": "the library's default",
    ROOFLINE: "spinning off, as vela.serve sets it",
}
ABSENT = "absent"
SETTLE_WINDOW_S = 0.01
SETTLED_BELOW_S = 0.001
# ONNX Runtime and GNU OpenMP spin for some milliseconds, Intel OpenMP for 200; more is no waiting policy.
SETTLE_AT_MOST_S = 5.0

Run = Callable[[NDArray[np.int64]], NDArray[np.float32]]  # (1, T) token ids to (1, C) logits
Measure = Callable[[NDArray[np.int64]], "tuple[dict[str, float], list[float]]"]  # seconds by part, and logits


@dataclass(frozen=True, slots=True)
class Setup:
    """What a worker loads.

    Attributes:
        engine: One of ENGINES.
        checkpoint: Folder of the checkpoint.
        bundle: Vela's bundle of it.
        plain: The plain ONNX file of it.
        threads: Threads for one operator, the same for every engine.
    """

    engine: str
    checkpoint: str
    bundle: str
    plain: str
    threads: int

    def for_engine(self, engine: str) -> Self:
        """Give the same setup for another engine."""
        return replace(self, engine=engine)


@dataclass(frozen=True, slots=True)
class Reply:
    """One timed answer.

    Attributes:
        parts_s: Seconds by part; an engine has one part, the roofline one for each kind of product.
        logits: The C logits; none of the roofline.
        peak_rss_bytes: Of the worker's process since it started, mapped weights included.
    """

    parts_s: dict[str, float]
    logits: list[float]
    peak_rss_bytes: int

    @property
    def total_s(self) -> float:
        """Seconds of all parts."""
        return sum(self.parts_s.values())


class EngineAbsentError(Exception):
    """The engine is not installed where its worker was started."""


class WorkerLostError(Exception):
    """A worker ended instead of answering, for want of memory for instance; its stderr says why."""


@dataclass(slots=True)
class Worker:
    """The parent's end of a worker process.

    Attributes:
        engine: Its engine.
        version: The engine's library and version.
    """

    engine: str
    version: str
    _process: "subprocess.Popen[str]" = field(repr=False)

    @classmethod
    def start(cls, setup: Setup, python: Path) -> Self:
        """Start a worker and wait until it has loaded its engine.

        Raises:
            EngineAbsentError: its library is not installed.
            WorkerLostError: it could not load.
        """
        count = str(setup.threads)
        environment = os.environ | {"OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count, "HF_HUB_OFFLINE": "1"}
        command = [os.fspath(python), __file__, json.dumps(asdict(setup))]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, env=environment
        )
        worker = cls(setup.engine, "", process)
        ready = worker._read()
        if ABSENT in ready:
            worker.close()
            raise EngineAbsentError(ready[ABSENT])
        worker.version = ready["version"]
        return worker

    def ask(self, input_ids: NDArray[np.int64]) -> Reply:
        """Have one input of (1, T) token ids answered and timed.

        Raises:
            WorkerLostError: it ended without an answer.
        """
        with contextlib.suppress(BrokenPipeError):  # reading says it better: with the exit status
            print(json.dumps({"input_ids": input_ids[0].tolist()}), file=self._process.stdin, flush=True)
        return Reply(**self._read())

    def close(self) -> None:
        """End the worker and wait for it; one that has ended already is fine."""
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate()

    def _read(self) -> dict[str, Any]:
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            self.close()
            raise WorkerLostError(f"{self.engine} ended with status {self._process.returncode}")
        reply: dict[str, Any] = json.loads(line)
        return reply


def serve(setup: Setup) -> None:
    """Load an engine and answer until stdin ends; what libraries print goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        measure, version = load(setup)
    except ModuleNotFoundError as cause:
        if setup.engine != "openvino":
            raise
        print(json.dumps({ABSENT: str(cause)}), file=answers, flush=True)
        return
    print(json.dumps({"version": version}), file=answers, flush=True)
    for line in sys.stdin:
        parts_s, logits = measure(np.array([json.loads(line)["input_ids"]], dtype=np.int64))
        _settle()
        print(json.dumps(asdict(Reply(parts_s, logits, _peak_rss_bytes()))), file=answers, flush=True)


def load(setup: Setup) -> tuple[Measure, str]:
    """Load one engine.

    Returns:
        What answers and times, and the name and version of the library under it.
    """
    match setup.engine:
        case "torch":
            return _timed(_load_torch(setup)), _version("torch")
        case "plain":
            return _timed(_load_plain(setup)), _version("onnxruntime")
        case "openvino":
            return _timed(_load_openvino(setup)), _version("openvino")
        case "roofline":
            return _load_roofline(setup), _version("onnxruntime")
        case name:
            return _timed(_load_vela(setup, VELA_GRAPHS[name])), _version("onnxruntime")


def _load_vela(setup: Setup, graph_id: str) -> Run:
    """Load a graph as `vela serve` does."""
    from vela.graphs import bundle, contract
    from vela.serve import device, engine

    opened = bundle.Bundle.open(Path(setup.bundle))
    graph = opened.graph(graph_id)
    session = engine.Session.open(opened.path(graph.file), graph, device.CPU, engine.SessionOptions(setup.threads))
    return lambda ids: session.run(_feeds(ids))[contract.LOGITS]


def _load_torch(setup: Setup) -> Run:
    """Load the classifier as a user of Transformers would."""
    import torch
    from transformers import AutoModelForSequenceClassification
    from transformers.utils import logging

    logging.disable_progress_bar()
    torch.set_num_threads(setup.threads)
    model = AutoModelForSequenceClassification.from_pretrained(
        setup.checkpoint, attn_implementation="sdpa", dtype=torch.float32
    ).eval()

    def run(ids: NDArray[np.int64]) -> NDArray[np.float32]:
        with torch.inference_mode():
            feeds = {name: torch.from_numpy(value) for name, value in _feeds(ids).items()}
            logits: NDArray[np.float32] = model(**feeds).logits.numpy()
            return logits

    return run


def _load_plain(setup: Setup) -> Run:
    """Load the plain graph with ONNX Runtime's defaults but for the number of threads."""
    from vela.serve.runtime import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = setup.threads
    session = onnxruntime.InferenceSession(setup.plain, options, providers=["CPUExecutionProvider"])
    return lambda ids: session.run(None, _feeds(ids))[0]


def _load_openvino(setup: Setup) -> Run:
    """Load the plain graph in OpenVINO for latency; without the precision hint it may compute in bfloat16."""
    import openvino

    hints = {
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": setup.threads,
    }
    compiled = openvino.Core().compile_model(setup.plain, "CPU", hints)
    return lambda ids: compiled(_feeds(ids))[0]


def _load_roofline(setup: Setup) -> Measure:
    import roofline

    from vela.verify import checkpoint

    shape = roofline.Shape.from_architecture(checkpoint.Checkpoint.read(Path(setup.checkpoint)).architecture)
    products = roofline.Products(shape, setup.threads)
    return lambda ids: (products.measure(ids.shape[1]), [])


def _feeds(ids: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    """Give the inputs of the contract; every token counts."""
    return {"input_ids": ids, "attention_mask": np.ones_like(ids)}


def _timed(run: Run) -> Measure:
    def measure(ids: NDArray[np.int64]) -> tuple[dict[str, float], list[float]]:
        started = time.perf_counter()
        logits = run(ids)
        seconds = time.perf_counter() - started
        return {"forward": seconds}, logits[0].tolist()

    return measure


def _settle() -> None:
    """Wait until no thread of this process is busy.

    Raises:
        RuntimeError: a pool never stops, so it would run beside the next engine.
    """
    deadline = time.monotonic() + SETTLE_AT_MOST_S
    while time.monotonic() < deadline:
        used_s = time.process_time()
        time.sleep(SETTLE_WINDOW_S)
        if time.process_time() - used_s < SETTLED_BELOW_S:
            return
    raise RuntimeError(f"this engine's threads are still busy {SETTLE_AT_MOST_S:.0f} s after its answer")


def _peak_rss_bytes() -> int:
    """Read this process's own peak: getrusage counts also what was resident before its program was started."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM:"))) * 1024


def _version(package: str) -> str:
    return f"{package} {importlib.metadata.version(package)}"


if __name__ == "__main__":
    serve(Setup(**json.loads(sys.argv[1])))
