"""A graph that Vela did not write, read by content: what it is fed, and which output answers for the checkpoint's head.

Exporters agree on the names of inputs and on little else. So outputs are told apart by type, rank and dimension:
logits are (B, C) or (B, T, C), a last hidden state is (B, T, H) and is pooled here, a pooled embedding is (B, H). Ids
and masks that a graph passes through are no answer. A graph of another form than the head needs, such as a token
model published as a sequence graph, is refused before anything runs.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir

from vela.graphs import contract, digests, errors, heads, manifest
from vela.verify import asked, checkpoint, graph_file
from vela.verify.static import contract_check

TOKEN_TYPE_IDS, POSITION_IDS = "token_type_ids", "position_ids"
INPUTS = (contract.INPUT_IDS, contract.ATTENTION_MASK, TOKEN_TYPE_IDS, POSITION_IDS)
INTEGERS = ("int64", "int32")
FLOATS = ("float32", "float16", "float64")
# Vela's own names for outputs that shape alone does not tell apart: exits, and a reranker's scorers.
OWN_OUTPUT = re.compile(r"(?:embedding_l(\d+)|score_l(\d+)_d\d+)")
Shape = tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class Foreign:
    """A graph file as the gate judges it.

    Attributes:
        path: The file.
        entry: What the engine is told of it: its own inputs and outputs, dimensions under the contract's names.
        presented: What the gate sees: the contract's inputs and outputs.
        roles: What each output of `entry` is, in its order.
        ignored: Outputs that are not judged.
    """

    path: Path
    entry: manifest.Graph
    presented: manifest.Graph
    roles: tuple[asked.Role, ...]
    ignored: tuple[str, ...]

    def __str__(self) -> str:
        fed = ", ".join(f"{spec.name} {spec.dtype}" for spec in self.entry.inputs)
        zeros = ", token types all zero" if any(spec.name == TOKEN_TYPE_IDS for spec in self.entry.inputs) else ""
        pooling = {"hidden": ", pooled by the gate"}
        given = ", ".join(
            f"{spec.name} {spec.dtype} {tuple(spec.shape)} as {role}{pooling.get(role, '')}"
            for spec, role in zip(self.entry.outputs, self.roles, strict=True)
        )
        ignored = f"; not judged: {', '.join(self.ignored)}" if self.ignored else ""
        return f"{fed} in{zeros}; {given} out{ignored}"


def read_foreign(graph: graph_file.GraphFile, source: checkpoint.Checkpoint) -> Foreign:
    """Read a graph's interface.

    Args:
        graph: The parsed file.
        source: The checkpoint whose head it should answer for.

    Raises:
        GraphError: an input that nobody can feed, or no output of the head's form, or several.
    """
    fed = _inputs(graph)
    batch, sequence = fed[0].shape
    answers = _answers(graph, source)
    head, hidden = source.head, source.architecture.hidden_size
    exit_layer = _exit_layer(answers, source.architecture.layers)
    expected = contract_check.expected_outputs(head, exit_layer, hidden, batch, sequence)
    if head.kind == "rerank":
        answers = _in_order(graph, answers, [spec.name for spec in expected])
    roles = tuple(_role(value, head) for value in answers)
    shapes = [
        (batch, sequence, hidden) if role == "hidden" else spec.shape
        for role, spec in zip(roles, expected, strict=True)
    ]
    given = tuple(
        contract.TensorSpec(str(value.name), _dtype(value), shape) for value, shape in zip(answers, shapes, strict=True)
    )
    takes_mask = any(spec.name == contract.ATTENTION_MASK for spec in fed)
    presented = contract.graph_inputs(batch, sequence, takes_mask=takes_mask)
    ignored = tuple(str(value.name) for value in graph.model.graph.outputs if value not in answers)
    return Foreign(
        graph.path,
        _entry(graph, head, exit_layer, fed, given),
        _entry(graph, head, exit_layer, presented, expected),
        roles,
        ignored,
    )


def graph_id_of(path: Path) -> str:
    """Name a graph after its file, in letters that names of graphs may have."""
    return (re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).strip(".-_") or "graph")[:100]


def _entry(
    graph: graph_file.GraphFile,
    head: heads.Head,
    exit_layer: int,
    inputs: tuple[contract.TensorSpec, ...],
    outputs: tuple[contract.TensorSpec, ...],
) -> manifest.Graph:
    return manifest.Graph(
        id=graph_id_of(graph.path),
        file=graph.path.name,
        sha256=digests.sha256_of_file(graph.path),
        size_bytes=graph.path.stat().st_size,
        target="ort",
        precision="fp32",
        storage="reference" if graph.external else "embedded",
        opset=graph.opset,
        head=head.name,
        exit_layer=exit_layer,
        inputs=inputs,
        outputs=outputs,
        external={},
        inline=(),
    )


def _inputs(graph: graph_file.GraphFile) -> tuple[contract.TensorSpec, ...]:
    """Read what the graph is fed, ids first, with the contract's names for free dimensions."""
    fed = [value for value in graph.model.graph.inputs if value.name not in {*graph.external, *graph.inline}]
    found = {spec.name: spec for value in fed for spec in _specs(value)}
    unknown = [str(value.name) for value in fed if value.name not in found or value.name not in INPUTS]
    if unknown or contract.INPUT_IDS not in found:
        names = ", ".join(unknown or found)
        raise _unsuitable(graph, f"the inputs {names}", f"{contract.INPUT_IDS}, and no others than {', '.join(INPUTS)}")
    shapes = {tuple(size if isinstance(size, int) else "" for size in spec.shape) for spec in found.values()}
    if len(shapes) > 1 or len(found[contract.INPUT_IDS].shape) != 2:
        raise _unsuitable(
            graph, f"inputs of the shapes {sorted(map(str, shapes))}", "all of one shape (batch, sequence)"
        )
    odd = [spec for spec in found.values() if spec.dtype not in INTEGERS]
    if odd:
        raise _unsuitable(graph, f"the input {odd[0].name} of type {odd[0].dtype}", " or ".join(INTEGERS))
    (shape,) = shapes
    free = tuple(size or name for size, name in zip(shape, (contract.BATCH, contract.SEQUENCE), strict=True))
    return tuple(contract.TensorSpec(name, found[name].dtype, free) for name in INPUTS if name in found)


