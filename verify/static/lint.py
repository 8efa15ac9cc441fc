"""The op lint: may an engine of this target run this graph as it stands?

`portable` graphs go to MIGraphX, whose provider answers more than ten unknown operators, or one dynamic dimension,
by running on the CPU or recompiling inside a request, silently. So every node, dimension and external-data key is
checked here, at export and again in the gate, and a violation names the node and the rule.
Source: reference note on ONNX Runtime §0 and §1.6: the provider's own operator table, 1.23 to 1.27, and MIGraphX's
parsers, which ignore domains and read external-data keys by position.
"""

from collections.abc import Iterator

import onnx

from vela.graphs import contract, errors
from vela.verify import graph_file

# ai.onnx operators that MIGraphX's provider lists, its parser takes as ONNX defines them, and text encoders need.
PORTABLE_OPERATORS = frozenset(
    "Abs Add And Cast Clip Concat Constant ConstantOfShape Cos CumSum Div Einsum Equal Erf Exp Expand Flatten Floor "
    "Gather GatherElements GatherND Gemm Gelu Greater GreaterOrEqual Identity LayerNormalization Less LessOrEqual Log "
    "MatMul Max Min Mul Neg Not Or Pad Pow Range Reciprocal ReduceMax ReduceMean ReduceMin ReduceSum Relu Reshape "
    "ScatterND Shape Sigmoid Sin Slice Softmax Split Sqrt Squeeze Sub Tanh Tile Transpose Unsqueeze Where Xor".split()
)
KNOWN_TRAPS = {
    "IsNaN": "the provider's table misspells it, so each one counts as unknown",
    "IsInf": "the provider does not know it",
    "RMSNormalization": "the provider does not know it",
    "Attention": "the provider parses it as com.microsoft's operator of the same name",
    "RotaryEmbedding": "the provider parses it as com.microsoft's operator of the same name",
    "Trilu": "MIGraphX multiplies by a 0/1 mask, so minus infinity becomes nan",
}
PORTABLE_OPSETS = range(17, 21)
# com.microsoft operators that export writes, that ONNX Runtime's CPU and CUDA providers both have, and that the gate
# has seen pass. MultiHeadAttention is bounded in memory only without mask and bias: see passes/expand_fused.py.
ORT_OPERATORS = frozenset({"FusedMatMul", "Gelu", "MultiHeadAttention", "RotaryEmbedding", "SkipLayerNormalization"})
EXTERNAL_KEYS = ("location", "offset", "length")


def lint_graph(graph: graph_file.GraphFile, target: contract.Target) -> str:
    """Check a graph against its target's rules.

    Returns:
        What was checked, for the record.

    Raises:
        GraphError: naming every node and rule that is broken, the first few in full.
    """
    rules = _portable_violations(graph) if target == "portable" else _ort_violations(graph)
    found = list(rules)
    if found:
        raise errors.GraphError(
            "; ".join(found[:5]) + (f"; and {len(found) - 5} more" if len(found) > 5 else ""),
            expected=f"a graph that keeps the rules of target {target}",
            where=graph.path.name,
            fix="Export it again with this version of Vela; a graph of another exporter needs its own target.",
        )
    return f"{sum(1 for _ in graph.model.graph.all_nodes())} nodes keep the rules of target {target}"


def _portable_violations(graph: graph_file.GraphFile) -> Iterator[str]:
    if graph.opset not in PORTABLE_OPSETS:
        yield f"opset {graph.opset} (rule: {PORTABLE_OPSETS.start} to {PORTABLE_OPSETS.stop - 1})"
    for node in graph.model.graph.all_nodes():
        where = f"node {node.name!r} ({node.domain or 'ai.onnx'}.{node.op_type})"
        if node.domain not in ("", "ai.onnx"):
            yield f"{where} (rule: ai.onnx only)"
        elif node.op_type in KNOWN_TRAPS:
            yield f"{where} (rule: {KNOWN_TRAPS[node.op_type]})"
        elif node.op_type not in PORTABLE_OPERATORS:
            yield f"{where} (rule: only operators that MIGraphX's provider takes)"
    for spec in (*graph.inputs, *graph.outputs):
        if not all(isinstance(size, int) for size in spec.shape):
            yield f"{spec.name} of shape {spec.shape} (rule: every dimension fixed)"
    yield from _external_key_violations(graph)


def _external_key_violations(graph: graph_file.GraphFile) -> Iterator[str]:
    """Look at the keys as they lie in the file: MIGraphX takes the first as location, the second as offset."""
    proto = onnx.load(graph.path, load_external_data=False)
    for tensor in proto.graph.initializer:
        keys = tuple(entry.key for entry in tensor.external_data)
        if tensor.data_location == onnx.TensorProto.EXTERNAL and keys != EXTERNAL_KEYS:
            yield f"initializer {tensor.name!r} with external-data keys {keys} (rule: {EXTERNAL_KEYS}, in this order)"


def _ort_violations(graph: graph_file.GraphFile) -> Iterator[str]:
    for node in graph.model.graph.all_nodes():
        where = f"node {node.name!r} ({node.domain or 'ai.onnx'}.{node.op_type})"
        if node.domain == "com.microsoft":
            if node.op_type not in ORT_OPERATORS:
                yield f"{where} (rule: of com.microsoft only {', '.join(sorted(ORT_OPERATORS))})"
        elif node.domain not in ("", "ai.onnx"):
            yield f"{where} (rule: ai.onnx and com.microsoft only)"
        elif node.op_type not in PORTABLE_OPERATORS:
            yield f"{where} (rule: only operators that a text encoder needs)"
