"""Ask graphs one thing each in a process that did nothing before: `python -m vela.verify.fresh_process`.

What a long-lived gate process answers is what a server answers only if a process that starts afresh answers the same.
One process asks all graphs in turn, so that its start is paid once. Its request comes on stdin and its answers go to
stdout as JSON, one line for each graph, numbers as the hexadecimal of their bytes so that none is rounded.
"""

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import numpy as np

from vela.graphs import bundle, errors, manifest
from vela.serve import device as devices
from vela.serve import engine
from vela.verify import asked as asking
from vela.verify import cases, engine_checks, runs

MODULE = "vela.verify.fresh_process"
Open = Callable[[str, devices.Device, engine.SessionOptions], asking.Session]
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


class Bundled(msgspec.Struct, frozen=True, tag="bundle"):
    """The graphs of a bundle folder."""

    folder: str


class Single(msgspec.Struct, frozen=True, tag="file"):
    """One file of any exporter, with how it is fed and read; see `foreign.Foreign`."""

    path: str
    entry: manifest.Graph
    presented: manifest.Graph
    roles: tuple[asking.Role, ...]


class Request(msgspec.Struct, frozen=True):
    """What a fresh process is asked."""

    subject: Bundled | Single
    pad_id: int
    device: str
    threads: int
    optimise: bool
    jobs: tuple[Job, ...]

    @classmethod
    def about(
        cls,
        subject: Bundled | Single,
        pad_id: int,
        device: devices.Device,
        session: engine.SessionOptions,
        asked: Mapping[str, runs.Run],
    ) -> "Request":
        """Ask one run of each graph, by graph id."""
        jobs = tuple(Job.from_run(graph_id, run) for graph_id, run in asked.items())
        return cls(subject, pad_id, str(device), session.threads, session.optimise, jobs)


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


def opener(subject: Bundled | Single) -> Open:
    """Give what loads a graph of a subject; a bundle is opened once.

    Raises:
        VelaError: there is no such bundle.
    """
    if isinstance(subject, Bundled):
        opened = bundle.Bundle.open(Path(subject.folder))

        def open_graph(graph_id: str, device: devices.Device, options: engine.SessionOptions) -> asking.Session:
            graph = opened.graph(graph_id)
            return engine.Session.open(opened.path(graph.file), graph, device, options)

        return open_graph
    from vela.verify import foreign, foreign_session  # they read ONNX files: a second more that bundles need not pay

    interface = foreign.Foreign(Path(subject.path), subject.entry, subject.presented, subject.roles, ())
    return lambda graph_id, device, options: foreign_session.ForeignSession.open(interface, device, options)


def answer_job(open_graph: Open, request: Request, job: Job) -> Reply:
    """Answer one job in this process."""
    options = engine.SessionOptions(threads=request.threads, optimise=request.optimise)
    try:
        session = open_graph(job.graph_id, devices.Device.parse(request.device), options)
        found = engine_checks.answer(session, job.to_run(), request.pad_id)
    except errors.VelaError as cause:
        return Reply(job.graph_id, {}, str(cause))
    outputs = {name: Tensor(value.shape, value.astype(np.float32).tobytes().hex()) for name, value in found.items()}
    return Reply(job.graph_id, outputs)


def main() -> None:
    """Answer the request on stdin."""
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=Request)
    open_graph = opener(request.subject)
    for job in request.jobs:
        sys.stdout.buffer.write(msgspec.json.encode(answer_job(open_graph, request, job)) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
