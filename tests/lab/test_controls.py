"""The laboratory's own hands do no harm: what it takes apart and puts together unaltered still passes.

Without these, a fault could be caught for how it was planted and not for what it is.
"""

import numpy as np
import pytest
from lab import landmarks
from lab.weight_faults import stored, weight_names
from lab.workbench import Bench, Dice

SAMPLE = "tiny-intent"
FIXED = "portable-b1-s64"


@pytest.fixture
def bench(tmp_path, ground, seed):
    def make(graph_id: str) -> Bench:
        folder, source = ground.bundles / SAMPLE, ground.checkpoints / SAMPLE
        return Bench.of(folder, graph_id, source, tmp_path / SAMPLE, Dice(seed, graph_id))

    return make


@pytest.mark.parametrize("graph_id", ["model", FIXED])
def test_a_graph_that_was_written_again_and_resealed_passes(bench, judge, graph_id):
    copy = bench(graph_id)
    copy.sketch().save()
    copy.reseal()

    (outcome,) = judge.judge(copy.folder, copy.checkpoint, (graph_id,), max_tokens=32)

    assert (outcome.verdict, outcome.cause) == ("passed", "")


def test_a_graph_that_holds_every_weight_itself_passes(bench, judge):
    copy = bench(FIXED)
    sketch, tensors = copy.sketch(), copy.weights()
    for name in weight_names(sketch, tensors):
        sketch.hold(name, stored(tensors, name))
    sketch.save()
    copy.reseal()

    (outcome,) = judge.judge(copy.folder, copy.checkpoint, (FIXED,), max_tokens=32)

    assert (outcome.verdict, outcome.cause) == ("passed", "")


def test_a_weight_file_that_was_written_again_with_the_same_numbers_keeps_its_places(bench):
    copy = bench(FIXED)
    before = (copy.folder / "model.safetensors").read_bytes()

    copy.write_weights(copy.weights())

    after = (copy.folder / "model.safetensors").read_bytes()
    assert after == before


@pytest.mark.parametrize("graph_id", ["model", FIXED])
def test_an_operator_that_changes_nothing_may_be_put_anywhere(bench, judge, graph_id):
    copy = bench(graph_id)
    sketch = copy.sketch()
    for ends in (landmarks.branch_ends(sketch, layer) for layer in range(landmarks.layer_count(sketch))):
        for end in ends.values():
            sketch.interpose(end, lambda value: sketch.add("Mul", [value, sketch.put(1.0)]))
    sketch.interpose("logits", lambda value: sketch.add("Add", [value, sketch.put(0.0)]))
    sketch.save()
    copy.reseal()

    (outcome,) = judge.judge(copy.folder, copy.checkpoint, (graph_id,), max_tokens=32)

    assert (outcome.verdict, outcome.cause) == ("passed", "")


def test_a_path_that_was_copied_gives_the_same_numbers(bench, judge):
    copy = bench("model")
    sketch = copy.sketch()
    layer = next(one for one in landmarks.attentions(sketch) if one.is_local)
    (window,) = landmarks.windows(sketch)
    same = sketch.add("LessOrEqual", [window.node.input[0], sketch.put(window.half, np.int64)])
    bias = sketch.reroute(window.near, same, layer.bias)
    for node, index in landmarks.bias_users(sketch, layer):
        node.input[index] = bias
    sketch.save()
    copy.reseal()

    (outcome,) = judge.judge(copy.folder, copy.checkpoint, ("model",), max_tokens=32)

    assert (outcome.verdict, outcome.cause) == ("passed", "")
