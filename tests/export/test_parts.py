"""The parts that Vela itself writes into a traced graph, on cases computed by hand."""

import math

import numpy as np
import pytest
import torch

from vela.export import attention, forms


def test_the_mean_over_the_mask_leaves_pads_out():
    hidden = torch.tensor([[[1.0, 2.0], [3.0, 6.0], [100.0, -100.0]]])

    assert forms.mean_over_mask(hidden, torch.tensor([[1, 1, 0]])).tolist() == [[2.0, 4.0]]


def test_a_full_layer_sees_every_token_and_no_pad():
    mask = attention.portable_mask(kv_length=3, attention_mask=torch.tensor([[True, True, False]]))

    assert mask.shape == (1, 1, 1, 3)
    assert (mask[0, 0, 0] == 0).tolist() == [True, True, False]


def test_a_sliding_layer_sees_exactly_its_half_window_on_both_sides():
    mask = attention.portable_mask(kv_length=7, attention_mask=torch.ones(1, 7, dtype=torch.bool), local_size=2)

    seen = (mask[0, 0] == 0).numpy()

    expected = np.abs(np.arange(7)[:, None] - np.arange(7)[None, :]) <= 2
    assert (seen == expected).all()


def test_a_row_whose_whole_window_is_padding_stays_finite():
    tokens = torch.tensor([[True] + [False] * 9])
    mask = attention.portable_mask(kv_length=10, attention_mask=tokens, local_size=2)
    query = torch.randn(1, 1, 10, 4)

    output, _ = attention.portable_attention(torch.nn.Identity(), query, query, query, mask, scaling=0.5)

    assert torch.isfinite(output).all()


def test_attention_is_the_scaled_softmax_average_of_values():
    query = torch.tensor([[[[1.0]]]])
    key = torch.tensor([[[[0.0], [math.log(3.0)]]]])
    value = torch.tensor([[[[0.0], [4.0]]]])

    output, _ = attention.portable_attention(torch.nn.Identity(), query, key, value, None, scaling=1.0)

    assert output.item() == pytest.approx(3.0)  # weights 1/4 and 3/4


def test_a_graph_without_a_mask_is_not_traced_by_accident():
    with pytest.raises(ValueError, match="attention_mask"):
        attention.portable_mask(kv_length=3, attention_mask=None)
