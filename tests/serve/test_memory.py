"""A memory budget: the longest graph always, then what saves most for its bytes; and no graph that no text needs."""

import dataclasses

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vela.graphs import bundle as bundles
from vela.graphs import contract, errors, manifest
from vela.serve import buckets, memory
from vela.serve.deployment import Config, Deployment
from vela.serve.device import Device
from vela.serve.max_speed import Copies
from vela.serve.registry import Plan

LADDER = (16, 64, 256, 1024, 8192)
GB = memory.GIGABYTE


@pytest.fixture
def ladder_of(bags):
    """Make a ladder of fixed graphs, each of which takes what is said."""
    (graph,) = bundles.Bundle.open(bags["mood"]).manifest.graphs

    def run(*lengths: int, batches: tuple[int, ...] = (1,), output: str = "logits") -> buckets.Ladder:
        graphs = [
            msgspec.structs.replace(
                graph, id=f"{output}-b{batch}-s{tokens}", inputs=contract.graph_inputs(batch, tokens)
            )
            for tokens in lengths
            for batch in batches
        ]
        return buckets.Ladder(output, tuple(graphs))

    return run


def lengths(ladder: buckets.Ladder) -> list[int]:
    return sorted({graph.sequence for graph in ladder.graphs})


def one_gb(graph: manifest.Graph) -> int:
    return GB


@pytest.mark.parametrize(
    ("budget", "expected"),
    [(1, [8192]), (2, [1024, 8192]), (3, [256, 1024, 8192]), (5, [16, 64, 256, 1024, 8192]), (99, [*LADDER])],
)
def test_what_saves_most_is_kept_first_and_the_longest_always(ladder_of, budget, expected) -> None:
    kept = memory.choose({"logits": ladder_of(*LADDER)}, one_gb, budget * GB, "m")

    assert lengths(kept["logits"]) == expected


def test_too_little_for_the_longest_graph_is_refused_with_both_figures(ladder_of) -> None:
    with pytest.raises(errors.InvalidRequest, match=r"memory budget of m: found 0\.90 GB; expected 1\.00 GB"):
        memory.choose({"logits": ladder_of(*LADDER)}, one_gb, int(0.9 * GB), "m")


def test_ladders_of_one_exit_share_their_graphs_and_others_do_not(ladder_of) -> None:
    first, other = ladder_of(16, 8192), ladder_of(16, 8192, output="other")
    shared = {"a": first, "b": buckets.Ladder("b", first.graphs)}

    assert [lengths(one) for one in memory.choose(shared, one_gb, 2 * GB, "m").values()] == [[16, 8192]] * 2
    apart = memory.choose({"a": first, "b": other}, one_gb, 3 * GB, "m")
    assert sorted(map(len, map(lengths, apart.values()))) == [1, 2]


def test_a_length_takes_its_larger_batches_with_it(ladder_of) -> None:
    kept = memory.choose({"logits": ladder_of(16, 8192, batches=(1, 4))}, one_gb, 3 * GB, "m")

    assert [graph.id for graph in kept["logits"].graphs] == ["logits-b1-s8192", "logits-b4-s8192"]


@given(
    st.lists(st.integers(2, 8192), min_size=1, max_size=8, unique=True),
    st.lists(st.integers(1, 50), min_size=8, max_size=8),
    st.integers(1, 300),
)
def test_no_budget_is_exceeded_and_nothing_that_fits_is_left(ladder_of_any, found, sizes, budget) -> None:
    ladder = ladder_of_any(*sorted(found))
    size = {graph.id: sizes[place] for place, graph in enumerate(ladder.graphs)}
    longest = ladder.graphs[-1]
    if size[longest.id] > budget:
        with pytest.raises(errors.InvalidRequest):
            memory.choose({"logits": ladder}, lambda graph: size[graph.id], budget, "m")
        return

    kept = memory.choose({"logits": ladder}, lambda graph: size[graph.id], budget, "m")["logits"].graphs

    spent = sum(size[graph.id] for graph in kept)
    assert longest in kept
    assert spent <= budget
    assert all(size[graph.id] > budget - spent for graph in ladder.graphs if graph not in kept)
    assert list(kept) == [graph for graph in ladder.graphs if graph in kept], "smallest first, as before"


@pytest.fixture(scope="module")
def ladder_of_any(bags):
    (graph,) = bundles.Bundle.open(bags["mood"]).manifest.graphs

    def run(*found: int) -> buckets.Ladder:
        graphs = [
            msgspec.structs.replace(graph, id=f"s{tokens}", inputs=contract.graph_inputs(1, tokens)) for tokens in found
        ]
        return buckets.Ladder("logits", tuple(graphs))

    return run


