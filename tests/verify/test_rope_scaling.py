"""Checkpoints with scaled rotary positions, from config.json to a verdict, and bundles whose scaling is another.

The checkpoints are a sample's first two layers, one full and one sliding, with other rope keys.
"""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from vela.export import effective, forms, reference, trace, verification
from vela.graphs import errors, record
from vela.verify import checkpoint
from vela.verify.options import GateOptions

GRAPHS = ("model", "model-unpadded", "portable-b1-s64")
YARN = {"factor": 4.0, "original_max_position_embeddings": 32}
LLAMA3 = YARN | {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
LINEAR = {"factor": 4.0}
FULL, SLIDING = {"rope_theta": 160000.0}, {"rope_theta": 10000.0}
OLD_THETAS = {"global_rope_theta": 160000.0, "local_rope_theta": 10000.0}
Make = Callable[..., Path]


def on_full(kind: str, keys: dict[str, object], spelling: str = "rope_type") -> dict[str, object]:
    """Scale full layers only, which only the new generation of keys can say."""
    return {"rope_parameters": {"full_attention": FULL | {spelling: kind} | keys, "sliding_attention": SLIDING}}


def on_both(kind: str, keys: dict[str, object]) -> dict[str, object]:
    scaled = {"rope_type": kind} | keys
    return {"rope_parameters": {"full_attention": FULL | scaled, "sliding_attention": SLIDING | scaled}}


def old(kind: str, keys: dict[str, object]) -> dict[str, object]:
    return OLD_THETAS | {"rope_scaling": {"rope_type": kind} | keys}


@pytest.fixture
def make(shortened: Callable[[str], Path]) -> Make:
    """Make a checkpoint of two layers with rope keys: `make("name", rope_scaling=…)`."""

    def run(name: str, **rope_keys: object) -> Path:
        folder = shortened(name)
        path = folder / "config.json"
        config = {key: value for key, value in json.loads(path.read_text()).items() if "rope" not in key}
        path.write_text(json.dumps(config | rope_keys))
        return folder

    return run


@pytest.fixture
def judge(tmp_path: Path) -> Callable[..., list[record.Record]]:
    def run(folder: Path, source: Path, *, with_inference: bool = False) -> list[record.Record]:
        options = GateOptions(max_tokens=128, is_fail_fast=not with_inference, graph_ids=GRAPHS)
        return verification.verify_folder(folder, source, options, lambda _: None)

    return run


def failed_checks(records: list[record.Record]) -> dict[str, str]:
    return {check.name: check.detail for found in records for check in found.checks if check.status == "failed"}


@pytest.mark.parametrize(
    "rope_keys",
    [
        on_full("yarn", YARN, "type"),
        old("yarn", YARN),
        on_full("linear", LINEAR),
        old("linear", LINEAR),
        on_full("llama3", LLAMA3, "type"),
        old("llama3", LLAMA3),
    ],
)
def test_a_scaled_checkpoint_is_exported_and_passes_strictly(tmp_path, make, export, judge, rope_keys):
    source = make("source", **rope_keys)

    records = judge(export(source, tmp_path / "bundle"), source, with_inference=True)

    assert [found.verdict for found in records] == ["passed"] * len(GRAPHS), [found.cause for found in records]
    assert all(found.bar == "strict" and found.compared == found.planned > 100 for found in records)


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("yarn", YARN),
        ("yarn", YARN | {"mscale": 0.7, "mscale_all_dim": 1.2, "beta_fast": 8}),
        ("linear", LINEAR),
        ("llama3", LLAMA3),
        ("default", {}),
    ],
)
def test_transformers_builds_what_the_config_says_in_both_spellings(make, kind, keys):
    sources = [checkpoint.Checkpoint.read(make(name, **keys_of(kind, keys))) for name, keys_of in SPELLINGS.items()]

    for source in sources:
        reference.PyTorchReference.from_checkpoint(source)

    assert sources[0].architecture == sources[1].architecture


SPELLINGS = {"new": on_both, "old": old}


def test_truncation_that_transformers_ignores_is_caught_in_the_built_model(make):
    """Transformers 5.24 looks for `truncate` beside the layer types, not in their entries."""
    keys = YARN | {"truncate": False, "beta_fast": 4.0}
    source = checkpoint.Checkpoint.read(make("source", **on_full("yarn", keys)))

    with pytest.raises(errors.CheckpointError, match="full_attention RoPE of"):
        reference.PyTorchReference.from_checkpoint(source)


