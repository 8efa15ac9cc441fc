"""Faults of the weights: numbers that are another checkpoint's, rounded, moved or turned.

Three roads lead to other numbers: the weight file beside the graphs, a tensor held by the graph itself, and arithmetic
on the right tensor. The last is what no comparison of tensors can see.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import onnx
from lab.fault import TEXT_SAMPLE, Fault
from lab.sketch import NotApplicable, Sketch
from lab.workbench import WEIGHTS, Bench, Tensors

ROWS = re.compile(r"^(?P<name>.*)\[(?P<first>\d+):(?P<end>\d+)\]$")
EMBEDDING = "embeddings.tok_embeddings.weight"
PREFIXES = ("", "model.")
RESERVED_WORDS = 8  # special tokens and their neighbours
Change = Callable[[np.ndarray, np.random.Generator], np.ndarray]


def stored(tensors: Tensors, name: str) -> np.ndarray:
    """Give what a graph's initializer should hold: a tensor of the checkpoint, or some of its rows."""
    rows = ROWS.match(name)
    whole = rows["name"] if rows else name
    for prefix in PREFIXES:
        if prefix + whole in tensors:
            found = tensors[prefix + whole]
            return found[int(rows["first"]) : int(rows["end"])] if rows else found
    raise NotApplicable(f"no tensor {whole}")


def weight_names(sketch: Sketch, tensors: Tensors) -> list[str]:
    """Give the names of the initializers that are the checkpoint's."""
    found = []
    for tensor in sketch.graph.initializer:
        try:
            stored(tensors, tensor.name)
        except NotApplicable:
            continue
        found.append(tensor.name)
    return found


def hold_changed(bench: Bench, change: Change, *, rank: int = 0, part: str = "") -> str:
    """Let the graph hold one tensor of its own that was changed; the weight file is right."""
    sketch, tensors = bench.sketch(), bench.weights()
    names = [
        name
        for name in weight_names(sketch, tensors)
        if part in name and EMBEDDING not in name and stored(tensors, name).ndim >= rank
    ]
    name = bench.pick(names)
    before = stored(tensors, name)
    after = change(before, bench.rng).astype(np.float32)
    if np.array_equal(before, after):
        raise NotApplicable(f"{name} would stay as it is")
    sketch.hold(name, after)
    _save(bench, sketch)
    return f"{name} changed by up to {float(np.max(np.abs(after - before))):.3g}"


def hold_all(bench: Bench, make: Callable[[np.ndarray], np.ndarray]) -> str:
    """Let the graph hold every tensor itself, each changed."""
    sketch, tensors = bench.sketch(), bench.weights()
    for name in weight_names(sketch, tensors):
        sketch.hold(name, make(stored(tensors, name)))
    _save(bench, sketch)
    return "every tensor"


def hold_from_sibling(bench: Bench, scope: str) -> str:
    """Let the graph hold a sibling checkpoint's tensors: all, or one layer's."""
    sketch, sibling = bench.sketch(), bench.sibling_weights()
    names = weight_names(sketch, sibling)
    if scope == "layer":
        layers = sorted({name.split(".")[1] for name in names if name.startswith("layers.")})
        layer = bench.pick(layers)
        names = [name for name in names if name.startswith(f"layers.{layer}.")]
    for name in names:
        sketch.hold(name, stored(sibling, name))
    _save(bench, sketch)
    return f"{len(names)} tensors, from {names[0]} on"


