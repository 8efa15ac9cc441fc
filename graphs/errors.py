"""The errors of Vela: one root, a class per thing the caller can do otherwise.

Every message has four parts, because a release engineer reads it at the end of an hour's run: what was found,
what was expected, where, and what to do next. The parts stay attributes, so that the command line, the HTTP
surface and the records render the same facts. `ValueError` is for misuse by our own callers, never for input.
"""

from vela.graphs import causes


class VelaError(Exception):
    """Root of every error that Vela raises on purpose.

    Args:
        found: What is there, as a phrase.
        expected: What should have been there.
        where: File, tensor, field or stage.
        fix: What the reader can do next.
        cause: What must be wrong, where this can have no other cause.
    """

    cause: causes.Cause | None = None  # of a class that can have no other

    def __init__(self, found: str, *, expected: str, where: str, fix: str, cause: causes.Cause | None = None) -> None:
        super().__init__(f"{where}: found {found}; expected {expected}. {fix}")
        self.found = found
        self.expected = expected
        self.where = where
        self.fix = fix
        self.cause = cause or self.cause


class CheckpointError(VelaError):
    """A checkpoint cannot be read, is not supported, or is not what its pin says."""


class ExportError(VelaError):
    """A graph could not be made from a checkpoint."""


class PlanError(VelaError):
    """A ladder cannot be planned from the lengths and costs that were given."""


class GraphError(VelaError):
    """An ONNX file breaks the tensor contract or a rule of its target."""


class ForeignTables(GraphError):
    """A graph holds every tensor of its checkpoint, and others besides, so it computes otherwise."""


class BundleError(VelaError):
    """A bundle cannot be used as it lies there."""


class DigestMismatch(BundleError):
    """A file's bytes are not those that the manifest names."""


class ManifestInvalid(BundleError):
    """manifest.json is missing, malformed, edited, or contradicts the files beside it."""


class NotVerified(BundleError):
    """A graph has no passing verdict for what it is asked to do."""


class SigningError(VelaError):
    """A key cannot be used, or what signs is not installed."""


class StoreError(VelaError):
    """A store cannot be read or written."""


class VerificationError(VelaError):
    """A graph could not be judged, or was judged and failed."""


class ShapeMismatch(VerificationError):
    """Two outputs under comparison differ in shape; nothing was compared."""


class NotFinite(VerificationError):
    """An output holds nan or infinity."""


class NothingCompared(VerificationError):
    """No case was compared; that is never a pass."""


class VerificationFailed(VerificationError):
    """A graph does not answer like its checkpoint."""


class EngineError(VelaError):
    """ONNX Runtime cannot run a graph as asked."""


class ProviderUnavailable(EngineError):
    """The execution provider that was asked for is not there."""


class PlacementMismatch(EngineError):
    """Nodes ran on another provider than the one asked for."""

    cause = "engine fell back"


class GoldenMismatch(EngineError):
    """A loaded graph does not give the golden answers of its bundle."""


class CompileCacheInvalid(EngineError):
    """A compiled program on disk is not the one for this graph."""

    cause = "compile cache stale"


class RequestError(VelaError):
    """A request cannot be answered; one HTTP status each, in serve/http/errors.py."""


class InvalidRequest(RequestError):
    """The request's body or one of its fields is wrong."""


class Unauthorized(RequestError):
    """The server asks for a key, and the request has none or another."""


class ModelNotFound(RequestError):
    """No loaded model has the name asked for."""


class RequestTooLarge(RequestError):
    """The body is larger than the server takes."""


class UnsupportedSurface(RequestError):
    """The model has no head for this route."""


class Overloaded(RequestError):
    """The queue is full; try again later.

    Args:
        retry_after_s: When there will be room, as far as can be told.
    """

    def __init__(self, found: str, *, expected: str, where: str, fix: str, retry_after_s: float = 1.0) -> None:
        super().__init__(found, expected=expected, where=where, fix=fix)
        self.retry_after_s = retry_after_s


class NotReady(RequestError):
    """The model is not loaded, not healthy, or the server is stopping."""


class ItemError(VelaError):
    """One input of a request failed; its neighbours are answered.

    Args:
        code: The item error code of the HTTP surface, such as `max_length_exceeded`.
    """

    def __init__(self, code: str, found: str, *, expected: str, where: str, fix: str) -> None:
        super().__init__(found, expected=expected, where=where, fix=fix)
        self.code = code
