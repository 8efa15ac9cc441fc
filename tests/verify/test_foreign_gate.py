"""Foreign graphs through the whole gate: what passes, what fails by its answers, and what never gets that far."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from onnxruntime import quantization
from transformers import AutoModelForSequenceClassification, BertModel

from vela.export import verification
from vela.graphs import errors, record
from vela.verify import bars, checkpoint, foreign_gate, table
from vela.verify.options import GateOptions

SAMPLE = "tiny-intent"
MAX_TOKENS = 12
Judge = Callable[..., record.Record]


class Embedding(torch.nn.Module):
    """A pooled embedding of unit length, as sentence encoders are published."""

    def __init__(self, model: BertModel, *, is_mean: bool) -> None:
        super().__init__()
        self._model = model
        self._is_mean = is_mean

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = self._model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        seen = attention_mask[:, :, None].to(hidden.dtype)
        pooled = (hidden * seen).sum(1) / seen.sum(1) if self._is_mean else hidden[:, 0]
        return {"sentence_embedding": torch.nn.functional.normalize(pooled)}


@pytest.fixture(scope="module")
def intent_graph(tmp_path_factory, checkpoints, write_foreign) -> Path:
    path = tmp_path_factory.mktemp("intent") / "model.onnx"
    return write_foreign(AutoModelForSequenceClassification.from_pretrained(checkpoints[SAMPLE]), path, ["logits"])


@pytest.fixture(scope="module")
def bert_graph(tmp_path_factory, embedder, write_foreign) -> Path:
    path = tmp_path_factory.mktemp("graph") / "model.onnx"
    return write_foreign(BertModel.from_pretrained(embedder), path, ["last_hidden_state"])


@pytest.fixture
def judge() -> Judge:
    def run(path: Path, folder: Path, bar: str = "auto", max_tokens: int = MAX_TOKENS) -> record.Record:
        source = checkpoint.Checkpoint.read(folder)
        options = GateOptions(bar=bar, max_tokens=max_tokens)
        return foreign_gate.verify_file(
            path, source, lambda: verification.make_references(source), options, lambda _: None
        )

    return run


def unasked() -> None:
    raise AssertionError("the reference was asked, though static checks had decided")


def statuses(found: record.Record) -> dict[str, str]:
    return {check.name: check.status for check in found.checks}


def altered(path: Path, target: Path, change: Callable[[onnx.ModelProto], None]) -> Path:
    proto = onnx.load(path)
    change(proto)
    target.write_bytes(proto.SerializeToString())
    return target


def failing(found: record.Record) -> list[str]:
    return [name for name, status in statuses(found).items() if status == "failed"]


def test_a_classifier_passes_the_strict_bar_and_its_record_goes_where_the_caller_says(
    tmp_path, intent_graph, checkpoints, vela, whole_corpus
):
    folder = intent_graph.parent
    before = sorted(folder.iterdir())

    status, out, _ = vela(
        *("verify-graph", str(intent_graph), "--checkpoint", str(checkpoints[SAMPLE])),
        *("--max-tokens", str(MAX_TOKENS), "--out", str(tmp_path / "records")),
    )

    stored = json.loads((tmp_path / "records" / "model.cpu.json").read_bytes())
    assert status == 0
    assert "1 of 1 graphs passed the strict bar" in out
    assert (stored["verdict"], stored["precision"], stored["manifest_sha256"]) == ("passed", "fp32", "")
    assert stored["engine"]["provider"] == "CPUExecutionProvider"
    assert stored["compared"] == stored["planned"] > 50
    assert sorted(folder.iterdir()) == before


def test_right_weights_in_another_arithmetic_fail_by_their_answers(tmp_path, intent_graph, checkpoints, judge):
    def change(proto: onnx.ModelProto) -> None:
        for node in proto.graph.node:
            for attribute in node.attribute:
                if attribute.name == "epsilon":
                    attribute.f = 0.01

    found = judge(altered(intent_graph, tmp_path / "g.onnx", change), checkpoints[SAMPLE])

    assert failing(found) == ["parity.strict"]
    assert statuses(found)["weights.identity"] == "passed"


def test_a_hidden_state_is_pooled_by_the_gate(bert_graph, embedder, judge):
    found = judge(bert_graph, embedder)

    assert (found.verdict, found.cause, found.bar) == ("passed", "", "strict")
    assert "pooled by the gate" in next(check.detail for check in found.checks if check.name == "graph.contract")


@pytest.mark.parametrize("is_mean", [True, False])
def test_a_pooled_embedding_of_unit_length_is_compared_as_such(tmp_path, embedder, write_foreign, judge, is_mean):
    model = Embedding(BertModel.from_pretrained(embedder), is_mean=is_mean)
    path = write_foreign(model, tmp_path / "g.onnx", ["sentence_embedding"])

    found = judge(path, embedder)

    assert failing(found) == ([] if is_mean else ["parity.strict"])
    assert found.verdict == ("passed" if is_mean else "failed")


def test_a_quantised_graph_is_judged_by_the_reduced_bar_with_its_figures(tmp_path, bert_graph, embedder, judge):
    path = tmp_path / "model_quantized.onnx"
    quantization.quantize_dynamic(bert_graph, path, weight_type=quantization.QuantType.QInt8)

    found = judge(path, embedder)

    parity = next(check for check in found.checks if check.name == "parity.reduced")
    assert (found.precision, found.bar) == ("int8", "reduced")
    assert "cosine 0.99" in parity.detail
    assert "graphs of int8 weights passed the reduced bar" in next(table.verdict_table("g", [found]))[0]
    assert "no FP32 graph of this file was verified" in found.reference
    assert found.compared == found.planned > 0
    assert not {"laws.poison", "engine.rewrites"} & set(statuses(found))
    assert failing(judge(path, embedder, "strict")) == ["laws.poison", "parity.strict"]


def test_a_graph_of_one_shape_that_answers_in_fp16_is_fed_within_it(tmp_path, embedder, write_foreign, judge):
    path = write_foreign(BertModel.from_pretrained(embedder), tmp_path / "g.onnx", ["last_hidden_state"], (3, 10))

    def to_half(proto: onnx.ModelProto) -> None:
        proto.graph.node[-1].output[0] = "wide"
        proto.graph.node.append(onnx.helper.make_node("Cast", ["wide"], ["last_hidden_state"], to=10))
        proto.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT16

    found = judge(altered(path, tmp_path / "cast.onnx", to_half), embedder)

    assert failing(judge(path, embedder)) == []
    assert failing(found) == ["parity.strict"]  # its weights are FP32, and so is the bar
    assert statuses(found)["outputs.finite"] == "passed"
    assert found.compared > 10


def test_a_graph_that_answers_nan_never_passes(tmp_path, intent_graph, checkpoints, judge):
    def poison(proto: onnx.ModelProto) -> None:
        proto.graph.node[-1].output[0] = "unpoisoned"
        zero = numpy_helper.from_array(np.zeros((), np.float32), "zero")
        proto.graph.initializer.append(zero)
        proto.graph.node.extend(
            [
                onnx.helper.make_node("Div", ["zero", "zero"], ["nan"]),
                onnx.helper.make_node("Add", ["unpoisoned", "nan"], ["logits"]),
            ]
        )

    found = judge(altered(intent_graph, tmp_path / "g.onnx", poison), checkpoints[SAMPLE])

    assert "outputs.finite" in failing(found)
    assert (found.verdict, found.compared) == ("failed", 0)


@pytest.mark.parametrize("storage", ["reference", "embedded"])
def test_an_embedded_graph_of_a_sibling_is_other_weights_in_seconds_and_without_inference(
    tmp_path, export, sibling, checkpoints, storage
):
    graph = export(sibling, tmp_path / "bundle", storage=storage) / "model.onnx"
    right = checkpoint.Checkpoint.read(checkpoints[SAMPLE])

    found = foreign_gate.verify_file(graph, right, unasked, GateOptions(), lambda _: None)

    assert found.verdict == "failed"
    assert found.cause.startswith("weights.identity: model.onnx: found other weights: 42 of 42 tensors")
    assert (found.planned, found.engine, found.precision) == (0, None, "unknown")
    assert found.duration_s < 30


@pytest.mark.parametrize("storage", ["reference", "embedded"])
def test_a_graph_of_vela_s_own_is_found_the_same_way(tmp_path, export, checkpoints, storage):
    from vela.verify import foreign_checks

    graph = export(checkpoints[SAMPLE], tmp_path / "bundle", storage=storage) / "model.onnx"

    found = foreign_checks.check_foreign(graph, checkpoint.Checkpoint.read(checkpoints[SAMPLE]))

    assert [check.name for check in found.checks if check.status == "failed"] == []
    assert found.precision == "fp32"


def test_a_token_graph_for_a_sequence_checkpoint_fails_before_anything_runs(intent_graph, checkpoints):
    other = checkpoint.Checkpoint.read(checkpoints["tiny-pii"])

    found = foreign_gate.verify_file(intent_graph, other, unasked, GateOptions(), lambda _: None)

    assert {"graph.contract", "weights.identity"} <= set(failing(found))
    assert statuses(found)["engine.placement"] == "not_run"


def test_the_reduced_bar_is_not_for_fp32(intent_graph, checkpoints, judge):
    with pytest.raises(errors.VerificationError, match="the bar 'reduced' for FP32 weights"):
        judge(intent_graph, checkpoints[SAMPLE], "reduced")
    assert bars.choose_bar("auto", "cpu", "int8") is bars.choose_bar("reduced", "cpu", "fp16") is bars.REDUCED
    assert bars.choose_bar("auto", "cpu") is bars.STRICT


def test_a_file_without_a_reference_is_not_compared_and_exits_with_3(intent_graph, vela):
    status, _, err = vela("verify-graph", str(intent_graph))

    assert status == 3
    assert "no reference" in err


def test_a_file_that_is_not_there_fails_and_exits_with_1(tmp_path, checkpoints, vela):
    status, out, _ = vela("verify-graph", str(tmp_path / "no.onnx"), "--checkpoint", str(checkpoints[SAMPLE]))

    assert status == 1
    assert "graph.parse" in out


@pytest.mark.parametrize("option", [("--graph", "model"), ("--fresh",), ("--rejudge",)])
def test_options_of_bundles_are_misuse_for_a_file(intent_graph, checkpoints, vela, option):
    status, _, err = vela("verify-graph", str(intent_graph), "--checkpoint", str(checkpoints[SAMPLE]), *option)

    assert status == 2
    assert f"{option[0]} is for a bundle" in err


def test_the_options_of_files_are_misuse_for_a_bundle(tmp_path, checkpoints, vela):
    status, _, err = vela("verify-graph", str(tmp_path), "--out", str(tmp_path / "records"))

    assert status == 2
    assert "--out is for a graph file" in err


def test_a_report_of_a_file_is_written_only_where_the_caller_says(tmp_path, intent_graph, sibling, vela):
    named = shutil.copy(intent_graph, tmp_path / "model.onnx")
    asked = ("verify-graph", str(named), "--checkpoint", str(sibling))

    without = vela(*asked)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx"]
    given = vela(*asked, "--html", str(tmp_path / "report.html"))

    assert (without[0], given[0]) == (1, 1)
    assert "other weights" in (tmp_path / "report.html").read_text()


def test_a_record_that_cannot_be_written_says_where(tmp_path, intent_graph, checkpoints, vela):
    (tmp_path / "taken").write_text("")
    other = shutil.copy(intent_graph, tmp_path / "model_fp16.onnx")

    status, _, err = vela(
        *("verify-graph", str(other), "--checkpoint", str(checkpoints[SAMPLE]), "--fail-fast"),
        *("--out", str(tmp_path / "taken" / "records")),
    )

    assert status == 1
    assert "Name another folder with --out" in err
