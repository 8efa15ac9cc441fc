"""Prove on a checkpoint of full size that every graph of a bundle answers like a fresh PyTorch reference.

    python scripts/bench/exact.py CHECKPOINT BUNDLE [--lengths 16,32,…,8192] [--long 32768] [--graphs 'portable-*']

BUNDLE was exported from CHECKPOINT, a sequence classifier, with `--for cpu,portable,cuda`. Fixed graphs run at their
bucket, dynamic ones at each length: a full row, one at 60 % fill, and a short one behind which whole windows are
padding. All run on the CPU in the session and with the padding of `vela serve`; the reference is Transformers' SDPA
in FP32 on the row without padding. The bound is the gate's: max(2e-5, 8 x the reference's own noise), the noise being
FP32 against FP64 on the same rows of up to 512 tokens. Other ids under the mask of the 60 % row must leave the logits
equal bit for bit. `--long` judges the dynamic graphs where SDPA's mask does not fit in memory: against
chunked_reference.py, which is first proved against SDPA at `--proof-tokens`.

Prints JSON, with the spread of the logits, since those of random weights are small, and VmHWM of each graph's process,
which holds no PyTorch. Digests are the gate's business. Exits with 1 where a bound is broken, a poisoned run differs,
a graph gave no answer, or the long proof was refused.
"""

import argparse
import dataclasses
import fnmatch
import importlib.metadata
import json
import math
import subprocess
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import report
from numpy.typing import NDArray

from vela.graphs import bundle, contract, manifest
from vela.serve import device, engine, runtime
from vela.verify import answering, bars, checkpoint

LENGTHS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
FULL, PARTLY, SHORT = "full", "60 % full", "whole windows of padding"
FILL = 0.6
POISONS = ("random ids", "other random ids", "the first tokens' ids")  # a poison's seed is its place
FIRST_ORDINARY_ID = 5  # the ids below are special tokens in this family
NOISE_UP_TO_TOKENS = 512  # FP64 takes long, and noise grows little with length
PROOF_TOKENS = 2048
COMMAND = (sys.executable, __file__, "--answer")  # this file as a graph's own process
VERSIONS = ("vela-onnx", "torch", "transformers", "numpy")


@dataclass(frozen=True, slots=True)
class Run:
    """One row on one graph.

    Attributes:
        name: What kind of row it is.
        tokens: Its length.
        width: What it is padded to.
        poisons: What is put under the mask, each in a run of its own, after the one with padding ids.
    """

    name: str
    tokens: int
    width: int
    poisons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reply:
    """What a graph's process says of one run.

    Attributes:
        logits: Bytes of the C float32 logits, in hexadecimal, so that none is rounded on the way.
        poisoned: The same with each poison.
        peak_rss_bytes: Of its process up to then, mapped weights included.
    """

    logits: str
    poisoned: dict[str, str]
    peak_rss_bytes: int


NO_REPLY = Reply("", {}, 0)


@dataclass(frozen=True, slots=True)
class Ground:
    """What answers are judged by.

    Attributes:
        expected: The reference's logits, (C,) float64, by the row's length.
        noise: Of the reference, in logit units; 0 where no row is short enough to measure it.
    """

    expected: dict[int, NDArray[np.float64]]
    noise: float

    @property
    def bound(self) -> float:
        """The largest |Δlogit| allowed."""
        return bars.STRICT.logit_bound(self.noise) or 0.0


def plan_runs(graph: manifest.Graph, lengths: Sequence[int], half_window: int) -> list[Run]:
    """List the runs of a graph; without a mask it takes full rows only."""
    runs = []
    for width in (graph.sequence,) if graph.sequence else lengths:
        runs.append(Run(FULL, width, width))
        if graph.takes_mask:
            runs.append(Run(PARTLY, round(width * FILL), width, POISONS))
        short = min(half_window + 1, width - (2 * half_window + 2))
        if graph.takes_mask and short > 0:
            runs.append(Run(SHORT, short, width))
    return runs


def draw_row(tokens: int, vocabulary: int) -> tuple[int, ...]:
    """Draw token ids, the same ones for a length wherever it is asked for."""
    return tuple(np.random.default_rng(tokens).integers(FIRST_ORDINARY_ID, vocabulary, tokens).tolist())


def draw_poison(poison: str, row: Sequence[int], count: int, vocabulary: int) -> NDArray[np.int64]:
    """Draw `count` ids to put under the mask."""
    if poison == POISONS[-1]:
        return np.resize(row, count)
    return np.random.default_rng(POISONS.index(poison)).integers(FIRST_ORDINARY_ID, vocabulary, count)


