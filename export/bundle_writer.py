"""Write a bundle: the checkpoint's files, the graphs beside them, and the manifest last.

Everything is written into a folder with another name that is renamed at the end, so a bundle that was not finished
never looks like one. Weights are hard links where the file system allows, so an export needs no second copy of them.
"""

import importlib.metadata
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from vela.export import effective, specialise, trace
from vela.export.passes import bind_weights, drop_mask, join_head, reduce_precision, remove_unused, strip_metadata
from vela.graphs import bundle, contract, digests, errors, heads, ladder, manifest
from vela.serve import tokenization
from vela.verify import checkpoint, graph_file
from vela.verify.static import contract_check, lint

Progress = Callable[[str], None]
TOOLS = ("vela-onnx", "torch", "transformers", "onnx-ir", "onnxscript", "tokenizers")
IR_VERSION = 10


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """What to write.

    Attributes:
        name: Name that the model is served under.
        buckets: Sequence lengths of the fixed graphs; those above the head's limit are left out.
        batches: Batch sizes of the fixed graphs.
        forms: For whom: `cpu` is two dynamic graphs, `portable` and `cuda` are one for each batch and bucket.
        storage: Whether graphs refer to the checkpoint's weights or hold copies.
        reduced: In which 16-bit types the fixed graphs have copies, for the profile `max_speed`.
        repository: Hub repository of a pinned model, else empty.
        revision: Its commit, else empty.
        model_sha256: Its identity, else empty.
    """

    name: str
    buckets: tuple[int, ...] = ladder.DEFAULT_BUCKETS
    batches: tuple[int, ...] = ladder.DEFAULT_BATCHES
    forms: tuple[specialise.Form, ...] = ("cpu", "portable")
    storage: contract.WeightStorage = "reference"
    reduced: tuple[contract.Precision, ...] = ()
    repository: str = ""
    revision: str = ""
    model_sha256: str = ""

    def __post_init__(self) -> None:
        if any(size < 2 for size in self.buckets) or any(size < 1 for size in self.batches):
            raise ValueError(f"buckets start at 2 tokens and batches at 1 row, got {self.buckets} and {self.batches}")


@dataclass(frozen=True, slots=True)
class GraphPlan:
    """One graph of a bundle: its id, form, exit, shape (None is dynamic), type, and whether it looks at padding."""

    id: str
    file: str
    form: specialise.Form
    exit_layer: int
    batch: int | None
    sequence: int | None
    keeps_scopes: bool
    takes_mask: bool = True
    precision: contract.Precision = "fp32"

    @property
    def target(self) -> contract.Target:
        """What engines may be asked to run it."""
        return specialise.TARGETS[self.form]


def export_bundle(
    source: checkpoint.Checkpoint, out: Path, plan: ExportPlan, traces: trace.TraceCache, progress: Progress
) -> bundle.Bundle:
    """Export a checkpoint to a bundle folder.

    Args:
        source: The checkpoint.
        out: Folder to make; it must not exist.
        plan: What to write.
        traces: Shared traces of this process.
        progress: Told what is being done.

    Raises:
        ExportError: `out` exists, or a graph could not be made.
    """
    if not manifest.is_name(plan.name):
        raise errors.ExportError(
            f"the name {plan.name!r}",
            expected="letters, digits, '.', '_' and '-'",
            where="--model",
            fix="Choose another name.",
        )
    if out.exists():
        raise errors.ExportError(
            "an existing folder", expected="no folder", where=str(out), fix="Remove it, or choose another --out."
        )
    plans = plan_graphs(source, plan)
    if not plans:
        raise errors.ExportError(
            f"buckets of {', '.join(map(str, plan.buckets))} tokens",
            expected=f"some of at most {source.head.max_tokens}, or --for cpu",
            where="--buckets",
            fix="Name lengths that the model takes; nothing was written.",
        )
    staging = out.with_name(f".{out.name}.partial")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    listing = _link_checkpoint(source, staging)
    graphs = []
    for graph_plan in plans:
        progress(f"{plan.name}: {graph_plan.id}")
        graphs.append(_write_graph(source, traces, graph_plan, staging, plan.storage))
    content = _manifest(source, plan, listing, tuple(graphs)).sealed()
    (staging / contract.MANIFEST_FILE).write_bytes(manifest.encode_manifest(content))
    os.replace(staging, out)
    return bundle.Bundle.open(out)


