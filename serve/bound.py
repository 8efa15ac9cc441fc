"""Runs of a fixed graph on CUDA with inputs and outputs that stay on the device, recorded once and replayed.

A replay launches all kernels of a run at once, where a run as it is pays for each. It reads and writes where the
recording did, so inputs are copied to the same place and outputs from it; who calls it is alone, as lanes are.
Source: ONNX Runtime's CUDA graphs: static shapes, bound inputs and outputs, every node on the provider. Measured on an
H200 with 1.31.1: each thread records anew, and two threads that do at once break each other's recordings (errors 900
and 901), so nothing else is asked of a device meanwhile.
"""

import collections
import contextlib
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vela.graphs import contract, manifest
from vela.serve import device as devices
from vela.serve.runtime import onnxruntime

_guards: collections.defaultdict[str, threading.RLock] = collections.defaultdict(threading.RLock)


def alone_on(device: devices.Device) -> AbstractContextManager[Any]:
    """Hold a CUDA device for this thread: loading a graph or running one while another records would end that."""
    return _guards[str(device)] if device.kind == "cuda" else contextlib.nullcontext()


class BoundRun:
    """A session's places on the device.

    Args:
        session: Of ONNX Runtime, with `enable_cuda_graph`.
        graph: Of fixed shape.
        device: A CUDA device.
    """

    def __init__(self, session: Any, graph: manifest.Graph, device: devices.Device) -> None:
        self._session = session
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
