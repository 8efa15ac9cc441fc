"""Run one graph on one device: the engine that serves, and that the gate judges through.

Nothing here falls back. The provider is the only one listed, ONNX Runtime's own retry on the CPU is off, and after
loading each node's placement is read back. Inputs and outputs are checked against the manifest's shapes on every
run, because a compiled program of another shape answers without an error.
Source: reference measurements with ONNX Runtime 1.22.2 to 1.32.0 on how a session falls back silently.
"""

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from vela.graphs import contract, errors, manifest, record
from vela.serve import bound, external_paths, host, placement, providers
from vela.serve import device as devices
from vela.serve.recording_guard import GUARD
from vela.serve.runtime import onnxruntime

Inputs = dict[str, NDArray[np.int64]]
Outputs = dict[str, NDArray[np.float32]]

# Shrink the CPU arena after runs of more tokens than this: it never gives memory back by itself (measured: 337 MB
# after a long run, 173 MB after the next with shrinkage), and shrinking costs an allocation on the next run: 2 % of one
# of 2,048 tokens of a 307M model, for which 147 MB are kept.
SHRINK_ABOVE_TOKENS = 2048
WEIGHTS_FOLDER = "session.model_external_initializers_file_folder_path"  # where a graph from memory finds its weights


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """What a session may be told; every field that can change an answer is written into the record.

    Attributes:
        threads: Threads for one operator.
        optimise: Whether ONNX Runtime rewrites the graph at load; the gate compares both.
    """

    threads: int = field(default_factory=host.available_cores)
    optimise: bool = True

    def __post_init__(self) -> None:
        if self.threads < 1:
            raise ValueError(f"at least one thread, got {self.threads}")


class Session:
    """A graph loaded on a device. One caller at a time.

    Attributes:
        graph: What the manifest says of it.
        facts: The engine, as the record names it.
    """

    def __init__(self, inner: Any, graph: manifest.Graph, facts: record.EngineFacts, device: devices.Device) -> None:
        self._inner = inner
        self._device = device
        self._bound: bound.BoundRun | None = None
        self._output_names = [output.name for output in graph.outputs]
        self.graph = graph
        self.facts = facts

    @classmethod
    def open(
        cls,
        path: Path,
        graph: manifest.Graph,
        device: devices.Device,
        options: SessionOptions | None = None,
        programs: Path | None = None,
    ) -> Self:
        """Load a graph; its files must have been checked by digest.

        Args:
            path: The ONNX file, beside the weights that it refers to.
            graph: Its manifest entry.
            device: Where it must run, wholly.
            options: Threads and optimisation; by default all cores this process may use.
            programs: Folder of compiled programs, for a provider that keeps them; all of them are trusted.

        Raises:
            ProviderUnavailable: the installed build cannot run there.
            PlacementMismatch: a node was placed elsewhere.
            GraphError: it reads files that do not lie beside it.
            EngineError: ONNX Runtime refuses the graph.
        """
        if not placement.SESSIONS_SAY_WHERE:  # nor do they refuse paths, which they do since the same version
            external_paths.require_beside(path)
        return cls._load(os.fspath(path), path.name, graph, device, options or SessionOptions(), programs=programs)

    @classmethod
    def from_bytes(
        cls, content: bytes, folder: Path, graph: manifest.Graph, device: devices.Device, options: SessionOptions
    ) -> Self:
        """Load a graph that lies in memory and refers to weights in a folder; else as `open`."""
        return cls._load(content, graph.id, graph, device, options, weights=folder)

    @classmethod
    def _load(
        cls,
        model: str | bytes,
        name: str,
        graph: manifest.Graph,
        device: devices.Device,
        options: SessionOptions,
        *,
        weights: Path | None = None,
        programs: Path | None = None,
    ) -> Self:
        providers.require_provider(device)
        session_options = providers.session_options(device, threads=options.threads, optimise=options.optimise)
        if weights is not None:
            session_options.add_session_config_entry(WEIGHTS_FOLDER, os.fspath(weights))
        is_recorded = bound.can_bind(graph, device)
        kernels = providers.attention_kernels(graph)
        facts = providers.engine_facts(
            device, threads=options.threads, optimise=options.optimise, is_recorded=is_recorded, kernels=kernels
        )
        told = providers.provider_options(device, programs, is_recorded=is_recorded, kernels=kernels)
        with placement.observing(session_options) as observe:
            with _using(device):
                session = cls(cls._open(model, name, device, session_options, told), graph, facts, device)
            with GUARD.record() if is_recorded else _using(device):
                placed = observe(session._inner, session._run_once)
        placement.require(placed, graph.id, device)
        if is_recorded:
            with _using(device):
                session._bound = bound.BoundRun(session._inner, graph, device)
        return session

    @staticmethod
    def _open(
        model: str | bytes, name: str, device: devices.Device, session_options: Any, told: Mapping[str, str]
    ) -> Any:
        try:
            return onnxruntime.InferenceSession(
                model,
                sess_options=session_options,
                providers=[(device.provider, dict(told))],
                enable_fallback=0,
            )
        except Exception as cause:  # onnxruntime raises RuntimeError and classes of its own without a common root
            raise errors.EngineError(
                f"a load error: {str(cause).strip().splitlines()[0]}",
                expected=f"a graph that ONNX Runtime loads on {device}",
                where=name,
                fix="Run `vela inspect` on it; export it again with this version of Vela.",
            ) from cause

    def _run_once(self) -> None:
        """Run the smallest row that the graph takes."""
        sizes = {contract.BATCH: self.graph.batch or 1, contract.SEQUENCE: self.graph.sequence or 1}
        feeds = {
            tensor.name: np.ones(
                [sizes[size] if isinstance(size, str) else size for size in tensor.shape], tensor.dtype
            )
            for tensor in self.graph.inputs
        }
        self._inner.run(self._output_names, feeds)

    def run(self, inputs: Mapping[str, NDArray[Any]], run_options: Any = None) -> Outputs:
        """Run one padded batch.

        Args:
            inputs: Those that the manifest names: `input_ids` and, where the graph takes it, `attention_mask`, (B, T)
                int64.
            run_options: ONNX Runtime's RunOptions of the caller, through which a run can be stopped.

        Returns:
            Every output by name, float32; values may be non-finite, the caller decides what that means.

        Raises:
            ShapeMismatch: an output has another shape than the manifest says.
            EngineError: the run failed or was stopped.
        """
        feeds = {tensor.name: inputs[tensor.name] for tensor in self.graph.inputs}
        rows, tokens = feeds[contract.INPUT_IDS].shape
        if rows * tokens > SHRINK_ABOVE_TOKENS and self.facts.device == "cpu":
            run_options = run_options or onnxruntime.RunOptions()
            run_options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        try:
            if self._bound is not None:
                values = self._bound.run(feeds, run_options)
            else:
                with _using(self._device):
                    values = self._inner.run(self._output_names, feeds, run_options)
        except Exception as cause:  # as above
            raise errors.EngineError(
                f"a run error: {str(cause).strip().splitlines()[0]}",
                expected=f"an answer for {rows} rows of {tokens} tokens",
                where=self.graph.id,
                fix="Look at the log; a device error does not move the model to another device.",
            ) from cause
        outputs = dict(zip(self._output_names, values, strict=True))
        self._check_shapes(outputs, {contract.BATCH: rows, contract.SEQUENCE: tokens})
        return outputs

    def _check_shapes(self, outputs: Outputs, sizes: Mapping[str, int]) -> None:
        for spec in self.graph.outputs:
            expected = tuple(sizes[size] if isinstance(size, str) else size for size in spec.shape)
            found = outputs[spec.name]
            if found.shape != expected or found.dtype.name != spec.dtype:
                raise errors.ShapeMismatch(
                    f"{spec.name} of shape {found.shape} and type {found.dtype}",
                    expected=f"{expected} {spec.dtype}",
                    where=self.graph.id,
                    fix="The graph or a compiled program of it is not the one that the manifest names.",
                )


