"""Attention by ONNX Runtime's operators against dense attention in FP64, for each form that a graph may get.

The symbolic nodes are planted in a graph of their own (conftest.py), so each length costs milliseconds; a whole model
follows below.
"""

from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from vela.export import reference, specialise
from vela.export.passes import expand_fused, graph_writer
from vela.verify import checkpoint

Policy = expand_fused.Policy
HALF_WINDOW = 16
NOISE = 1e-5  # FP32 sums of up to 800 weighted values near 1, of scores up to 20
SEEN = 500 * NOISE  # what a wrong window, mask or position does to random values
BLOCK, DENSE = 64, 256
EDGES = [2, 15, 16, 17, 18, 33, BLOCK - 1, BLOCK, BLOCK + 1, DENSE - 1, DENSE, DENSE + 1]
EDGES += [5 * BLOCK - 1, 5 * BLOCK, 5 * BLOCK + 1, 8 * BLOCK - 1, 8 * BLOCK, 8 * BLOCK + 1, 777]


def fixed_policies(tokens: int, *, takes_mask: bool = True) -> dict[str, Policy]:
    """Forms of a fixed graph; blocks of 24 divide no length of these tests, blocks of 64 some."""
    fixed = partial(Policy, takes_mask=takes_mask, tokens=tokens)
    return {
        "bias": fixed(bias_tokens=8192),
        "bias, rotated whole": fixed(bias_tokens=8192, rotates_whole=True),
        "column": fixed(column_width=1),
        "column of 8, rotated whole": fixed(column_width=8, rotates_whole=True),
        "blocks of 24": fixed(dense_tokens=24, block_tokens=24, column_width=8),
        "blocks of 128": fixed(dense_tokens=128, block_tokens=128, bias_tokens=8192, rotates_whole=True),
    }


POLICIES = {
    "dynamic": lambda tokens: Policy(takes_mask=True),
    "dynamic, heads gathered": lambda tokens: Policy(takes_mask=True, gathers_heads=True),
    "dynamic, rotated whole": lambda tokens: Policy(takes_mask=True, rotates_whole=True),
    "dynamic, column of 8": lambda tokens: Policy(takes_mask=True, column_width=8),
    "CUDA": specialise.cuda_policy,
} | {name: (lambda tokens, name=name: fixed_policies(tokens)[name]) for name in fixed_policies(2)}


def expand(policy: Policy) -> partial:
    return partial(expand_fused.expand_fused, policy=policy)


@pytest.fixture
def every_kind(layer):
    """Local and global layers, packed and separate, side by side."""
    return [layer(half_window, is_packed) for half_window in (HALF_WINDOW, None) for is_packed in (True, False)]


@pytest.fixture(params=POLICIES)
def policy_at(request):
    return POLICIES[request.param]


@pytest.mark.parametrize("tokens", EDGES)
@pytest.mark.parametrize("takes_mask", [True, False])
@pytest.mark.parametrize("gathers_heads", [True, False])
def test_every_length_around_the_blocks_is_dense_attention(plant, every_kind, takes_mask, gathers_heads, tokens):
    planted = plant.from_lengths(every_kind, [tokens], tokens)

    assert planted.difference(expand(Policy(takes_mask=takes_mask, gathers_heads=gathers_heads))) < NOISE


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("tokens", [2, 40, DENSE + 1])
@pytest.mark.parametrize("rotates_whole", [True, False])
def test_rows_without_padding_need_no_mask(plant, every_kind, rows, tokens, rotates_whole):
    planted = plant.from_lengths(every_kind, [tokens] * rows, tokens)
    policy = Policy(takes_mask=False, rotates_whole=rotates_whole, gathers_heads=not rotates_whole)

    assert planted.difference(expand(policy)) < NOISE


@pytest.mark.parametrize("lengths", [[777], [333, 40, 2]])
def test_heads_gathered_apart_change_no_bit(plant, every_kind, lengths):
    planted = plant.from_lengths(every_kind, lengths, max(lengths))

    by_token, by_head = (
        planted.answers(expand(Policy(takes_mask=True, gathers_heads=gathers))) for gathers in (False, True)
    )

    assert all((first == second).all() for first, second in zip(by_token, by_head, strict=True))


