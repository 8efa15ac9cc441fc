"""Bundles whose answers can be computed by hand: each token's logits are a row of a table, nothing else.

A sequence model takes the mean of its tokens' rows (special tokens included), a token model gives them as they are, an
embedder takes the mean, a reranker the mean of one column. Tokens are bytes, so a text's length in tokens is its
length in UTF-8, and characters of several bytes are tokens that share a place.
"""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import tokenizers
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from tokenizers import decoders, models, pre_tokenizers, processors

from vela.graphs import bundle as bundles
from vela.graphs import contract, digests, heads, manifest, record, store
from vela.serve import device as devices
from vela.serve import registry, runtime, tokenization
from vela.serve.model import ServedModel

BOS, EOS, PAD = 256, 257, 258
VOCABULARY = 259

Table = NDArray[np.float32]
MakeBundle = Callable[..., Path]


def write_tokenizer(path: Path) -> None:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = tokenizers.Tokenizer(models.BPE({letter: index for index, letter in enumerate(alphabet)}, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(["<bos>", "<eos>", "<pad>"])
    inner.post_processor = processors.TemplateProcessing(
        single="<bos> $A <eos>", pair="<bos> $A <eos> $B <eos>", special_tokens=[("<bos>", BOS), ("<eos>", EOS)]
    )
    inner.enable_truncation(max_length=4)
    inner.enable_padding(pad_id=PAD, pad_token="<pad>", length=9)
    inner.save(str(path))


def output_shape(table: Table, *, per_token: bool) -> tuple[int | str, ...]:
    """Give (B, T, C) for token models, (B, C) for others, (B,) where C is 1."""
    if per_token:
        return ("batch", "sequence", table.shape[1])
    return ("batch", table.shape[1]) if table.shape[1] > 1 else ("batch",)


def bag_graph(table: Table, output: str, *, per_token: bool) -> onnx.ModelProto:
    nodes = [helper.make_node("Gather", ["table", "input_ids"], [output if per_token else "rows"], axis=0)]
    if not per_token:
        nodes += [
            helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
            helper.make_node("Unsqueeze", ["mask", "last"], ["kept"]),
            helper.make_node("Mul", ["rows", "kept"], ["masked"]),
            helper.make_node("ReduceSum", ["masked", "middle"], ["sum"], keepdims=0),
            helper.make_node("ReduceSum", ["mask", "middle"], ["count"], keepdims=1),
            helper.make_node("Div", ["sum", "count"], [output if table.shape[1] > 1 else "mean"]),
        ]
    if table.shape[1] == 1:
        nodes.append(helper.make_node("Squeeze", ["mean", "middle"], [output]))
    graph = helper.make_graph(
        nodes,
        "bag",
        [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"]) for name in INPUT_NAMES],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, output_shape(table, per_token=per_token))],
        [
            numpy_helper.from_array(table, "table"),
            numpy_helper.from_array(np.array([2]), "last"),
            numpy_helper.from_array(np.array([1]), "middle"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


INPUT_NAMES = (contract.INPUT_IDS, contract.ATTENTION_MASK)


def graph_entry(folder: Path, graph_id: str, output: str, shape: tuple[int | str, ...], layer: int) -> manifest.Graph:
    path = folder / f"{graph_id}.onnx"
    return manifest.Graph(
        id=graph_id,
        file=path.name,
        sha256=digests.sha256_of_file(path),
        size_bytes=path.stat().st_size,
        target="ort",
        precision="fp32",
        storage="embedded",
        opset=18,
        head=heads.DEFAULT_HEAD,
        exit_layer=layer,
        inputs=contract.graph_inputs("batch", "sequence"),
        outputs=(contract.TensorSpec(output, "float32", shape),),
        external={},
        inline=(),
    )


def outputs_by_layer(decoder: heads.Decoder) -> dict[int, str]:
    match decoder:
        case heads.EmbeddingDecoder(exits=exits):
            return {layer: contract.embedding_output(layer) for layer in exits}
        case heads.RerankDecoder(exits=exits, dimensions=(dimension,)):
            return {layer: contract.score_output(layer, dimension) for layer in exits}
        case _:
            return {1: contract.LOGITS}


def source(name: str, folder: Path, digest: str = "") -> registry.Source:
    """Name a bundle that lies in a folder as a model to serve."""
    return registry.Source(name, lambda: store.PublishedBundle(name, folder, digest))


@pytest.fixture(scope="session")
def source_of() -> Callable[..., registry.Source]:
    return source


def passing_record(bundle: bundles.Bundle, graph: manifest.Graph) -> record.Record:
    package, version = runtime.installed_build()
    engine = record.EngineFacts("onnxruntime", version, package, devices.CPU.provider, "cpu", "any", {})
    return record.Record(
        schema_version=record.SCHEMA_VERSION,
        verdict="passed",
        cause="",
        graph_id=graph.id,
        graph_sha256=graph.sha256,
        manifest_sha256=bundle.manifest_sha256,
        checkpoint_sha256="0" * 64,
        reference="the table itself",
        reference_noise=0.0,
        engine=engine,
        corpus_sha256="0" * 64,
        planned=1,
        compared=1,
        bar="strict",
        bars=(record.BarResult("strict", "passed", ()),),
        checks=(record.Check("parity", "passed", "", 0.0),),
        form="sequence",
        estimate=record.Estimate(0.0, 1, 1, 0),
        runs=(record.Run("c", 3, "none", 0.0, 0.0),),
        statistics=(),
        worst=(),
        tools={},
        created="2026-01-01T00:00:00Z",
        duration_s=0.0,
    )


@pytest.fixture(scope="session")
def make_bundle(tmp_path_factory: pytest.TempPathFactory) -> MakeBundle:
    """Write a bundle for a head and a table, (VOCABULARY, C) float32; exits of an embedder scale the table."""

    def make(name: str, head: heads.Head, table: Table, *, verified: bool = True) -> Path:
        folder = tmp_path_factory.mktemp(name) / name
        folder.mkdir()
        write_tokenizer(folder / "tokenizer.json")
        (folder / "config.json").write_text(json.dumps({"model_type": "bag"}))
        sources = {
            path.name: manifest.SourceFile(digests.sha256_of_file(path), path.stat().st_size)
            for path in sorted(folder.iterdir())
        }
        per_token = head.kind == "token"
        graphs = []
        exits = outputs_by_layer(head.decoder)
        for layer, output in exits.items():
            deepest = layer == max(exits)
            graph_id = "model" if deepest else f"model-l{layer}"
            exit_table = table if deepest else table[::-1].copy()
            onnx.save(bag_graph(exit_table, output, per_token=per_token), folder / f"{graph_id}.onnx")
            graphs.append(graph_entry(folder, graph_id, output, output_shape(table, per_token=per_token), layer))
        content = manifest.Manifest(
            schema_version=manifest.SCHEMA_VERSION,
            model=manifest.Model(name, "", "", "ab" * 32, "bag", table.shape[1], max(exits), table.size),
            sources=sources,
            weights=(),
            tokenizer=tokenization.facts_from_tokenizer(folder / "tokenizer.json", pad_id=PAD),
            heads=(head,),
            graphs=tuple(graphs),
            tools={},
        ).sealed()
        (folder / contract.MANIFEST_FILE).write_bytes(manifest.encode_manifest(content))
        if verified:
            bundle = bundles.Bundle.open(folder)
            (folder / contract.RECORDS_FOLDER).mkdir()
            for graph in content.graphs:
                (folder / record.record_file(graph.id, "cpu")).write_bytes(
                    record.encode_record(passing_record(bundle, graph))
                )
        return folder

    return make


def random_table(seed: int, classes: int) -> Table:
    return np.random.default_rng(seed).normal(0, 3, (VOCABULARY, classes)).astype(np.float32)


SEQUENCE_HEAD = heads.Head("default", "text", heads.SequenceDecoder(("calm", "angry", "sad")), 64, "reject")
SCORES_HEAD = heads.Head(
    "default",
    "text",
    heads.ScoresDecoder(("a", "b", "c"), heads.OperatingPoint("score >= threshold", (0.5, 0.6, 0.7), "cd" * 32)),
    64,
    "window",
    heads.Window(16, 5),
)
BIO_HEAD = heads.Head(
    "default", "text", heads.BioDecoder(("O", "B-NAME", "I-NAME", "B-PLACE", "I-PLACE")), 64, "reject"
)
GROUNDED_HEAD = heads.Head(
    "default", "grounded", heads.GroundedDecoder(("supported", "hallucinated"), 1, 0.5, "ef" * 32), 96, "reject"
)
RERANK_HEAD = heads.Head("default", "pair", heads.RerankDecoder((2,), (4,)), 64, "reject")
EMBEDDING_HEAD = heads.Head("default", "text", heads.EmbeddingDecoder((2, 4), (8, 4)), 64, "reject")


@pytest.fixture(scope="session")
def tables() -> dict[str, Table]:
    return {
        "mood": random_table(1, 3),
        "topics": random_table(2, 3),
        "names": random_table(3, 5),
        "claims": random_table(4, 2),
        "vectors": random_table(5, 8),
        "ranks": random_table(6, 1),
    }


@pytest.fixture(scope="session")
def bags(make_bundle: MakeBundle, tables: dict[str, Table]) -> dict[str, Path]:
    """One bundle of each form, with passing records, by model name."""
    forms = {
        "mood": SEQUENCE_HEAD,
        "topics": SCORES_HEAD,
        "names": BIO_HEAD,
        "claims": GROUNDED_HEAD,
        "vectors": EMBEDDING_HEAD,
        "ranks": RERANK_HEAD,
    }
    return {name: make_bundle(name, head, tables[name]) for name, head in forms.items()}


@pytest.fixture(scope="session")
def bag_store(bags: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "store"
    opened = store.Store.create_or_open(path)
    for folder in bags.values():
        opened.publish(folder)
    return path


@pytest.fixture(scope="session")
def served(bags: dict[str, Path]) -> dict[str, ServedModel]:
    return {name: ServedModel.open(bundles.Bundle.open(folder)) for name, folder in bags.items()}
