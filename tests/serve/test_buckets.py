"""Which graph the CPU runs: rows go alone there, so the graph without a mask, and only one session is loaded."""

import msgspec
import pytest

from vela.graphs import bundle
from vela.serve import buckets
from vela.serve import device as devices


@pytest.mark.parametrize("name", ["tiny-intent", "tiny-pii", "tiny-embedding"])
def test_the_cpu_loads_one_graph_for_each_output_and_it_takes_no_mask(bundles, name):
    content = bundle.Bundle.open(bundles[name]).manifest
    head = content.head()

    ladders = [buckets.build_ladder(content, head, output, devices.CPU) for output in buckets.outputs_of(head, content)]

    assert all(len(ladder.graphs) == 1 for ladder in ladders)
    assert not any(graph.takes_mask or graph.sequence for ladder in ladders for graph in ladder.graphs)
    assert len(buckets.graphs_in_use(ladders)) == len(ladders)


def test_a_bundle_without_an_unpadded_graph_is_served_by_the_masked_one(bundles):
    content = bundle.Bundle.open(bundles["tiny-intent"]).manifest
    older = msgspec.structs.replace(content, graphs=tuple(graph for graph in content.graphs if graph.takes_mask))

    ladder = buckets.build_ladder(older, older.head(), "logits", devices.CPU)

    assert [graph.id for graph in ladder.graphs] == ["model"]
