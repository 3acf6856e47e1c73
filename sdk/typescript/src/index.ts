export { Client, type ClientOptions } from "./client.js";
export { ApiError, BelfryError, Permanent, RetryAfter, Snooze, Unavailable, type FieldError } from "./errors.js";
export type * from "./models.js";
export { AttemptEnded, type Cause, type Run } from "./attempt.js";
export { Worker, type Handler, type WorkerOptions } from "./worker.js";
