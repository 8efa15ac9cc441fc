"""Heads: what a model's outputs mean and how they become an answer.

A head binds a graph's output to a decoder policy (labels, thresholds, spans, exits) and to its length policy. It is a
manifest entry of its own, apart from the backbone graphs, so that a later kind of head is an addition and not a new
format. Export reads heads from a checkpoint (graphs/task.py), serve decodes by them, the gate compares by them.
"""

from typing import Literal

import msgspec

DEFAULT_HEAD = "default"

Overflow = Literal["reject", "truncate", "window"]
HeadInputs = Literal["text", "pair", "grounded"]
SurfaceKind = Literal["sequence", "scores", "token", "embedding", "rerank"]


class Window(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a long document is cut into overlapping windows.

    Attributes:
        tokens: Width of a window with its special tokens, as fed to the graph.
        overlap: Content tokens that two neighbouring windows share.
    """

    tokens: int
    overlap: int

    def __post_init__(self) -> None:
        if self.tokens < 2 or not 0 <= self.overlap < self.tokens:
            raise ValueError(f"a window has at least 2 tokens and shares fewer with the next, got {self}")


class SequenceDecoder(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="sequence"):
    """Softmax over one label per text; the answer is the first arg-max.

    Attributes:
        labels: In index order, from the checkpoint's `id2label`.
    """

    labels: tuple[str, ...]


class OperatingPoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Thresholds that turn independent scores into a selection.

    Attributes:
        comparison: `score >= threshold` or `score > threshold`.
        thresholds: One per label, in label order.
        sha256: Digest of the file that they were read from.
    """

    comparison: Literal["score >= threshold", "score > threshold"]
    thresholds: tuple[float, ...]
    sha256: str


class ScoresDecoder(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="scores"):
    """Sigmoid per label; labels are independent.

    Attributes:
        labels: In index order.
        operating_point: Absent where the checkpoint ships none; then nothing is selected.
    """

    labels: tuple[str, ...]
    operating_point: OperatingPoint | None = None


class BioDecoder(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="bio"):
    """Softmax per token over O and B-/I- labels, decoded to spans of one text.

    Attributes:
        labels: In index order.
    """

    labels: tuple[str, ...]


class GroundedDecoder(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="grounded"):
    """Softmax per answer token; runs above the threshold are unsupported spans of the answer.

    Attributes:
        labels: In index order; `positive` is the index of the one that makes a span.
        positive: Index of the label whose probability is thresholded.
        threshold: A token belongs to a span when its probability is strictly greater.
        sha256: Digest of the operating point file.
    """

    labels: tuple[str, ...]
    positive: int
    threshold: float
    sha256: str


class EmbeddingDecoder(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="embedding"):
    """Mean-pooled hidden states, cut to a dimension, then L2-normalised.

    Attributes:
        exits: Layer counts after which an embedding can be taken, ascending; the last is the whole model.
        dimensions: Sizes that a caller can ask for, descending; the first is the hidden size.
    """

    exits: tuple[int, ...]
    dimensions: tuple[int, ...]


class RerankDecoder(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="rerank"):
    """A relevance logit for a pair, one scorer for each exit depth and dimension.

    Attributes:
        exits: Layer counts, ascending.
        dimensions: Widths of the scorers' inputs, descending.
    """

    exits: tuple[int, ...]
    dimensions: tuple[int, ...]


Decoder = SequenceDecoder | ScoresDecoder | BioDecoder | GroundedDecoder | EmbeddingDecoder | RerankDecoder

SURFACE_KINDS: dict[type[Decoder], SurfaceKind] = {
    SequenceDecoder: "sequence",
    ScoresDecoder: "scores",
    BioDecoder: "token",
    GroundedDecoder: "token",
    EmbeddingDecoder: "embedding",
    RerankDecoder: "rerank",
}


class Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One way of asking a model.

    Attributes:
        name: `default`, unless a model has several.
        inputs: What one item is: a text, a pair of texts, or context, question and answer.
        decoder: How outputs become an answer.
        max_tokens: Longest input with its special tokens; more is refused, truncated or windowed, never cut silently.
        overflow: What happens to longer inputs unless a request says otherwise.
        window: Needed where `overflow` is `window`.
    """

    name: str
    inputs: HeadInputs
    decoder: Decoder
    max_tokens: int
    overflow: Overflow
    window: Window | None = None

    def __post_init__(self) -> None:
        if self.overflow == "window" and self.window is None:
            raise ValueError(f"head {self.name}: overflow is 'window' but no window is given")
        labels = labels_of(self.decoder)
        if len(set(labels)) != len(labels):
            raise ValueError(f"head {self.name}: labels repeat")

    @property
    def kind(self) -> SurfaceKind:
        """The kind that the HTTP surface names."""
        return SURFACE_KINDS[type(self.decoder)]


def labels_of(decoder: Decoder) -> tuple[str, ...]:
    """Give a decoder's labels in index order; embedders and rerankers have none."""
    match decoder:
        case EmbeddingDecoder() | RerankDecoder():
            return ()
        case _:
            return decoder.labels
