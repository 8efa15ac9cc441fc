"""Faults of what surrounds attention: norms, activations, residuals, layers, pooling and the classifier."""

import re
from functools import partial

import numpy as np
from lab import landmarks
from lab.fault import TEXT_SAMPLE, Fault
from lab.sketch import NotApplicable, Sketch, attribute, set_attribute
from lab.workbench import Bench

POOLER = "vllm-project/semantic-router issue 2249: a square pooler weight read transposed, no shape said so"
MEAN_SAMPLES = (TEXT_SAMPLE, "tiny-multilabel", "tiny-embedding")
FIRST_SAMPLES = ("tiny-guard", "tiny-reranker")


def change_epsilon(bench: Bench, epsilon: float, *, in_one_norm: bool) -> str:
    sketch = bench.sketch()
    found = landmarks.norms(sketch)
    chosen = [bench.pick(found)] if in_one_norm else found
    for node in chosen:
        set_attribute(node, "epsilon", epsilon)
    return _done(bench, sketch, f"{len(chosen)} of {len(found)} norms have epsilon {epsilon:g}")


def approximate_gelu(bench: Bench, *, in_one_layer: bool, kind: str = "tanh") -> str:
    sketch = bench.sketch()
    found = landmarks.activations(sketch)
    chosen = [bench.pick(found)] if in_one_layer else found
    for activation in chosen:
        made = _APPROXIMATIONS[kind](sketch, activation.source)
        users = sketch.users(activation.result)
        for node, index in users:
            node.input[index] = made
    return _done(bench, sketch, f"{len(chosen)} of {len(found)} activations are {kind}")


def _tanh(sketch: Sketch, value: str) -> str:
    cube = sketch.add("Mul", [sketch.add("Mul", [value, value]), value])
    inner = sketch.add("Add", [value, sketch.add("Mul", [cube, sketch.put(0.044715)])])
    wave = sketch.add("Tanh", [sketch.add("Mul", [inner, sketch.put((2.0 / np.pi) ** 0.5)])])
    half = sketch.add("Mul", [value, sketch.put(0.5)])
    return sketch.add("Mul", [half, sketch.add("Add", [wave, sketch.put(1.0)])])


def _sigmoid(sketch: Sketch, value: str) -> str:
    return sketch.add("Mul", [value, sketch.add("Sigmoid", [sketch.add("Mul", [value, sketch.put(1.702)])])])


_APPROXIMATIONS = {"tanh": _tanh, "sigmoid": _sigmoid, "relu": lambda sketch, value: sketch.add("Relu", [value])}


def skip_branch(bench: Bench, *parts: str) -> str:
    """Let a layer's branches add nothing: its weights are there, and read."""
    sketch = bench.sketch()
    layer = int(bench.rng.integers(landmarks.layer_count(sketch)))
    for part in parts:
        sketch.interpose(landmarks.branch_ends(sketch, layer)[part], partial(_times_nothing, sketch))
    return _done(bench, sketch, f"layer {layer}: {' and '.join(parts)} left out")


def drop_residual(bench: Bench) -> str:
    sketch = bench.sketch()
    layer = int(bench.rng.integers(landmarks.layer_count(sketch)))
    part = bench.pick(["attn", "mlp"])
    node, place = landmarks.residual_beside(sketch, landmarks.branch_ends(sketch, layer)[part])
    node.input[place] = _times_nothing(sketch, node.input[place])
    return _done(bench, sketch, f"layer {layer}: no residual beside {part}")


def _times_nothing(sketch: Sketch, value: str) -> str:
    return sketch.add("Mul", [value, sketch.put(0.0)])


def exchange_layers(bench: Bench, part: str) -> str:
    """Let two layers of one kind read each other's weights, all of them or those of one part."""
    sketch = bench.sketch()
    by_kind: dict[bool, list[int]] = {}
    for layer in landmarks.attentions(sketch)[: landmarks.layer_count(sketch)]:
        by_kind.setdefault(layer.is_local, []).append(layer.layer)
    kind = bench.pick([layers for layers in by_kind.values() if len([one for one in layers if one]) > 1])
    first, second = sorted(bench.rng.choice([layer for layer in kind if layer], 2, replace=False).tolist())
    names = {first: second, second: first}
    pattern = re.compile(rf"(layers?\.)({first}|{second})(\.{part})")
    for node in sketch.graph.node:
        node.input[:] = [
            pattern.sub(lambda match: f"{match[1]}{names[int(match[2])]}{match[3]}", name) for name in node.input
        ]
    return _done(bench, sketch, f"layers {first} and {second}: {part or 'everything'}")


