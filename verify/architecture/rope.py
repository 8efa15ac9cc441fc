"""Rotary positions: inverse frequencies and attention scaling of each kind, from the published formulas.

Nothing here is Transformers' code, on purpose: export compares what Transformers built with this
(export/effective.py), and the gate compares what a graph holds (verify/static/rotary.py). Kinds whose frequencies
depend on the length of the run (`dynamic`, `longrope`) have no fixed table and are refused where config.json is read.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

# float32 powers of two libraries differ by a few units in the last place; another theta differs in the first digits.
# Measured against Transformers 5.24 over widths 4 to 128, theta 1e3 to 1e7 and factors to 64: at most 2.5e-7.
FREQUENCY_TOLERANCE = 1e-6
# A few operations on Python floats, but graphs hold the result as float32.
SCALING_TOLERANCE = 1e-6


class Rope(Protocol):
    """How layers of one type turn queries and keys by position."""

    @property
    def theta(self) -> float:
        """Base of the unscaled frequencies."""
        ...

    @property
    def attention_scaling(self) -> float:
        """Factor on the cosines and sines, so that scores are scaled by its square."""
        ...

    def frequencies(self, width: int) -> NDArray[np.float32]:
        """Compute the inverse frequencies for heads of a width D: (D / 2,) float32, radians per position."""
        ...


@dataclass(frozen=True, slots=True)
class PlainRope:
    """No scaling.

    Source: Su et al., RoFormer, arXiv 2104.09864, section 3.2.2.
    """

    theta: float

    @property
    def attention_scaling(self) -> float:
        """See `Rope.attention_scaling`."""
        return 1.0

    def frequencies(self, width: int) -> NDArray[np.float32]:
        """See `Rope.frequencies`."""
        return unscaled_frequencies(self.theta, width)

    def __str__(self) -> str:
        return f"theta {self.theta:,.0f}"


@dataclass(frozen=True, slots=True)
class LinearRope:
    """Position interpolation: every position is divided by the factor.

    Source: Chen et al., Extending Context Window of Large Language Models via Positional Interpolation,
    arXiv 2306.15595, section 2.3.
    """

    theta: float
    factor: float

    @property
    def attention_scaling(self) -> float:
        """See `Rope.attention_scaling`."""
        return 1.0

    def frequencies(self, width: int) -> NDArray[np.float32]:
        """See `Rope.frequencies`."""
        return (unscaled_frequencies(self.theta, width) / self.factor).astype(np.float32)

    def __str__(self) -> str:
        return f"linear scaling by {self.factor:g} of theta {self.theta:,.0f}"


@dataclass(frozen=True, slots=True)
class YarnRope:
    """YaRN: fast frequencies stay, slow ones are divided by the factor, a ramp over the index lies between.

    The ramp runs between the indices that turn `beta_fast` and `beta_slow` times within the original length. The paper
    writes it over the number of turns; every implementation, its authors' own included, runs it over the index.
    Source: Peng et al., YaRN, arXiv 2309.00071, sections 3.2 to 3.4, and the authors' reference implementation
    (github.com/jquesnelle/yarn), whose bounds are rounded outwards and kept within 0 and D - 1.

    Attributes:
        theta: Base of the unscaled frequencies.
        factor: By which slow frequencies are divided.
        original_positions: Length that the model was trained for before it was stretched.
        beta_fast: Turns within that length from which a frequency stays.
        beta_slow: Turns up to which a frequency is wholly divided.
        is_truncated: Whether the ramp's bounds are rounded outwards to whole indices.
        attention_scaling: See `Rope.attention_scaling`; `mscale` says what it is where a config does not.
    """

    theta: float
    factor: float
    original_positions: int
    beta_fast: float
    beta_slow: float
    is_truncated: bool
    attention_scaling: float

    def frequencies(self, width: int) -> NDArray[np.float32]:
        """See `Rope.frequencies`."""
        low, high = self._index_of(self.beta_fast, width), self._index_of(self.beta_slow, width)
        if self.is_truncated:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, width - 1)
        span = high - low or 0.001  # as the reference implementation keeps off a division by zero
        divided = np.clip((np.arange(width // 2) - low) / span, 0.0, 1.0)
        kept = unscaled_frequencies(self.theta, width).astype(np.float64)
        mixed: NDArray[np.float64] = kept * (1.0 - divided) + kept / self.factor * divided
        return mixed.astype(np.float32)

    def _index_of(self, turns: float, width: int) -> float:
        """Give the index, as a real number, whose frequency turns so often within the original length."""
        return width * math.log(self.original_positions / (turns * 2 * math.pi)) / (2 * math.log(self.theta))

    def __str__(self) -> str:
        return (
            f"yarn scaling by {self.factor:g} from {self.original_positions:,} tokens of theta {self.theta:,.0f}, "
            f"attention scaling {self.attention_scaling:.6g}"
        )


@dataclass(frozen=True, slots=True)
class Llama3Rope:
    """Llama 3.1: short wavelengths stay, long ones are multiplied by the factor, a ramp over the turns lies between.

    Source: `apply_scaling` in Meta's reference implementation (github.com/meta-llama/llama-models).

    Attributes:
        theta: Base of the unscaled frequencies.
        factor: By which slow frequencies are divided.
        original_positions: Length that the model was trained for before it was stretched.
        low_frequency_factor: Turns within that length up to which a frequency is wholly divided.
        high_frequency_factor: Turns from which it stays.
    """

    theta: float
    factor: float
    original_positions: int
    low_frequency_factor: float
    high_frequency_factor: float

    @property
    def attention_scaling(self) -> float:
        """See `Rope.attention_scaling`."""
        return 1.0

    def frequencies(self, width: int) -> NDArray[np.float32]:
        """See `Rope.frequencies`."""
        kept = unscaled_frequencies(self.theta, width).astype(np.float64)
        turns = self.original_positions * kept / (2 * math.pi)
        low, high = self.low_frequency_factor, self.high_frequency_factor
        smooth = np.clip((turns - low) / (high - low), 0.0, 1.0)
        return ((1.0 - smooth) * kept / self.factor + smooth * kept).astype(np.float32)

    def __str__(self) -> str:
        return (
            f"llama3 scaling by {self.factor:g} from {self.original_positions:,} tokens of theta {self.theta:,.0f} "
            f"({self.low_frequency_factor:g} to {self.high_frequency_factor:g} turns)"
        )


def unscaled_frequencies(theta: float, width: int) -> NDArray[np.float32]:
    """Compute theta ** (-2i / D) for i from 0 to D / 2 - 1: (D / 2,) float32, radians per position."""
    exponents = np.arange(0, width, 2, dtype=np.float32) / np.float32(width)
    return (1.0 / np.float32(theta) ** exponents).astype(np.float32)


def mscale(factor: float, weight: float = 1.0) -> float:
    """Give YaRN's attention scaling for a factor.

    Source: YaRN, equation 22 (0.1 ln(s) + 1); the weight is DeepSeek-V3's `mscale` (its `yarn_get_mscale`).
    """
    return 1.0 if factor <= 1.0 else 0.1 * weight * math.log(factor) + 1.0


def has_frequencies(
    found: NDArray[np.floating], rope: Rope, width: int, *, relative: float = 0.0, floor: float = 0.0
) -> bool:
    """Say whether a table is this rope's for heads of a width D, up to the roundings of another library.

    Args:
        found: The table, of any shape.
        rope: What it should be of.
        width: D.
        relative: Rounding error of the table's own element type, as a share of a number.
        floor: The same for numbers near zero.
    """
    flat, wanted = found.astype(np.float32).ravel(), rope.frequencies(width)
    return flat.shape == wanted.shape and np.allclose(flat, wanted, rtol=FREQUENCY_TOLERANCE + relative, atol=floor)


def has_scaling(found: float, rope: Rope) -> bool:
    """Say whether a factor on cosines and sines is this rope's."""
    return math.isclose(found, rope.attention_scaling, rel_tol=SCALING_TOLERANCE)


def describe_frequencies(found: NDArray[np.floating]) -> str:
    """Say what a table is where its numbers show it: the theta of a geometric series, and what divides it."""
    flat = found.ravel().astype(np.float64)
    if flat.size < 2 or not np.all(flat > 0.0):
        return "unknown frequencies"
    ratios = flat[1:] / flat[:-1]
    if not np.allclose(ratios, ratios[0], rtol=1e-4, atol=0.0):
        return "frequencies of no single theta"
    plain = f"theta {ratios[0] ** -flat.size:,.0f}"
    return plain if math.isclose(flat[0], 1.0, rel_tol=1e-4) else f"linear scaling by {1.0 / flat[0]:.4g} of {plain}"