def _using(device: devices.Device) -> contextlib.AbstractContextManager[None]:
    """Use a device beside others, but not while a run is recorded: only CUDA records."""
    return GUARD.use() if device.kind == "cuda" else contextlib.nullcontext()


def pad_rows(
    rows: Sequence[Sequence[int]], graph: manifest.Graph, pad_id: int, *, width: int | None = None
) -> dict[str, NDArray[np.int64]]:
    """Lay token ids into the arrays that a graph takes: padded on the right, pads masked.

    A fixed graph is filled up to its shape; rows that no caller asked for repeat the first one, so that no row is
    all padding. A dynamic graph gets the rows as they are, as long as the longest.

    Args:
        rows: Token ids with their special tokens, none empty.
        graph: The graph that will run them.
        pad_id: The tokenizer's padding id.
        width: T of a dynamic graph, where more padding than the longest row is wanted.

    Returns:
        `input_ids` and `attention_mask`, (B, T) int64; the first `len(rows)` rows are the caller's.

    Raises:
        ValueError: the rows do not fit the graph, or need padding that it cannot mask.
    """
    longest = max(width or 0, *map(len, rows))
    if not graph.fits(len(rows), longest) or min(map(len, rows)) < 1:
        raise ValueError(f"{graph.id} does not take {len(rows)} rows of up to {longest} tokens")
    height, width = graph.batch or len(rows), graph.sequence or longest
    if not graph.takes_mask and any(len(row) < width for row in rows):
        raise ValueError(f"{graph.id} takes no mask, so it takes no padded rows")
    input_ids = np.full((height, width), pad_id, dtype=np.int64)
    attention_mask = np.zeros((height, width), dtype=np.int64)
    for index in range(height):
        row = rows[index] if index < len(rows) else rows[0]
        input_ids[index, : len(row)] = row
        attention_mask[index, : len(row)] = 1
    return {contract.INPUT_IDS: input_ids, contract.ATTENTION_MASK: attention_mask}
