// The client of a Belfry server.
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { ApiError, BelfryError, Unavailable } from "./errors.js";
import type { Job, JobFilter, Manifest, RunFilter, RunLog, RunRecord } from "./models.js";

const maxAnswer = 64 << 20; // bytes
const maxRetryAfter = 30; // seconds beyond which a call fails instead
const live = new Set(["ready", "running", "retry", "waiting"]);
const nextPage = /<([^<>]*)>[^<>,]*;\s*rel="?next"?\s*(?:[;,]|$)/i;
const foreign = "the answer is not one of a Belfry server: check the address";
const codes: Record<number, string> = { // of answers that are not those of a Belfry server
  401: "unauthorized", 403: "forbidden", 404: "not_found", 413: "too_large", 429: "rate_limited", 502: "unavailable",
  503: "unavailable", 504: "unavailable",
};

export interface ClientOptions {
  key?: string | undefined; // API key
  namespace?: string; // default: "default"
  timeoutSeconds?: number; // of one try of a call; default: 30
  retries?: number; // of calls that fail; default: 3
  insecurePlainHttp?: boolean; // the key may be sent without TLS to a server on another machine
  userAgent?: string; // the name of the program in the log of the server
}

interface Call {
  method: string; path: string; body?: unknown; key?: string | undefined; seconds: number; limit: number; signal?: AbortSignal;
}
interface Answer { value: any; headers: Headers }

const loopback = /^127(\.\d{1,3}){3}$|^\[::1\]$|(^|\.)localhost\.?$/;

/**
 * Accesses one namespace of a server at an address such as "https://belfry.example.com". A job is given by its id or its name.
 *
 * Calls are repeated when the server cannot be reached, is overloaded or restarts: reads, calls that set a state, and calls that
 * create or trigger, which have an idempotency key: one that is given counts once within seven days, otherwise the tries of one call
 * count once. A call that fails throws ApiError, with the fields that are wrong, or Unavailable.
 */
export class Client {
  readonly #base: string;
  readonly #headers: Record<string, string>;
  readonly #options: ClientOptions;

  constructor(server: string, options: ClientOptions = {}) {
    if (server.includes("@")) throw new TypeError("the address of the server must not contain a user name or password; use key");
    const url = new URL(server.includes("://") ? server : `http://${server}`);
    if (!/^https?:$/.test(url.protocol) || url.search || url.hash) throw new TypeError("an address is such as https://belfry.example.com");
    if (options.key && url.protocol === "http:" && !options.insecurePlainHttp && !loopback.test(url.hostname)) {
      throw new TypeError(`the API key is not sent to ${url.origin} without TLS, since whoever is between could read it: use https://, ` +
        "or allow it with insecurePlainHttp");
    }
    this.#base = url.origin + url.pathname.replace(/\/+$/, "").replace(/\/api\/v1$/, "").replace(/\/+$/, "") + "/api/v1";
    this.#headers = {
      "accept": "application/json, application/problem+json", "belfry-namespace": options.namespace ?? "default",
      "user-agent": options.userAgent ?? "belfry-typescript/0.1.0", ...(options.key ? { authorization: `Bearer ${options.key}` } : {}),
    };
    for (const [name, value] of Object.entries(this.#headers)) {
      if (!/^[ -~]*$/.test(value)) throw new TypeError(`the header ${name} must have printable ASCII characters only`);
    }
    this.#options = options;
  }

  /** Creates a job. A name that is taken is the code "conflict". */
  createJob(manifest: Manifest, options: { idempotencyKey?: string } = {}): Promise<Job> {
    return this.#json("POST", "/jobs", manifest, options.idempotencyKey ?? randomUUID());
  }

