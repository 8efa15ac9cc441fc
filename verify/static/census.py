"""The census of a graph's element types: a file that says what it was reduced to holds that, and says so rightly.

Sixteen-bit copies that held FP32 weights were published and served as such for months, because nothing looked: they
answer well, and need twice the memory. What a file says of itself is its name; what it holds is counted.
Source: vllm-project/semantic-router issue 3256.
"""

import re
from collections import Counter
from collections.abc import Sequence

from vela.graphs import errors
from vela.verify.static.graph_constants import Constant

LEAST_SIZE = 64  # numbers of a matrix that is counted; smaller ones are not worth reducing
MATRIX_KINDS = {
    "float32": "fp32",
    "float64": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "int8": "int8",
    "uint8": "int8",
    "int4": "int4",
    "uint4": "int4",
}
# Words of file names by the kinds that they promise. Source: names that optimum, transformers.js and ONNX Runtime's
# tools give, and those of published model repositories.
CLAIMS = {
    "fp32": frozenset({"fp32"}),
    "float32": frozenset({"fp32"}),
    "fp16": frozenset({"fp16"}),
    "float16": frozenset({"fp16"}),
    "half": frozenset({"fp16"}),
    "bf16": frozenset({"bf16"}),
    "bfloat16": frozenset({"bf16"}),
    "int8": frozenset({"int8"}),
    "uint8": frozenset({"int8"}),
    "qint8": frozenset({"int8"}),
    "quint8": frozenset({"int8"}),
    "q8": frozenset({"int8"}),
    "quantized": frozenset({"int8", "int4"}),
    "quantised": frozenset({"int8", "int4"}),
    "q4": frozenset({"int4", "int8"}),  # four bits in bytes look like bytes
    "int4": frozenset({"int4", "int8"}),
}


def check_census(constants: Sequence[Constant], file_name: str) -> str:
    """Compare the element types of a graph's matrices with what its file name promises.

    Args:
        constants: Those that the answer depends on.
        file_name: Of the graph.

    Raises:
        GraphError: most matrices are of another type.
    """
    kinds = Counter(
        MATRIX_KINDS[constant.content.dtype.name]
        for constant in constants
        if sum(extent > 1 for extent in constant.content.shape) > 1
        and constant.content.size >= LEAST_SIZE
        and constant.content.dtype.name in MATRIX_KINDS
    )
    counted = ", ".join(f"{count} in {kind}" for kind, count in kinds.most_common()) or "none"
    words = [word for word in re.split(r"[^a-z0-9]+", file_name.lower()) if word in CLAIMS]
    for word in words:
        if 2 * sum(kinds[kind] for kind in CLAIMS[word]) <= sum(kinds.values()):
            raise errors.GraphError(
                f"a dtype census of {counted}",
                expected=f"most matrices in {' or '.join(sorted(CLAIMS[word]))}, as the file name says",
                where=file_name,
                fix="The file was not reduced, or was named wrongly: convert it again, or call it what it is.",
            )
    promised = f", as {' and '.join(words)} in its name says" if words else ", and its name promises nothing"
    return f"matrices: {counted}{promised}"
