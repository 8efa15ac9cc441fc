"""The parts that Vela itself writes into a traced graph, on cases computed by hand."""

import math

import numpy as np
import onnx_ir as ir
import pytest
import torch

from vela.export import attention, forms
from vela.export.passes import join_head


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


def test_a_scorer_is_two_layers_with_exact_gelu_on_the_first_token_cut_to_its_dimension():
    head = forms.ScorerHead(torch.nn.Identity(), (4, 2))
    with torch.no_grad():
        for scorer in head.heads.values():
            scorer["dense"].weight.fill_(1.0)
            scorer["dense"].bias.fill_(0.5)
            scorer["out"].weight.fill_(2.0)
            scorer["out"].bias.fill_(-1.0)
    hidden = torch.tensor([[[1.0, -2.0, 3.0, 4.0], [99.0, 99.0, 99.0, 99.0]]])

    wide, narrow = head(hidden, torch.ones(1, 2, dtype=torch.int64))

    def gelu(value: float) -> float:
        return value * 0.5 * (1 + math.erf(value / math.sqrt(2)))

    assert wide.tolist() == pytest.approx([2 * 2.0 * gelu(6.5) - 1.0])  # 1 - 2 + 3 + 4 + 0.5, two hidden units
    assert narrow.tolist() == pytest.approx([2.0 * gelu(-0.5) - 1.0])  # 1 - 2 + 0.5, one hidden unit


def test_an_early_exit_scores_after_the_final_norm():
    norm = torch.nn.LayerNorm(2, bias=False)
    plain, normed = forms.ScorerHead(torch.nn.Identity(), (2,)), forms.ScorerHead(norm, (2,))
    normed.heads.load_state_dict(plain.heads.state_dict())

    first = torch.tensor([[[3.0, 1.0]]])  # mean 2, deviation 1: normed to (1, -1)

    expected = plain(torch.tensor([[[1.0, -1.0]]]), torch.ones(1, 1))
    assert normed(first, torch.ones(1, 1))[0].item() == pytest.approx(expected[0].item(), abs=1e-5)


def test_joined_graphs_share_a_weight_that_both_use():
    def small(inputs: list[str], outputs: list[str]) -> ir.Model:
        values = [ir.val(name, ir.DataType.FLOAT, [2]) for name in inputs]
        results = [ir.node("Add", [values[0], values[-1]], num_outputs=1) for _ in outputs]
        for result, name in zip(results, outputs, strict=True):
            result.outputs[0].name = name
        graph = ir.Graph(values, [result.outputs[0] for result in results], nodes=results, opset_imports={"": 18})
        return ir.Model(graph, ir_version=10)

    encoder = small(["input_ids", "attention_mask", "norm"], ["hidden"])
    head = small(["hidden", "attention_mask", "own", "norm"], ["first", "second"])

    join_head.join_head(encoder, head, "hidden", ("norm", "own"), ["a", "b"])

    assert [value.name for value in encoder.graph.inputs] == ["input_ids", "attention_mask", "norm", "own"]
    assert [value.name for value in encoder.graph.outputs] == ["a", "b"]
    assert len(encoder.graph.inputs[2].consumers()) == 3
