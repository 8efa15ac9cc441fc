"""Time a checkpoint on the CPU, batch 1, FP32: Vela's graphs, what a user has without Vela, and the floor.

    python scripts/bench/cpu.py CHECKPOINT WORK [--lengths 16,64,128,512,2048] [--long 32768] [--openvino-python PATH]

`vela` and `vela-unpadded` are the bundle's dynamic graphs in the session of `vela serve`; `torch` is Transformers with
SDPA; `plain` is torch.onnx.export of the same model in ONNX Runtime; `openvino` is OpenVINO on that plain graph;
`roofline` is the model's matrix products alone (roofline.py). Each is a process of its own and they are asked in turn
(peers.py). Prints JSON: for every length medians, ratios of medians, medians of the ratios within one round, the
share of the floor's speed that each engine reaches, the largest |Δlogit| to torch, and peak memory up to there.

Exits with 1 where an engine was lost or answered otherwise than torch: its times are then those of another graph.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import peers
import report
import roofline
from numpy.typing import NDArray

from vela.serve import host
from vela.verify import checkpoint
from vela.verify.architecture import modernbert

LENGTHS = (16, 64, 128, 512, 2048)
FEWER_ABOVE_TOKENS = 2048
FEWER_RUNS = 3  # a round of all engines takes minutes there
LONG_ENGINES = ("vela-unpadded", "vela")


@dataclass(slots=True)
class Contest:
    """The workers of one run.

    Attributes:
        source: The checkpoint.
        setup: What workers load, for any engine.
        openvino: The interpreter that has OpenVINO.
        workers: Running ones by engine, in the order of their turns.
        absent: Engines that are not installed, and why.
        lost: Engines whose worker ended, and when.
    """

    source: checkpoint.Checkpoint
    setup: peers.Setup
    openvino: Path
    workers: dict[str, peers.Worker] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)

    def start(self, engines: Sequence[str]) -> None:
        """Start workers one after the other; one that is absent or lost is noted."""
        for name in engines:
            _progress(f"load {name}")
            python = self.openvino if name == "openvino" else Path(sys.executable)
            try:
                self.workers[name] = peers.Worker.start(self.setup.for_engine(name), python)
            except peers.EngineAbsentError as cause:
                self.absent[name] = str(cause)
                _progress(f"{name} is left out: {cause}")
            except peers.WorkerLostError as cause:
                self.lost[name] = f"{cause} while loading"

    def ask_in_turn(self, names: Sequence[str], input_ids: NDArray[np.int64]) -> dict[str, peers.Reply]:
        """Ask engines one after the other; one that is lost has no reply and is asked no more."""
        replies = {}
        for name in names:
            if name not in self.workers:
                continue
            try:
                replies[name] = self.workers[name].ask(input_ids)
            except peers.WorkerLostError as cause:
                self.lost[name] = f"{cause} at {input_ids.shape[1]} tokens"
                del self.workers[name]
        return replies

    def input_ids(self, tokens: int) -> NDArray[np.int64]:
        """Draw (1, T) token ids, the same at every call; the first few ids are special tokens in this family."""
        architecture = self.source.architecture
        if not isinstance(architecture, modernbert.ModernBert):
            raise TypeError(f"the benchmark is of ModernBERT, not of {type(architecture).__name__}")
        return np.random.default_rng(tokens).integers(5, architecture.vocabulary_size, (1, tokens))

    def close(self) -> None:
        """End every worker."""
        for worker in self.workers.values():
            worker.close()
        self.workers.clear()


def measure_length(contest: Contest, tokens: int, runs: int) -> dict[str, Any]:
    """Time every engine in turn, `runs` times after a round that is not timed; each round begins with another."""
    before, input_ids = _load_average(), contest.input_ids(tokens)
    _progress(f"{tokens} tokens: warm-up and {runs} rounds of {', '.join(contest.workers)}")
    names = list(contest.workers)
    warm_up = contest.ask_in_turn(names, input_ids)
    rounds = []
    for index in range(runs):
        first = index % len(names)
        rounds.append(contest.ask_in_turn([*names[first:], *names[:first]], input_ids))
    flops = roofline.Shape.from_architecture(contest.source.architecture).flops(tokens)
    row = {"tokens": tokens, "runs": runs, "load_average_before": before, "load_average_after": _load_average()}
    return row | report.describe_length(warm_up, rounds, flops)


def measure_long(contest: Contest, tokens: int) -> dict[str, Any]:
    """Time Vela's graphs once at a length that no other engine is asked for, each in a fresh process, and the floor."""
    before, input_ids = _load_average(), contest.input_ids(tokens)
    replies: dict[str, peers.Reply] = {}
    for name in (*LONG_ENGINES, peers.ROOFLINE):
        contest.start([name])
        _progress(f"{tokens} tokens: {name}")
        replies |= contest.ask_in_turn([name], input_ids)
        contest.close()
    flops = roofline.Shape.from_architecture(contest.source.architecture).flops(tokens)
    row = {"tokens": tokens, "runs": 1, "load_average_before": before, "load_average_after": _load_average()}
    return row | report.describe_length(replies, [replies], flops, reference=LONG_ENGINES[0])


