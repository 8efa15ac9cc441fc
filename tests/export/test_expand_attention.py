"""Blocked local and bounded global attention against dense attention in FP64, operator for operator.

The symbolic nodes are planted in a graph of their own, so each length costs milliseconds; whole models follow below.
"""

from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
from numpy.typing import NDArray

from vela.export import attention, reference
from vela.export.passes import expand_attention
from vela.verify import checkpoint

HEADS, WIDTH, HALF_WINDOW, SCALE = 2, 8, 16, 0.35
BLOCK, DENSE = expand_attention.BLOCK_TOKENS, expand_attention.DENSE_TOKENS
NOISE = 5e-6  # FP32 sums of up to 800 weighted values near 1
EDGES = [2, 15, 16, 17, 33, BLOCK - 1, BLOCK, BLOCK + 1, DENSE - 1, DENSE, DENSE + 1, 4 * BLOCK + 1]
EDGES += [5 * BLOCK - 1, 5 * BLOCK, 5 * BLOCK + 1, 8 * BLOCK - 1, 8 * BLOCK, 8 * BLOCK + 1, 777]


def symbolic_model(kind: str, half_window: int = HALF_WINDOW) -> ir.Model:
    """A graph of one symbolic attention node: (B, A, T, D) in, (B, T, A, D) out."""
    shape = ir.Shape(["batch", HEADS, "sequence", WIDTH])
    inputs = [ir.Value(name="input_ids", shape=ir.Shape(["batch", "sequence"]), type=ir.TensorType(ir.DataType.INT64))]
    inputs += [ir.Value(name=name, shape=shape, type=ir.TensorType(ir.DataType.FLOAT)) for name in "qkv"]
    inputs += [ir.Value(name="seen", shape=ir.Shape(["batch", "sequence"]), type=ir.TensorType(ir.DataType.BOOL))]
    attributes = {"scale": SCALE, "heads": HEADS, "width": WIDTH}
    if kind == attention.LOCAL:
        attributes["half_window"] = half_window
    node = ir.node(kind, inputs[1:], attributes, domain=attention.SYMBOLIC_DOMAIN)
    relay = ir.node("Identity", node.outputs)
    relay.outputs[0].name, relay.outputs[0].type = "y", ir.TensorType(ir.DataType.FLOAT)
    graph = ir.Graph(inputs, relay.outputs, nodes=[node, relay], opset_imports={"": 18}, name="g")
    return ir.Model(graph, ir_version=10)


def run(model: ir.Model, feeds: dict[str, NDArray]) -> NDArray[np.float32]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    proto = ir.to_proto(model).SerializeToString()
    session = onnxruntime.InferenceSession(proto, options, providers=["CPUExecutionProvider"])
    names = {value.name for value in session.get_inputs()}
    return session.run(None, {name: value for name, value in feeds.items() if name in names})[0]


def feeds_of(lengths: list[int], pad_to: int, seed: int = 0) -> dict[str, NDArray]:
    rng = np.random.default_rng(seed)
    shape = (len(lengths), HEADS, pad_to, WIDTH)
    feeds = {name: rng.normal(0, 1.5, shape).astype(np.float32) for name in "qkv"}
    seen = np.arange(pad_to)[None, :] < np.array(lengths)[:, None]
    return feeds | {"seen": seen, "input_ids": np.ones((len(lengths), pad_to), np.int64)}


def dense(feeds: dict[str, NDArray], half_window: int | None) -> NDArray[np.float64]:
    """Dense attention in FP64: every (query, key) pair is looked at, unseen ones weigh nothing."""
    q, k, v = (feeds[name].astype(np.float64) for name in "qkv")
    places = np.arange(q.shape[2])
    seen = feeds["seen"][:, None, None, :]
    if half_window is not None:
        seen = seen & (np.abs(places[:, None] - places[None, :]) <= half_window)
    scores = np.where(seen, np.einsum("bhqd,bhkd->bhqk", q, k) * SCALE, -np.inf)
    with np.errstate(invalid="ignore"):  # pads whose whole window is pads: nobody reads them
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return np.einsum("bhqk,bhkd->bqhd", weights / weights.sum(-1, keepdims=True), v)


