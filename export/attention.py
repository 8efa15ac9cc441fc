"""Attention and mask functions that Vela registers with Transformers, so that the model code stays Transformers' own.

They leave one symbolic node for each layer's attention, with what it depends on. Passes replace it for each target
and shape (passes/expand_fused.py, passes/expand_portable.py): how to cut a sequence into blocks depends on its length,
which a trace does not know, and what is fast depends on the engine. So one trace serves every graph.
"""

from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface

SYMBOLIC = "vela_symbolic"
SYMBOLIC_DOMAIN = "vela"
LOCAL, GLOBAL = "LocalAttention", "GlobalAttention"


def symbolic_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor,
    scaling: float,
    sliding_window: int | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Leave a symbolic node with what attention depends on.

    Args:
        module: The attention layer; unused, part of Transformers' interface.
        query: (B, A, T, D) float32, rotated; `key` and `value` likewise.
        key: See `query`.
        value: See `query`.
        attention_mask: (B, T) bool, true at tokens.
        scaling: Factor on the scores.
        sliding_window: Half-window plus one, as Transformers keeps it; None on full layers.

    Returns:
        (B, T, A, D) float32, and no weights.
    """
    rows, heads, tokens, width = query.shape
    kind, attributes = GLOBAL, {"scale": scaling, "heads": heads, "width": width}
    if sliding_window is not None:
        kind, attributes = LOCAL, attributes | {"half_window": sliding_window - 1}
    output = torch.onnx.ops.symbolic(
        f"{SYMBOLIC_DOMAIN}::{kind}",
        (query, key, value, attention_mask),
        attributes,
        dtype=query.dtype,
        shape=(rows, tokens, heads, width),
        version=1,
    )
    return output.to(query.device), None  # torch makes it on the CPU, and weightless tensors lie nowhere


def symbolic_mask(*, attention_mask: torch.Tensor | None, **_: Any) -> torch.Tensor:
    """Pass the padding on as it is, (B, T) bool: the window is the business of the layer."""
    if attention_mask is None:
        raise ValueError("an encoder is traced with attention_mask; a pass takes it out again")
    return attention_mask


def register() -> None:
    """Register the functions; doing it twice changes nothing."""
    AttentionInterface.register(SYMBOLIC, symbolic_attention)
    AttentionMaskInterface.register(SYMBOLIC, symbolic_mask)