def _answers(graph: graph_file.GraphFile, source: checkpoint.Checkpoint) -> list[ir.Value]:
    """Find the outputs that answer for the head: by shape, or where that is not enough by Vela's own names."""
    outputs = [value for value in graph.model.graph.outputs if any(spec.dtype in FLOATS for spec in _specs(value))]
    shown = ", ".join(f"{spec.name} {spec.dtype} {spec.shape}" for value in outputs for spec in _specs(value)) or "none"
    if source.head.kind == "rerank":
        own = [value for value in outputs if OWN_OUTPUT.fullmatch(str(value.name)) and _rank(value) == 1]
        if not own:
            expected = "scores (B,) under Vela's names: which scorer gave a score cannot be seen by its shape"
            raise _unsuitable(graph, f"the float outputs {shown}", expected)
        return own
    for role, shape in _wanted(source):
        fitting = [value for value in outputs if _has_shape(value, shape)]
        if len(fitting) == 1:
            return fitting
        if fitting:
            names = ", ".join(str(value.name) for value in fitting)
            raise _unsuitable(graph, f"{len(fitting)} outputs that may be the {role}: {names}", "one")
    raise _unsuitable(graph, f"the float outputs {shown}{_other_form(outputs, source)}", _form(source))


def _wanted(source: checkpoint.Checkpoint) -> Iterator[tuple[asked.Role, Shape]]:
    """List the shapes that answer for the head, best first; free dimensions are named."""
    labels, hidden = len(heads.labels_of(source.head.decoder)), source.architecture.hidden_size
    match source.head.kind:
        case "token":
            yield "logits", (contract.BATCH, contract.SEQUENCE, labels)
        case "embedding":
            yield "hidden", (contract.BATCH, contract.SEQUENCE, hidden)
            yield "pooled", (contract.BATCH, hidden)
        case _:
            yield "logits", (contract.BATCH, labels)


def _role(value: ir.Value, head: heads.Head) -> asked.Role:
    match head.kind:
        case "rerank":
            return "score"
        case "embedding":
            return "hidden" if _rank(value) == 3 else "pooled"
        case _:
            return "logits"


def _form(source: checkpoint.Checkpoint) -> str:
    shapes = " or ".join(f"{role} {shape}" for role, shape in _wanted(source))
    return f"{shapes}, as this {source.head.kind} checkpoint answers"


def _other_form(outputs: Sequence[ir.Value], source: checkpoint.Checkpoint) -> str:
    """Say what form a graph has that was published for a head of another one."""
    labels = len(heads.labels_of(source.head.decoder))
    last = {(_rank(value), spec.shape[-1]) for value in outputs for spec in _specs(value) if spec.shape}
    if source.head.kind == "token" and (2, labels) in last:
        return ", of which one answers once for a text: a token model published as a sequence graph"
    if source.head.kind in ("sequence", "scores") and (3, labels) in last:
        return ", of which one answers for each token: a sequence model published as a token graph"
    return ""


def _exit_layer(answers: Sequence[ir.Value], layers: int) -> int:
    """Give the layers that a graph runs: all, but for Vela's own early exits."""
    match = OWN_OUTPUT.fullmatch(str(answers[0].name))
    stated = int(match.group(1) or match.group(2)) if match else layers
    return stated if 0 < stated <= layers else layers


def _in_order(graph: graph_file.GraphFile, answers: Sequence[ir.Value], names: Sequence[str]) -> list[ir.Value]:
    """Put a reranker's scores into the order of its scorers."""
    by_name = {str(value.name): value for value in answers}
    if set(by_name) != set(names):
        raise _unsuitable(graph, f"the scores {', '.join(by_name)}", ", ".join(names))
    return [by_name[name] for name in names]


def _dtype(value: ir.Value) -> str:
    return _specs(value)[0].dtype


def _specs(value: ir.Value) -> list[contract.TensorSpec]:
    """Describe a value; nothing where its type or rank is not stated."""
    if value.shape is None or value.dtype is None:
        return []
    shape = tuple(size if isinstance(size, int) else str(size.value or "") for size in value.shape)
    return [contract.TensorSpec(str(value.name), np.dtype(value.dtype.numpy()).name, shape)]


def _rank(value: ir.Value) -> int:
    return len(value.shape) if value.shape is not None else 0


def _has_shape(value: ir.Value, wanted: Shape) -> bool:
    """Say whether an output may have a shape: of this rank, and no fixed dimension that says otherwise."""
    return any(
        len(spec.shape) == len(wanted)
        and all(
            isinstance(own, str) or isinstance(size, str) or own == size
            for own, size in zip(spec.shape, wanted, strict=True)
        )
        for spec in _specs(value)
    )


def _unsuitable(graph: graph_file.GraphFile, found: str, expected: str) -> errors.GraphError:
    return errors.GraphError(
        found,
        expected=expected,
        where=graph.path.name,
        fix="This graph is not one of this checkpoint's head: export it for its task, or name the right checkpoint.",
    )