def make_graphs(arguments: argparse.Namespace) -> peers.Setup:
    """Export what the engines run that were asked for."""
    bundle, plain = arguments.bundle or arguments.work / "bundle", arguments.work / "plain"
    wanted = set(arguments.engines)
    if arguments.bundle is None and wanted & set(peers.VELA_GRAPHS):
        _export("bundle", arguments.checkpoint, bundle)
    if wanted & {"plain", "openvino"}:
        _export("plain", arguments.checkpoint, plain)
    graph = os.fspath(plain / peers.PLAIN_FILE)
    return peers.Setup("", os.fspath(arguments.checkpoint), os.fspath(bundle), graph, arguments.threads)


def _export(kind: str, source: Path, folder: Path) -> None:
    _progress(f"export the {kind} graph")
    script = Path(__file__).with_name("cpu_graphs.py")
    subprocess.run([sys.executable, script, kind, source, folder], check=True, stdout=sys.stderr)


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure everything that was asked for."""
    source = checkpoint.Checkpoint.read(arguments.checkpoint)
    contest = Contest(source, make_graphs(arguments), arguments.openvino_python)
    with contextlib.closing(contest):
        contest.start(arguments.engines)
        if not contest.workers:
            raise SystemExit(f"no engine could be loaded: {contest.lost | contest.absent}")
        versions = {name: worker.version for name, worker in contest.workers.items()}
        rows = []
        for tokens in sorted(arguments.lengths):
            runs = arguments.runs if tokens <= FEWER_ABOVE_TOKENS else min(arguments.runs, FEWER_RUNS)
            rows.append(measure_length(contest, tokens, runs))
            _progress(report.table(rows[-1:]))  # a run of all lengths takes long, and may be broken off
        contest.close()  # a long run wants the memory of all others
        if arguments.long:
            rows.append(measure_long(contest, arguments.long))
    return {
        "lengths": rows,
        "absent": contest.absent,
        "lost": contest.lost,
        "differing": sorted({name for row in rows for name in row["differing"]}),
        "machine": report.describe_machine(),
        "threads": arguments.threads,
        "waiting": peers.WAITING,
        "versions": versions | {"python": sys.version.split()[0], "numpy": np.__version__},
    }


def read_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("work", type=Path, help="where graphs are exported to; the plain one is kept and used again")
    parser.add_argument("--lengths", type=_numbers, default=LENGTHS)
    parser.add_argument("--long", type=int, help="a length for Vela's graphs and the floor alone, such as 32768")
    parser.add_argument("--runs", type=int, default=9, help=f"{FEWER_RUNS} at most above {FEWER_ABOVE_TOKENS} tokens")
    parser.add_argument("--threads", type=int, default=host.available_cores())
    parser.add_argument("--engines", type=_names, default=peers.ENGINES, help="torch must be one: it is the reference")
    parser.add_argument("--bundle", type=Path, help="time the graphs of this bundle, not of a fresh export")
    parser.add_argument("--openvino-python", type=Path, default=Path(sys.executable), help="interpreter with openvino")
    arguments = parser.parse_args()
    unknown = set(arguments.engines) - set(peers.ENGINES)
    if unknown or peers.TORCH not in arguments.engines or arguments.runs < 1 or min(arguments.lengths) < 2:
        parser.error(f"engines are {', '.join(peers.ENGINES)}, torch among them; 1 run and 2 tokens at least")
    return arguments


def _load_average() -> float:
    """Give the processes that wanted a core, averaged over the last minute."""
    return round(os.getloadavg()[0], 2)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    measured = measure(read_arguments())
    print(json.dumps(measured, indent=1, allow_nan=False))
    _progress(report.table(measured["lengths"]))
    for name in measured["differing"]:
        _progress(f"{name} answers otherwise than the reference, or could not be compared with it")
    for cause in measured["lost"].values():
        _progress(f"lost: {cause}")
    sys.exit(1 if measured["lost"] or measured["differing"] else 0)
