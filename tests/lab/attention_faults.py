"""Faults of attention: rotary positions, windows, padding masks, and who attends to whom.

Each is also there in a form that no table or constant gives away: arithmetic on tables that are right.
"""

import math
from functools import partial

import numpy as np
from lab import landmarks
from lab.fault import Fault
from lab.sketch import NotApplicable, Sketch, attribute, set_attribute
from lab.workbench import Bench

UNSEEN = -1e20  # a bias below this hides a key
FAR = 1 << 20  # a half-window that no text reaches
REWRITE = "semantic-router's rewrite_graph.py: local windows of 63 to the left and 64 to the right"
IGNORED = "vllm-project/semantic-router issue 3406: the flash path passes neither window nor padding mask"


def exchange_rotations(bench: Bench) -> str:
    sketch = bench.sketch()
    found = landmarks.tables(sketch)
    full, sliding = found["full"], found["sliding"]
    at_full, at_sliding = landmarks.frequencies(full), landmarks.frequencies(sliding)
    _require_two_thetas(sketch, full.input[at_full], sliding.input[at_sliding])
    full.input[at_full], sliding.input[at_sliding] = sliding.input[at_sliding], full.input[at_full]
    return _done(bench, sketch, "both tables are there, each under the other layers")


def set_theta(bench: Bench, kind: str, theta: float, *, is_arithmetic: bool) -> str:
    """Give one kind of layer another theta: by another table, or by a power of the right one."""
    sketch = bench.sketch()
    product = landmarks.tables(sketch)[kind]
    place = landmarks.frequencies(product)
    table = sketch.constant(product.input[place])
    before = float(table.ravel()[1]) ** (-table.size)
    if math.isclose(before, theta, rel_tol=1e-3):
        raise NotApplicable(f"theta is {theta:g} already")
    exponent = math.log(theta) / math.log(before)
    if is_arithmetic:
        product.input[place] = sketch.add("Pow", [product.input[place], sketch.put(exponent)])
    else:
        sketch.hold(product.input[place], (table.astype(np.float64) ** exponent).astype(np.float32))
    return _done(bench, sketch, f"{kind} theta {before:.0f} became {theta:.0f}")


def scale_positions(bench: Bench) -> str:
    sketch = bench.sketch()
    factor = float(bench.rng.uniform(1.01, 1.1))
    product = bench.pick([*landmarks.tables(sketch).values()])
    place = 1 - landmarks.frequencies(product)
    product.input[place] = sketch.add("Div", [product.input[place], sketch.put(factor)])
    return _done(bench, sketch, f"positions divided by {factor:.4f}")


def scale_cosines(bench: Bench, excess: float) -> str:
    """Scale a cosine, as YaRN's attention factor would."""
    sketch = bench.sketch()
    kind = bench.pick([*landmarks.tables(sketch)])
    wave = landmarks.waves(sketch, landmarks.tables(sketch)[kind])["Cos"]
    sketch.interpose(wave.output[0], lambda value: sketch.add("Mul", [value, sketch.put(1.0 + excess)]))
    return _done(bench, sketch, f"cosines of {kind} layers times 1 + {excess:g}")


def turn_backwards(bench: Bench) -> str:
    sketch = bench.sketch()
    kind = bench.pick([*landmarks.tables(sketch)])
    wave = landmarks.waves(sketch, landmarks.tables(sketch)[kind])["Cos"]
    for user, place in sketch.users(wave.input[0]):
        if user.op_type == "Sin":
            user.input[place] = sketch.add("Mul", [wave.input[0], sketch.put(-1.0)])
    return _done(bench, sketch, f"{kind} layers turn the other way")


def shift_queries(bench: Bench) -> str:
    """Turn queries by their position plus one and keys by their own: a shift of both would change no answer."""
    sketch = bench.sketch()
    kind = bench.pick([*landmarks.tables(sketch)])
    product = landmarks.tables(sketch)[kind]
    step = product.input[landmarks.frequencies(product)]
    doubled = sketch.add("Concat", [step, step], axis=-1)
    for name, wave in landmarks.waves(sketch, product).items():
        later = sketch.add(name, [sketch.add("Add", [wave.input[0], doubled])])
        for node, index in landmarks.query_tables(sketch, wave):
            node.input[index] = sketch.reroute(wave.output[0], later, node.input[index])
    return _done(bench, sketch, f"queries of {kind} layers stand one position later")


def interleave_rotation(bench: Bench) -> str:
    sketch = bench.sketch()
    node = bench.pick(sketch.nodes("RotaryEmbedding"))
    set_attribute(node, "interleaved", 1)
    return _done(bench, sketch, f"{node.output[0]} pairs neighbours, not halves")


