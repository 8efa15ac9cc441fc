"""Bundles in other hands: a folder that Transformers opens, with graphs that any ONNX Runtime loads by path.

Optimum pins Transformers below 4.58, so it is asked in an environment of its own, with the bundle's own files:

    VELA_OPTIMUM_PYTHON=PATH .venv/bin/pytest -m peers tests/export/test_interop.py
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vela.serve import tokenization

SCRIPT = Path(__file__).with_name("interop") / "optimum_answers.py"
TEXT = "My new card still has not arrived, where is it?"
CLASSES = {
    "tiny-guard": "ORTModelForSequenceClassification",
    "tiny-multilabel": "ORTModelForSequenceClassification",
    "tiny-pii": "ORTModelForTokenClassification",
    "tiny-embedding": "ORTModelForCustomTasks",  # its graphs pool: there is no last_hidden_state
    "tiny-reranker": "ORTModelForCustomTasks",
}
PLAIN = """
import json, sys
import numpy, onnxruntime
answers = {}
for file, ids in json.load(sys.stdin).items():
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    row = numpy.array([ids], numpy.int64)
    feeds = {"input_ids": row, "attention_mask": numpy.ones_like(row)}
    names = [output.name for output in session.get_outputs()]
    found = session.run(names, {put.name: feeds[put.name] for put in session.get_inputs()})
    answers[file] = {name: value.tolist() for name, value in zip(names, found)}
assert not any(name.partition(".")[0] == "vela" for name in sys.modules)
print(json.dumps(answers))
"""


def ids_of(folder: Path) -> tuple[int, ...]:
    """Frame one text as the family does."""
    config = json.loads((folder / "config.json").read_text())
    tokenizer = tokenization.Tokenizer.from_file(folder / "tokenizer.json", pad_id=config["pad_token_id"])
    (content,) = tokenizer.encode([TEXT], with_offsets=False)
    return tuple(tokenizer.frame(content.ids).ids)


def reference(checkpoint: Path, ids: tuple[int, ...]) -> Mapping[str, Any]:
    """Ask the checkpoint itself."""
    from vela.export.reference import PyTorchReference
    from vela.verify.checkpoint import Checkpoint

    (answer,) = PyTorchReference.from_checkpoint(Checkpoint.read(checkpoint)).answer([ids])
    return answer


@pytest.mark.parametrize("name", CLASSES)
def test_a_bundle_s_graphs_answer_in_plain_onnxruntime_by_path(
    name: str, bundles: dict[str, Path], checkpoints: dict[str, Path]
) -> None:
    folder = bundles[name]
    ids = ids_of(folder)
    files = {str(folder / file): ids for file in ("model.onnx", "model-unpadded.onnx")}

    done = subprocess.run(
        [sys.executable, "-P", "-c", PLAIN],
        input=json.dumps(files), capture_output=True, text=True, check=True, cwd="/",
        env={**os.environ, "ORT_DISABLE_TELEMETRY": "1"},
    )  # fmt: skip

    expected = reference(checkpoints[name], ids)
    for outputs in json.loads(done.stdout).values():
        for output, values in outputs.items():
            assert np.allclose(np.array(values)[0], expected[output], atol=3e-5, rtol=0)


@pytest.mark.peers
def test_bundles_load_in_optimum_and_answer_as_their_checkpoints(
    bundles: dict[str, Path], checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    asked = [
        {"folder": str(bundles[name]), "class": kind, "ids": ids_of(bundles[name])} for name, kind in CLASSES.items()
    ]
    (tmp_path / "request.json").write_text(json.dumps(asked))

    done = subprocess.run(
        [os.environ["VELA_OPTIMUM_PYTHON"], SCRIPT, tmp_path / "request.json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip

    answers = json.loads(done.stdout.splitlines()[-1])
    for name, request, answer in zip(CLASSES, asked, answers, strict=True):
        expected = reference(checkpoints[name], tuple(request["ids"]))
        assert tuple(answer["ids"]) == tuple(request["ids"])
        assert answer["outputs"]
        for output, values in answer["outputs"].items():
            assert np.allclose(np.array(values)[0], expected[output], atol=3e-5, rtol=0)
