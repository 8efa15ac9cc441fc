"""The tensor contract: what every Vela graph takes and gives, by name, type and rank.

Existing loaders of these models (vLLM Semantic Router's bindings, optimum, Text Embeddings Inference) feed
`input_ids` and `attention_mask` as int64 (batch, sequence). Export writes graphs to this contract, the gate checks
them against it, and serve feeds them by it; so each name has one constant, here.
"""

from typing import Literal

import msgspec

INPUT_IDS = "input_ids"
ATTENTION_MASK = "attention_mask"
LOGITS = "logits"
BATCH = "batch"
SEQUENCE = "sequence"

WEIGHTS_FILE = "model.safetensors"
DYNAMIC_GRAPH_FILE = "model.onnx"  # the name that optimum and Text Embeddings Inference look for
UNPADDED_GRAPH_FILE = "model-unpadded.onnx"  # takes input_ids only, so rows without padding only
MANIFEST_FILE = "manifest.json"
RECORDS_FOLDER = "verification"
REPORT_FILE = "report.html"
GOLDEN_FILE = "golden.json"
ATTESTATION_FILE = "attestation.json"
# What Vela writes beside a checkpoint's own files; no checkpoint file or graph may take one of these names.
RESERVED_NAMES = frozenset({MANIFEST_FILE, RECORDS_FOLDER, REPORT_FILE, GOLDEN_FILE, ATTESTATION_FILE})

Target = Literal["portable", "ort"]
# What a graph computes in; 16-bit copies of fixed graphs are for the profile `max_speed`.
Precision = Literal["fp32", "fp16", "bf16"]
# What the weights of any graph may have been rounded to; the gate recognises it by content.
WeightPrecision = Literal["fp32", "fp16", "bf16", "int8", "int4"]
WeightStorage = Literal["reference", "embedded"]

# opset 18 with plain ai.onnx ops is what MIGraphX's own parser took, weights by reference included.
# Source: measured on MIGraphX 2.16's reference target at project start; RotaryEmbedding of com.microsoft was refused.
OPSET_VERSION = 18


class TensorSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One input or output of a graph.

    Attributes:
        name: The name in the graph.
        dtype: ONNX element type in lower case, such as `int64` or `float32`.
        shape: A number per fixed dimension, a name per dynamic one.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("a tensor has a name")
        if any(isinstance(dimension, int) and dimension < 1 for dimension in self.shape):
            raise ValueError(f"{self.name}: dimensions are positive, got {self.shape}")


def embedding_output(layer: int) -> str:
    """Name the output that holds the pooled hidden state after `layer` layers: (B, H) float32, not normalised."""
    return f"embedding_l{layer}"


def score_output(layer: int, dimension: int) -> str:
    """Name the output that holds a pair's relevance logit, (B,) float32, from one exit depth and head width."""
    return f"score_l{layer}_d{dimension}"


def graph_inputs(batch: int | str, sequence: int | str, *, takes_mask: bool = True) -> tuple[TensorSpec, ...]:
    """Give the inputs of a graph, int64 (batch, sequence): ids, and a mask unless it is for rows without padding."""
    names = (INPUT_IDS, ATTENTION_MASK) if takes_mask else (INPUT_IDS,)
    return tuple(TensorSpec(name, "int64", (batch, sequence)) for name in names)
