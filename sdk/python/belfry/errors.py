"""Errors of calls, and errors that handlers raise to say how to go on."""
from typing import NamedTuple


class BelfryError(Exception):
    """A call failed."""


class Unavailable(BelfryError):
    """There was no answer from the server."""


FieldError = NamedTuple("FieldError", [("field", str), ("message", str)])


class ApiError(BelfryError):
    """A failure that the server, or a proxy in front of it, answered: a problem document (RFC 9457)."""

    def __init__(self, status: int, code: str, detail: str, fields: list[FieldError], request_id: str, retry_after: float) -> None:
        self.status = status            # HTTP status
        self.code = code                # the kind of failure, such as "invalid", "not_found" or "conflict"
        self.detail = detail            # a sentence for people
        self.fields = fields            # the fields that are wrong
        self.request_id = request_id    # in the log of the server
        self.retry_after = retry_after  # seconds that the server asks for; 0 if it does not
        wrong = "; ".join(f"{f.field}: {f.message}" for f in fields)
        request = f" (request {request_id})" if status >= 500 and request_id else ""
        super().__init__(detail + (": " + wrong if wrong else "") + request)


class Snooze(Exception):
    """Raised by a handler to be called again after some seconds, 1 at least and 7 days at most. It is not a failure."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"snoozed for {seconds:g}s")
        self.seconds = float(seconds)


class RetryAfter(Exception):
    """Raised by a handler to have a failure retried after some seconds, at most 7 days, instead of the delay of the job; 0 is
    at once."""

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.seconds = float(seconds)


class Permanent(Exception):
    """Raised by a handler when retries cannot help: the run becomes a dead letter at once."""
