"""The interface of a foreign graph, read by type, rank and dimension; names only of inputs."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from onnx import TensorProto, helper

from vela.graphs import errors, heads
from vela.verify import foreign, graph_file

FLOAT, HALF, INT64, INT32 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64, TensorProto.INT32
HIDDEN, LAYERS = 16, 4
SEQUENCE = heads.SequenceDecoder(("a", "b", "c"))
TOKEN = heads.BioDecoder(("O", "B-X", "I-X"))
EMBEDDER = heads.EmbeddingDecoder((2, LAYERS), (HIDDEN,))
RERANKER = heads.RerankDecoder((2, LAYERS), (16, 8))
Spec = tuple[str, int, tuple[int | str, ...]]
IDS: list[Spec] = [("input_ids", INT64, ("n", "t")), ("attention_mask", INT64, ("n", "t"))]


def read(
    folder: Path, decoder: heads.Decoder, outputs: list[Spec], inputs: list[Spec] | None = None
) -> foreign.Foreign:
    """Write a graph with these inputs and outputs, and read it for a head."""
    given = [helper.make_tensor_value_info(*spec) for spec in (IDS if inputs is None else inputs)]
    made = [helper.make_tensor_value_info(*spec) for spec in outputs]
    nodes = [helper.make_node("Cast", [given[0].name], [name], to=kind) for name, kind, _ in outputs]
    proto = helper.make_model(helper.make_graph(nodes, "g", given, made), ir_version=10)
    (folder / "model.onnx").write_bytes(proto.SerializeToString())
    head = heads.Head("default", "text", decoder, 64, "reject")
    source = SimpleNamespace(head=head, architecture=SimpleNamespace(hidden_size=HIDDEN, layers=LAYERS))
    return foreign.read_foreign(graph_file.GraphFile.read(folder / "model.onnx"), source)


@pytest.mark.parametrize(
    ("decoder", "shape", "role", "presented"),
    [
        (SEQUENCE, ("x", 3), "logits", ("batch", 3)),
        (TOKEN, ("x", "y", 3), "logits", ("batch", "sequence", 3)),
        (EMBEDDER, ("x", "y", HIDDEN), "hidden", ("batch", HIDDEN)),
        (EMBEDDER, ("x", HIDDEN), "pooled", ("batch", HIDDEN)),
        (EMBEDDER, ("x", "unknown"), "pooled", ("batch", HIDDEN)),
    ],
)
def test_an_output_is_known_by_its_rank_and_dimensions(tmp_path, decoder, shape, role, presented):
    found = read(tmp_path, decoder, [("anything", FLOAT, shape)])

    assert found.roles == (role,)
    assert found.presented.outputs[0].shape == presented
    assert found.presented.outputs[0].dtype == "float32"


def test_a_token_model_published_as_a_sequence_graph_is_refused_with_the_reason(tmp_path):
    with pytest.raises(errors.GraphError, match="a token model published as a sequence graph"):
        read(tmp_path, TOKEN, [("logits", FLOAT, ("n", 3))])


def test_a_sequence_model_published_as_a_token_graph_is_refused_with_the_reason(tmp_path):
    with pytest.raises(errors.GraphError, match="a sequence model published as a token graph"):
        read(tmp_path, SEQUENCE, [("logits", FLOAT, ("n", "t", 3))])


@pytest.mark.parametrize(
    ("decoder", "shape"),
    [(SEQUENCE, ("n", 4)), (TOKEN, ("n", "t", HIDDEN)), (EMBEDDER, ("n", "t", 17)), (EMBEDDER, ("n",))],
)
def test_an_output_of_other_dimensions_is_no_answer(tmp_path, decoder, shape):
    with pytest.raises(errors.GraphError, match=r"as this .* checkpoint answers"):
        read(tmp_path, decoder, [("logits", FLOAT, shape)])


def test_integers_that_are_passed_through_are_no_answer_and_a_hidden_state_is_better_than_a_pooled_one(tmp_path):
    outputs = [
        ("output", INT64, ("n", "t")),
        ("pooler_output", FLOAT, ("n", HIDDEN)),
        ("463", INT64, ("n", "t")),
        ("onnx::Shape_422", FLOAT, ("n", "t", HIDDEN)),
    ]

    found = read(tmp_path, EMBEDDER, outputs)

    assert [spec.name for spec in found.entry.outputs] == ["onnx::Shape_422"]
    assert found.ignored == ("output", "pooler_output", "463")


def test_two_outputs_that_may_be_the_answer_are_refused(tmp_path):
    outputs = [("hidden.0", FLOAT, ("n", "t", HIDDEN)), ("hidden.1", FLOAT, ("n", "t", HIDDEN))]

    with pytest.raises(errors.GraphError, match=r"2 outputs that may be the hidden: hidden.0, hidden.1"):
        read(tmp_path, EMBEDDER, outputs)


def test_every_input_that_clients_feed_is_known_and_its_type_kept(tmp_path):
    names = ("token_type_ids", "attention_mask", "position_ids", "input_ids")
    inputs = [(name, INT32 if "mask" in name else INT64, ("n", "t")) for name in names]

    found = read(tmp_path, SEQUENCE, [("logits", HALF, ("n", 3))], inputs)

    assert [(spec.name, spec.dtype) for spec in found.entry.inputs] == [
        ("input_ids", "int64"),
        ("attention_mask", "int32"),
        ("token_type_ids", "int64"),
        ("position_ids", "int64"),
    ]
    assert [spec.name for spec in found.presented.inputs] == ["input_ids", "attention_mask"]
    assert found.entry.outputs[0].dtype == "float16"
    assert "token types all zero" in str(found)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([*IDS, ("pixel_values", FLOAT, ("n", "t"))], "the inputs pixel_values"),
        (IDS[1:], "the inputs attention_mask; expected input_ids"),
        ([("input_ids", FLOAT, ("n", "t"))], "input_ids of type float32"),
        ([("input_ids", INT64, (1, 8)), ("attention_mask", INT64, (1, 16))], "inputs of the shapes"),
        ([("input_ids", INT64, ("n", "t", 1))], "inputs of the shapes"),
    ],
)
def test_inputs_that_nobody_can_feed_are_refused(tmp_path, inputs, message):
    with pytest.raises(errors.GraphError, match=message):
        read(tmp_path, SEQUENCE, [("logits", FLOAT, ("n", 3))], inputs)


def test_fixed_dimensions_are_kept_to(tmp_path):
    inputs = [("input_ids", INT64, (2, 32))]

    found = read(tmp_path, TOKEN, [("logits", FLOAT, (2, 32, 3))], inputs)

    assert (found.presented.batch, found.presented.sequence, found.presented.takes_mask) == (2, 32, False)
    assert found.entry.outputs[0].shape == (2, 32, 3)


def test_an_early_exit_under_vela_s_own_name_runs_so_many_layers(tmp_path):
    assert read(tmp_path, EMBEDDER, [("embedding_l2", FLOAT, ("n", HIDDEN))]).presented.exit_layer == 2
    assert read(tmp_path, EMBEDDER, [("embedding", FLOAT, ("n", HIDDEN))]).presented.exit_layer == LAYERS


def test_scores_of_a_reranker_are_told_apart_by_vela_s_own_names_only(tmp_path):
    own = [("score_l2_d8", FLOAT, ("n",)), ("score_l2_d16", FLOAT, ("n",))]

    found = read(tmp_path, RERANKER, own)

    assert found.presented.exit_layer == 2
    assert [spec.name for spec in found.entry.outputs] == ["score_l2_d16", "score_l2_d8"]
    with pytest.raises(errors.GraphError, match="cannot be seen by its shape"):
        read(tmp_path, RERANKER, [("a", FLOAT, ("n",)), ("b", FLOAT, ("n",))])
    with pytest.raises(errors.GraphError, match="the scores score_l2_d8"):
        read(tmp_path, RERANKER, own[:1])


@pytest.mark.parametrize(
    ("name", "expected"),
    [("model_fp16.onnx", "model_fp16"), ("my model (2).onnx", "my-model-2"), ("---.onnx", "graph")],
)
def test_a_graph_is_named_after_its_file(name, expected):
    assert foreign.graph_id_of(Path(name)) == expected
