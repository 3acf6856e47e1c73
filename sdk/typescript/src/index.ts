export { Client, type ClientOptions } from "./client.js";
export { ApiError, BelfryError, Permanent, RetryAfter, Snooze, Unavailable, type FieldError } from "./errors.js";
export type * from "./models.js";
export { AttemptEnded, Worker, type Cause, type Handler, type Run, type WorkerOptions } from "./worker.js";
