"""Tables: float tensors of a graph that are no weights, each computed here again from config.json.

A graph may hold RoPE frequencies, cosines and sines of all positions where an exporter computed them ahead, numbers of
positions, the mask of a sliding window, and tensors filled with one number. Nothing else that a checkpoint does not
hold has a place in a graph.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from vela.verify import architecture
from vela.verify.architecture import rope
from vela.verify.static import rotary
from vela.verify.static.graph_tensor import ROUNDINGS, Floats

HIDDEN_BELOW = -1e4  # a mask's number for what is not seen; real ones are the type's least number or minus infinity
# Cosines and sines of two libraries: the rounding of their result, and of an angle, which grows with the position.
ANGLE_TOLERANCE = 1e-6


def is_table(value: NDArray[np.floating], reading: architecture.Architecture) -> bool:
    """Say whether a float tensor of a graph that Vela wrote is a RoPE table of this config, or positions 0 to T-1."""
    flat = value.ravel()
    if np.array_equal(flat, np.arange(flat.size, dtype=np.float32)):
        return True
    ropes = reading.rotations(reading.layers).values()
    return any(rope.has_frequencies(flat, used, reading.head_width) for used in ropes)


def is_table_of_any_exporter(value: NDArray[np.floating], reading: architecture.Architecture) -> bool:
    """Say whether a float tensor of any graph is a table that config.json gives."""
    flat = value.astype(np.float32).ravel()
    if np.all(flat == flat[0]) or is_table(flat, reading):
        return True
    ropes = reading.rotations(reading.layers)
    _, relative, floor = ROUNDINGS[value.dtype.name]
    angles = rotary.frequencies_of_angles(value, reading.head_width)
    frequencies = flat if angles is None else angles
    for used in ropes.values():
        if rope.has_frequencies(frequencies, used, reading.head_width, relative=relative, floor=floor):
            return True
    is_sliding = "sliding_attention" in ropes
    return any(True for _ in find_turns(value, reading)) or (is_sliding and is_window_mask(value, reading.half_window))


def find_turns(value: NDArray[np.floating], reading: architecture.Architecture) -> Iterator[rotary.Turn]:
    """Give the cosines or sines that a table holds: (T, D / 2), or (T, D) where both halves are alike.

    Args:
        value: With any number of dimensions of 1 before.
        reading: The checkpoint's architecture.
    """
    half = reading.head_width // 2
    width = value.shape[-1] if value.ndim else 0
    if value.dtype.name not in ROUNDINGS or width not in (half, 2 * half) or value.size < 2 * width:
        return
    found = value.astype(np.float32).reshape(-1, width)
    halves = [found[:, :half], found[:, half:]] if width == 2 * half else [found]
    for used in reading.rotations(reading.layers).values():
        frequencies = used.frequencies(reading.head_width)
        angles = np.outer(np.arange(len(found), dtype=np.float32), frequencies)
        for function, wanted in (("Cos", np.cos(angles)), ("Sin", np.sin(angles))):
            scaled = wanted * np.float32(used.attention_scaling)
            if all(_is_near(part, scaled, angles, value.dtype.name) for part in halves):
                yield rotary.Turn(function, frequencies, used.attention_scaling)


def is_window_mask(value: NDArray[np.floating], half_window: int) -> bool:
    """Say whether a tensor hides exactly the keys further than a half-window from their query: (T, T), 1s before."""
    if value.ndim < 2 or value.shape[-1] != value.shape[-2] or value.size != value.shape[-1] ** 2:
        return False
    mask = value.astype(np.float32).reshape(value.shape[-2:])
    levels = np.unique(mask)
    is_mask = len(levels) == 2 and (tuple(levels) == (0.0, 1.0) or (levels[0] < HIDDEN_BELOW and levels[1] == 0.0))
    places = np.arange(len(mask))
    return is_mask and np.array_equal(mask == levels[1], np.abs(places[:, None] - places[None, :]) <= half_window)


def describe(name: str, value: NDArray[np.floating], reading: architecture.Architecture) -> str:
    """Name a foreign float tensor; where it has the form of a RoPE table, say of which, because that is the cause."""
    is_like_rope = 2 * value.size == reading.head_width and np.all(np.diff(value.ravel()) < 0.0)
    return f"{name} (a RoPE table: {rope.describe_frequencies(value)})" if is_like_rope else name


def _is_near(found: Floats, wanted: Floats, angles: Floats, dtype: str) -> bool:
    _, relative, floor = ROUNDINGS[dtype]
    bound = ANGLE_TOLERANCE * (1.0 + angles) + relative * np.abs(wanted) + floor
    return bool(np.all(np.abs(found - wanted) <= bound))