def plan_graphs(source: checkpoint.Checkpoint, plan: ExportPlan) -> list[GraphPlan]:
    """List the graphs of a bundle: for each exit those of each form."""
    layers = source.architecture.layers
    decoder = source.head.decoder
    exits = decoder.exits if isinstance(decoder, heads.EmbeddingDecoder | heads.RerankDecoder) else (layers,)
    plans = []
    fixed = [(batch, size) for batch in plan.batches for size in plan.buckets if size <= source.head.max_tokens]
    for layer in sorted(exits, reverse=True):
        suffix = "" if layer == layers else f"-l{layer}"
        if "cpu" in plan.forms:
            for file, takes_mask in ((contract.DYNAMIC_GRAPH_FILE, True), (contract.UNPADDED_GRAPH_FILE, False)):
                name = file.removesuffix(".onnx") + suffix
                plans.append(GraphPlan(name, f"{name}.onnx", "cpu", layer, None, None, takes_mask, takes_mask))
        for form in ("portable", "cuda"):
            for index, (batch, size) in enumerate(fixed if form in plan.forms else ()):
                for precision in ("fp32", *plan.reduced):
                    kind = form if precision == "fp32" else f"{form}-{precision}"
                    name = f"{kind}{suffix}-b{batch}-s{size}"
                    keeps = index == 0 and precision == "fp32"
                    plans.append(GraphPlan(name, f"{name}.onnx", form, layer, batch, size, keeps, precision=precision))
    return plans


def _link_checkpoint(source: checkpoint.Checkpoint, staging: Path) -> dict[str, manifest.SourceFile]:
    """Put the checkpoint's files into the bundle and take their digests there."""
    files = {}
    for name in checkpoint.checkpoint_files(source.folder):
        target = staging / name
        target.parent.mkdir(exist_ok=True)
        original = (source.folder / name).resolve()  # the Hub's cache keeps links to blobs
        if name.endswith(".safetensors"):
            try:
                os.link(original, target)
            except OSError:
                shutil.copyfile(original, target)
        else:
            shutil.copyfile(original, target)
        files[name] = manifest.SourceFile(digests.sha256_of_file(target), target.stat().st_size)
    return files


def _write_graph(
    source: checkpoint.Checkpoint,
    traces: trace.TraceCache,
    plan: GraphPlan,
    folder: Path,
    storage: contract.WeightStorage,
) -> manifest.Graph:
    model, external = build_graph(source, traces, plan, folder, storage)
    ir.save(model, folder / plan.file)
    return _describe(folder / plan.file, plan, storage, source.head.name, external)


def build_graph(
    source: checkpoint.Checkpoint,
    traces: trace.TraceCache,
    plan: GraphPlan,
    folder: Path,
    storage: contract.WeightStorage = "reference",
) -> tuple[ir.Model, dict[str, str]]:
    """Build one graph whose weights lie in `folder`.

    Returns:
        The graph, and for its external initializers the tensors of the checkpoint that they refer to.
    """
    encoder = traces.encoder(source)
    head = traces.head(source, plan.exit_layer)
    model = encoder.model.clone()
    hidden = trace.hidden_output(plan.exit_layer)
    outputs = _outputs(source, plan)
    join_head.join_head(model, head.model.clone(), hidden, head.weights, [spec.name for spec in outputs])
    if not plan.takes_mask:
        drop_mask.drop_mask(model)
    remove_unused.remove_unused(model)
    parts = specialise.specialise(
        model, plan.form, plan.batch, plan.sequence, takes_mask=plan.takes_mask, storage=storage
    )
    tables = effective.computed_tables(trace.tracing_config(source))
    weights = bind_weights.Weights(folder, source.tensors, tables, storage)
    external = bind_weights.bind_weights(model, (*encoder.weights, *head.weights), weights, parts)
    if plan.precision != "fp32":
        reduce_precision.reduce_precision(model, plan.precision)
    _declare_contract(model, outputs, plan)
    strip_metadata.strip_metadata(model, keep_scopes=plan.keeps_scopes)
    return model, external