def largest_difference(
    kind: str, lengths: list[int], pad_to: int, *, takes_mask: bool = True, window: int = HALF_WINDOW
):
    model = symbolic_model(kind, window)
    expand_attention.expand_attention(model, takes_mask=takes_mask)
    feeds = feeds_of(lengths, pad_to)
    actual, expected = run(model, feeds), dense(feeds, HALF_WINDOW if kind == attention.LOCAL else None)
    assert np.isfinite(actual).all()
    return max(np.abs(actual[row, :length] - expected[row, :length]).max() for row, length in enumerate(lengths))


@pytest.mark.parametrize("kind", [attention.LOCAL, attention.GLOBAL])
@pytest.mark.parametrize("takes_mask", [True, False])
@pytest.mark.parametrize("tokens", EDGES)
def test_every_length_around_the_blocks_is_dense_attention(kind, takes_mask, tokens):
    assert largest_difference(kind, [tokens], tokens, takes_mask=takes_mask) < NOISE


@pytest.mark.parametrize("kind", [attention.LOCAL, attention.GLOBAL])
@pytest.mark.parametrize("pads", [1, HALF_WINDOW, 2 * HALF_WINDOW + 1, 3 * BLOCK + 5, 600])
@pytest.mark.parametrize("tokens", [1, 17, BLOCK, DENSE + 3, 6 * BLOCK + 1])
def test_pads_change_nothing_at_tokens(kind, tokens, pads):
    assert largest_difference(kind, [tokens], tokens + pads) < NOISE


@pytest.mark.parametrize("kind", [attention.LOCAL, attention.GLOBAL])
def test_rows_of_other_lengths_in_the_batch_change_nothing(kind):
    assert largest_difference(kind, [1, 5 * BLOCK + 1, 64, 700, 257], 700) < NOISE


@pytest.mark.parametrize("takes_mask", [True, False])
@pytest.mark.parametrize("tokens", [HALF_WINDOW + 2, DENSE, DENSE + 1, 777])
@pytest.mark.parametrize("step", [-1, 1])
def test_a_half_window_off_by_one_is_seen(tokens, takes_mask, step):
    found = largest_difference(attention.LOCAL, [tokens], tokens, takes_mask=takes_mask, window=HALF_WINDOW + step)

    assert found > 1000 * NOISE


def test_blocks_that_lack_one_key_are_seen(monkeypatch):
    original = expand_attention._Writer.constant

    def shorter(writer, value):
        return original(writer, [2 * HALF_WINDOW - 1] if value == [2 * HALF_WINDOW] else value)

    monkeypatch.setattr(expand_attention._Writer, "constant", shorter)

    assert largest_difference(attention.LOCAL, [777], 777) > 1000 * NOISE


@pytest.mark.parametrize("kind", [attention.LOCAL, attention.GLOBAL])
def test_a_graph_that_drops_the_mask_is_seen_on_padded_rows(kind):
    assert largest_difference(kind, [300], 310, takes_mask=False) > 1000 * NOISE


@pytest.mark.parametrize("name", ["tiny-intent", "tiny-pii"])
def test_long_rows_of_a_whole_model_answer_like_the_checkpoint(bundles: dict[str, Path], name):
    source = checkpoint.Checkpoint.read(bundles[name])
    rng = np.random.default_rng(3)
    lengths = [DENSE - 1, DENSE, DENSE + 1, 5 * BLOCK, 8 * BLOCK]
    rows = [tuple(map(int, rng.integers(5, source.architecture.vocabulary_size, length))) for length in lengths]
    expected = reference.PyTorchReference.from_checkpoint(source).answer(rows)
    masked, unpadded = (
        onnxruntime.InferenceSession(bundles[name] / file, providers=["CPUExecutionProvider"])
        for file in ("model.onnx", "model-unpadded.onnx")
    )
    width = max(lengths) + 2 * HALF_WINDOW + 3
    ids, mask = np.zeros((len(rows), width), np.int64), np.zeros((len(rows), width), np.int64)
    for index, row in enumerate(rows):
        ids[index, : len(row)], mask[index, : len(row)] = row, 1

    batched = masked.run(None, {"input_ids": ids, "attention_mask": mask})[0]

    for index, row in enumerate(rows):
        wanted = expected[index]["logits"]
        alone = unpadded.run(None, {"input_ids": ids[index : index + 1, : len(row)]})[0][0]
        padded = batched[index, : len(row)] if batched.ndim == 3 else batched[index]
        assert np.abs(alone - wanted).max() < 2e-5
        assert np.abs(padded - wanted).max() < 2e-5