  /** Creates the job of a name, or changes it to what the manifest says. Nothing changes if nothing differs. */
  putJob(name: string, manifest: Manifest): Promise<Job> { return this.#json("PUT", path("jobs", name), manifest); }
  patchJob(job: string, changes: Partial<Manifest>): Promise<Job> { return this.#json("PATCH", path("jobs", job), changes); }
  getJob(job: string): Promise<Job> { return this.#json("GET", path("jobs", job)); }

  /** Lists jobs, newest first, page by page while the loop runs. */
  listJobs(filter: JobFilter = {}): AsyncGenerator<Job, void> {
    const { tags, ...others } = filter;
    return this.#pages<Job>("/jobs", { ...others, tag: tags });
  }

  /** Deletes a job. Without the options its live runs finish and its history is kept. */
  async deleteJob(job: string, options: { cancelRuns?: boolean; deleteHistory?: boolean } = {}): Promise<void> {
    const query = { runs: options.cancelRuns && "cancel", history: options.deleteHistory && "delete" };
    await this.#json("DELETE", path("jobs", job) + queryString(query));
  }

  /** Stops a job from firing until it is resumed. */
  pauseJob(job: string): Promise<Job> { return this.#json("POST", path("jobs", job) + "/pause"); }

  /** Resumes a paused job; catchUp runs what the pause missed. */
  resumeJob(job: string, options: { catchUp?: boolean } = {}): Promise<Job> {
    return this.#json("POST", path("jobs", job) + "/resume", { catch_up: options.catchUp ?? false });
  }

  /** Runs a job now and returns the id of the run. A payload that is not undefined replaces that of the job. */
  async triggerJob(job: string, payload?: unknown, options: { idempotencyKey?: string } = {}): Promise<string> {
    return (await this.#json("POST", path("jobs", job) + "/trigger", { payload }, options.idempotencyKey ?? randomUUID())).run_id;
  }

  getRun(runId: string): Promise<RunRecord> { return this.#json("GET", path("runs", runId)); }

  /** Lists runs and skips, latest first, page by page while the loop runs. */
  listRuns(filter: RunFilter = {}): AsyncGenerator<RunRecord, void> { return this.#pages<RunRecord>("/runs", { ...filter }); }

  /** What the handler of an attempt wrote to its log, also while it runs. Attempt 0 is the latest. */
  runLog(runId: string, options: { attempt?: number; offset?: number } = {}): Promise<RunLog> {
    return this.#json("GET", path("runs", runId) + "/log" + queryString(options));
  }

  /** Cancels a run: a waiting one at once, a running one when its worker has stopped. One that has ended is a "conflict". */
  cancelRun(runId: string): Promise<RunRecord> { return this.#json("POST", path("runs", runId) + "/cancel"); }

  /** Waits until a run has ended, however that is. After timeoutSeconds, also of a server that is down, it throws Unavailable. */
  async waitRun(runId: string, options: { timeoutSeconds?: number } = {}): Promise<RunRecord> {
    const end = options.timeoutSeconds === undefined ? undefined : performance.now() + options.timeoutSeconds * 1000;
    for (let interval = 100; ; interval = Math.min(interval * 1.5, 2000)) {
      try {
        const run = await this.getRun(runId);
        if (!live.has(run.status)) return run;
      } catch (error) {
        if (!(error instanceof Unavailable) || end === undefined) throw error;
      }
      if (end !== undefined && performance.now() + interval > end) {
        throw new Unavailable(`run ${runId} has not ended after ${options.timeoutSeconds} seconds`);
      }
      await sleep(interval);
    }
  }

  /** Makes a call of a worker, once: class Worker repeats them. */
  async workerCall(worker: string, verb: "claim" | "heartbeat" | "finish", body: unknown, seconds: number, signal: AbortSignal,
    limit = 1 << 20): Promise<any> {
    const { value } = await this.#try({ method: "POST", path: `/workers/${worker}/${verb}`, body, seconds, signal, limit });
    const field = { claim: "runs", heartbeat: "unknown", finish: "verdicts" }[verb];
    if (value?.[field] === undefined) throw new BelfryError(foreign);
    return value;
  }

  #json(method: string, path: string, body?: unknown, key?: string): Promise<any> {
    return this.#call(method, path, body, key).then((answer) => answer.value);
  }

  async #call(method: string, path: string, body?: unknown, key?: string): Promise<Answer> {
    let unknown = false; // an earlier try may have been executed
    for (let number = 0; ; number++) {
      let delay = Math.min(0.2 * 2 ** number, 5) * (0.5 + Math.random());
      try {
        return await this.#try({ method, path, body, key, seconds: this.#options.timeoutSeconds ?? 30, limit: maxAnswer });
      } catch (error) {
        if (error instanceof ApiError) {
          if (unknown && error.status === 404 && method === "DELETE") return { value: undefined, headers: new Headers() };
          if (![429, 502, 503, 504].includes(error.status) || error.retryAfterSeconds > maxRetryAfter) throw error;
          delay = Math.max(delay, error.retryAfterSeconds);
          unknown ||= error.status !== 429;
        } else if (error instanceof Unavailable && !/CERT|SIGNATURE/.test(String(error.cause))) {
          unknown = true;
        } else throw error;
        if (number >= (this.#options.retries ?? 3)) throw error;
      }
      await sleep(delay * 1000);
    }
  }

  async #try(call: Call): Promise<Answer> {
    const abort = new AbortController(), body = JSON.stringify(call.body) ?? null; // throws without a JSON form
    const timer = setTimeout(() => abort.abort(new Error("timeout")), call.seconds * 1000);
    const stop = () => abort.abort(new Error("the call was ended"));
    if (call.signal?.aborted) stop();
    call.signal?.addEventListener("abort", stop);
    try {
      const response = await fetch(this.#base + call.path, {
        method: call.method, redirect: "manual", signal: abort.signal, body,
        headers: { ...this.#headers, "content-type": "application/json", ...(call.key ? { "idempotency-key": call.key } : {}) },
      });
      const text = await readText(response, call.limit);
      if (response.status >= 300) throw apiError(response, text);
      return { value: text ? JSON.parse(text) : undefined, headers: response.headers };
    } catch (error) {
      if (error instanceof SyntaxError) throw new BelfryError(foreign, { cause: error });
      if (error instanceof BelfryError) throw error;
      const cause = abort.signal.aborted ? abort.signal.reason : (error as Error).cause ?? error;
      throw new Unavailable(`no answer from ${new URL(this.#base).host}: ${cause.code ?? cause.message}`, { cause: cause.code ?? cause });
    } finally {
      clearTimeout(timer);
      call.signal?.removeEventListener("abort", stop);
    }
  }

  async *#pages<T>(path: string, filter: Record<string, unknown>): AsyncGenerator<T, void> {
    for (let query: string | undefined, next = queryString(filter); next !== query;) {
      query = next;
      const { value, headers } = await this.#call("GET", path + query);
      yield* value as T[];
      // Of the link only the query is used: the key goes nowhere else, and a proxy may know the server by another path.
      const found = nextPage.exec(headers.get("link") ?? "");
      if (found?.[1]) next = new URL(found[1], this.#base).search;
    }
  }
}

function path(kind: string, ref: string): string {
  if (!ref) throw new TypeError("an id or name is empty");
  return `/${kind}/${encodeURIComponent(ref)}`;
}

function queryString(values: object): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    for (const item of Array.isArray(value) ? value : [value]) if (item) query.append(name, String(item));
  }
  return query.toString() && `?${query}`;
}

async function readText(response: Response, limit: number): Promise<string> {
  const parts: Uint8Array[] = [];
  for await (const part of (response.body ?? []) as AsyncIterable<Uint8Array>) {
    parts.push(part);
    if ((limit -= part.length) < 0) throw new BelfryError("the answer is too long: request less at once");
  }
  return Buffer.concat(parts).toString();
}

/** The error of an answer. If it is not a problem document, only its status counts: the text may be a page of a proxy. */
function apiError(response: Response, text: string): ApiError {
  const after = Number(response.headers.get("retry-after") ?? 0) || 0;
  if (!response.headers.get("content-type")?.startsWith("application/problem+json")) {
    const detail = `the answer ${response.status} is not one of a Belfry server`;
    return new ApiError(response.status, codes[response.status] ?? "internal", detail, [], "", after);
  }
  const problem = JSON.parse(text);
  return new ApiError(response.status, problem.code ?? "", problem.detail ?? "", problem.errors ?? [], problem.request_id ?? "", after);
}