def move_window(bench: Bench, step: int) -> str:
    sketch = bench.sketch()
    for window in landmarks.windows(sketch):
        half = FAR if step == FAR else window.half + step
        window.node.input[1] = sketch.put(half, np.int64)
    return _done(bench, sketch, f"half-window {window.half} became {half}")


def one_sided_window(bench: Bench) -> str:
    sketch = bench.sketch()
    for window in landmarks.windows(sketch):
        users = sketch.users(window.near)
        left = sketch.add("LessOrEqual", [window.distance, sketch.put(window.half - 1, np.int64)])
        right = sketch.add("GreaterOrEqual", [window.distance, sketch.put(-window.half, np.int64)])
        both = sketch.add("And", [left, right])
        for user, place in users:
            user.input[place] = both
    return _done(bench, sketch, f"{window.half - 1} keys to the left, {window.half} to the right")


def move_one_window(bench: Bench) -> str:
    """Widen or narrow the window of a single sliding layer; the others keep theirs."""
    sketch = bench.sketch()
    layer = bench.pick([layer for layer in landmarks.attentions(sketch) if layer.is_local])
    step = bench.pick([-1, 1])
    (window,) = landmarks.windows(sketch)
    other = sketch.add("LessOrEqual", [window.node.input[0], sketch.put(window.half + step, np.int64)])
    bias = sketch.reroute(window.near, other, layer.bias)
    for node, index in landmarks.bias_users(sketch, layer):
        node.input[index] = bias
    return _done(bench, sketch, f"attention {layer.layer} sees {step:+d}")


def ignore_padding(bench: Bench, *, in_one_layer: bool) -> str:
    """Let attention see pads: everywhere, or in one layer."""
    sketch = bench.sketch()
    mask = landmarks.seen(sketch)
    everything = sketch.add("Or", [mask, sketch.add("Not", [mask])])
    if not in_one_layer:
        made = {everything, sketch.producer(everything).input[1]}
        for node, index in sketch.users(mask):
            if not made & set(node.output):
                node.input[index] = everything
        return _done(bench, sketch, "every layer sees pads")
    layer = bench.pick([layer for layer in landmarks.attentions(sketch) if layer.bias])
    bias = sketch.reroute(mask, everything, layer.bias)
    for node, index in landmarks.bias_users(sketch, layer):
        node.input[index] = bias
    return _done(bench, sketch, f"attention {layer.layer} sees pads")


def hide_last_token(bench: Bench) -> str:
    sketch = bench.sketch()
    numbers = [sketch.put([number], np.int64) for number in (1, 1 << 30, 1)]
    moved = sketch.add("Slice", ["attention_mask", *numbers])
    nothing = sketch.add("Slice", ["attention_mask", sketch.put([0], np.int64), numbers[0], numbers[2]])
    nothing = sketch.add("Sub", [nothing, nothing])
    shifted = sketch.add("Concat", [moved, nothing], axis=1)
    cast = sketch.producer(landmarks.seen(sketch))
    cast.input[0] = shifted
    return _done(bench, sketch, "the mask stands one place to the left")


def weaken_mask(bench: Bench, lowest: float, highest: float) -> str:
    """Give unseen keys a weight that is small and not nothing; a mask column is scaled as scores are."""
    sketch = bench.sketch()
    bias = float(bench.rng.uniform(lowest, highest)) if lowest > -math.inf else -math.inf
    mask = landmarks.seen(sketch)
    scales = [attribute(node, "scale") for node in sketch.nodes("MultiHeadAttention")] if bench.is_dynamic else []
    for node in sketch.nodes("Where"):
        value = sketch.scalar(node.input[2])
        if value is not None and value < UNSEEN:
            is_column = node.input[0] == mask and scales
            node.input[2] = sketch.put(bias / scales[0] if is_column else bias)
    return _done(bench, sketch, f"unseen keys have {bias:.2f} added")


def exchange_parts(bench: Bench, first: int, second: int) -> str:
    """Exchange two of a layer's queries, keys and values."""
    sketch = bench.sketch()
    layer = int(bench.rng.integers(landmarks.layer_count(sketch)))
    rows = sorted(sketch.initializer_names(f"layers.{layer}.attn.Wqkv.weight["), key=_first_row)
    if rows:
        names = {rows[first]: rows[second], rows[second]: rows[first]}
        for node in sketch.graph.node:
            node.input[:] = [names.get(name, name) for name in node.input]
    else:
        split = landmarks.split_of(sketch, layer, 3)
        outputs = list(split.output)
        outputs[first], outputs[second] = outputs[second], outputs[first]
        split.output[:] = outputs
    return _done(bench, sketch, f"layer {layer}")