def answer(folder: str, graph_id: str, runs: Sequence[dict[str, Any]]) -> None:
    """Be a graph's process: answer each run by a line of JSON, rows padded as serve and gate pad them."""
    opened = bundle.Bundle.open(Path(folder))
    graph, tokenizer = opened.graph(graph_id), opened.manifest.tokenizer
    session = engine.Session.open(opened.path(graph.file), graph, device.CPU)
    for run in (Run(**fields) for fields in runs):
        row = draw_row(run.tokens, tokenizer.vocabulary_size)
        feeds = engine.pad_rows([row], graph, tokenizer.pad_id, width=run.width)
        hidden, answers = feeds[contract.ATTENTION_MASK] == 0, {}
        for poison in ("", *run.poisons):
            _progress(f"  {graph_id}, width {run.width}: {run.name} {poison}")
            if poison:
                feeds[contract.INPUT_IDS][hidden] = draw_poison(poison, row, hidden.sum(), tokenizer.vocabulary_size)
            answers[poison] = session.run(feeds)[contract.LOGITS][0].tobytes().hex()
        print(json.dumps(dataclasses.asdict(Reply(answers.pop(""), answers, _peak_rss_bytes()))), flush=True)


def ask(opened: bundle.Bundle, graph: manifest.Graph, runs: Sequence[Run]) -> list[Reply]:
    """Let a process of its own answer runs; where it ends early runs have no reply, and stderr says why."""
    asked = {"folder": str(opened.folder), "graph_id": graph.id, "runs": [dataclasses.asdict(run) for run in runs]}
    done = subprocess.run(COMMAND, input=json.dumps(asked), stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        _progress(f"{graph.id} ended with status {done.returncode}")
    replies = [Reply(**json.loads(line)) for line in done.stdout.splitlines()]
    return [*replies, *[NO_REPLY] * (len(runs) - len(replies))]


def make_ground(source: checkpoint.Checkpoint, lengths: Collection[int], vocabulary: int) -> Ground:
    """Let the reference answer the row of each length, in FP32 and where it is short in FP64 as well."""
    import torch  # here, because a graph's process must not hold PyTorch

    from vela.export import reference

    rows = {tokens: draw_row(tokens, vocabulary) for tokens in sorted(lengths)}
    exact, expected = reference.PyTorchReference.from_checkpoint(source), {}
    for tokens, row in rows.items():
        _progress(f"reference: {tokens} tokens")
        expected[tokens] = exact.answer([row])[0][contract.LOGITS]
    del exact  # before the FP64 model, which is twice as large
    short = [tokens for tokens in rows if tokens <= NOISE_UP_TO_TOKENS]
    wide = reference.PyTorchReference.from_checkpoint(source, torch.float64).answer([rows[tokens] for tokens in short])
    noise = answering.noise_of([{contract.LOGITS: expected[tokens]} for tokens in short], wide) if short else 0.0
    return Ground(expected, noise)


def judge(graph: manifest.Graph, runs: Sequence[Run], replies: Sequence[Reply], ground: Ground) -> list[dict[str, Any]]:
    """Compare a graph's answers with the reference's, and poisoned ones with its own."""
    rows = []
    for run, reply in zip(runs, replies, strict=True):
        expected = ground.expected[run.tokens]
        difference = largest_difference(np.frombuffer(bytes.fromhex(reply.logits), np.float32), expected)
        is_equal = {poison: logits == reply.logits for poison, logits in reply.poisoned.items()}
        row = {
            **{"graph": graph.id, "input": run.name, "width": run.width, "tokens": run.tokens},
            "max_logit_difference": _finite(difference),
            "logit_spread": _finite(float(np.ptp(expected))),
            "bit_equal_with": is_equal,
            "peak_rss_bytes": reply.peak_rss_bytes,
            "passed": difference <= ground.bound and all(is_equal.values()),
        }
        rows.append(row)
        _progress(f"{'' if row['passed'] else 'FAILED '}{row}")
    return rows


def largest_difference(actual: NDArray[np.floating], expected: NDArray[np.float64]) -> float:
    """Give the largest |actual - expected|, infinite where they cannot be compared."""
    if actual.shape != expected.shape or not np.isfinite(actual).all():
        return math.inf
    return float(np.abs(actual - expected).max())


def prove_long(
    arguments: argparse.Namespace,
    source: checkpoint.Checkpoint,
    opened: bundle.Bundle,
    graphs: Sequence[manifest.Graph],
    ground: Ground,
) -> dict[str, Any]:
    """Judge dynamic graphs at a great length, each run in a fresh process, once the chunked reference is proved."""
    import chunked_reference  # here for the same reason

    vocabulary = opened.manifest.tokenizer.vocabulary_size
    proof_tokens, full, partly = arguments.proof_tokens, arguments.long, round(arguments.long * FILL)
    (chunked,) = chunked_reference.answer_in_chunks(source, [draw_row(proof_tokens, vocabulary)])
    difference = largest_difference(chunked, ground.expected[proof_tokens])
    proof = {"tokens": proof_tokens, "max_logit_difference": _finite(difference), "passed": difference <= ground.bound}
    _progress(f"chunked reference against SDPA: {proof}, allowed {ground.bound:.1e}")
    if not proof["passed"]:  # nothing may be judged by it
        return {"proof": proof, "rows": []}
    wanted = [run for run in (Run(FULL, full, full), Run(PARTLY, partly, full)) if arguments.fill in ("both", run.name)]
    tokens = [run.tokens for run in wanted]
    answers = chunked_reference.answer_in_chunks(source, [draw_row(count, vocabulary) for count in tokens])
    long_ground, rows = Ground(dict(zip(tokens, answers, strict=True)), ground.noise), []
    for graph in graphs:
        for run in wanted:
            if run.name == FULL or graph.takes_mask:
                rows += judge(graph, [run], ask(opened, graph, [run]), long_ground)
    return {"proof": proof, "rows": rows}


def prove(arguments: argparse.Namespace) -> dict[str, Any]:
    """Judge everything that was asked for."""
    source = checkpoint.Checkpoint.read(arguments.checkpoint)
    opened = bundle.Bundle.open(arguments.bundle)
    graphs = [graph for graph in opened.manifest.graphs if fnmatch.fnmatch(graph.id, arguments.graphs)]
    dynamic = [graph for graph in graphs if graph.sequence is None]
    if not graphs or (arguments.long and not dynamic) or source.head.kind not in ("sequence", "scores"):
        raise SystemExit(f"{len(graphs)} graphs, {len(dynamic)} of them dynamic, with a {source.head.kind} head")
    plans = {graph.id: plan_runs(graph, arguments.lengths, source.architecture.half_window) for graph in graphs}
    lengths = {run.tokens for runs in plans.values() for run in runs}
    lengths |= {arguments.proof_tokens} if arguments.long else set()
    ground = make_ground(source, lengths, opened.manifest.tokenizer.vocabulary_size)
    rows = []
    for graph in graphs:
        rows += judge(graph, plans[graph.id], ask(opened, graph, plans[graph.id]), ground)
    long = prove_long(arguments, source, opened, dynamic, ground) if arguments.long else {"proof": None, "rows": []}
    checks = [*rows, *long["rows"], *([long["proof"]] if long["proof"] else [])]
    logits = np.stack(list(ground.expected.values()))
    return {
        "verdict": "passed" if all(check["passed"] for check in checks) else "failed",
        "bound": ground.bound,
        "reference_noise": ground.noise,
        "noise_is": f"SDPA FP32 against FP64 on the same rows of up to {NOISE_UP_TO_TOKENS} tokens, no longer ones",
        "logits": {
            "range": [float(logits.min()), float(logits.max())],
            "largest_change_between_inputs": float(np.ptp(logits, axis=0).max()),
        },
        "rows": rows,
        "long": long,
        "machine": report.describe_machine(),
        "versions": {name: importlib.metadata.version(name) for name in VERSIONS} | dict([runtime.installed_build()]),
    }


def read_arguments(words: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("bundle", type=Path)
    parser.add_argument(
        "--lengths", type=lambda text: [*map(int, text.split(","))], default=LENGTHS, help="of the dynamic graphs"
    )
    parser.add_argument("--graphs", default="*", help="which graphs, as a pattern of ids")
    parser.add_argument("--long", type=int, help="a length for the dynamic graphs that SDPA is not asked for")
    parser.add_argument("--fill", choices=["both", FULL, PARTLY], default="both", help="of the rows under --long")
    parser.add_argument("--proof-tokens", type=int, default=PROOF_TOKENS, help="where chunks are proved against SDPA")
    arguments = parser.parse_args(words)
    if min(*arguments.lengths, arguments.long or 2, arguments.proof_tokens) < 2:
        parser.error("a row has at least 2 tokens")
    return arguments


def _peak_rss_bytes() -> int:
    """Read this process's own peak: getrusage counts also what was resident before its program was started."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM:"))) * 1024


def _finite(value: float) -> float | None:
    """Give None for what could not be compared: JSON has no infinity."""
    return float(f"{value:.3e}") if math.isfinite(value) else None


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == [*COMMAND[2:]]:
        answer(**json.load(sys.stdin))
        sys.exit(0)
    found = prove(read_arguments(sys.argv[1:]))
    print(json.dumps(found, indent=1, allow_nan=False))
    sys.exit(0 if found["verdict"] == "passed" else 1)
