"""The parts that Vela itself writes into a traced graph, on cases computed by hand."""

import math

import onnx_ir as ir
import pytest
import torch

from vela.export import attention, forms
from vela.export.passes import join_head


def test_the_mean_over_the_mask_leaves_pads_out():
    hidden = torch.tensor([[[1.0, 2.0], [3.0, 6.0], [100.0, -100.0]]])

    assert forms.mean_over_mask(hidden, torch.tensor([[1, 1, 0]])).tolist() == [[2.0, 4.0]]


def test_the_mask_that_is_traced_is_the_padding_as_it_is():
    mask = torch.tensor([[True, True, False]])

    assert attention.symbolic_mask(attention_mask=mask) is mask


def test_a_graph_without_a_mask_is_not_traced_by_accident():
    with pytest.raises(ValueError, match="attention_mask"):
        attention.symbolic_mask(attention_mask=None)


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
