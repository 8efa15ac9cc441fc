"""The cards of GET /v1/models: what each model is, takes, gives, and whether it answers."""

from typing import Literal

import msgspec

from vela.graphs import contract, heads
from vela.serve import device as devices
from vela.serve.http import schema
from vela.serve.model import ServedModel
from vela.serve.registry import Entry, Golden, Registry, Status
from vela.serve.runtime import installed_build

API_VERSION = "2.3.0"  # of the router's model runtime, whose client reads the major version. Source: its openapi.yaml

SURFACES: dict[heads.SurfaceKind, str] = {
    "sequence": "classify",
    "scores": "classify",
    "token": "classify",
    "embedding": "embeddings",
    "rerank": "rerank",
}


class HeadCard(msgspec.Struct, frozen=True, omit_defaults=True):
    """One way of asking the model."""

    name: str
    kind: heads.SurfaceKind
    labels: list[str]
    inputs: list[heads.HeadInputs]
    overflow: heads.Overflow
    default_threshold: float | None = None
    thresholds: list[float] | None = None
    window: heads.Window | None = None
    reduction: Literal["max", "span_union"] | None = None
    operating_point_sha256: str | None = None


class ExitsCard(msgspec.Struct, frozen=True):
    """Exit depths and dimensions that a request can name."""

    layers: list[int]
    dimensions: list[int]


class ModelLimits(msgspec.Struct, frozen=True):
    """What one request may hold."""

    max_tokens: int
    max_items: int


class ServerLimits(msgspec.Struct, frozen=True):
    """What the server takes."""

    max_bundle_tasks: int
    max_request_bytes: int


class ModelCard(msgspec.Struct, frozen=True, omit_defaults=True):
    """One model; facts of its bundle are empty until its manifest was read."""

    id: str
    object: Literal["model"]
    family: str
    repo: str
    revision: str
    model_sha256: str
    manifest_sha256: str
    surfaces: list[str]
    heads: list[HeadCard]
    limits: ModelLimits | None
    profile: str
    profiles: list[str]
    engine: str
    accelerator: devices.DeviceKind
    device: str
    dtype: str
    parameters: int
    ready: bool
    status: Status
    reason: str
    golden: Golden
    embedding: ExitsCard | None = None
    rerank: ExitsCard | None = None


class ModelsResponse(msgspec.Struct, frozen=True):
    """Every model that the server was asked to load."""

    object: Literal["list"]
    api_version: str
    limits: ServerLimits
    data: list[ModelCard]


def models_response(registry: Registry, max_request_bytes: int) -> ModelsResponse:
    """Make the response of GET /v1/models."""
    cards = [_card(entry, registry) for entry in registry.entries.values()]
    return ModelsResponse("list", API_VERSION, ServerLimits(schema.MAX_BUNDLE_TASKS, max_request_bytes), cards)


def _card(entry: Entry, registry: Registry) -> ModelCard:
    opened, device, death = entry.bundle, registry.device_of(entry.name), registry.lane_of(entry.name).death
    model = None if opened is None else opened.manifest.model
    head = entry.model.head if entry.model else opened.manifest.head() if opened else None
    exits = None if entry.model is None or head is None else _exits(head, list(entry.model.ladders))
    package, version = installed_build()
    return ModelCard(
        id=entry.name,
        object="model",
        family=model.model_type if model else "",
        repo=model.repository if model else "",
        revision=model.revision if model else "",
        model_sha256=model.model_sha256 if model else "",
        manifest_sha256=opened.manifest_sha256 if opened else "",
        surfaces=[SURFACES[head.kind]] if head else [],
        heads=[_head_card(head)] if head else [],
        limits=ModelLimits(head.max_tokens, schema.MAX_ITEMS) if head else None,
        profile="exact",
        profiles=list(entry.model.profiles) if entry.model else ["exact"],
        engine=f"{package} {version}",
        accelerator=device.kind,
        device=str(device),
        dtype=_precision(entry.model),
        parameters=model.parameters if model else 0,
        ready=entry.status in ("ready", "degraded") and death is None,
        status="failed" if death else entry.status,
        reason=registry.problems().get(entry.name, entry.reason),
        golden=entry.golden,
        embedding=exits if head and head.kind == "embedding" else None,
        rerank=exits if head and head.kind == "rerank" else None,
    )


def _precision(model: ServedModel | None) -> str:
    """Name the types that loaded graphs compute in; empty until they are."""
    return ",".join(sorted({one.session.graph.precision for one in model.loaded.values()})) if model else ""


def _head_card(head: heads.Head) -> HeadCard:
    decoder = head.decoder
    point = decoder.operating_point if isinstance(decoder, heads.ScoresDecoder) else None
    grounded = decoder if isinstance(decoder, heads.GroundedDecoder) else None
    sha256 = point.sha256 if point else grounded.sha256 if grounded else None
    return HeadCard(
        name=head.name,
        kind=head.kind,
        labels=list(heads.labels_of(decoder)),
        inputs=[head.inputs],
        overflow=head.overflow,
        default_threshold=grounded.threshold if grounded else None,
        thresholds=list(point.thresholds) if point else None,
        window=head.window,
        reduction=_reduction(decoder),
        operating_point_sha256=sha256,
    )


def _reduction(decoder: heads.Decoder) -> Literal["max", "span_union"] | None:
    """Name how windows become one answer."""
    match decoder:
        case heads.SequenceDecoder() | heads.ScoresDecoder():
            return "max"
        case heads.BioDecoder():
            return "span_union"
        case _:
            return None


def _exits(head: heads.Head, outputs: list[str]) -> ExitsCard | None:
    match head.decoder:
        case heads.EmbeddingDecoder(exits=exits, dimensions=dimensions):
            given = [layer for layer in exits if contract.embedding_output(layer) in outputs]
        case heads.RerankDecoder(exits=exits, dimensions=dimensions):
            given = [
                layer
                for layer in exits
                if any(contract.score_output(layer, dimension) in outputs for dimension in dimensions)
            ]
        case _:
            return None
    return ExitsCard(given, list(dimensions))