@pytest.mark.parametrize(
    ("most", "expected"),
    [(8192, [*LADDER]), (1024, [*LADDER[:-1]]), (1000, [*LADDER[:-1]]), (16, [16]), (9000, [*LADDER])],
)
def test_graphs_beyond_what_a_deployment_takes_are_not_loaded(ladder_of, bags, most, expected) -> None:
    head = msgspec.structs.replace(bundles.Bundle.open(bags["mood"]).manifest.head(), max_tokens=most)
    ladder = ladder_of(*LADDER)

    assert lengths(memory.trim(ladder, head, alone=True)) == expected
    assert memory.trim(ladder, head, alone=True).longest(most) == ladder.longest(most)


@pytest.mark.parametrize(
    ("alone", "expected"), [(True, ["logits-b1-s16"]), (False, ["logits-b1-s16", "logits-b4-s16"])]
)
def test_larger_batches_are_for_rows_that_share_runs(ladder_of, bags, alone, expected) -> None:
    head = msgspec.structs.replace(bundles.Bundle.open(bags["mood"]).manifest.head(), max_tokens=16)

    found = memory.trim(ladder_of(16, 64, batches=(1, 4)), head, alone=alone)

    assert [graph.id for graph in found.graphs] == expected


@pytest.mark.parametrize("given", ["nan", "inf", "0", "-1"])
def test_a_budget_that_is_no_size_is_refused(vela, bag_store, given) -> None:
    code, _, said = vela("serve", "--store", str(bag_store), f"--memory-budget={given}", "--check")

    assert (code, "a number of GB above 0" in said) == (1, True)


def test_a_dynamic_graph_is_never_left_out(bags) -> None:
    opened = bundles.Bundle.open(bags["mood"])
    ladder = buckets.Ladder("logits", opened.manifest.graphs)

    assert memory.trim(ladder, opened.manifest.head(), alone=True) == ladder


def weighed(bags, *lengths_of: int) -> bundles.Bundle:
    """Give a bundle whose graph refers to tensors of so many bytes, and has a copy."""
    opened = bundles.Bundle.open(bags["mood"])
    (graph,) = opened.manifest.graphs
    tensors = tuple(
        manifest.WeightTensor("tokenizer.json", f"t{place}", "F32", (length // 4,), 0, length, "0" * 64)
        for place, length in enumerate(lengths_of)
    )
    external = {f"i{place}": f"t{place}" for place in range(len(lengths_of))} | {"again": "t0"}
    graph = msgspec.structs.replace(graph, external=external)
    copy = msgspec.structs.replace(graph, id="copy", file="copy.onnx", precision="fp16")
    content = msgspec.structs.replace(opened.manifest, weights=tensors, graphs=(graph, copy))
    return dataclasses.replace(opened, manifest=content)


def test_a_session_holds_each_tensor_once_and_a_copy_half_of_all_but_the_largest(bags) -> None:
    opened = weighed(bags, 1000, 400, 200)
    graph, copy = opened.manifest.graphs

    assert memory.bytes_of(opened, graph) == 1600
    assert memory.bytes_of(opened, copy) == 1300
    assert Copies.none().bytes_with_copy(opened, graph) == 1600
    assert Copies({graph.id: copy}, {}).bytes_with_copy(opened, graph) == 2900


def test_weights_that_lie_in_the_graph_count_by_its_file(bags) -> None:
    opened = bundles.Bundle.open(bags["mood"])

    assert memory.bytes_of(opened, opened.manifest.graphs[0]) == opened.manifest.graphs[0].size_bytes


def test_models_of_a_server_share_its_budget_evenly_and_a_config_says_its_own(source_of, bags, tmp_path) -> None:
    sources = tuple(source_of(name, bags[name]) for name in ("mood", "topics", "names"))
    path = tmp_path / "c.yaml"
    path.write_text("deployments: [{model: mood, device: 'cuda:0', memory_gb: 1.5}]")

    plan = Plan(sources, Device("cuda"), memory_bytes=9 * GB)

    assert [plan.deployment(source).memory_bytes for source in sources] == [3 * GB] * 3
    assert Plan(sources).deployment(sources[0]).memory_bytes is None
    assert Config.read(path).deployments["mood"] == Deployment(Device("cuda"), memory_bytes=int(1.5 * GB))
    for wrong in ("0", "-1", ".nan", ".inf"):
        path.write_text(f"deployments: [{{model: mood, memory_gb: {wrong}}}]")
        with pytest.raises(errors.InvalidRequest, match="memory_gb"):
            Config.read(path)


def test_the_cpu_loads_one_graph_for_each_output_whatever_the_budget(bags, vela, bag_store) -> None:
    code, _, said = vela("serve", "--store", str(bag_store), "--memory-budget", "0.000001", "--check")

    assert (code, "mood: cpu" in said) == (0, True)
