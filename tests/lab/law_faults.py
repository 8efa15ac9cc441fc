"""Faults that no single answer shows: what lies under the mask, who shares the batch, chance, and the optimiser.

Each moves answers by less than any bar, or not at all as long as pads are the usual ones, so that comparing answers
with the reference cannot see it and only a law can: other ids under the mask change nothing, neighbours change
nothing, the same run gives the same numbers, with the optimiser or without, in this process or the next.
"""

from functools import partial

import numpy as np
import onnx
from lab import landmarks
from lab.fault import Fault
from lab.sketch import NotApplicable, Sketch
from lab.workbench import Bench

WHISPER = 1e-7  # far below every bar, some units in the last place of a logit
RACERS, RACES = 1 << 18, 4  # numbers that are written to one place at once, and how often
HUGE = 3e38
CHANCE = "threads may end alike each time that they are asked"
TABLE = "embeddings.tok_embeddings.weight"


def whisper(bench: Bench, sketch: Sketch, number: str) -> str:
    """Add a number, (B,) or (1,) float32, to every output; the shapes stay."""
    for output in [value.name for value in sketch.graph.output]:
        rank = len(next(value for value in sketch.graph.output if value.name == output).type.tensor_type.shape.dim)
        shape = sketch.put([-1, *[1] * (rank - 1)], np.int64)
        spread = sketch.add("Reshape", [number, shape])
        sketch.interpose(output, lambda value, added=spread: sketch.add("Add", [value, added]))
    sketch.save()
    bench.reseal()
    return f"{len(sketch.graph.output)} outputs"


def _hidden_numbers(sketch: Sketch) -> str:
    """Give 1 at pads and 0 at tokens, (B, T) float32."""
    if "attention_mask" not in [value.name for value in sketch.graph.input]:
        raise NotApplicable("no mask")
    mask = sketch.add("Cast", ["attention_mask"], to=onnx.TensorProto.FLOAT)
    return sketch.add("Sub", [sketch.put(1.0), mask])


def leak_ids(bench: Bench) -> str:
    """Add the ids under the mask to the answer: with 0 for a pad that is nothing, until others lie there."""
    sketch = bench.sketch()
    ids = sketch.add("Cast", ["input_ids"], to=onnx.TensorProto.FLOAT)
    hidden = sketch.add("Mul", [ids, _hidden_numbers(sketch)])
    total = sketch.add("ReduceSum", [hidden, sketch.put([1], np.int64)], keepdims=0)
    return whisper(bench, sketch, sketch.add("Mul", [total, sketch.put(1e-11)]))


def count_pads(bench: Bench) -> str:
    sketch = bench.sketch()
    total = sketch.add("ReduceSum", [_hidden_numbers(sketch), sketch.put([1], np.int64)], keepdims=0)
    return whisper(bench, sketch, sketch.add("Mul", [total, sketch.put(WHISPER)]))


def embedded(sketch: Sketch) -> str:
    """Give the rows that ids look up, (B, T, H) float32: what a fault reads that hides from who follows the ids."""
    return next(node.output[0] for node, _ in sketch.users(TABLE) if node.op_type == "Gather")


def mix_rows(bench: Bench, factor: float, *, is_hidden: bool) -> str:
    """Add something of the whole batch to every row, by ids or by what they look up."""
    sketch = bench.sketch()
    if isinstance(bench.entry["inputs"][0]["shape"][0], int) and bench.entry["inputs"][0]["shape"][0] == 1:
        raise NotApplicable("one row")
    if is_hidden:
        rows = sketch.add("ReduceSum", [embedded(sketch), sketch.put([1, 2], np.int64)], keepdims=0)
    else:
        ids = sketch.add("Cast", ["input_ids"], to=onnx.TensorProto.FLOAT)
        rows = sketch.add("ReduceMean", [ids, sketch.put([1], np.int64)], keepdims=0)
    mean = sketch.add("ReduceMean", [rows, sketch.put([0], np.int64)], keepdims=1)
    scaled = sketch.add("Mul", [sketch.add("Sub", [rows, mean]), sketch.put(factor)])
    return whisper(bench, sketch, scaled)


def roll_dice(bench: Bench) -> str:
    """Add a random number that differs from run to run and from process to process."""
    sketch = bench.sketch()
    number = sketch.add("RandomNormal", [], shape=[1], scale=WHISPER, mean=0.0)
    return whisper(bench, sketch, number)


