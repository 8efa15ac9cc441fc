"""Faults of precision: files that say one type and hold another, and arithmetic in a narrower one."""

from functools import partial

import numpy as np
import onnx
from lab import landmarks
from lab.fault import Fault
from lab.sketch import Sketch
from lab.weight_faults import stored, weight_names
from lab.workbench import Bench
from onnx import numpy_helper

MISLABELLED = "vllm-project/semantic-router issue 3256: files called fp16 that hold FP32 weights in 5 of 6 heads"


def compute_narrowly(bench: Bench, kind: int) -> str:
    """Let one value on the residual stream pass through a narrow type."""
    sketch = bench.sketch()
    layer = int(bench.rng.integers(landmarks.layer_count(sketch)))
    part = bench.pick(["attn", "mlp"])
    sketch.interpose(
        landmarks.branch_ends(sketch, layer)[part],
        lambda value: sketch.add("Cast", [sketch.add("Cast", [value], to=kind)], to=onnx.TensorProto.FLOAT),
    )
    _save(bench, sketch)
    return f"layer {layer}, {part}"


def hold_narrow(bench: Bench, kind: type) -> str:
    """Hold one weight in another type and widen it at use."""
    sketch, tensors = bench.sketch(), bench.weights()
    name = bench.pick([name for name in weight_names(sketch, tensors) if stored(tensors, name).ndim == 2])
    users = sketch.users(name)
    sketch.initializer(name).CopyFrom(numpy_helper.from_array(stored(tensors, name).astype(kind), name))
    wide = sketch.add("Cast", [name], to=onnx.TensorProto.FLOAT)
    for node, index in users:
        node.input[index] = wide
    _save(bench, sketch)
    return name


def hold_unused_narrow(bench: Bench) -> str:
    """Hold a narrow number that changes nothing."""
    sketch = bench.sketch()
    half = sketch.put(0.0, np.float16)
    name = landmarks.norms(sketch)[0].output[0]
    nothing = sketch.add("Cast", [half], to=onnx.TensorProto.FLOAT)
    sketch.interpose(name, lambda value: sketch.add("Add", [value, nothing]))
    _save(bench, sketch)
    return "a zero in float16 is added"


def claim_precision(bench: Bench) -> str:
    """Say fp16 of a graph that holds FP32, as published files did."""
    bench.change_entry(precision="fp16")
    return "the manifest says fp16"


def _save(bench: Bench, sketch: Sketch) -> None:
    sketch.save()
    bench.reseal()


FAULTS = (
    Fault(
        "a branch passes through float16",
        "precision",
        partial(compute_narrowly, kind=onnx.TensorProto.FLOAT16),
    ),
    Fault(
        "a branch passes through bfloat16",
        "precision",
        partial(compute_narrowly, kind=onnx.TensorProto.BFLOAT16),
    ),
    Fault("one weight is held in float16", "precision", partial(hold_narrow, kind=np.float16)),
    Fault("one weight is held in float64", "precision", partial(hold_narrow, kind=np.float64)),
    Fault("a graph holds a number in float16", "precision", hold_unused_narrow, only="graph.types"),
    Fault("a manifest says fp16 of FP32 weights", "precision", claim_precision, provenance=MISLABELLED),
)
