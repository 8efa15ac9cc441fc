"""Attention and mask functions that Vela registers with Transformers, so that the model code stays Transformers' own.

`vela_portable` is eager attention in plain operators: Transformers' SDPA path leaves an IsNaN in every layer, and
MIGraphX's provider answers more than ten of those by putting the whole graph on the CPU. Its mask is built from the
two facts that the graph needs, the padding and the window, so that no bookkeeping for caches is traced.
Source: measured on MIGraphX's own parser; reference note on ONNX Runtime, section 0.

`vela_ort` leaves one symbolic node for each layer's attention, which passes/expand_attention.py replaces: how to cut
a sequence into blocks depends on its length, which a trace does not know and ONNX's shape arithmetic does.
"""

from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface

PORTABLE = "vela_portable"
ORT = "vela_ort"
SYMBOLIC_DOMAIN = "vela"
LOCAL, GLOBAL = "LocalAttention", "GlobalAttention"


def portable_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Attend with plain operators.

    Args:
        module: The attention layer; unused, part of Transformers' interface.
        query: (B, A, T, D) float32, rotated; `key` and `value` likewise.
        key: See `query`.
        value: See `query`.
        attention_mask: Broadcastable to (B, A, T, T) float32, added to the scores.
        scaling: Factor on the scores.

    Returns:
        (B, T, A, D) float32, and no weights.
    """
    scores = torch.matmul(query, key.transpose(2, 3)) * scaling
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = torch.nn.functional.softmax(scores, dim=-1)
    return torch.matmul(weights, value).transpose(1, 2).contiguous(), None


def portable_mask(
    *,
    kv_length: int,
    attention_mask: torch.Tensor | None,
    dtype: torch.dtype = torch.float32,
    local_size: int | None = None,
    device: torch.device | str = "cpu",
    **_: Any,
) -> torch.Tensor | None:
    """Build the additive mask of a layer type: 0 where a query may look, the smallest finite number elsewhere.

    The smallest finite number and not -inf, so that a row whose whole window is padding stays finite.

    Args:
        kv_length: T.
        attention_mask: (B, T) bool, true at tokens.
        dtype: Of the result.
        local_size: Half-window of sliding layers; None for full ones.
        device: Where to build it.

    Returns:
        (B, 1, 1, T) for full layers, (B, 1, T, T) for sliding ones.
    """
    if attention_mask is None:
        raise ValueError("a portable graph consumes attention_mask")
    seen = attention_mask[:, None, None, :]
    if local_size is not None:
        positions = torch.arange(kv_length, device=device)
        seen = seen & ((positions[:, None] - positions[None, :]).abs() <= local_size)[None, None]
    return torch.where(seen, torch.zeros((), dtype=dtype, device=device), torch.finfo(dtype).min)


def ort_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor,
    scaling: float,
    sliding_window: int | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Leave a symbolic node with what attention depends on; the shapes are those of `portable_attention`.

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


def ort_mask(*, attention_mask: torch.Tensor | None, **_: Any) -> torch.Tensor:
    """Pass the padding on as it is, (B, T) bool: the window is the business of the layer."""
    if attention_mask is None:
        raise ValueError("a graph for ONNX Runtime is traced with attention_mask; a pass takes it out again")
    return attention_mask


def register() -> None:
    """Register the functions; doing it twice changes nothing."""
    AttentionInterface.register(PORTABLE, portable_attention)
    AttentionMaskInterface.register(PORTABLE, portable_mask)
    AttentionInterface.register(ORT, ort_attention)
    AttentionMaskInterface.register(ORT, ort_mask)
