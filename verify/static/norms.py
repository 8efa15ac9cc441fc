"""The epsilon of every norm, against config.json.

Under a variance of 1 another epsilon moves an answer by less than FP32 rounds, so no comparison of answers sees it; on
an input whose variance is small it does not. It is one attribute of one operator, so it is read.
"""

import numpy as np

from vela.graphs import errors
from vela.verify import graph_file

# What an operator takes where its attribute is absent. Source: ONNX's operator of opset 17; ONNX Runtime's contrib
# operators.
DEFAULT_EPSILONS = {"LayerNormalization": 1e-5, "SkipLayerNormalization": 1e-12}
NAMED = 4  # norms that a message names


def check_norms(graph: graph_file.GraphFile, epsilon: float) -> str:
    """Check that every norm adds the config's epsilon; a norm written out in other operators is left to its answers.

    Args:
        graph: The parsed graph.
        epsilon: What config.json says.

    Raises:
        GraphError: naming the norms that have another.
    """
    found = {
        node.outputs[0].name: node.attributes["epsilon"].as_float() if "epsilon" in node.attributes else default
        for node in graph.model.graph.all_nodes()
        if (default := DEFAULT_EPSILONS.get(node.op_type)) is not None
    }
    other = {name: value for name, value in found.items() if np.float32(value) != np.float32(epsilon)}
    if other:
        shown = ", ".join(f"{name} with {value:.3g}" for name, value in list(other.items())[:NAMED])
        raise errors.GraphError(
            f"{len(other)} of {len(found)} norms with another epsilon: {shown}",
            expected=f"{epsilon:g}, as config.json has it",
            where=graph.path.name,
            fix="The graph was exported from another config, or by something that has an epsilon of its own.",
        )
    return f"{len(found)} norms add {epsilon:g}"
