"""Places of a finished text encoder that faults are planted at, found by what surrounds them, in every form of graph.

Weights keep their checkpoint names in Vela's graphs, so they say which layer is which; everything else is recognised
by its operators: a window by the comparison of a distance, an activation by its Erf or its fused operator.
"""

import re
from dataclasses import dataclass

import onnx
from lab.sketch import NotApplicable, Sketch, attribute

LAYER = re.compile(r"\blayers?\.(\d+)\.")


@dataclass(frozen=True, slots=True)
class Activation:
    """A GELU: what it is of, and its result."""

    source: str
    result: str


@dataclass(frozen=True, slots=True)
class Window:
    """A comparison of distances with the half-window: query position minus key position, and what it decides."""

    node: onnx.NodeProto
    distance: str
    half: int

    @property
    def near(self) -> str:
        return self.node.output[0]


@dataclass(frozen=True, slots=True)
class Attention:
    """One layer's attention: the node that mixes, and the bias on its scores (empty where there is none)."""

    layer: int
    node: onnx.NodeProto
    bias: str
    is_local: bool


def layer_count(sketch: Sketch) -> int:
    found = {int(match.group(1)) for name in sketch.initializer_names("layer") if (match := LAYER.search(name))}
    if not found:
        raise NotApplicable("no layers")
    return max(found) + 1


def norms(sketch: Sketch) -> list[onnx.NodeProto]:
    return sketch.nodes("LayerNormalization", "SkipLayerNormalization")


def norm_with(sketch: Sketch, weight: str) -> onnx.NodeProto:
    """Give the norm that reads a weight whose name ends so."""
    for node in norms(sketch):
        if any(name.endswith(weight) for name in node.input):
            return node
    raise NotApplicable(f"no norm reads {weight}")


def product_with(sketch: Sketch, weight: str) -> onnx.NodeProto:
    """Give the product that reads a weight, turned round or not."""
    for node, _ in sketch.users(sketch.initializer(weight).name):
        if node.op_type == "Transpose":
            return sketch.users(node.output[0])[0][0]
        if node.op_type in ("MatMul", "FusedMatMul", "Gemm"):
            return node
    raise NotApplicable(f"no product reads {weight}")


def split_of(sketch: Sketch, layer: int, parts: int) -> onnx.NodeProto:
    """Give the node that splits a layer's product into so many parts."""
    found = [node for node in sketch.nodes("Split") if len(node.output) == parts]
    if len(found) != layer_count(sketch):
        raise NotApplicable(f"no split into {parts} in each layer")
    return found[layer]


def branch_ends(sketch: Sketch, layer: int) -> dict[str, str]:
    """Give what a layer's attention and feed-forward branches add to the residual stream."""
    return {part: product_with(sketch, f"layers.{layer}.{part}.Wo.weight").output[0] for part in ("attn", "mlp")}


def residual_beside(sketch: Sketch, branch: str) -> tuple[onnx.NodeProto, int]:
    """Give where a branch's residual enters: the node that sums both, and the place of the other input."""
    for node, index in sketch.users(branch):
        if node.op_type in ("Add", "SkipLayerNormalization") and index < 2:
            return node, 1 - index
    raise NotApplicable(f"nothing adds {branch}")


def activations(sketch: Sketch) -> list[Activation]:
    """Find GELUs: fused, or x * (1 + erf(x / sqrt 2)) * 0.5."""
    found = [Activation(node.input[0], node.output[0]) for node in sketch.nodes("Gelu")]
    for wave in sketch.nodes("Erf"):
        divided = sketch.producer(wave.input[0])
        one_more = sketch.users(wave.output[0])[0][0]
        whole = sketch.users(one_more.output[0])[0][0]
        half = sketch.users(whole.output[0])[0][0]
        if divided is not None and [one_more.op_type, whole.op_type, half.op_type] == ["Add", "Mul", "Mul"]:
            found.append(Activation(divided.input[0], half.output[0]))
    if not found:
        raise NotApplicable("no GELU")
    return found


def windows(sketch: Sketch) -> list[Window]:
    found = []
    for node in sketch.nodes("LessOrEqual"):
        maker, bound = sketch.producer(node.input[0]), sketch.scalar(node.input[1])
        if maker is not None and maker.op_type == "Abs" and bound is not None:
            found.append(Window(node, maker.input[0], int(bound)))
    if not found:
        raise NotApplicable("no window")
    return found


