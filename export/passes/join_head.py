"""Join an encoder graph and a head graph into one.

Exact: the head's nodes are moved behind the encoder's, and its two data inputs become the encoder's hidden states
and mask; no node changes.
"""

import onnx_ir as ir

from vela.graphs import contract

HEAD_PREFIX = "head/"  # head graphs number their values from zero too


def join_head(encoder: ir.Model, head: ir.Model, hidden: str, weights: tuple[str, ...], output: str) -> None:
    """Join in place into `encoder`; `head` is used up.

    Args:
        encoder: With an output called `hidden`, and inputs that include the mask.
        head: With inputs hidden state and mask first, then its weights, and one output.
        hidden: Name of the encoder output that feeds the head.
        weights: Names of the head's weight inputs, which keep their names.
        output: Name that the joined graph's only output gets.
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
    for value in list(tail.inputs[2:]):
        tail.inputs.remove(value)
        graph.inputs.append(value)
    result = tail.outputs[0]
    tail.outputs.clear()
    nodes = list(tail)
    tail.remove(nodes)
    for node in nodes:
        node.name = f"{HEAD_PREFIX}{node.name}"
        for value in node.outputs:
            value.name = f"{HEAD_PREFIX}{value.name}"
    graph.extend(nodes)
    result.name = output
    graph.outputs.clear()
    graph.outputs.append(result)
    unknown = {value.name for value in graph.inputs} & set(weights)
    if unknown != set(weights):
        raise ValueError(f"the head's weights {sorted(set(weights) - unknown)} are no inputs of it")
