"""The one table from errors to statuses, and the body that every failing request gets."""

import msgspec

from vela.graphs import errors

STATUSES: dict[type[errors.VelaError], tuple[int, str]] = {
    errors.InvalidRequest: (400, "invalid_request"),
    errors.Unauthorized: (401, "unauthorized"),
    errors.ModelNotFound: (404, "model_not_found"),
    errors.RequestTooLarge: (413, "request_too_large"),
    errors.UnsupportedSurface: (422, "unsupported_surface"),
    errors.Overloaded: (429, "overloaded"),
    errors.NotReady: (503, "not_ready"),
}
INTERNAL = (500, "internal_error")

# For surfaces whose shape has no place for one input's error: the request fails as its first failed input does.
ITEM_ERRORS: dict[str, type[errors.RequestError]] = {
    "invalid_input": errors.InvalidRequest,
    "max_length_exceeded": errors.InvalidRequest,
    "scan_budget_exceeded": errors.InvalidRequest,
    "deadline_exceeded": errors.Overloaded,  # the server is ready, but not as soon as that
    "unavailable": errors.NotReady,
}


class ErrorDetail(msgspec.Struct, frozen=True):
    """A code for programs, a message for people; the message names the field."""

    code: str
    message: str


class ErrorResponse(msgspec.Struct, frozen=True):
    """The body of every response that is no answer."""

    error: ErrorDetail


def status_of(error: errors.VelaError) -> tuple[int, str]:
    """Give the HTTP status and the error code of an error; what the table lacks is our fault, 500."""
    return STATUSES.get(type(error), INTERNAL)


def error_body(code: str, message: str) -> bytes:
    """Give the JSON body of a failing request."""
    return msgspec.json.encode(ErrorResponse(ErrorDetail(code, message)))
