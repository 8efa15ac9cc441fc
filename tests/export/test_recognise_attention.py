"""The packed projection is found where a trace has it, and whatever comes near it is left alone and still right."""

from functools import partial

import numpy as np
import pytest

from vela.export import attention, trace
from vela.export.passes import expand_fused, expand_portable, recognise_attention
from vela.verify import checkpoint

HALF_WINDOW, TOKENS = 4, 24
NOISE = 5e-6
EXPANSIONS = {
    "dynamic": partial(expand_fused.expand_fused, policy=expand_fused.Policy(takes_mask=True)),
    "rotated whole": partial(
        expand_fused.expand_fused, policy=expand_fused.Policy(takes_mask=True, rotates_whole=True)
    ),
    "portable": partial(expand_portable.expand_portable, rows=2, tokens=TOKENS),
}
NEAR_MISSES = ["slice_bounds", "swapped_parts", "other_cos", "unequal_halves", "other_perm", "swapped_halves"]


@pytest.fixture(params=[HALF_WINDOW, None], ids=["local", "global"])
def packed(request, layer, plant):
    return plant.from_lengths(layer(request.param, is_packed=True), [TOKENS, 9], TOKENS)


def test_the_packed_pattern_is_read_off(packed):
    model = packed.model()

    (found,) = recognise_attention.find_attention(model.graph)

    assert found.packed is not None
    assert found.packed.projected.name == "projected0"
    assert [table.producer().op_type for table in (found.packed.rotary.cos, found.packed.rotary.sin)] == ["Cos", "Sin"]
    assert (found.parts, found.seen.name, found.heads, found.width) == ((), "seen", 2, 8)
    assert (found.half_window, found.scale) == (packed.layers[0].half_window, pytest.approx(0.35))


def test_separate_projections_are_given_tokens_first(layer, plant):
    model = plant.from_lengths(layer(None), [TOKENS], TOKENS).model()

    (found,) = recognise_attention.find_attention(model.graph)

    assert found.packed is None
    assert [part.producer().op_type for part in found.parts] == ["Reshape"] * 3


@pytest.mark.parametrize("name", ["tiny-intent", "tiny-reranker"])
def test_every_layer_of_a_real_trace_is_packed_and_its_types_share_tables(checkpoints, traces: trace.TraceCache, name):
    source = checkpoint.Checkpoint.read(checkpoints[name])
    graph = traces.encoder(source).model.clone().graph

    found = recognise_attention.find_attention(graph)

    assert len(found) == source.architecture.layers
    assert all(layer.packed for layer in found)
    assert {layer.half_window for layer in found} == {None, source.architecture.half_window}
    assert len({(layer.packed.rotary, layer.half_window) for layer in found}) == 2


@pytest.mark.parametrize("change", NEAR_MISSES)
def test_a_near_miss_is_not_recognised(packed, change):
    (found,) = recognise_attention.find_attention(packed.with_change(change).model().graph)

    assert found.packed is None
    assert len(found.parts) == 3


@pytest.mark.parametrize("change", NEAR_MISSES)
@pytest.mark.parametrize("expand", EXPANSIONS.values(), ids=EXPANSIONS)
def test_a_near_miss_gives_the_numbers_of_its_own_graph(packed, change, expand):
    planted = packed.with_change(change)

    found = planted.answers(expand)[0]

    assert np.abs(found - planted.expected_as_planted())[planted.seen].max() < NOISE


def test_a_table_whose_factor_differs_from_dimension_to_dimension_is_not_recognised(packed):
    (found,) = recognise_attention.find_attention(packed.with_change("uneven_factor").model().graph)

    assert found.packed is None


@pytest.mark.parametrize("change", ["swapped_parts", "other_cos", "unequal_halves", "swapped_halves"])
def test_a_near_miss_taken_for_the_pattern_would_be_seen(packed, change):
    other = packed.with_change(change).expected_as_planted()

    assert np.abs(packed.expected_as_planted() - packed.expected()[0])[packed.seen].max() < NOISE
    assert np.abs(other - packed.expected()[0])[packed.seen].max() > 1000 * NOISE


def test_a_layer_that_is_near_the_pattern_may_stand_beside_one_that_is_it(layer, plant):
    layers = (layer(HALF_WINDOW, is_packed=True), layer(None, is_packed=True, change="other_perm"), layer(None))
    planted = plant.from_lengths(layers, [TOKENS, 5], TOKENS)

    found = recognise_attention.find_attention(planted.model().graph)

    assert [layer.packed is not None for layer in found] == [True, False, False]
    assert all(planted.difference(expand) < NOISE for expand in EXPANSIONS.values())


def test_a_found_node_is_symbolic_attention_and_nothing_else_is(packed):
    graph = packed.model().graph

    found = recognise_attention.find_attention(graph)

    assert [layer.node for layer in found] == [node for node in graph if node.domain == attention.SYMBOLIC_DOMAIN]
