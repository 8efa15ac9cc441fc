"""References to rows of a tensor count as the tensor only where every row is there, once, and whole."""

import dataclasses

import numpy as np
import pytest
from safetensors.numpy import load_file

from vela.graphs import bundle, errors
from vela.graphs.manifest import WeightTensor
from vela.verify import checkpoint, graph_file
from vela.verify.static import weights

SAMPLE = "tiny-intent"


@pytest.fixture(scope="module")
def parsed(bundles):
    return graph_file.GraphFile.read(bundles[SAMPLE] / "model.onnx")


@pytest.fixture(scope="module")
def check(bundles):
    opened = bundle.Bundle.open(bundles[SAMPLE])
    source = checkpoint.Checkpoint.read(opened.folder)
    stored = weights.StoredWeights.from_tensors(opened.manifest.weights)

    def run(graph: graph_file.GraphFile) -> str:
        layers = source.architecture.layers
        return weights.check_weights(graph, stored, stored, source, layers)

    return run


def moved(parsed, change: dict[str, int | None]) -> graph_file.GraphFile:
    """Move external tensors by a number of bytes, or leave them out."""
    external = dict(parsed.external)
    for name, by in change.items():
        if by is None:
            del external[name]
        else:
            external[name] = dataclasses.replace(external[name], offset=external[name].offset + by)
    return dataclasses.replace(parsed, external=external)


def first_split(parsed, kind: str = "Wqkv") -> tuple[str, list[str]]:
    """Give a weight that is used by rows, and its parts in their order."""
    weight = min(name for name in parsed.external if name.endswith("]") and f".{kind}." in name).partition("[")[0]
    parts = [name for name in parsed.external if name.startswith(f"{weight}[")]
    return weight, sorted(parts, key=lambda name: parsed.external[name].offset)


def test_a_graph_that_refers_to_rows_passes(parsed, check):
    weight, parts = first_split(parsed)

    assert len(parts) == 3
    assert weight not in parsed.external
    assert "tensors found by content" in check(parsed)


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_rows_that_are_left_out_are_named(parsed, check, lost):
    _, parts = first_split(parsed)

    with pytest.raises(errors.GraphError, match=r"Wqkv.weight \(used by rows .* not each row once\)"):
        check(moved(parsed, {parts[lost]: None}))


@pytest.mark.parametrize("part", [0, 1])
def test_the_same_rows_twice_are_named(parsed, check, part):
    _, parts = first_split(parsed)
    by = parsed.external[parts[part + 1]].offset - parsed.external[parts[part]].offset

    with pytest.raises(errors.GraphError, match="not each row once"):
        check(moved(parsed, {parts[part]: by}))


def test_rows_that_start_within_a_row_are_no_part(parsed, check):
    _, parts = first_split(parsed)

    with pytest.raises(errors.GraphError, match="neither a tensor nor rows of one"):
        check(moved(parsed, {parts[0]: 4}))


def test_rows_that_run_into_the_next_tensor_are_no_part(parsed, check):
    _, parts = first_split(parsed)
    row = 4 * parsed.external[parts[2]].shape[1]

    with pytest.raises(errors.GraphError, match="neither a tensor nor rows of one"):
        check(moved(parsed, {parts[2]: row}))


def test_rows_of_another_width_are_no_part(parsed, check):
    _, parts = first_split(parsed, "Wi")
    rows, columns = parsed.external[parts[0]].shape
    external = {**parsed.external, parts[0]: dataclasses.replace(parsed.external[parts[0]], shape=(columns, rows))}
    assert len(parts) == 2
    assert rows != columns

    with pytest.raises(errors.GraphError, match="neither a tensor nor rows of one"):
        check(dataclasses.replace(parsed, external=external))


def test_parts_read_the_rows_of_the_tensor(bundles, parsed):
    opened = bundle.Bundle.open(bundles[SAMPLE])
    _, parts = first_split(parsed)
    (name,) = {opened.manifest.graphs[0].external[part] for part in parts}
    whole = load_file(bundles[SAMPLE] / "model.safetensors")[name]

    assert np.array_equal(np.concatenate([parsed.read_external(part) for part in parts]), whole)


def tensor(name: str, shape: tuple[int, ...], offset: int, length: int) -> WeightTensor:
    return WeightTensor("f", name, "F32", shape, offset, length, name)


@pytest.mark.parametrize(
    ("offset", "shape", "expected"),
    [
        (100, (4, 2), ("a", range(4))),
        (108, (2, 2), ("a", range(1, 3))),
        (132, (), ("b", range(1))),
        (136, (3,), ("c", range(3))),
        (140, (1,), ("c", range(1, 2))),
        (92, (4, 2), None),
        (104, (1, 2), None),
        (124, (2, 2), None),
        (100, (8,), None),
        (100, (2, 4), None),
        (148, (1,), None),
    ],
)
def test_places_are_found_by_rows(offset, shape, expected):
    stored = weights.StoredWeights.from_tensors(
        [tensor("c", (3,), 136, 12), tensor("a", (4, 2), 100, 32), tensor("b", (), 132, 4)]
    )
    length = 4 * int(np.prod(shape))

    found = stored.locate(graph_file.ExternalTensor("f", offset, length, "float32", shape))

    assert (None if found is None else (found[0].name, found[1])) == expected
    assert stored.locate(graph_file.ExternalTensor("g", offset, length, "float32", shape)) is None
