"""The native surface's bodies, as structs: they validate requests, shape responses and make the OpenAPI document.

Unknown fields are refused, so that a misspelt option is an error and not a default. Answers to single inputs are in
`vela.serve.answers`.
"""

from typing import Annotated, Literal

import msgspec

from vela.graphs import heads
from vela.serve import answers
from vela.serve.inputs import InputItem
from vela.serve.offsets import OffsetUnit
from vela.serve.policy import Profile

MAX_ITEMS = 2_048
MAX_DOCUMENTS = 1_024
MAX_BUNDLE_TASKS = 64

Positive = Annotated[int, msgspec.Meta(ge=1)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Milliseconds = Annotated[float, msgspec.Meta(gt=0, le=86_400_000)]
ClassifierKind = Literal["sequence", "scores", "token"]


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What all request bodies share."""


class WindowOption(Body, frozen=True):
    """Windows of another size than the head's; `tokens` counts special tokens."""

    tokens: Annotated[int, msgspec.Meta(ge=2)]
    overlap: Annotated[int, msgspec.Meta(ge=0)]

    def __post_init__(self) -> None:
        if self.overlap >= self.tokens:
            raise ValueError(f"overlap {self.overlap} of a window of {self.tokens} tokens; expected less than tokens")


class ClassifyOptions(Body, frozen=True):
    """How inputs are read and what is listed; the model's card has the defaults."""

    deadline_ms: Milliseconds | None = None
    profile: Profile = "exact"
    return_meta: bool = False
    overflow: heads.Overflow | None = None
    max_tokens: Positive | None = None
    window: WindowOption | None = None
    threshold: Share | None = None
    return_tokens: bool = False
    offset_unit: OffsetUnit = "code_point"


class ClassifyRequest(Body, frozen=True):
    """Ask a classifier for labels, scores or spans."""

    input: str | Annotated[list[str | InputItem], msgspec.Meta(min_length=1, max_length=MAX_ITEMS)]
    model: str | None = None
    head: str | None = None
    options: ClassifyOptions = ClassifyOptions()


class Usage(msgspec.Struct, frozen=True):
    """Tokens that were read, special tokens included."""

    input_tokens: int
    output_tokens: Literal[0] = 0


class Meta(msgspec.Struct, frozen=True):
    """What ran, on request.

    Attributes:
        profile: The profile that held.
        engine: Runtime and version.
        device: Where it ran.
        graphs: Ids of the graphs that ran.
        timing_ms: Milliseconds by stage, as in Server-Timing, up to here.
    """

    profile: str
    engine: str
    device: str
    graphs: list[str]
    timing_ms: dict[str, float]


class ClassifyResponse(msgspec.Struct, frozen=True, omit_defaults=True):
    """One result for each input, in order."""

    model: str
    head: str
    kind: ClassifierKind
    labels: list[str]
    results: list[answers.SequenceAnswer | answers.ScoresAnswer | answers.TokenAnswer | answers.FailedAnswer]
    usage: Usage
    meta: Meta | None = None


class EmbeddingsOptions(Body, frozen=True):
    """How inputs are read."""

    deadline_ms: Milliseconds | None = None
    profile: Profile = "exact"
    return_meta: bool = False
    overflow: Literal["reject", "truncate"] | None = None
    max_tokens: Positive | None = None


class EmbeddingsRequest(Body, frozen=True):
    """Ask an embedder for unit vectors: OpenAI's body, with layers and options.

    `input_type` and `user` are taken for OpenAI's and Cohere's clients; they change nothing.
    """

    input: str | Annotated[list[str], msgspec.Meta(min_length=1, max_length=MAX_ITEMS)]
    model: str | None = None
    dimensions: Positive | None = None
    layer: Positive | None = None
    input_type: Literal["query", "document"] | None = None
    encoding_format: Literal["float", "base64"] = "float"
    user: str | None = None
    options: EmbeddingsOptions = EmbeddingsOptions()


class EmbeddingData(msgspec.Struct, frozen=True):
    """One vector: numbers, or base64 of little-endian float32."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str
    input: answers.InputReport


class EmbeddingsUsage(msgspec.Struct, frozen=True):
    """Tokens that were read, special tokens included."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsResponse(msgspec.Struct, frozen=True, omit_defaults=True):
    """One vector for each input, in order."""

    object: Literal["list"]
    data: list[EmbeddingData]
    model: str
    usage: EmbeddingsUsage
    meta: Meta | None = None


class RerankOptions(Body, frozen=True):
    """How pairs are read; pairs that are too long are refused."""

    deadline_ms: Milliseconds | None = None
    profile: Profile = "exact"
    return_meta: bool = False
    max_tokens: Positive | None = None


class RerankRequest(Body, frozen=True):
    """Ask a reranker to order documents by their relevance to a query."""

    query: str
    documents: Annotated[list[str], msgspec.Meta(min_length=1, max_length=MAX_DOCUMENTS)]
    model: str | None = None
    top_n: Positive | None = None
    return_documents: bool = False
    layer: Positive | None = None
    dimensions: Positive | None = None
    options: RerankOptions = RerankOptions()


class RerankResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """One document's relevance: the sigmoid of its logit."""

    index: int
    relevance_score: float
    logit: float
    input: answers.InputReport
    document: str | None = None


class RerankResponse(msgspec.Struct, frozen=True, omit_defaults=True):
    """Documents, most relevant first."""

    model: str
    results: list[RerankResult]
    usage: EmbeddingsUsage
    meta: Meta | None = None


class BundleTask(Body, frozen=True, omit_defaults=True):
    """One request of another route, under an id of the caller's; exactly one of the three is given."""

    id: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    classify: ClassifyRequest | None = None
    embeddings: EmbeddingsRequest | None = None
    rerank: RerankRequest | None = None

    def __post_init__(self) -> None:
        if sum(request is not None for request in (self.classify, self.embeddings, self.rerank)) != 1:
            raise ValueError(f"task {self.id!r} has not exactly one of classify, embeddings, rerank")


class BundleOptions(Body, frozen=True):
    """What holds for all tasks."""

    deadline_ms: Milliseconds | None = None


class BundleRequest(Body, frozen=True):
    """Ask several things in one call, of one model or of several; each is answered as if it had come alone."""

    tasks: Annotated[list[BundleTask], msgspec.Meta(min_length=1, max_length=MAX_BUNDLE_TASKS)]
    options: BundleOptions = BundleOptions()

    def __post_init__(self) -> None:
        if len({task.id for task in self.tasks}) < len(self.tasks):
            raise ValueError("tasks of one id; expected another for each")


class BundleResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a task got: the status and the body that it would have got alone."""

    id: str
    status: int
    response: ClassifyResponse | EmbeddingsResponse | RerankResponse | None = None
    error: answers.Problem | None = None


class BundleResponse(msgspec.Struct, frozen=True):
    """One result for each task, in order."""

    results: list[BundleResult]


class HealthResponse(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether the server answers; `models` says of each one that does not why."""

    status: Literal["ready", "not_ready", "alive", "dead"]
    models: dict[str, str] | None = None