@pytest.mark.parametrize("tokens", [HALF_WINDOW + 1, HALF_WINDOW + 2, 64, 2 * BLOCK + 1, 320])
def test_every_policy_is_dense_attention_on_right_padded_rows(plant, every_kind, policy_at, tokens):
    lengths = [tokens, 1, tokens // 2 + 1]
    planted = plant.from_lengths(every_kind, lengths, tokens)

    assert planted.difference(expand(policy_at(tokens))) < NOISE


@pytest.mark.parametrize("tokens", [64, 320])
@pytest.mark.parametrize("padding", ["left", "scattered", "whole windows"])
def test_padding_may_lie_anywhere(plant, every_kind, policy_at, padding, tokens):
    seen = np.ones((2, tokens), bool)
    if padding == "left":
        seen[0, :-9], seen[1, :3] = False, False
    elif padding == "scattered":
        seen = np.random.default_rng(8).random((2, tokens)) < 0.5
        seen[:, 0] = True
    else:
        seen[:, 3:-3] = False  # queries in the middle of the longer length see pads only
    planted = plant(tuple(every_kind), seen)

    assert planted.difference(expand(policy_at(tokens))) < NOISE


@pytest.mark.parametrize("name", fixed_policies(2))
@pytest.mark.parametrize("tokens", [24, 48, 128, 333])
def test_a_fixed_graph_may_do_without_a_mask(plant, every_kind, name, tokens):
    planted = plant.from_lengths(every_kind, [tokens, tokens], tokens)

    assert planted.difference(expand(fixed_policies(tokens, takes_mask=False)[name])) < NOISE


@pytest.mark.parametrize("pads", [1, 2 * HALF_WINDOW + 1, 3 * BLOCK + 5])
@pytest.mark.parametrize("tokens", [1, BLOCK, DENSE + 3])
def test_pads_change_nothing_at_tokens(plant, every_kind, tokens, pads):
    planted = plant.from_lengths(every_kind, [tokens], tokens + pads)

    assert planted.difference(expand(Policy(takes_mask=True))) < NOISE


def test_layers_of_every_kind_share_one_graph(layer, plant, policy_at):
    """Tables, blocks and biases are shared between layers, so each must be kept apart by what it depends on."""
    layers = (
        layer(HALF_WINDOW, is_packed=True, theta=10.0),
        layer(None, is_packed=True),
        layer(5, is_packed=True, scale=0.5),
        layer(HALF_WINDOW),
        layer(None, scale=0.125),
        layer(40, is_packed=True, theta=10.0),
        layer(None, is_packed=True, theta=10.0),
    )
    planted = plant(layers, np.arange(333)[None] < np.array([[333], [40], [2]]))

    assert planted.difference(expand(policy_at(333))) < NOISE


@pytest.mark.parametrize("tokens", [HALF_WINDOW + 3, DENSE + 1])
@pytest.mark.parametrize("step", [-1, 1])
def test_a_half_window_off_by_one_is_seen(layer, plant, policy_at, tokens, step):
    planted = plant.from_lengths(layer(HALF_WINDOW, is_packed=True), [tokens], tokens)
    wrong = plant.from_lengths(layer(HALF_WINDOW + step, is_packed=True), [tokens], tokens)

    found = np.abs(wrong.answers(expand(policy_at(tokens)))[0] - planted.expected()[0]).max()

    assert found > SEEN


def test_blocks_that_lack_one_key_are_seen(layer, plant, monkeypatch):
    original = graph_writer.Writer.constant

    def shorter(writer, value):
        return original(writer, [2 * HALF_WINDOW - 1] if np.array_equal(value, [2 * HALF_WINDOW]) else value)

    planted = plant.from_lengths(layer(HALF_WINDOW), [777], 777)
    assert planted.difference(expand(Policy(takes_mask=True))) < NOISE
    monkeypatch.setattr(graph_writer.Writer, "constant", shorter)

    assert planted.difference(expand(Policy(takes_mask=True))) > SEEN


def test_a_graph_that_drops_the_mask_is_seen_on_padded_rows(plant, every_kind):
    planted = plant.from_lengths(every_kind, [300], 310)

    assert min(planted.differences(expand(Policy(takes_mask=False)))) > SEEN


@pytest.mark.parametrize("rotates_whole", [True, False])
@pytest.mark.parametrize("half_window", [HALF_WINDOW, None])
def test_rotation_by_another_base_is_seen(layer, plant, half_window, rotates_whole):
    planted = plant.from_lengths(layer(half_window, is_packed=True), [100], 100)
    wrong = plant.from_lengths(layer(half_window, is_packed=True, theta=101.0), [100], 100)

    found = wrong.answers(expand(Policy(takes_mask=True, rotates_whole=rotates_whole)))[0]

    assert np.abs(found - planted.expected()[0]).max() > SEEN


@pytest.mark.parametrize("rotates_whole", [True, False])
def test_queries_and_keys_are_rotated_by_one_operator_or_by_one_each(layer, plant, rotates_whole):
    model = plant.from_lengths(layer(HALF_WINDOW, is_packed=True), [64], 64).model()

    expand(Policy(takes_mask=True, tokens=64, rotates_whole=rotates_whole))(model)

    kinds = [node.op_type for node in model.graph if node.domain == expand_fused.MICROSOFT]
    assert kinds == ["RotaryEmbedding"] * (1 if rotates_whole else 2) + ["MultiHeadAttention"]
    assert {node.domain for node in model.graph} == {"", expand_fused.MICROSOFT}
    assert set(model.opset_imports) == {"", expand_fused.MICROSOFT}


def test_values_pass_a_whole_rotation_to_the_bit(layer, plant):
    """A row of one token gives its value back."""
    planted = plant.from_lengths(layer(None, is_packed=True), [1, 1], 3)

    found = planted.answers(expand(Policy(takes_mask=True, tokens=3, bias_tokens=3, rotates_whole=True)))[0]

    values = planted.feeds()["projected0"].reshape(2, 3, 3, *found.shape[2:])[:, :1, 2]
    assert (found == values).all()


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