def _outputs(source: checkpoint.Checkpoint, plan: GraphPlan) -> tuple[contract.TensorSpec, ...]:
    batch, sequence = plan.batch or contract.BATCH, plan.sequence or contract.SEQUENCE
    return contract_check.expected_outputs(
        source.head, plan.exit_layer, source.architecture.hidden_size, batch, sequence
    )


def _declare_contract(model: ir.Model, outputs: Sequence[contract.TensorSpec], plan: GraphPlan) -> None:
    """Write the contract's dimensions onto inputs and outputs, and who made the graph."""
    batch, sequence = plan.batch or contract.BATCH, plan.sequence or contract.SEQUENCE
    specs = contract.graph_inputs(batch, sequence, takes_mask=plan.takes_mask)
    for value, spec in zip(model.graph.inputs, specs, strict=True):
        value.name, value.shape = spec.name, ir.Shape(spec.shape)
    for value, spec in zip(model.graph.outputs, outputs, strict=True):
        value.name, value.dtype, value.shape = spec.name, ir.DataType.FLOAT, ir.Shape(spec.shape)
    model.ir_version = IR_VERSION
    model.producer_name, model.producer_version = "vela", importlib.metadata.version("vela-onnx")
    model.graph.name = plan.id
    model.graph.doc_string = None


def _describe(
    path: Path, plan: GraphPlan, storage: contract.WeightStorage, head: str, external: dict[str, str]
) -> manifest.Graph:
    """Describe the file that was written, by reading it again."""
    written = graph_file.GraphFile.read(path)
    lint.lint_graph(written, plan.target)
    if set(written.external) != set(external):
        raise errors.ExportError(
            f"{len(written.external)} external tensors",
            expected=f"the {len(external)} that were bound",
            where=path.name,
            fix="This is a defect of Vela: report it with the checkpoint's config.json.",
        )
    return manifest.Graph(
        id=plan.id,
        file=plan.file,
        sha256=digests.sha256_of_file(path),
        size_bytes=path.stat().st_size,
        target=plan.target,
        precision=plan.precision,
        storage=storage,
        opset=written.opset,
        head=head,
        exit_layer=plan.exit_layer,
        inputs=written.inputs,
        outputs=written.outputs,
        external=external,
        inline=written.inline_entries(),
    )


def _manifest(
    source: checkpoint.Checkpoint,
    plan: ExportPlan,
    files: dict[str, manifest.SourceFile],
    graphs: tuple[manifest.Graph, ...],
) -> manifest.Manifest:
    listing = {name: file.sha256 for name, file in files.items()}
    return manifest.Manifest(
        schema_version=manifest.SCHEMA_VERSION,
        model=manifest.Model(
            name=plan.name,
            repository=plan.repository,
            revision=plan.revision,
            model_sha256=plan.model_sha256 or digests.digest_of_listing(listing),
            model_type=source.model_type,
            hidden_size=source.architecture.hidden_size,
            layers=source.architecture.layers,
            parameters=source.parameter_count,
        ),
        sources=files,
        weights=source.weight_tensors(),
        tokenizer=tokenization.facts_from_tokenizer(
            source.folder / "tokenizer.json", pad_id=int(source.config["pad_token_id"])
        ),
        heads=(source.head,),
        graphs=graphs,
        tools={name: importlib.metadata.version(name) for name in TOOLS},
    )
