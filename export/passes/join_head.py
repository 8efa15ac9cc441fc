"""Join an encoder graph and a head graph into one.

Exact: the head's nodes are moved behind the encoder's, and its two data inputs become the encoder's hidden states
and mask; no node changes. A weight that both use, such as the final norm of an early exit, is one input.
"""

from collections.abc import Collection, Sequence

import onnx_ir as ir

from vela.graphs import contract

HEAD_PREFIX = "head/"  # head graphs number their values from zero too


def join_head(encoder: ir.Model, head: ir.Model, hidden: str, weights: Collection[str], outputs: Sequence[str]) -> None:
    """Join in place into `encoder`; `head` is used up.

    Args:
        encoder: With an output called `hidden`, and inputs that include the mask.
        head: With inputs hidden state and mask first, then its weights, and its outputs.
        hidden: Name of the encoder output that feeds the head.
        weights: Names of the head's weight inputs, which keep their names.
        outputs: Names that the head's outputs get; they are the joined graph's only ones.
    """
    graph, tail = encoder.graph, head.graph
    state = next(value for value in graph.outputs if value.name == hidden)
    mask = next(value for value in graph.inputs if value.name == contract.ATTENTION_MASK)
    state_input, mask_input = tail.inputs[:2]
    ir.convenience.replace_all_uses_with([state_input, mask_input], [state, mask])
    for value in list(tail.initializers.values()):
        tail.initializers.pop(value.name)
        value.name = HEAD_PREFIX + value.name
        graph.register_initializer(value)
    _move_weights(tail, graph)
    results = list(tail.outputs)
    tail.outputs.clear()
    nodes = list(tail)
    tail.remove(nodes)
    for node in nodes:
        node.name = f"{HEAD_PREFIX}{node.name}"
        for value in node.outputs:
            value.name = f"{HEAD_PREFIX}{value.name}"
    graph.extend(nodes)
    graph.outputs.clear()
    for result, output in zip(results, outputs, strict=True):
        result.name = output
        graph.outputs.append(result)
    unknown = {value.name for value in graph.inputs} & set(weights)
    if unknown != set(weights):
        raise ValueError(f"the head's weights {sorted(set(weights) - unknown)} are no inputs of it")


def _move_weights(tail: ir.Graph, graph: ir.Graph) -> None:
    """Move the head's weight inputs over; one that the encoder has too becomes the encoder's."""
    shared = {value.name: value for value in graph.inputs}
    for value in list(tail.inputs[2:]):
        tail.inputs.remove(value)
        if value.name in shared:
            ir.convenience.replace_all_uses_with(value, shared[value.name])
        else:
            graph.inputs.append(value)