def bypass_norm(bench: Bench, weight: str, *, keeps_weight: bool) -> str:
    """Leave out a norm; its weight stays in the file where `keeps_weight`."""
    sketch = bench.sketch()
    norm = landmarks.norm_with(sketch, weight)
    if norm.op_type != "LayerNormalization":
        raise NotApplicable("a norm joined with its sum")
    source, result, name = norm.input[0], norm.output[0], norm.input[1]
    if sketch.is_output(result):
        raise NotApplicable("the norm is the output")
    for node, index in sketch.users(result):
        node.input[index] = source
    sketch.graph.node.remove(norm)
    if not keeps_weight:
        sketch.graph.initializer.remove(sketch.initializer(name))
    return _done(bench, sketch, f"{name} is not applied")


def read_untransposed(bench: Bench) -> str:
    """Leave out the transposition of a square weight."""
    sketch = bench.sketch()
    squares = [
        tensor.name for tensor in sketch.graph.initializer if len(tensor.dims) == 2 and len(set(tensor.dims)) == 1
    ]
    turned = [(node, name) for name in squares for node, _ in sketch.users(name)]
    node, name = bench.pick([(node, name) for node, name in turned if node.op_type in ("Transpose", "Gemm")])
    if node.op_type == "Gemm":
        set_attribute(node, "transB", 1 - attribute(node, "transB", 0))
    else:
        for user, index in sketch.users(node.output[0]):
            user.input[index] = name
    return _done(bench, sketch, f"{name} is read the other way round")


def exchange_gate(bench: Bench) -> str:
    """Activate the half of a feed-forward layer that should multiply, and multiply by the other."""
    sketch = bench.sketch()
    layer = int(bench.rng.integers(landmarks.layer_count(sketch)))
    rows = sketch.initializer_names(f"layers.{layer}.mlp.Wi.weight[")
    if rows:
        names = dict(zip(rows, reversed(rows), strict=True))
        for node in sketch.graph.node:
            node.input[:] = [names.get(name, name) for name in node.input]
    else:
        split = landmarks.split_of(sketch, layer, 2)
        split.output[:] = list(reversed(split.output))
    return _done(bench, sketch, f"layer {layer}: gate and value change places")


def pool_by_first_token(bench: Bench) -> str:
    sketch = bench.sketch()
    division, hidden = landmarks.mean_pooling(sketch)
    return _replace(bench, sketch, division.output[0], _first(sketch, hidden), "the first token for the mean")


def pool_by_maximum(bench: Bench) -> str:
    sketch = bench.sketch()
    division, hidden = landmarks.mean_pooling(sketch)
    made = sketch.add("ReduceMax", [hidden, sketch.put([1], np.int64)], keepdims=0)
    return _replace(bench, sketch, division.output[0], made, "the maximum for the mean")


def pool_over_pads(bench: Bench) -> str:
    sketch = bench.sketch()
    landmarks.mean_pooling(sketch)
    sketch.interpose(
        landmarks.pooling_mask(sketch),
        lambda mask: sketch.add("Add", [_times_nothing(sketch, mask), sketch.put(1.0)]),
    )
    return _done(bench, sketch, "pads count in the mean")


def pool_by_mean(bench: Bench) -> str:
    sketch = bench.sketch()
    node = landmarks.first_pooling(sketch)
    if "attention_mask" not in [value.name for value in sketch.graph.input]:
        raise NotApplicable("no mask to average over")
    weights = sketch.add("Cast", [sketch.add("Unsqueeze", ["attention_mask", sketch.put([2], np.int64)])], to=1)
    axis = sketch.put([1], np.int64)
    total = sketch.add("ReduceSum", [sketch.add("Mul", [node.input[0], weights]), axis], keepdims=0)
    count = sketch.add("ReduceSum", [weights, axis], keepdims=0)
    return _replace(bench, sketch, node.output[0], sketch.add("Div", [total, count]), "the mean for the first token")


def pool_by_second_token(bench: Bench) -> str:
    sketch = bench.sketch()
    node = landmarks.first_pooling(sketch)
    node.input[1] = sketch.put(1, np.int64)
    return _done(bench, sketch, "the second token for the first")


