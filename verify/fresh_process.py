"""Ask every graph of a bundle one thing in a process that did nothing before: `python -m vela.verify.fresh_process`.

What a long-lived gate process answers is what a server answers only if a process that starts afresh answers the same.
One process asks all graphs in turn, so that its start is paid once. Its request comes on stdin and its answers go to
stdout as JSON, one line for each graph, numbers as the hexadecimal of their bytes so that none is rounded.
"""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np

from vela.graphs import bundle, errors
from vela.serve import device as devices
from vela.serve import engine
from vela.verify import cases, engine_checks, runs

MODULE = "vela.verify.fresh_process"
TAIL = 400  # characters of a dead process's stderr that a check shows


class Job(msgspec.Struct, frozen=True):
    """One graph and the run that it is asked: rows of token ids, which of them is compared, and how they are padded."""

    graph_id: str
    rows: tuple[tuple[int, ...], ...]
    row: int
    pad_to: int | None

    @classmethod
    def from_run(cls, graph_id: str, run: runs.Run) -> "Job":
        """Describe a run without its text."""
        return cls(graph_id, tuple(run.rows), run.row, run.pad_to)

    def to_run(self) -> runs.Run:
        """Give the run, of cases that have ids only."""
        made = [cases.Case("", ids, "", 0, ()) for ids in self.rows]
        others = (*made[: self.row], *made[self.row + 1 :])
        return runs.Run(made[self.row], others, self.pad_to, self.row)


class Request(msgspec.Struct, frozen=True):
    """What a fresh process is asked."""

    folder: str
    device: str
    threads: int
    optimise: bool
    jobs: tuple[Job, ...]


class Tensor(msgspec.Struct, frozen=True):
    """A float32 array: its shape, and its bytes in hexadecimal."""

    shape: tuple[int, ...]
    content: str


class Reply(msgspec.Struct, frozen=True):
    """What one graph answered, or why it did not."""

    graph_id: str
    outputs: dict[str, Tensor]
    problem: str = ""


def ask_fresh(
    request: Request, asked: Mapping[str, runs.Run], count: int
) -> dict[str, list[engine_checks.FreshAnswer]]:
    """Start `count` processes one after another, each for all jobs.

    Args:
        request: The same for each.
        asked: The run behind each job, by graph id.
        count: Processes.

    Returns:
        For each graph one answer from each process; a process that died leaves its last words.
    """
    found: dict[str, list[engine_checks.FreshAnswer]] = {job.graph_id: [] for job in request.jobs}
    for _ in range(count):
        replies, problem = _run_process(request)
        for job in request.jobs:
            reply = replies.get(job.graph_id) or Reply(job.graph_id, {}, problem)
            answer = {name: _array(tensor) for name, tensor in reply.outputs.items()} or None
            found[job.graph_id].append(engine_checks.FreshAnswer(asked[job.graph_id], answer, reply.problem))
    return found


def _run_process(request: Request) -> tuple[dict[str, Reply], str]:
    # -P: what lies in the working directory must not stand in for a library
    done = subprocess.run(
        [sys.executable, "-P", "-m", MODULE], input=msgspec.json.encode(request), capture_output=True, check=False
    )
    replies = [msgspec.json.decode(line, type=Reply) for line in done.stdout.splitlines() if line.strip()]
    last_words = done.stderr.decode(errors="replace").strip()[-TAIL:]
    return {reply.graph_id: reply for reply in replies}, f"a fresh process ended with {done.returncode}: {last_words}"


def _array(tensor: Tensor) -> np.ndarray:
    return np.frombuffer(bytes.fromhex(tensor.content), np.float32).reshape(tensor.shape)


def answer_job(opened: bundle.Bundle, request: Request, job: Job) -> Reply:
    """Answer one job in this process."""
    graph = opened.graph(job.graph_id)
    options = engine.SessionOptions(threads=request.threads, optimise=request.optimise)
    try:
        session = engine.Session.open(opened.path(graph.file), graph, devices.Device.parse(request.device), options)
        found = engine_checks.answer(session, job.to_run(), opened.manifest.tokenizer.pad_id)
    except errors.VelaError as cause:
        return Reply(job.graph_id, {}, str(cause))
    outputs = {name: Tensor(value.shape, value.astype(np.float32).tobytes().hex()) for name, value in found.items()}
    return Reply(job.graph_id, outputs)


def main() -> None:
    """Answer the request on stdin."""
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=Request)
    opened = bundle.Bundle.open(Path(request.folder))
    for job in request.jobs:
        sys.stdout.buffer.write(msgspec.json.encode(answer_job(opened, request, job)) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
