"""What a request asks of a head, and what it then gets: options checked once against the head's own policy."""

from dataclasses import dataclass
from typing import Literal

import msgspec

from vela.graphs import errors, heads

# `exact` joins only rows that answer alike to the bit; `batching` joins rows of several lengths (batching.py);
# `max_speed` runs 16-bit copies where the gate found them faster (max_speed.py).
Profile = Literal["exact", "batching", "max_speed"]


class Options(msgspec.Struct, frozen=True):
    """What a caller may choose; None leaves it to the head.

    Attributes:
        overflow: What happens to inputs that are too long.
        max_tokens: Longest input with special tokens.
        window: Windows of another size than the head's.
        threshold: Least probability of a span, for token heads.
        return_tokens: Whether token heads list every token's probabilities.
        profile: How rows are run.
    """

    overflow: heads.Overflow | None = None
    max_tokens: int | None = None
    window: heads.Window | None = None
    threshold: float | None = None
    return_tokens: bool = False
    profile: Profile = "exact"


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a loaded head can hold.

    Attributes:
        tokens: Longest row that any of its graphs takes, with special tokens.
        special_count: Special tokens around one row.
        profiles: Those that the model was opened with.
    """

    tokens: int
    special_count: int
    profiles: tuple[Profile, ...] = ("exact",)


@dataclass(frozen=True, slots=True)
class Policy:
    """What holds for one request.

    Attributes:
        overflow: As asked, or the head's.
        max_tokens: Longest row where inputs are read in one piece, longest document where they are read in windows.
        window: None unless `overflow` is `window`.
        threshold: None where none was asked for and the head has none.
        return_tokens: Whether token heads list every token's probabilities.
        profile: How rows are run.
    """

    overflow: heads.Overflow
    max_tokens: int
    window: heads.Window | None
    threshold: float | None
    return_tokens: bool
    profile: Profile = "exact"


def resolve_policy(options: Options, head: heads.Head, capacity: Capacity) -> Policy:
    """Settle what holds for a request.

    Raises:
        InvalidRequest: an option does not suit the head, or asks for more than it holds; the message names the field.
    """
    if options.profile not in capacity.profiles:
        raise _refused("profile", repr(options.profile), f"one of {', '.join(capacity.profiles)}")
    overflow = options.overflow or head.overflow
    if overflow != "reject" and head.inputs == "pair":
        raise _refused("overflow", f"{overflow!r}", "'reject': this model reads pairs, which are not cut")
    if overflow == "window" and head.kind not in ("sequence", "scores", "token"):
        raise _refused("overflow", "'window'", f"reject or truncate for a {head.kind} head")
    if overflow == "window" and head.inputs == "grounded":
        raise _refused("overflow", "'window'", "reject or truncate: a grounded answer is read with its whole context")
    if head.kind != "token":
        for field, given in (("threshold", options.threshold is not None), ("return_tokens", options.return_tokens)):
            if given:
                raise _refused(field, f"a value for a {head.kind} head", "none: only token heads take it")
    window = _resolve_window(options, head, overflow, capacity)
    ceiling = head.max_tokens if overflow == "window" else min(head.max_tokens, capacity.tokens)
    max_tokens = ceiling if options.max_tokens is None else options.max_tokens
    if not capacity.special_count <= max_tokens <= ceiling:
        raise _refused("max_tokens", str(max_tokens), f"{capacity.special_count} to {ceiling}")
    default = head.decoder.threshold if isinstance(head.decoder, heads.GroundedDecoder) else None
    threshold = default if options.threshold is None else options.threshold
    return Policy(overflow, max_tokens, window, threshold, options.return_tokens, options.profile)


def _resolve_window(
    options: Options, head: heads.Head, overflow: heads.Overflow, capacity: Capacity
) -> heads.Window | None:
    if overflow != "window":
        if options.window is not None:
            raise _refused("window", "a window", f"none with overflow {overflow!r}")
        return None
    window = options.window or head.window
    if window is None:
        raise _refused("window", "none", "tokens and overlap: this model has no windows of its own")
    widest = min(head.max_tokens, capacity.tokens)
    if window.tokens > widest:
        raise _refused("window.tokens", str(window.tokens), f"at most {widest}")
    if window.overlap >= window.tokens - capacity.special_count:
        room = window.tokens - capacity.special_count
        raise _refused("window.overlap", str(window.overlap), f"less than the {room} content tokens of a window")
    return window


def _refused(field: str, found: str, expected: str) -> errors.InvalidRequest:
    return errors.InvalidRequest(
        found, expected=expected, where=f"options.{field}", fix="See the model's card in GET /v1/models."
    )