def sibling_row(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    changed = values.copy()
    changed[int(rng.integers(len(values)))] += rng.normal(0, 0.02, values.shape[1:]).astype(np.float32)
    return changed


def hold_unused_word(bench: Bench) -> str:
    """Change the embedding of one rare word by a lot; texts that do not say it are answered as ever."""
    sketch, tensors = bench.sketch(), bench.weights()
    table = stored(tensors, EMBEDDING).copy()
    word = len(table) - 1 - int(bench.rng.integers(RESERVED_WORDS))
    table[word] *= -3.0
    sketch.hold(EMBEDDING, table)
    _save(bench, sketch)
    return f"the embedding of token {word}"


def turn_square(bench: Bench) -> str:
    """Hold a square matrix transposed; it has the right shape, and is the checkpoint's after a fashion."""
    sketch, tensors = bench.sketch(), bench.weights()
    squares = [name for name in weight_names(sketch, tensors) if _is_square(stored(tensors, name))]
    name = bench.pick(squares)
    sketch.hold(name, stored(tensors, name).T)
    _save(bench, sketch)
    return name


def _is_square(values: np.ndarray) -> bool:
    return values.ndim == 2 and values.shape[0] == values.shape[1]


def compute_changed(bench: Bench, build: Callable[[Bench, Sketch, str], str], *, is_everywhere: bool = False) -> str:
    """Change what is read of a right tensor, of one or of all."""
    sketch, tensors = bench.sketch(), bench.weights()
    names = weight_names(sketch, tensors)
    chosen = names if is_everywhere else [bench.pick([name for name in names if EMBEDDING not in name])]
    for name in chosen:
        users = sketch.users(name)
        made = build(bench, sketch, name)
        for node, index in users:
            node.input[index] = made
    _save(bench, sketch)
    return f"{chosen[0]}{'' if len(chosen) == 1 else f' and {len(chosen) - 1} more'}"


def _scaled(bench: Bench, sketch: Sketch, name: str) -> str:
    return sketch.add("Mul", [name, sketch.put(1.0 + float(bench.rng.uniform(0.01, 0.05)))])


def _negated(bench: Bench, sketch: Sketch, name: str) -> str:
    return sketch.add("Neg", [name])


def through(kind: int) -> Callable[[Bench, Sketch, str], str]:
    """Round a tensor by casting it to a narrow type and back."""
    return lambda bench, sketch, name: sketch.add("Cast", [sketch.add("Cast", [name], to=kind)], to=1)


def exchange_tensors(bench: Bench) -> str:
    """Let two tensors of one shape be read for each other."""
    sketch, tensors = bench.sketch(), bench.weights()
    by_shape: dict[tuple[int, ...], list[str]] = {}
    for name in weight_names(sketch, tensors):
        by_shape.setdefault(stored(tensors, name).shape, []).append(name)
    names = bench.pick([group for group in by_shape.values() if len(group) > 1])
    first, second = bench.rng.choice(names, 2, replace=False).tolist()
    swapped = {first: second, second: first}
    for node in sketch.graph.node:
        node.input[:] = [swapped.get(name, name) for name in node.input]
    _save(bench, sketch)
    return f"{first} and {second}"


def move_reference(bench: Bench, *, to_another: bool) -> str:
    """Let an external tensor begin a few bytes later, or where another one of its shape does."""
    sketch = bench.sketch()
    external = [tensor for tensor in sketch.graph.initializer if tensor.data_location == onnx.TensorProto.EXTERNAL]
    tensor = bench.pick([tensor for tensor in external if tensor.name != EMBEDDING])
    place = next(entry for entry in tensor.external_data if entry.key == "offset")
    if to_another:
        others = [one for one in external if one.dims == tensor.dims and one.name != tensor.name]
        other = bench.pick(others)
        place.value = next(entry.value for entry in other.external_data if entry.key == "offset")
    else:
        other = None
        place.value = str(int(place.value) + bench.pick([-4, 4, 8]))
    _save(bench, sketch)
    return f"{tensor.name} lies at {place.value}{f', where {other.name} does' if other is not None else ''}"


def write_file(bench: Bench, make: Callable[[Bench, Tensors], Tensors], *, is_resealed: bool) -> str:
    bench.write_weights(make(bench, bench.weights()))
    if is_resealed:
        bench.reseal()
    return WEIGHTS


def _flip_one(bench: Bench, tensors: Tensors) -> Tensors:
    name = bench.pick([name for name, value in tensors.items() if value.ndim == 2])
    changed = tensors[name].copy()
    changed.flat[int(bench.rng.integers(changed.size))] += np.float32(0.25)
    return tensors | {name: changed}


def permute_classifier(bench: Bench) -> str:
    """Exchange two labels' rows and biases in the graph's own copy of the classifier."""
    sketch, tensors = bench.sketch(), bench.weights()
    labels = len(stored(tensors, "classifier.bias"))
    first, second = bench.rng.choice(labels, 2, replace=False).tolist()
    for name in ("classifier.weight", "classifier.bias"):
        values = stored(tensors, name).copy()
        values[[first, second]] = values[[second, first]]
        sketch.hold(name, values)
    _save(bench, sketch)
    return f"labels {first} and {second}"


def rounded_to_bfloat16(values: np.ndarray) -> np.ndarray:
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    even = ((bits >> 16) & 1) + np.uint32(0x7FFF)
    return ((bits + even) & np.uint32(0xFFFF0000)).view(np.float32)


def rounded_to_float16(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float16).astype(np.float32)


def rounded_to_int8(values: np.ndarray) -> np.ndarray:
    """Round to 255 steps, a scale for each row."""
    rows = values.reshape(len(values), -1)
    scale = np.maximum(np.abs(rows).max(axis=1, keepdims=True), 1e-12) / 127.0
    return (np.round(rows / scale) * scale).reshape(values.shape).astype(np.float32)


def _save(bench: Bench, sketch: Sketch) -> None:
    sketch.save()
    bench.reseal()


def _times(factor: float) -> Change:
    return lambda values, rng: values * np.float32(1.0 + factor)


def _one_bit(values: np.ndarray, rng: np.random.Generator) -> Any:
    changed = values.copy()
    index = int(rng.integers(changed.size))
    changed.flat[index] = np.nextafter(changed.flat[index], np.float32(np.inf))
    return changed


FAULTS = (
    Fault(
        "one number of one tensor is off by its last bit",
        "weights",
        partial(hold_changed, change=_one_bit),
        only="weights.identity",
    ),
    Fault("one tensor is off by a millionth", "weights", partial(hold_changed, change=_times(1e-6))),
    Fault("one tensor is off by a tenth", "weights", partial(hold_changed, change=_times(0.1))),
    Fault("one row is a sibling's", "weights", partial(hold_changed, change=sibling_row, rank=2)),
    Fault("one tensor's sign is flipped", "weights", partial(hold_changed, change=lambda values, rng: -values)),
    Fault("one layer is stale", "weights", partial(hold_from_sibling, scope="layer")),
    Fault("the graph holds a sibling's weights", "weights", partial(hold_from_sibling, scope="all")),
    Fault("the embedding of a rare word is another", "weights", hold_unused_word, only="weights.identity"),
    Fault("a square matrix is held transposed", "weights", turn_square),
    Fault("a weight is scaled on its way", "weights", partial(compute_changed, build=_scaled)),
    Fault("a weight is negated on its way", "weights", partial(compute_changed, build=_negated)),
    Fault("two tensors of one shape are exchanged", "weights", exchange_tensors),
    Fault("a reference begins a few bytes off", "weights", partial(move_reference, to_another=False)),
    Fault("a reference is another tensor's", "weights", partial(move_reference, to_another=True)),
    *(
        Fault(f"{what}{how}", "weights", partial(write_file, make=make, is_resealed=is_resealed))
        for is_resealed, how in ((False, ""), (True, ", and the manifest says so"))
        for what, make in (
            ("a sibling's weights lie beside the graphs", lambda bench, tensors: bench.sibling_weights()),
            ("one number of the weight file is another", _flip_one),
        )
    ),
    Fault(
        "two rows of the classifier are exchanged",
        "decoding",
        permute_classifier,
        (TEXT_SAMPLE, "tiny-pii", "tiny-guard"),
    ),
    *(
        Fault(f"weights rounded to {name} fill an FP32 file", "precision", partial(hold_all, make=make))
        for name, make in (
            ("bfloat16", rounded_to_bfloat16),
            ("float16", rounded_to_float16),
            ("int8", rounded_to_int8),
        )
    ),
    *(
        Fault(
            f"{'all weights are' if is_everywhere else 'one weight is'} rounded to {name} on the way",
            "precision",
            partial(compute_changed, build=through(kind), is_everywhere=is_everywhere),
        )
        for name, kind in (("float16", onnx.TensorProto.FLOAT16), ("bfloat16", onnx.TensorProto.BFLOAT16))
        for is_everywhere in (True, False)
    ),
)
