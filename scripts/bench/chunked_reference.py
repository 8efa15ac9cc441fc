"""The PyTorch reference for inputs whose scores do not fit in memory: the same model, attention by chunks of queries.

SDPA with a window needs a (T, T) mask, 1 GB at 32,768 tokens as bool and 4 GB as the bias that PyTorch makes of it.
Here a chunk of queries takes its whole softmax over all keys that its window reaches, so nothing is approximated;
layers without a window are SDPA itself, which holds no scores where there is no mask. exact.py uses it, and proves it
against SDPA with its mask first.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AttentionInterface
from transformers.utils import logging

from vela.export import forms, reference
from vela.graphs import contract
from vela.verify import checkpoint
from vela.verify import reference as references

NAME = "vela_chunked"
QUERIES_AT_ONCE = 128


def attend_in_chunks(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    sliding_window: int | None = None,
    **_: object,
) -> tuple[torch.Tensor, None]:
    """Attend exactly, and under a window QUERIES_AT_ONCE queries at a time.

    Args:
        module: The attention layer; unused, part of Transformers' interface.
        query: (B, A, T, D) float32, rotated; `key` and `value` likewise.
        key: See `query`.
        value: See `query`.
        attention_mask: None: rows have no padding, and Transformers makes no mask for an attention without its own.
        scaling: Factor on the scores.
        sliding_window: Half-window plus one, as Transformers keeps it; None on full layers.

    Returns:
        (B, T, A, D) float32, and no weights.
    """
    if attention_mask is not None:
        raise ValueError("the chunked reference is for rows without padding")
    if sliding_window is None:
        whole = torch.nn.functional.scaled_dot_product_attention(query, key, value, scale=scaling)
        return whole.transpose(1, 2), None
    tokens, reach = query.shape[2], sliding_window - 1
    query = query * scaling
    places = torch.arange(tokens)
    output = torch.empty_like(query)
    for start in range(0, tokens, QUERIES_AT_ONCE):
        stop = min(start + QUERIES_AT_ONCE, tokens)
        seen = slice(max(0, start - reach), min(tokens, stop + reach))
        scores = query[:, :, start:stop] @ key[:, :, seen].transpose(2, 3)
        distance = (places[start:stop, None] - places[None, seen]).abs()
        scores.masked_fill_(distance > reach, -math.inf)
        output[:, :, start:stop] = scores.softmax(-1) @ value[:, :, seen]
    return output.transpose(1, 2), None


def answer_in_chunks(source: checkpoint.Checkpoint, rows: Sequence[tuple[int, ...]]) -> list[NDArray[np.float64]]:
    """Load a classifier afresh, FP32, and give the logits of each row of token ids: (C,) float64."""
    logging.disable_progress_bar()
    AttentionInterface.register(NAME, attend_in_chunks)
    load = forms.model_class(source.head, source.model_type).from_pretrained
    model = load(source.folder, attn_implementation=NAME, dtype=torch.float32).eval()
    facts = references.ReferenceFacts("attention by chunks")
    answers = reference.PyTorchReference(model, source.head, facts, {}).answer(rows)
    return [found[contract.LOGITS] for found in answers]