def scale_scores(bench: Bench) -> str:
    """Scale scores as heads of one more dimension would be, which is what a mask column makes of them."""
    sketch = bench.sketch()
    layer = bench.pick(landmarks.attentions(sketch))
    if layer.node.op_type == "MultiHeadAttention":
        scale = next(entry.f for entry in layer.node.attribute if entry.name == "scale")
        changed = 1.0 / math.sqrt(1.0 / scale**2 + 1.0)
        set_attribute(layer.node, "scale", changed)
    else:
        scores = sketch.producer(sketch.producer(layer.node.input[0]).input[0])
        scale = sketch.scalar(scores.input[1])
        changed = 1.0 / math.sqrt(1.0 / scale**2 + 1.0)
        scores.input[1] = sketch.put(changed)
    return _done(bench, sketch, f"attention {layer.layer}: {scale:.5f} became {changed:.5f}")


def miscount_heads(bench: Bench) -> str:
    sketch = bench.sketch()
    fused = [one for one in landmarks.attentions(sketch) if one.node.op_type == "MultiHeadAttention"]
    # of the dynamic graphs' local layers keys come head by head, so that another number does not run at all
    layer = bench.pick([one for one in fused if not (one.is_local and bench.is_dynamic)])
    heads = next(entry.i for entry in layer.node.attribute if entry.name == "num_heads")
    set_attribute(layer.node, "num_heads", heads // 2)
    return _done(bench, sketch, f"attention {layer.layer} has {heads // 2} heads for {heads}")


def _first_row(name: str) -> int:
    return int(name.rpartition("[")[2].partition(":")[0])


def _require_two_thetas(sketch: Sketch, first: str, second: str) -> None:
    if np.array_equal(sketch.constant(first), sketch.constant(second)):
        raise NotApplicable("one theta for all layers")


def _done(bench: Bench, sketch: Sketch, drawn: str) -> str:
    sketch.save()
    bench.reseal()
    return drawn


FAULTS = (
    Fault("global and local rotations are exchanged", "architecture", exchange_rotations),
    *(
        Fault(
            f"{kind} layers have theta {theta:.0f} {how}",
            "architecture",
            partial(set_theta, kind=kind, theta=theta, is_arithmetic=is_arithmetic),
            provenance=provenance,
        )
        for kind, theta, provenance in (
            ("sliding", 160_000.0, "NVIDIA/TensorRT-Model-Connect pull 692: legacy keys ignored, one theta everywhere"),
            ("full", 10_000.0, "ggml-org/llama.cpp pull 18330: a global layer with the local theta"),
        )
        for is_arithmetic, how in ((False, "by another table"), (True, "by arithmetic on the right table"))
    ),
    Fault("positions are interpolated", "architecture", scale_positions),
    Fault("cosines carry an attention factor", "architecture", partial(scale_cosines, excess=0.1)),
    Fault(
        "cosines carry an attention factor that no answer shows",
        "architecture",
        partial(scale_cosines, excess=3e-6),
        only="graph.rotary",
    ),
    Fault("rotations turn backwards", "architecture", turn_backwards),
    Fault("queries stand one position later than keys", "architecture", shift_queries),
    Fault("a rotation pairs neighbours instead of halves", "architecture", interleave_rotation),
    Fault("windows are one token wider", "architecture", partial(move_window, step=1)),
    Fault(
        "windows are one token narrower",
        "architecture",
        partial(move_window, step=-1),
        provenance="huggingface/transformers pull 40163: a sliding window off by one",
    ),
    Fault("there is no window", "architecture", partial(move_window, step=FAR), provenance=IGNORED),
    Fault("windows reach less far to the left", "architecture", one_sided_window, provenance=REWRITE),
    Fault("one layer's window is off by one", "architecture", move_one_window),
    Fault(
        "padding is seen everywhere", "architecture", partial(ignore_padding, in_one_layer=False), provenance=IGNORED
    ),
    Fault("padding is seen in one layer", "architecture", partial(ignore_padding, in_one_layer=True)),
    Fault("the mask hides the last token", "architecture", hide_last_token),
    Fault("unseen keys keep a visible weight", "architecture", partial(weaken_mask, lowest=-6.0, highest=-3.0)),
    Fault(
        "unseen keys keep a weight of next to nothing",
        "laws",
        partial(weaken_mask, lowest=-30.0, highest=-27.0),
        only="laws.poison",
    ),
    Fault(
        "unseen keys get minus infinity",
        "architecture",
        partial(weaken_mask, lowest=-math.inf, highest=0.0),
        only="outputs.finite",
        provenance="Blaizzy/mlx-embeddings issue 80: rows whose whole window is padding turn to nan",
    ),
    Fault("queries and keys of a layer are exchanged", "architecture", partial(exchange_parts, first=0, second=1)),
    Fault("keys and values of a layer are exchanged", "architecture", partial(exchange_parts, first=1, second=2)),
    Fault("scores are scaled for a head one wider", "architecture", scale_scores),
    Fault("a layer has half its heads", "architecture", miscount_heads),
)
