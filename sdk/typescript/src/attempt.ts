// An attempt to do the work of a run.
import { format } from "node:util";
import { Permanent, RetryAfter, Snooze } from "./errors.js";

const maxError = 8 << 10, maxOutput = 64 << 10, maxLog = 64 << 10; // bytes that are kept
const maxDelay = 7 * 24 * 3600; // seconds

/** Why an attempt must end. */
export type Cause = "timed_out" | "interrupted" | "cancelled" | "lease_lost";

/** The reason of the signal of a run. */
export class AttemptEnded extends Error {
  override name = "AttemptEnded";
  constructor(readonly why: Cause, message: string) { super(message); }
}

/** A run as its handler sees it. */
export interface Run<Payload = any> {
  readonly id: string; readonly attempt: number; readonly payload: Payload; readonly scheduledAt: Date; readonly timeoutSeconds: number;
  readonly handler: string; readonly queue: string; readonly jobId: string; readonly jobName: string; readonly namespace: string;
  readonly traceparent: string;
  /** The same in every attempt. */
  readonly idempotencyKey: string;
  /** It is aborted when the attempt must end. Its reason is an AttemptEnded, which says why. */
  readonly signal: AbortSignal;
  /** Writes a line to the log of the run, as console.log does. The newest 64 KiB are kept and shown, also while it runs. */
  log(...values: unknown[]): void;
}

export interface Held { run_id: string; attempt: number }
export type Result = Held & Record<string, unknown>;

export class Attempt {
  readonly run: Run;
  readonly held: Held;
  readonly token: string;
  why: Cause | undefined; // it must end
  over = false; // it has a result or needs none
  stuck = false; // it was abandoned while its handler runs
  alarm: NodeJS.Timeout | undefined; // of its timeout, and then of its abandonment
  #abort = new AbortController();
  #text = Buffer.alloc(0); // the newest part of its log
  #start = 0; // bytes of the log before that
  #sent = 0; // bytes of the log that the server has
  #sends = 0; // in how many pieces

  constructor(claimed: any, readonly incarnation: string, notify: () => void) {
    this.held = { run_id: claimed.run_id, attempt: claimed.attempt };
    this.token = claimed.token;
    this.run = {
      id: claimed.run_id, attempt: claimed.attempt, payload: claimed.payload, idempotencyKey: claimed.idempotency_key,
      handler: claimed.handler, queue: claimed.queue, jobId: claimed.job_id, jobName: claimed.job_name ?? "",
      namespace: claimed.namespace, scheduledAt: new Date(claimed.scheduled_at), timeoutSeconds: claimed.timeout_seconds || 60,
      traceparent: claimed.traceparent ?? "", signal: this.#abort.signal,
      log: (...values) => {
        if (this.over) return;
        this.#text = Buffer.concat([this.#text, Buffer.from(format(...values).replaceAll("\0", "?") + "\n")]);
        this.#cut(2 * maxLog);
        notify();
      },
    };
  }

  /** Tells the handler that the attempt must end. The first cause counts. */
  end(why: Cause): void {
    this.why = why;
    this.#abort.abort(new AttemptEnded(why, {
      timed_out: `no answer within ${this.run.timeoutSeconds}s`, interrupted: "interrupted: the worker is shutting down",
      cancelled: "the run was cancelled", lease_lost: "this worker no longer holds the attempt",
    }[why]));
  }

  get hasLog(): boolean { return this.#start + this.#text.length > this.#sent; }

  /** What the server does not have of the log; now and then all of it, so that the server keeps few pieces. */
  nextLog(): { offset: number; text: string } {
    this.#cut(maxLog);
    const offset = this.#sends % 64 === 63 ? this.#start : Math.max(this.#sent, this.#start);
    return { offset, text: this.#text.toString("utf8", offset - this.#start) };
  }

  logAccepted(stop: number): void {
    this.#sent = stop;
    this.#sends++;
  }

  #cut(limit: number): void {
    if (this.#text.length <= limit) return;
    let over = this.#text.length - maxLog;
    while (((this.#text[over] ?? 0) & 0xc0) === 0x80) over++; // not within a character
    this.#text = this.#text.subarray(over);
    this.#start += over;
  }

  result(outcome: string, error = ""): Result {
    this.#cut(maxLog);
    return { ...this.held, token: this.token, outcome, error, log: this.#text.toString(), log_offset: this.#start };
  }

  success(output: unknown): Result {
    return { ...this.result("succeeded"), output: output === undefined ? "" : text(output, maxOutput) };
  }

  /** The result of an attempt that did not succeed. Why it had to end takes precedence over an error. */
  failure(error?: unknown): Result {
    if (this.why) return this.result(this.why, this.run.signal.reason.message);
    const own = (e: unknown) => e instanceof Snooze || e instanceof RetryAfter || e instanceof Permanent;
    let cause = error;
    for (let n = 0; n < 100 && !own(cause); n++) cause = cause instanceof Error ? cause.cause : undefined; // it may be a ring
    const seconds = cause instanceof Snooze || cause instanceof RetryAfter ? Math.max(cause.seconds, 0.001) || 0.001 : 0; // 0: by the job
    if (seconds > maxDelay) this.run.log(`a delay of ${seconds} seconds was requested; the longest is 7 days`);
    const result = this.result("failed", text(error instanceof Error && own(error) ? error.message : error, maxError));
    if (cause instanceof Snooze) result["outcome"] = "snoozed";
    return { ...result, retry_after_seconds: Math.min(seconds, maxDelay), permanent: cause instanceof Permanent };
  }
}

/** At most limit bytes of a text or an error, or of a value as JSON, without what cannot be stored. */
function text(value: unknown, limit: number): string {
  let all = `a ${typeof value} that cannot be shown`;
  try {
    all = typeof value === "string" || value instanceof Error ? String(value) : JSON.stringify(value) ?? String(value);
  } catch { /* it stays unseen */ }
  const bytes = Buffer.from(all.replaceAll("\0", "\ufffd"));
  let end = Math.min(bytes.length, limit);
  while (end < bytes.length && ((bytes[end] ?? 0) & 0xc0) === 0x80) end--; // not within a character
  return bytes.toString("utf8", 0, end);
}