def test_a_built_model_without_the_scaling_is_caught(make):
    source = checkpoint.Checkpoint.read(make("source", **on_full("yarn", YARN)))
    plain = trace.tracing_config(checkpoint.Checkpoint.read(make("plain", **OLD_THETAS)))
    misread = forms.model_class(source.head, source.model_type)(plain)

    with pytest.raises(errors.CheckpointError, match=r"theta 160,000 for yarn scaling by 4.*scaling 1 for 1\.13863"):
        effective.check_effective(misread, source.architecture)


MSCALE = 0.1 * math.log(4.0) + 1.0
TWINS = {
    "scaling dropped": (on_full("default", {}), "Cos of theta 160,000, scaled by 1;"),
    "another factor": (on_full("yarn", YARN | {"factor": 8.0, "attention_factor": MSCALE}), "scaled by 1.13863"),
    "another attention factor": (on_full("yarn", YARN | {"attention_factor": 1.0}), "scaled by 1;"),
    "scaled on both": (on_both("yarn", YARN), "Sin of "),
    "linear instead": (on_full("linear", LINEAR), "Cos of linear scaling by 4 of theta 160,000, scaled by 1;"),
}


@pytest.mark.parametrize("twin", TWINS)
def test_a_bundle_with_another_scaling_fails_and_names_it_without_inference(tmp_path, make, export, judge, twin):
    rope_keys, found = TWINS[twin]
    folder = export(make("twin", **rope_keys), tmp_path / "bundle")

    records = judge(folder, make("source", **on_full("yarn", YARN)))

    failed = failed_checks(records)
    assert [found.verdict for found in records] == ["failed"] * len(GRAPHS)
    assert "config.json" in failed["sources.identity"]
    assert found in failed["graph.rotary"]
    assert all(found.cause.startswith("graph.rotary: ") and found.compared == 0 for found in records)


def test_a_dropped_scaling_is_caught_where_the_unscaled_table_is_right_for_the_other_layers(
    tmp_path, make, export, judge
):
    """With one theta for both layer types, as mmBERT has it, every table of the twin is a table of the config."""
    plain = {"rope_theta": 160000.0}
    scaled = plain | {"rope_type": "yarn", "attention_factor": 1.0} | YARN
    source = make("source", rope_parameters={"full_attention": scaled, "sliding_attention": plain})
    twin = make("twin", rope_parameters={"full_attention": plain, "sliding_attention": plain})

    failed = failed_checks(judge(export(twin, tmp_path / "bundle"), source))

    assert "weights.identity" not in failed
    assert "too few rotary positions" in failed["graph.rotary"]
    assert "of which it lacks full_attention yarn scaling by 4 from 32 tokens" in failed["graph.rotary"]


def test_a_forger_s_scaling_among_the_right_files_fails_statically_and_in_its_answers(
    tmp_path, make, export, judge, reseal
):
    source = make("source", **on_full("yarn", YARN))
    folder = export(source, tmp_path / "bundle")
    twin = export(make("twin", **on_full("yarn", YARN | {"attention_factor": 1.0})), tmp_path / "twin-bundle")
    for graph in GRAPHS:
        shutil.copy(twin / f"{graph}.onnx", folder / f"{graph}.onnx")
    entries = json.loads((twin / "manifest.json").read_bytes())["graphs"]
    reseal(folder, lambda content: content.update(graphs=entries))

    failed = failed_checks(judge(folder, source, with_inference=True))

    assert set(failed) == {"graph.rotary", "parity.strict"}
    assert "attention scaling 1.13863" in failed["graph.rotary"]


def test_a_cosine_scaled_otherwise_than_its_sine_is_foreign(tmp_path, make, export, reseal, judge):
    source = make("source", **on_full("yarn", YARN))
    folder = export(source, tmp_path / "bundle")

    def unscale_sines(proto: onnx.ModelProto) -> None:
        sines = {node.output[0] for node in proto.graph.node if node.op_type == "Sin"}
        for node in proto.graph.node:
            if node.op_type == "Mul" and node.input[0] in sines:
                node.op_type = "Identity"
                del node.input[1]

    path = folder / "portable-b1-s64.onnx"
    proto = onnx.load(path, load_external_data=False)
    unscale_sines(proto)
    path.write_bytes(proto.SerializeToString())
    reseal(folder)

    failed = failed_checks(judge(folder, source))

    assert "Sin of frequencies of no single theta, scaled by 1;" in failed["graph.rotary"]
    assert "Cos of" not in failed["graph.rotary"]