def attentions(sketch: Sketch) -> list[Attention]:
    """Find the attention of each layer, in their order."""
    limits = [node.output[0] for node in sketch.nodes("LessOrEqual")]
    found: list[Attention] = []
    for node in sketch.nodes("MultiHeadAttention", "Softmax"):
        bias = node.input[5] if len(node.input) > 5 else ""
        if node.op_type == "Softmax":
            added = sketch.producer(node.input[0])
            bias = added.input[1] if added is not None and added.op_type == "Add" else ""
        is_local = any(sketch.depends(bias, limit) for limit in limits) if bias else False
        found.append(Attention(len(found), node, bias, is_local))
    if not found:
        raise NotApplicable("no attention")
    return found


def bias_users(sketch: Sketch, layer: Attention) -> list[tuple[onnx.NodeProto, int]]:
    """Give where one layer reads its bias."""
    reader = layer.node if layer.node.op_type == "MultiHeadAttention" else sketch.producer(layer.node.input[0])
    return [(node, index) for node, index in sketch.users(layer.bias) if reader is not None and node is reader] or [
        (node, index) for node, index in sketch.users(layer.bias) if node.output[0] == reader.output[0]
    ]


def seen(sketch: Sketch) -> str:
    """Give the mask as truth values, which attention reads."""
    for node, _ in sketch.users("attention_mask"):
        if node.op_type == "Cast" and attribute(node, "to") == onnx.TensorProto.BOOL:
            return node.output[0]
    raise NotApplicable("no mask in attention")


def pooling_mask(sketch: Sketch) -> str:
    """Give the mask as numbers, which a mean is weighted by."""
    division, _ = mean_pooling(sketch)
    node = sketch.producer(division.input[1])
    while node is not None and node.op_type != "Cast":
        node = sketch.producer(node.input[0])
    if node is None:
        raise NotApplicable("no mask in pooling")
    return node.output[0]


def mean_pooling(sketch: Sketch) -> tuple[onnx.NodeProto, str]:
    """Give the division of a mean over the mask, and the hidden states that it averages."""
    for node in sketch.nodes("Div"):
        total, count = (sketch.producer(name) for name in node.input)
        weighted = sketch.producer(total.input[0]) if total is not None and total.op_type == "Squeeze" else None
        if weighted is not None and count is not None and (weighted.op_type, count.op_type) == ("MatMul", "ReduceSum"):
            return node, weighted.input[1]
    raise NotApplicable("no mean over the mask")


def first_pooling(sketch: Sketch) -> onnx.NodeProto:
    """Give the node that takes the first token's hidden state."""
    for node in sketch.nodes("Gather"):
        if attribute(node, "axis") == 1 and sketch.scalar(node.input[1]) == 0:
            return node
    raise NotApplicable("no pooling by the first token")


def tables(sketch: Sketch) -> dict[str, onnx.NodeProto]:
    """Give the products of positions and inverse frequencies by the kind of layer, `full` and `sliding`."""
    found = {}
    for node in sketch.nodes("Mul"):
        for name in node.input:
            if name.endswith("_attention_inv_freq"):
                found["full" if "full" in name else "sliding"] = node
    if len(found) < 2:
        raise NotApplicable("no two rotations")
    return found


def frequencies(node: onnx.NodeProto) -> int:
    """Give the place of the inverse frequencies among a product's inputs."""
    return next(index for index, name in enumerate(node.input) if name.endswith("_inv_freq"))


def waves(sketch: Sketch, product: onnx.NodeProto) -> dict[str, onnx.NodeProto]:
    """Give the cosine and sine of a product of positions and frequencies."""
    found = {}
    for node in sketch.nodes("Cos", "Sin"):
        if sketch.depends(node.input[0], product.output[0]):
            found[node.op_type] = node
    return found


def query_tables(sketch: Sketch, wave: onnx.NodeProto) -> list[tuple[onnx.NodeProto, int]]:
    """Give where queries alone read a cosine or sine: each rotation of theirs, or their third of a joint table."""
    found = []
    rotations = [node for node in sketch.nodes("RotaryEmbedding") if _is_of(sketch, node, wave)]
    joint = [
        node
        for node in sketch.nodes("Concat")
        if len(node.input) == 3 and node.input[0] == node.input[1] and sketch.depends(node.input[0], wave.output[0])
    ]
    if joint:
        return [(node, 0) for node in joint]
    for node in rotations[::2]:  # queries, then keys
        found += [(node, index) for index in (2, 3) if sketch.depends(node.input[index], wave.output[0])]
    if not found:
        raise NotApplicable("no rotation of queries alone")
    return found


def _is_of(sketch: Sketch, node: onnx.NodeProto, wave: onnx.NodeProto) -> bool:
    return any(sketch.depends(name, wave.output[0]) for name in node.input[2:])


def classifier(sketch: Sketch) -> onnx.NodeProto:
    """Give the node that adds the classifier's bias."""
    for node in sketch.nodes("Gemm", "Add"):
        if any(name.endswith("classifier.bias") for name in node.input):
            return node
    raise NotApplicable("no classifier with a bias")
