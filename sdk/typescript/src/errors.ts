// Errors of calls, and errors that handlers throw to say how to go on.

/** A call failed. */
export class BelfryError extends Error {
  override name = "BelfryError";
}

/** There was no answer from the server. */
export class Unavailable extends BelfryError {
  override name = "Unavailable";
}

export interface FieldError { field: string; message: string }

/** A failure that the server, or a proxy in front of it, answered: a problem document (RFC 9457). */
export class ApiError extends BelfryError {
  override name = "ApiError";
  constructor(
    readonly status: number, // HTTP status
    readonly code: string, // the kind of failure, such as "invalid", "not_found" or "conflict"
    readonly detail: string, // a sentence for people
    readonly fields: FieldError[], // the fields that are wrong
    readonly requestId: string, // in the log of the server
    readonly retryAfterSeconds: number, // that the server asks for; 0 if it does not
  ) {
    const wrong = fields.map((f) => `${f.field}: ${f.message}`).join("; ");
    super(detail + (wrong && `: ${wrong}`) + (status >= 500 && requestId ? ` (request ${requestId})` : ""));
  }
}

/** Thrown by a handler to be called again after some seconds, 1 at least and 7 days at most. It is not a failure. */
export class Snooze extends Error {
  override name = "Snooze";
  constructor(readonly seconds: number) { super(`snoozed for ${seconds}s`); }
}

/** Thrown by a handler to have a failure retried after some seconds, at most 7 days, instead of the delay of the job; 0 is at once. */
export class RetryAfter extends Error {
  override name = "RetryAfter";
  constructor(message: string, readonly seconds: number, options?: ErrorOptions) { super(message, options); }
}

/** Thrown by a handler when retries cannot help: the run becomes a dead letter at once. */
export class Permanent extends Error {
  override name = "Permanent";
}
