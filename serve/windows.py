"""Windows over a long document's content tokens, and how their outputs become one.

A window is a slice of token ids inside the frame of special tokens; positions start anew in each. Which rule merges
them depends on the form: labels and scores take the maximum, tokens take the window that shows them the most context.
Source: reference for both, the router's model runtime (text/windows.py), whose answers these reproduce.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vela.graphs import heads


@dataclass(frozen=True, slots=True)
class Slice:
    """Content tokens from `start` to before `end`."""

    start: int
    end: int


def plan_windows(content_count: int, special_count: int, window: heads.Window) -> tuple[Slice, ...]:
    """Cut content into windows that cover every token; the last one ends with the content and may be short.

    Args:
        content_count: N content tokens, at least 1.
        special_count: Special tokens that frame each window.
        window: Its width counts special tokens, its overlap does not.

    Raises:
        ValueError: nothing to cut, or the overlap leaves no progress.
    """
    width = window.tokens - special_count
    stride = width - window.overlap
    if content_count < 1 or width < 1 or stride < 1:
        raise ValueError(f"{content_count} tokens cannot be cut by {window} with {special_count} special tokens")
    # The last window is the first one that reaches the end.
    count = 1 + max(0, -(-(content_count - width) // stride))
    return tuple(Slice(index * stride, min(index * stride + width, content_count)) for index in range(count))


def merge_maximum(values: Sequence[list[float]]) -> list[float]:
    """Take each label's maximum over windows: W lists of C values become one."""
    return [max(of_one) for of_one in zip(*values, strict=True)] if len(values) > 1 else values[0]


def merge_tokens(slices: Sequence[Slice], rows: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Take each token's row from the window that shows it the most context on its shorter side.

    Args:
        slices: W windows that cover every content token.
        rows: For each window, (end - start, C): its content tokens' values, special tokens left out.

    Returns:
        (N, C); the earlier window wins ties.

    Raises:
        ValueError: rows do not fit their windows, or a token is in none.
    """
    count = max(piece.end for piece in slices)
    best = np.full(count, -1, dtype=np.int64)
    merged = np.empty((count, rows[0].shape[1]), dtype=np.float64)
    for piece, values in zip(slices, rows, strict=True):
        if len(values) != piece.end - piece.start:
            raise ValueError(f"{len(values)} rows for {piece}")
        places = np.arange(piece.start, piece.end)
        context = np.minimum(places - piece.start, piece.end - 1 - places)
        better = context > best[piece.start : piece.end]
        merged[places[better]] = values[better]
        best[places[better]] = context[better]
    if np.any(best < 0):
        raise ValueError("the windows leave tokens out")
    return merged
