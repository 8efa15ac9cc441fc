"""The tensor contract of a graph: names, types and ranks as its head needs them, and a proto that ONNX accepts.

A token model published as a sequence graph fails here, by the rank of its output, before anything runs.
"""

from collections.abc import Sequence

import onnx
import onnx_ir as ir

from vela.graphs import contract, errors, heads, manifest
from vela.verify import graph_file
from vela.verify.static import reduction

OTHER_FLOATS = frozenset(kind for kind in ir.DataType if kind.is_floating_point() and kind != ir.DataType.FLOAT)


def check_contract(
    graph: graph_file.GraphFile, entry: manifest.Graph, head: heads.Head, *, hidden_size: int, layers: int
) -> str:
    """Compare a graph's inputs, outputs and opset with what its head needs and its manifest entry says.

    Raises:
        GraphError: naming the tensor, what it is and what it should be.
    """
    batch, sequence = entry.batch or contract.BATCH, entry.sequence or contract.SEQUENCE
    _compare(graph, "inputs", graph.inputs, contract.graph_inputs(batch, sequence, takes_mask=_takes_mask(entry)))
    if not 0 < entry.exit_layer <= layers:
        raise _broken(graph, f"an exit after layer {entry.exit_layer}", f"1 to {layers}")
    outputs = expected_outputs(head, entry.exit_layer, hidden_size, batch, sequence)
    _compare(graph, "outputs", graph.outputs, outputs)
    if (entry.inputs, entry.outputs, entry.opset) != (graph.inputs, graph.outputs, graph.opset):
        raise _broken(graph, "inputs, outputs or an opset that its manifest entry does not name", f"{entry.inputs}")
    return f"{' and '.join(spec.name for spec in graph.inputs)} in, {_show(outputs)} out"


def _takes_mask(entry: manifest.Graph) -> bool:
    """Say whether a graph must take a mask: all but the dynamic `ort` graphs that are named for rows without padding.

    The name decides and not the entry's own inputs, because loaders that feed a mask go by the name `model.onnx`.
    """
    is_unpadded = entry.file.startswith(contract.UNPADDED_GRAPH_FILE.removesuffix(".onnx"))
    return not (is_unpadded and entry.target == "ort" and entry.sequence is None and entry.batch is None)


def expected_outputs(
    head: heads.Head, exit_layer: int, hidden_size: int, batch: int | str, sequence: int | str
) -> tuple[contract.TensorSpec, ...]:
    """Give a head's outputs at an exit: (B, C), (B, T, C) or (B, H), or a reranker's (B,) for each dimension."""
    labels = len(heads.labels_of(head.decoder))
    outputs: dict[str, tuple[int | str, ...]]
    match head.decoder:
        case heads.BioDecoder() | heads.GroundedDecoder():
            outputs = {contract.LOGITS: (batch, sequence, labels)}
        case heads.EmbeddingDecoder():
            outputs = {contract.embedding_output(exit_layer): (batch, hidden_size)}
        case heads.RerankDecoder(dimensions=dimensions):
            outputs = {contract.score_output(exit_layer, dimension): (batch,) for dimension in dimensions}
        case _:
            outputs = {contract.LOGITS: (batch, labels)}
    return tuple(contract.TensorSpec(name, "float32", shape) for name, shape in outputs.items())


def check_proto(graph: graph_file.GraphFile) -> str:
    """Run ONNX's own checker, with strict shape inference, on the graph without its external data.

    External tensors become typed inputs first, because the checker refuses files with hard links, which is how a
    bundle shares its weights with the checkpoint.

    Raises:
        GraphError: the checker refuses the graph.
    """
    proto = onnx.load(graph.path, load_external_data=False)
    inline = [tensor for tensor in proto.graph.initializer if tensor.data_location != onnx.TensorProto.EXTERNAL]
    for tensor in proto.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            value = onnx.ValueInfoProto(name=tensor.name)
            value.type.tensor_type.elem_type = tensor.data_type
            for size in tensor.dims:
                value.type.tensor_type.shape.dim.add().dim_value = size
            proto.graph.input.append(value)
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(inline)
    try:
        onnx.checker.check_model(proto, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as cause:
        raise _broken(graph, f"a proto that ONNX refuses ({cause})", "a valid ONNX model") from cause
    return f"ONNX's checker accepts it at opset {graph.opset}"


def check_types(graph: graph_file.GraphFile, entry: manifest.Graph) -> str:
    """Count the element types of all float tensors: a file that says fp32 holds fp32, and computes in nothing else.

    A 16-bit copy holds fp32 too, the checkpoint's own, and casts to its one type.

    Raises:
        GraphError: a float tensor of another type, or a number that is cast to one.
    """
    types = {name: tensor.dtype for name, tensor in graph.external.items()}
    types |= {name: value.dtype.name for name, value in graph.inline.items()}
    other = {name: kind for name, kind in types.items() if "float" in kind and kind != "float32"}
    if other:
        name = next(iter(other))
        raise _broken(graph, f"{len(other)} tensors such as {name} in {other[name]}", f"precision {entry.precision}")
    foreign = OTHER_FLOATS - {reduction.TYPES.get(entry.precision)}
    casts = [(node, to) for node in graph.model.graph.all_nodes() if (to := reduction.cast_to(node)) in foreign]
    if casts:
        node, to = casts[0]
        found = f"{len(casts)} casts such as {node.outputs[0].name} to {to.name.lower()}"
        raise _broken(graph, found, f"precision {entry.precision}, numbers on their way included")
    rounded = f", and casts to {entry.precision}" if entry.precision != "fp32" else ""
    return f"{len(types)} tensors, all floats in float32{rounded}"


def _compare(
    graph: graph_file.GraphFile,
    what: str,
    actual: Sequence[contract.TensorSpec],
    expected: Sequence[contract.TensorSpec],
) -> None:
    if tuple(actual) != tuple(expected):
        raise _broken(graph, f"{what} {_show(actual)}", _show(expected))


def _show(specs: Sequence[contract.TensorSpec]) -> str:
    return ", ".join(f"{spec.name} {spec.dtype} {tuple(spec.shape)}" for spec in specs)


def _broken(graph: graph_file.GraphFile, found: str, expected: str) -> errors.GraphError:
    return errors.GraphError(
        found,
        expected=expected,
        where=graph.path.name,
        fix="This graph is not one of this head: export it again from the right checkpoint.",
    )