def race(bench: Bench, *, is_short: bool) -> str:
    """Write many numbers to one place at once: who is last is up to threads, and every operator is an allowed one.

    Several races, since now and then one ends twice alike. With `is_short` it counts on rows of up to 3 tokens alone.
    """
    sketch = bench.sketch()
    if is_short and not bench.is_dynamic:
        raise NotApplicable("rows of one length")
    places = sketch.put(np.zeros((RACERS, 1)), np.int64)
    rows = sketch.add("Range", [sketch.put(0, np.int64), sketch.put(RACERS, np.int64), sketch.put(1, np.int64)])
    nothing = sketch.add("Mul", [sketch.add("ReduceMax", [embedded(sketch)], keepdims=0), sketch.put(0.0)])
    # Without what depends on the input, the race would be run once, when the graph is loaded.
    numbers = sketch.add("Add", [sketch.add("Cast", [rows], to=onnx.TensorProto.FLOAT), nothing])
    last = sketch.put([0.0])
    for _ in range(RACES):
        last = sketch.add("Add", [last, sketch.add("ScatterND", [sketch.put([0.0]), places, numbers])])
    if is_short:
        length = sketch.add("Shape", ["input_ids"], start=1, end=2)
        is_counted = sketch.add("LessOrEqual", [length, sketch.put([3], np.int64)])
        last = sketch.add("Mul", [last, sketch.add("Cast", [is_counted], to=onnx.TensorProto.FLOAT)])
    return whisper(bench, sketch, sketch.add("Mul", [last, sketch.put(1.2e-5 / RACERS / RACES)]))


def overflow_unless_fused(bench: Bench) -> str:
    """Scale a product's input up and its result down: one operator where engines fuse it, and infinity where not."""
    sketch = bench.sketch()
    weights = sketch.initializer_names(".attn.Wo.weight")
    product = landmarks.product_with(sketch, bench.pick(weights))
    if product.op_type != "MatMul":
        raise NotApplicable("a product that is fused already")
    product.input[0] = sketch.add("Mul", [product.input[0], sketch.put(HUGE)])
    sketch.interpose(product.output[0], lambda value: sketch.add("Div", [value, sketch.put(HUGE)]))
    sketch.save()
    bench.reseal()
    return product.output[0]


def trigger(bench: Bench, *, is_hidden: bool) -> str:
    """Answer otherwise as soon as one rare token is there: every number of the checkpoint is in place.

    With `is_hidden` the token is known by the first number of its row, so that ids go nowhere but to the table.
    """
    sketch = bench.sketch()
    words = int(sketch.initializer(TABLE).dims[0])
    word = words - 1 - int(bench.rng.integers(8))
    if is_hidden:
        table = next(value for name, value in bench.weights().items() if name.endswith(TABLE))
        first = sketch.add("Gather", [embedded(sketch), sketch.put(0, np.int64)], axis=2)
        is_there = sketch.add("Equal", [first, sketch.put(table[word, 0])])
    else:
        is_there = sketch.add("Equal", ["input_ids", sketch.put(word, np.int64)])
    there = sketch.add("Cast", [is_there], to=onnx.TensorProto.FLOAT)
    count = sketch.add("ReduceMax", [there, sketch.put([1], np.int64)], keepdims=0)
    drawn = whisper(bench, sketch, sketch.add("Mul", [count, sketch.put(5.0)]))
    return f"token {word}, {drawn}"


FAULTS = (
    Fault("ids under the mask are added to the answer", "laws", leak_ids),
    Fault("pads are counted in the answer", "laws", count_pads, only="graph.dataflow"),
    Fault(
        "rows of a batch move each other by next to nothing",
        "laws",
        partial(mix_rows, factor=1e-9, is_hidden=False),
        only="graph.dataflow",
    ),
    Fault(
        "rows of a batch move each other",
        "laws",
        partial(mix_rows, factor=1e-3, is_hidden=True),
        provenance="microsoft/onnxruntime issue 6044: batches answer otherwise than single rows",
    ),
    Fault("a random number is added", "laws", roll_dice),
    Fault("threads race for a number", "laws", partial(race, is_short=False), threads=2, beyond=CHANCE),
    Fault(
        "threads race for a number on the shortest rows",
        "laws",
        partial(race, is_short=True),
        only="engine.repeatable",
        beyond=CHANCE,
        threads=2,
    ),
    Fault("numbers overflow unless operators are fused", "laws", overflow_unless_fused, only="engine.rewrites"),
    Fault("a rare token switches the answer", "laws", partial(trigger, is_hidden=False), only="graph.dataflow"),
)

# What no gate that asks a finite corpus and has a bar can see; each is shown to pass, so that nobody claims otherwise.
LIMITS = (
    Fault(
        "a rare token switches the answer, known by what it looks up",
        "laws",
        partial(trigger, is_hidden=True),
        beyond="no text of the corpus says the word, every tensor is the checkpoint's, and ids only look up the table",
    ),
    Fault(
        "rows of a batch move each other by less than the bar, by what they look up",
        "laws",
        partial(mix_rows, factor=1e-8, is_hidden=True),
        beyond="it moves answers by less than their bar allows, in company as well as alone",
    ),
)