def _first(sketch: Sketch, hidden: str) -> str:
    return sketch.add("Gather", [hidden, sketch.put(0, np.int64)], axis=1)


def drop_classifier_bias(bench: Bench) -> str:
    sketch = bench.sketch()
    node = landmarks.classifier(sketch)
    place = next(index for index, name in enumerate(node.input) if name.endswith("classifier.bias"))
    node.input[place] = _times_nothing(sketch, node.input[place])
    return _done(bench, sketch, "the classifier adds nothing")


def permute_logits(bench: Bench) -> str:
    """Exchange two labels behind a classifier whose weights are right."""
    sketch = bench.sketch()
    sketch.initializer("classifier.bias")
    labels = int(sketch.initializer("classifier.bias").dims[0])
    order = list(range(labels))
    first, second = bench.rng.choice(labels, 2, replace=False).tolist()
    order[first], order[second] = order[second], order[first]
    sketch.interpose("logits", lambda value: sketch.add("Gather", [value, sketch.put(order, np.int64)], axis=-1))
    return _done(bench, sketch, f"labels {first} and {second} change places")


def _replace(bench: Bench, sketch: Sketch, value: str, made: str, drawn: str) -> str:
    sketch.interpose(value, lambda _: sketch.add("Identity", [made]))
    return _done(bench, sketch, drawn)


def _done(bench: Bench, sketch: Sketch, drawn: str) -> str:
    sketch.save()
    bench.reseal()
    return drawn


FAULTS = (
    *(
        Fault(f"{which} an epsilon of {epsilon:g}", "architecture", plant)
        for epsilon in (1e-3, 1e-6, 1e-12)
        for which, plant in (
            ("every norm has", partial(change_epsilon, epsilon=epsilon, in_one_norm=False)),
            ("one norm has", partial(change_epsilon, epsilon=epsilon, in_one_norm=True)),
        )
    ),
    Fault("every GELU is the tanh approximation", "architecture", partial(approximate_gelu, in_one_layer=False)),
    Fault("one GELU is the tanh approximation", "architecture", partial(approximate_gelu, in_one_layer=True)),
    Fault("a GELU is a sigmoid's", "architecture", partial(approximate_gelu, in_one_layer=True, kind="sigmoid")),
    Fault("a GELU is a ReLU", "architecture", partial(approximate_gelu, in_one_layer=True, kind="relu")),
    Fault("a layer is skipped", "architecture", lambda bench: skip_branch(bench, "attn", "mlp")),
    Fault("a layer's attention is skipped", "architecture", lambda bench: skip_branch(bench, "attn")),
    Fault("a layer's feed-forward part is skipped", "architecture", lambda bench: skip_branch(bench, "mlp")),
    Fault("a residual is dropped", "architecture", drop_residual),
    Fault("two layers are exchanged", "architecture", partial(exchange_layers, part="")),
    Fault("two layers' norms are exchanged", "architecture", partial(exchange_layers, part="mlp_norm")),
    Fault(
        "the final norm is not applied",
        "architecture",
        partial(bypass_norm, weight="final_norm.weight", keeps_weight=True),
    ),
    Fault(
        "the final norm is gone with its weight",
        "architecture",
        partial(bypass_norm, weight="final_norm.weight", keeps_weight=False),
    ),
    Fault(
        "the embeddings' norm is not applied",
        "architecture",
        partial(bypass_norm, weight="embeddings.norm.weight", keeps_weight=True),
    ),
    Fault("a square weight is read transposed", "architecture", read_untransposed, provenance=POOLER),
    Fault("gate and value of a feed-forward layer are exchanged", "architecture", exchange_gate),
    Fault("a mean is taken over by the first token", "architecture", pool_by_first_token, MEAN_SAMPLES),
    Fault("a mean is taken over by the maximum", "architecture", pool_by_maximum, MEAN_SAMPLES),
    Fault("pads count in a mean", "architecture", pool_over_pads, MEAN_SAMPLES),
    Fault("the first token is taken over by the mean", "architecture", pool_by_mean, FIRST_SAMPLES),
    Fault("the first token is taken over by the second", "architecture", pool_by_second_token, FIRST_SAMPLES),
    Fault("the classifier's bias is dropped", "architecture", drop_classifier_bias),
    Fault("two labels change places behind the classifier", "decoding", permute_logits),
)
