"""Which graph the CPU runs: rows go alone there, so the graph without a mask, and only one session is loaded."""

import dataclasses
from collections.abc import Sequence

import msgspec
import pytest

from vela.graphs import bundle, contract, errors
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


def _fixed(inputs: Sequence[contract.TensorSpec], size: int) -> tuple[contract.TensorSpec, ...]:
    return tuple(msgspec.structs.replace(tensor, shape=(1, size)) for tensor in inputs)


@pytest.fixture
def with_fixed_graphs(bundles) -> bundle.Bundle:
    """A bundle with graphs for each kind of device: the sample's dynamic and portable ones, and two of CUDA's form."""
    opened = bundle.Bundle.open(bundles["tiny-intent"])
    dynamic = opened.manifest.graphs[0]
    fixed = [
        msgspec.structs.replace(
            dynamic, id=f"cuda-{size}", file=f"cuda-{size}.onnx", inputs=_fixed(dynamic.inputs, size)
        )
        for size in (64, 128)
    ]
    content = msgspec.structs.replace(opened.manifest, graphs=(*opened.manifest.graphs, *fixed))
    return dataclasses.replace(opened, manifest=content)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("cpu", ["model", "model-unpadded", "portable-b1-s64", "portable-b1-s128", "cuda-64", "cuda-128"]),
        ("cuda", ["cuda-64", "cuda-128"]),
        ("migraphx", ["portable-b1-s64", "portable-b1-s128"]),
        ("rocm", ["portable-b1-s64", "portable-b1-s128"]),
    ],
)
def test_a_device_is_judged_on_what_it_would_run(with_fixed_graphs, kind, expected):
    assert sorted(graph.id for graph in buckets.choose_judged(with_fixed_graphs, kind)) == sorted(expected)


def test_a_graph_that_is_asked_for_by_name_is_judged_anywhere(with_fixed_graphs):
    assert [graph.id for graph in buckets.choose_judged(with_fixed_graphs, "cuda", ["model"])] == ["model"]


def test_a_bundle_without_a_graph_for_a_device_is_not_compared_there(bundles):
    with pytest.raises(errors.NothingCompared, match=r"no graph that runs on cuda.*--for cuda"):
        buckets.choose_judged(bundle.Bundle.open(bundles["tiny-intent"]), "cuda")
