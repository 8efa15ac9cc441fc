"""Honest variations: graphs that are the checkpoint's, in every form, shape, session and storage; each must pass.

A gate that refuses everything catches every fault. What counts as distinct is the tuple of what was varied together
with the digest of the graph file, so no graph is counted twice under one setting.
"""

import hashlib
import importlib.metadata
import json
import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from lab import judging

from vela.export import bundle_writer, trace
from vela.graphs import bundle
from vela.serve import engine, runtime
from vela.verify import checkpoint

Storage = Literal["reference", "embedded"]
STORAGES: tuple[Storage, ...] = ("reference", "embedded")
BUCKETS, BATCHES = (64, 128), (1, 2)
SESSIONS = tuple(
    engine.SessionOptions(threads=threads, optimise=optimise) for optimise in (True, False) for threads in (1, 2)
)
MAX_TOKENS = 96


@dataclass(frozen=True, slots=True)
class Variation:
    """One honest graph in one session.

    Attributes:
        sample: Name of the checkpoint.
        graph_id: Of its bundle; its name says form, exit, batch and bucket.
        storage: Of its weights.
        batch: Rows; 0 where any number goes.
        bucket: Tokens; 0 where any number goes.
        optimise: Whether the engine rewrites the graph.
        threads: Of the session.
        runtime: Version of ONNX Runtime.
    """

    sample: str
    graph_id: str
    storage: Storage
    batch: int
    bucket: int
    optimise: bool
    threads: int
    runtime: str

    @property
    def session(self) -> engine.SessionOptions:
        return engine.SessionOptions(threads=self.threads, optimise=self.optimise)

    def digest(self, graph_sha256: str) -> str:
        """Identify the variation: what was varied, and the bytes that were judged."""
        content = json.dumps([asdict(self), graph_sha256], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()


def export_all(
    samples: Sequence[Path], to: Path, traces: trace.TraceCache, *, storages: Sequence[Storage] = STORAGES
) -> None:
    """Export samples in every form, shape and storage, to `<to>/<storage>/<sample>`."""
    for folder in samples:
        source = checkpoint.Checkpoint.read(folder)
        for storage in storages:
            plan = bundle_writer.ExportPlan(folder.name, BUCKETS, BATCHES, ("cpu", "portable", "cuda"), storage)
            (to / storage).mkdir(exist_ok=True, parents=True)
            bundle_writer.export_bundle(source, to / storage / folder.name, plan, traces, lambda _: None)


def plan(bundles: Path, storage: Storage, sample: str) -> Iterator[Variation]:
    """List the variations of one exported bundle."""
    version = runtime.installed_build()[1]
    for index, graph in enumerate(bundle.Bundle.open(bundles / storage / sample).manifest.graphs):
        shift = STORAGES.index(storage)
        session = SESSIONS[(index + shift) % len(SESSIONS)]
        yield Variation(
            sample,
            graph.id,
            storage,
            graph.batch or 0,
            graph.sequence or 0,
            session.optimise,
            session.threads,
            version,
        )


def judge(
    variations: Sequence[Variation], bundles: Path, checkpoints: Path, judged: judging.Judge
) -> dict[Variation, judging.Outcome]:
    """Judge variations of one bundle, those of one session together."""
    found: dict[Variation, judging.Outcome] = {}
    for session in dict.fromkeys(variation.session for variation in variations):
        group = [variation for variation in variations if variation.session == session]
        outcomes = judged.judge(
            bundles / group[0].storage / group[0].sample,
            checkpoints / group[0].sample,
            tuple(variation.graph_id for variation in group),
            max_tokens=MAX_TOKENS,
            session=session,
        )
        if len(outcomes) != len(group):  # the bundle was refused as a whole
            outcomes = [outcomes[0]] * len(group)
        found |= zip(group, outcomes, strict=True)
    return found


def versions(names: Sequence[str]) -> dict[str, str]:
    """Say what the variations were judged with."""
    found = {name: importlib.metadata.version(name) for name in names}
    return found | {"python": platform.python_version(), "onnxruntime": runtime.installed_build()[1]}
