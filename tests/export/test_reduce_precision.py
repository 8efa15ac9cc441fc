"""16-bit copies: the same computation with casts, numbers that hide tokens bounded, and answers that stay near."""

from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

from vela.export import bundle_writer
from vela.export.passes import reduce_precision
from vela.graphs import bundle as bundles
from vela.graphs import contract, precision
from vela.verify import checkpoint

SAMPLES = ("tiny-pii", "tiny-embedding", "tiny-reranker")
TOKENS = 300  # blocks of local layers, and windows that are all padding
FILLED = 100
TYPES = {"fp16": ir.DataType.FLOAT16, "bf16": ir.DataType.BFLOAT16}


@pytest.fixture(scope="module")
def copied(checkpoints, traces, tmp_path_factory) -> dict[str, bundles.Bundle]:
    """Bundles with copies of both types, one for each kind of head that ends otherwise."""
    found = {}
    for name in SAMPLES:
        plan = bundle_writer.ExportPlan(
            name, buckets=(16, TOKENS), forms=("cuda", "portable"), reduced=("fp16", "bf16")
        )
        out = tmp_path_factory.mktemp("copied") / name
        source = checkpoint.Checkpoint.read(checkpoints[name])
        found[name] = bundle_writer.export_bundle(source, out, plan, traces, lambda _: None)
    return found


def load(opened: bundles.Bundle, graph_id: str) -> ir.Model:
    return ir.load(opened.path(f"{graph_id}.onnx"))


def run(path: Path, ids, mask) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return session.run(None, {contract.INPUT_IDS: ids, contract.ATTENTION_MASK: mask})


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("tokens", [16, TOKENS])
def test_a_copy_answers_near_its_fp32_graph_whatever_is_padding(copied, name, tokens) -> None:
    opened, filled = copied[name], tokens // 3
    ids = np.random.default_rng(tokens).integers(5, 2000, (1, tokens))
    mask = (np.arange(tokens)[None] < filled).astype(np.int64)

    exact = run(opened.path(f"portable-b1-s{tokens}.onnx"), ids, mask)
    reduced = run(opened.path(f"portable-fp16-b1-s{tokens}.onnx"), ids, mask)

    for expected, actual in zip(exact, reduced, strict=True):
        expected, actual = (value[:, :filled] if value.ndim == 3 else value for value in (expected, actual))
        assert actual.dtype == np.float32
        assert 0 < np.abs(actual - expected).max() < 0.02, "rounded, and by no more than 16 bits round"


def test_every_copy_stands_beside_its_fp32_graph_with_the_same_weights(copied) -> None:
    opened = copied["tiny-pii"]
    copies = [graph for graph in opened.manifest.graphs if graph.is_reduced]

    assert len(copies) == 8
    for graph in copies:
        exact = opened.exact_of(graph)
        assert (graph.external, graph.inputs, graph.outputs) == (exact.external, exact.inputs, exact.outputs)
        assert graph.id == exact.id.replace("-b1", f"-{graph.precision}-b1")
        assert graph.size_bytes < 200_000, "a reference for each weight, and no copy"


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("form", ["cuda", "portable"])
def test_positions_and_masks_stay_float32_and_every_value_is_cast_once(copied, form, kind) -> None:
    model = load(copied["tiny-pii"], f"{form}-{kind}-b1-s{TOKENS}")
    exact = load(copied["tiny-pii"], f"{form}-b1-s{TOKENS}")
    casts = [node for node in model.graph if node.op_type == "Cast"]
    waves = [node for node in model.graph if node.op_type in ("Cos", "Sin")]
    norms = [node for node in model.graph if node.op_type.endswith("LayerNormalization")]

    cast = [(node.inputs[0].name, node.attributes["to"].as_int()) for node in casts]
    assert len(cast) == len(set(cast))
    assert len(waves) == 4
    assert norms
    assert all(_before(node).isdisjoint({TYPES[kind]}) for node in waves), "positions are rounded by nobody"
    assert all(TYPES[kind] in _before(node) for node in norms)
    assert len(model.graph) - len(exact.graph) == len(casts) - sum(node.op_type == "Cast" for node in exact.graph)


def _type_of(value: ir.Value) -> int:
    """Give the type that a value was last cast to, followed through operators that give their first input's."""
    node = value.producer()
    return node.attributes["to"].as_int() if node.op_type == "Cast" else _type_of(node.inputs[0])


def _before(node: ir.Node) -> set[int]:
    """Give the types that anything which leads to a node was cast to."""
    found, waiting, seen = set(), [node], set()
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        if current.op_type == "Cast":
            found.add(current.attributes["to"].as_int())
        waiting += [value.producer() for value in current.inputs if value is not None and value.producer() is not None]
    return found


def test_a_sum_over_tokens_stays_float32(copied) -> None:
    model = load(copied["tiny-embedding"], f"portable-fp16-b1-s{TOKENS}")
    pooled = model.graph.outputs[0].producer().inputs[0].producer().inputs[0].producer()

    assert pooled.op_type == "MatMul", "of the mask and the states"
    assert [_type_of(value) for value in pooled.inputs] == [ir.DataType.FLOAT] * 2
    assert _type_of(pooled.outputs[0]) == ir.DataType.FLOAT


def test_numbers_that_hide_a_token_fit_the_type_twice_and_others_stay() -> None:
    lowest = np.float32(np.finfo(np.float32).min)
    values = np.array([lowest, -1e30, -100.0, 0.0, 5e4], np.float32)

    half = precision.bound_hidden(values, "fp16")
    brain = precision.bound_hidden(values, "bf16")

    assert half.tolist() == [-3e4, -3e4, -100.0, 0.0, 5e4]
    assert np.isfinite((2 * half[:4]).astype(np.float16)).all()
    assert brain.tolist() == np.array([-1e30, -1e30, -100.0, 0.0, 5e4], np.float32).tolist()
    assert precision.bound_hidden(np.zeros(0, np.float32), "fp16").size == 0


@pytest.mark.parametrize("kind", TYPES)
def test_no_number_of_a_copy_is_beyond_its_type(copied, kind) -> None:
    largest = {"fp16": 65504.0, "bf16": 3.38e38}[kind]
    for opened in copied.values():
        for graph in opened.manifest.graphs:
            if graph.precision == kind:
                tensors = load(opened, graph.id).graph.initializers.values()
                inline = [one.const_value for one in tensors if not isinstance(one.const_value, ir.ExternalTensor)]
                floats = [one.numpy() for one in inline if one.dtype == ir.DataType.FLOAT and one.size]
                assert floats
                assert all(np.abs(one).max() <= largest for one in floats)


def test_fp32_is_no_reduced_precision(copied) -> None:
    with pytest.raises(ValueError, match="no reduced precision"):
        reduce_precision.reduce_precision(load(copied["tiny-pii"], "portable-b1-s16"), "fp32")
