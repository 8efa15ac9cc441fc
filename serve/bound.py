"""Runs of a fixed graph on CUDA with inputs and outputs that stay on the device, recorded once and replayed.

A replay launches all kernels of a run at once, where a run as it is pays for each. It reads and writes where the
recording did, so inputs are copied to the same place and outputs from it; who calls it is alone, as lanes are.
Source: ONNX Runtime's CUDA graphs: static shapes, bound inputs and outputs, every node on the provider.
"""

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vela.graphs import contract, manifest
from vela.serve import device as devices
from vela.serve.recording_guard import GUARD
from vela.serve.runtime import onnxruntime

RECORDING_RUNS = 2  # of a thread: as they are, and recorded


class BoundRun:
    """A session's places on the device.

    Args:
        session: Of ONNX Runtime, with `enable_cuda_graph`.
        graph: Of fixed shape.
        device: A CUDA device.
    """

    def __init__(self, session: Any, graph: manifest.Graph, device: devices.Device) -> None:
        self._session = session
        self._done = threading.local()  # runs of each thread, as far as they may record
        self._binding = session.io_binding()
        place = (device.kind, device.index)
        self._inputs = {
            tensor.name: onnxruntime.OrtValue.ortvalue_from_numpy(np.ones(_shape(tensor), tensor.dtype), *place)
            for tensor in graph.inputs
        }
        self._outputs = [
            onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(_shape(tensor), tensor.dtype), *place)
            for tensor in graph.outputs
        ]
        for name, value in self._inputs.items():
            self._binding.bind_ortvalue_input(name, value)
        for tensor, value in zip(graph.outputs, self._outputs, strict=True):
            self._binding.bind_ortvalue_output(tensor.name, value)

    def run(self, feeds: Mapping[str, NDArray[Any]], run_options: Any = None) -> list[NDArray[Any]]:
        """Run on these inputs, each of the graph's shape and type; give the outputs in the graph's order."""
        runs = getattr(self._done, "runs", 0)
        if runs < RECORDING_RUNS:
            with GUARD.record():
                outputs = self._run(feeds, run_options)
            self._done.runs = runs + 1
            return outputs
        with GUARD.use():
            return self._run(feeds, run_options)

    def _run(self, feeds: Mapping[str, NDArray[Any]], run_options: Any) -> list[NDArray[Any]]:
        for name, value in self._inputs.items():
            value.update_inplace(np.ascontiguousarray(feeds[name]))
        self._session.run_with_iobinding(self._binding, run_options)
        return [value.numpy() for value in self._outputs]


def can_bind(graph: manifest.Graph, device: devices.Device) -> bool:
    """Say whether a graph's runs can be recorded: on CUDA, where every dimension is fixed."""
    tensors = (*graph.inputs, *graph.outputs)
    return device.kind == "cuda" and all(isinstance(size, int) for tensor in tensors for size in tensor.shape)


def _shape(tensor: contract.TensorSpec) -> list[int]:
    return [size for size in tensor.shape if isinstance(size, int)]
