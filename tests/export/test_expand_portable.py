"""Attention by plain operators against dense attention in FP64, at fixed shapes: dense, in blocks and in chunks."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vela.export.passes import expand_portable
from vela.verify.static import lint

HALF_WINDOW = 16
NOISE = 1e-5  # FP32 sums of up to 1,024 weighted values near 1, of scores up to 20
SEEN = 500 * NOISE


def expand(rows: int, tokens: int) -> partial:
    return partial(expand_portable.expand_portable, rows=rows, tokens=tokens)


@pytest.fixture
def every_kind(layer):
    """Local and global layers, packed and separate, side by side; no scale is a power of two."""
    return [layer(half_window, is_packed) for half_window in (HALF_WINDOW, None) for is_packed in (True, False)]


@pytest.mark.parametrize("tokens", [2, 17, 64, 256, 257, 320, 512, 777, 1024])
def test_dense_and_blocked_lengths_are_dense_attention(plant, every_kind, tokens):
    planted = plant.from_lengths(every_kind, [tokens, tokens // 2 + 1], tokens)

    assert planted.difference(expand(2, tokens)) < NOISE


@pytest.mark.parametrize("tokens", [64, 320])
@pytest.mark.parametrize("padding", ["left", "scattered", "whole windows"])
def test_padding_may_lie_anywhere(plant, every_kind, padding, tokens):
    seen = np.ones((2, tokens), bool)
    if padding == "left":
        seen[0, :-9], seen[1, :3] = False, False
    elif padding == "scattered":
        seen = np.random.default_rng(8).random((2, tokens)) < 0.5
    else:
        seen[:, 3:-3] = False  # queries in the middle of the longer length see pads only

    assert plant(tuple(every_kind), seen).difference(expand(2, tokens)) < NOISE


@pytest.mark.parametrize("tokens", [128, 320, 333])
def test_long_global_layers_go_through_in_chunks(plant, every_kind, monkeypatch, tokens):
    chunk = 2 * expand_portable.BLOCK_TOKENS
    monkeypatch.setattr(expand_portable, "SCORES_BYTES", 2 * 2 * tokens * 4 * (chunk + 5))  # rows, heads, keys, bytes
    planted = plant.from_lengths(every_kind, [tokens, 40], tokens)
    model = planted.model()

    expand(2, tokens)(model)

    joined = [
        node for node in model.graph if node.op_type == "Concat" and node.inputs[0].producer().op_type == "MatMul"
    ]
    chunks = -(-tokens // chunk)  # the last one is partial: 64 of 320, 77 of 333
    assert [len(node.inputs) for node in joined] == ([chunks, chunks] if chunks > 1 else [])
    assert planted.difference(expand(2, tokens)) < NOISE


def test_a_chunk_is_never_less_than_a_block(plant, layer, monkeypatch):
    monkeypatch.setattr(expand_portable, "SCORES_BYTES", 1)
    planted = plant.from_lengths(layer(None, is_packed=True), [150], 150)

    assert planted.difference(expand(1, 150)) < NOISE


def test_layers_of_every_kind_share_one_graph(layer, plant):
    """Tables and biases are shared between layers, so each must be kept apart by what it depends on."""
    layers = (
        layer(HALF_WINDOW, is_packed=True, theta=10.0),
        layer(None, is_packed=True),
        layer(5, is_packed=True, scale=0.5),
        layer(HALF_WINDOW),
        layer(None, scale=0.125),
        layer(150, is_packed=True, theta=10.0),
        layer(None, is_packed=True, theta=10.0),
    )
    planted = plant(layers, np.arange(320)[None] < np.array([[320], [40]]))

    assert planted.difference(expand(2, 320)) < NOISE


def test_only_operators_of_the_portable_list_are_written(plant, every_kind, monkeypatch):
    monkeypatch.setattr(expand_portable, "SCORES_BYTES", 1)
    for tokens in (64, 320):
        model = plant.from_lengths(every_kind, [tokens], tokens).model()

        expand(1, tokens)(model)

        assert {node.domain for node in model.graph} == {""}
        assert {node.op_type for node in model.graph} <= lint.PORTABLE_OPERATORS
        assert set(model.opset_imports) == {""}


@pytest.mark.parametrize("tokens", [64, 320])
@pytest.mark.parametrize("step", [-1, 1])
@pytest.mark.parametrize("is_packed", [True, False])
def test_a_half_window_off_by_one_is_seen(layer, plant, is_packed, tokens, step):
    planted = plant.from_lengths(layer(HALF_WINDOW, is_packed), [tokens], tokens)
    wrong = plant.from_lengths(layer(HALF_WINDOW + step, is_packed), [tokens], tokens)

    assert np.abs(wrong.answers(expand(1, tokens))[0] - planted.expected()[0]).max() > SEEN


def test_blocks_that_lack_one_key_are_seen(layer, plant, monkeypatch):
    original = expand_portable.plan_blocks

    def shorter(tokens, half_window):
        blocks = original(tokens, half_window)
        return expand_portable._Blocks(blocks.size, blocks.width - 1, blocks.starts)

    planted = plant.from_lengths(layer(HALF_WINDOW), [320], 320)
    assert planted.difference(expand(1, 320)) < NOISE
    monkeypatch.setattr(expand_portable, "plan_blocks", shorter)

    assert planted.difference(expand(1, 320)) > SEEN


def test_a_mask_that_is_dropped_is_seen(plant, every_kind):
    padded = plant.from_lengths(every_kind, [300], 320)
    full = plant.from_lengths(every_kind, [320], 320)

    for found, expected in zip(full.answers(expand(1, 320)), padded.expected(), strict=True):
        assert np.abs(found - expected)[padded.seen].max() > SEEN


@given(blocks=st.integers(1, 200), half_window=st.integers(0, 300), rest=st.sampled_from([0, 0, 0, 1, 63]))
def test_every_key_of_a_query_s_window_lies_in_its_block(blocks, half_window, rest):
    tokens = expand_portable.BLOCK_TOKENS * blocks + rest

    plan = expand_portable.plan_blocks(tokens, half_window)

    if plan is None:
        width = expand_portable.BLOCK_TOKENS + 2 * half_window
        assert rest or tokens <= max(expand_portable.DENSE_TOKENS, width)
        return
    queries = np.arange(tokens)
    starts = np.repeat(plan.starts, plan.size)
    assert len(starts) == tokens
    assert (starts >= 0).all()
    assert (starts + plan.width <= tokens).all()
    assert (starts <= np.maximum(queries - half_window, 0)).all()
    assert (starts + plan.width > np.minimum(queries + half_window, tokens - 1)).all()
