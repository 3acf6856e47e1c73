// A worker: it claims runs, calls their handlers and reports the results.
import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import { Attempt, type Cause, type Held, type Result, type Run } from "./attempt.js";
import type { Client } from "./client.js";
import { ApiError, BelfryError } from "./errors.js";

const maxClaim = 100, maxResults = 20, maxHeld = 10_000; // in a call, which bounds its size
const maxRun = 6 * (256 << 10) + (16 << 10); // bytes of a run in an answer
const now = () => performance.now() / 1000;
const same = (a: Held, b: Held) => a.run_id === b.run_id && a.attempt === b.attempt;

/** Does the work of a run. What it returns is the output: text, or a value that is written as JSON. */
export type Handler<Payload = any> = (run: Run<Payload>) => unknown;

export interface WorkerOptions {
  queues?: string[]; // default: "default"
  concurrency?: number; // runs at once; default: 10
  drainTimeoutSeconds?: number; // how long handlers may continue once the worker stops; default: 30
  node?: string; // where the worker runs, for people; default: the name of the host
  signals?: boolean; // SIGTERM and SIGINT stop the worker; default: true
  log?: Pick<Console, "info" | "warn" | "error">; // default: console
}

/**
 * Executes runs of the handlers that it has. An error is a failed attempt, which is retried by the policy of the job; Snooze,
 * RetryAfter and Permanent, also as the cause of another one, change that. A long handler passes run.signal on, or looks at it: one
 * that does not return within 5 seconds after its attempt ended is abandoned, and its slot stays in use. Handlers must not block the
 * event loop: heartbeats need it. While the server cannot be reached, calls are repeated and results are kept. Without a heartbeat
 * for 15 seconds nothing is started.
 */
export class Worker {
  /** Seconds, which fit to those of the server. Only tests change them. */
  private readonly timing = {
    heartbeat: 5, heartbeatTimeout: 4, lease: 15,
    cancelDelay: 7, log: 1, // within which a worker learns of a cancellation; between heartbeats for logs
    claimWait: 10, claimSlack: 5, // how long the server may hold a claim; network time
    finishTimeout: 8, flush: 10, // of a call; for the last results to be accepted
    grace: 5, longestPause: 5, // for handlers to return when their attempt must end; between tries
  };
  private readonly handlers = new Map<string, Handler>();
  private readonly queues: string[];
  private readonly slots: number;
  private readonly logger: Pick<Console, "info" | "warn" | "error">;
  private readonly waiting: (() => void)[] = [];
  private readonly life = new AbortController(); // of calls
  private started = false;
  private draining = false;
  private claiming = true;
  private done = false;
  private claim = new AbortController(); // of the latest claim
  private incarnation: string = randomUUID();
  private renewed: { monotonic: number; wall: number } | undefined; // when the last accepted heartbeat was sent
  private sequence = 0;
  private readonly running = new Map<string, Attempt>(); // by run: attempts of this incarnation without a result
  private readonly busy = new Set<Attempt>(); // attempts whose handlers have not returned: slots in use
  private cancelled: Held[] = []; // attempts that the last reply cancels
  private unsent: { incarnation: string; result: Result }[] = []; // oldest first
  private readonly failing = new Set<string>(); // calls that failed when last tried

  constructor(private readonly client: Client, private readonly options: WorkerOptions = {}) {
    this.queues = options.queues ?? ["default"];
    this.slots = Math.max(options.concurrency ?? 10, 1);
    this.logger = options.log ?? console;
  }

  /** Registers a handler. */
  handle<Payload = any>(name: string, handler: Handler<Payload>): this {
    if (!name || this.handlers.has(name)) throw new TypeError(`a handler needs a name that is not taken: "${name}"`);
    this.handlers.set(name, handler);
    return this;
  }

  /** Makes run drain and return. */
  stop(): void {
    this.draining = true;
    this.claim.abort();
    this.notify();
  }

  /** Executes runs until stop, SIGTERM or SIGINT. Then it drains: it claims nothing more, lets handlers finish for the drain timeout,
   * interrupts the rest, which costs them no retry, sends every result and unregisters. It throws BelfryError if results were not
   * accepted. It may be called once. */
  async run(): Promise<void> {
    if (this.started || this.handlers.size === 0) throw new TypeError("start worker: a worker runs once and needs a handler");
    this.started = true;
    const stop = () => this.stop();
    const signals = this.options.signals === false ? [] : ["SIGTERM", "SIGINT"] as const;
    for (const signal of signals) process.once(signal, stop);
    const heartbeats = this.heartbeatLoop();
    const loops = Promise.all([heartbeats, this.claimLoop(), this.sendLoop()]);
    await Promise.race([this.until(() => this.draining), loops]);
    for (const signal of signals) process.removeListener(signal, stop); // a second signal ends the process
    await Promise.race([this.drain(), loops]);
    await heartbeats;
    if (this.unsent.length > 0) throw new BelfryError(`drain worker: ${this.unsent.length} results were not accepted in time`);
    if (!this.renewed) return;
    const body = { ...this.nextHeartbeat(false, false), leave: true }; // without it the server unregisters the worker after a while
    const { signal } = new AbortController();
    await this.client.workerCall(this.incarnation, "heartbeat", body, this.timing.heartbeatTimeout, signal).catch(() => undefined);
  }

  private async drain(): Promise<void> {
    const idle = () => !this.claiming && [...this.busy].every((a) => a.stuck);
    if (!await this.until(idle, this.options.drainTimeoutSeconds ?? 30)) {
      for (const a of this.running.values()) this.end(a, "interrupted");
      await this.until(idle, this.timing.grace + 1);
    }
    await this.until(() => !this.claiming && this.unsent.length === 0, this.timing.flush);
    this.done = true;
    this.life.abort();
    for (const a of this.busy) clearTimeout(a.alarm);
    this.notify();
  }

  /** Waits until a condition holds, at most for some seconds, and returns whether it does. */
  private async until(condition: () => boolean, seconds = 1e6): Promise<boolean> {
    for (const end = now() + seconds; !condition();) {
      const left = end - now();
      if (left <= 0) return false;
      let timer: NodeJS.Timeout | undefined;
      await new Promise<void>((resolve) => {
        timer = setTimeout(resolve, left * 1000);
        this.waiting.push(resolve);
      });
      clearTimeout(timer);
    }
    return true;
  }

  /** Has conditions evaluated again. */
  private readonly notify = () => this.waiting.splice(0).forEach((wake) => wake());

  /** Keeps the log short: one line when calls begin to fail, and one when all succeed again. */
  private note(call: string, error?: unknown): void {
    if (error) {
      if (this.failing.size === 0) this.logger.warn(`the server fails; calls are retried until it answers: ${call}: ${error}`);
      this.failing.add(call);
    } else if (this.failing.delete(call) && this.failing.size === 0) {
      this.logger.info("the server answers again");
    }
  }

  private pause(failures: number, first = 0.1): number {
    return Math.min(first * 2 ** Math.min(failures, 10), this.timing.longestPause) * (0.8 + 0.4 * Math.random());
  }

  private async heartbeatLoop(): Promise<void> {
    let registered = false;
    for (let failures = 0; !this.done;) {
      const sent = { monotonic: now(), wall: Date.now() / 1000 };
      const body = this.nextHeartbeat(!registered, registered && failures === 0); // logs must not cost the worker its lease
      let reply: any;
      try {
        reply = await this.client.workerCall(this.incarnation, "heartbeat", body, this.timing.heartbeatTimeout, this.life.signal);
        failures = 0;
      } catch (error) {
        if (!(error instanceof BelfryError)) throw error;
        if (!this.done) this.note("heartbeat", error);
        this.claim.abort(); // it is repeated: its connection may be as dead as that of the heartbeat
        await this.until(() => this.done, this.pause(failures++));
        continue;
      }
      registered = !reply.unknown;
      if (!this.applyReply(reply, body.logs, sent)) return;
      // A run may be cancelled just after the server made its reply: where replies take long, the next one is earlier.
      const took = now() - sent.monotonic;
      const next = registered ? Math.min(this.timing.heartbeat, this.timing.cancelDelay - took) : this.pause(0);
      await this.until(() => this.done, Math.min(next, this.timing.log) - took);
      await this.until(() => this.done || [...this.running.values()].some((a) => a.hasLog), sent.monotonic + next - now());
    }
  }

  private nextHeartbeat(register: boolean, logs: boolean) {
    const held = [...this.running.values()].map((a) => a.held);
    for (const { incarnation, result: { run_id, attempt } } of this.unsent) {
      if (incarnation === this.incarnation) held.push({ run_id, attempt });
    }
    const complete = !register && held.length <= maxHeld; // an incomplete list would release the others
    const logged = logs ? [...this.running.values()].filter((a) => a.hasLog).slice(0, 10) : [];
    return {
      node: (this.options.node ?? hostname()).slice(0, 200), slots: this.slots, queue: this.queues, handlers: [...this.handlers.keys()],
      sequence: ++this.sequence, register, complete, held: complete ? held : [],
      logs: logged.map((a) => ({ ...a.held, token: a.token, ...a.nextLog() })),
    };
  }

  /** Renews the lease, which counts from when the heartbeat was sent, and ends attempts that were lost or cancelled. A worker that
   * the server does not know any more drops all of them and takes a new id. False: no further heartbeat is needed. */
  private applyReply(reply: any, logs: (Held & { offset: number; text: string })[], sent: { monotonic: number; wall: number }): boolean {
    this.note("heartbeat");
    this.renewed = sent;
    this.cancelled = reply.cancel ?? [];
    for (const chunk of logs) {
      const a = this.running.get(chunk.run_id);
      if (a && same(a.held, chunk)) a.logAccepted(chunk.offset + Buffer.byteLength(chunk.text));
    }
    for (const a of [...this.running.values()]) {
      if (reply.unknown || reply.lost?.some((h: Held) => same(h, a.held))) this.finish(a);
      else if (this.cancelled.some((h) => same(h, a.held))) this.end(a, "cancelled");
    }
    if (reply.unknown) {
      this.logger.warn("the server does not know this worker any more; it continues with a new id");
      this.incarnation = randomUUID();
      this.renewed = undefined;
      this.claim.abort();
    }
    this.notify();
    return !(reply.unknown && this.draining);
  }

  /** Whether the lease is valid. The wall clock counts too, since the other one stops while a machine is suspended. */
  private mayStart(): boolean {
    const { monotonic, wall } = this.renewed ?? { monotonic: -Infinity, wall: -Infinity };
    return this.timing.lease > Math.max(now() - monotonic, Date.now() / 1000 - wall);
  }

  /** How many runs may be claimed. Attempts and results together never exceed twice the slots. */
  private free(): number {
    return Math.min(this.slots - this.busy.size, 2 * this.slots - this.running.size - this.unsent.length, maxClaim);
  }

  private async claimLoop(): Promise<void> {
    for (let failures = 0; ;) {
      await this.until(() => this.draining || this.free() > 0 && this.mayStart());
      if (this.draining) break;
      const { incarnation } = this, limit = this.free(), sent = now(), claim = this.claim = new AbortController();
      const { claimWait, claimSlack } = this.timing;
      const body = { queue: this.queues, handlers: [...this.handlers.keys()], limit, wait_seconds: claimWait };
      const size = (1 << 20) + limit * maxRun;
      let pause = 0;
      try {
        const { runs } = await this.client.workerCall(incarnation, "claim", body, claimWait + claimSlack, claim.signal, size);
        failures = 0;
        this.note("claim");
        for (const claimed of runs) this.start(new Attempt(claimed, incarnation, this.notify));
        if (runs.length === 0) pause = this.pause(0, 0.5) - (now() - sent);
      } catch (error) { // runs may be taken that never arrived; complete heartbeats let the server release them
        if (!(error instanceof BelfryError)) throw error;
        if (!claim.signal.aborted) {
          this.note("claim", error);
          pause = this.pause(failures++);
        }
      }
      await this.until(() => this.draining, pause);
    }
    this.claiming = false;
    this.notify();
  }

  /** Starts a claimed run, or returns it if it must not start. */
  private start(a: Attempt): void {
    const old = this.running.get(a.run.id);
    if (old && old.run.attempt >= a.run.attempt) return; // claimed twice
    if (old) this.finish(old);
    if (this.cancelled.some((h) => same(h, a.held))) {
      this.finish(a, a.result("cancelled", "the run was cancelled before it was started"));
    } else if (this.draining || a.incarnation !== this.incarnation || !this.mayStart() || this.busy.size >= this.slots) {
      this.finish(a, a.result("interrupted", "returned before it was started"));
    } else {
      this.running.set(a.run.id, a);
      this.busy.add(a);
      a.alarm = setTimeout(() => this.end(a, "timed_out"), a.run.timeoutSeconds * 1000);
      void this.work(a);
    }
  }

  private async work(a: Attempt): Promise<void> {
    let result: Result;
    try {
      const handler = this.handlers.get(a.run.handler);
      if (!handler) throw new TypeError(`this worker has no handler named "${a.run.handler}"`);
      result = a.success(await handler(a.run));
    } catch (error) {
      result = a.failure(error);
    }
    clearTimeout(a.alarm);
    this.busy.delete(a);
    if (!a.over) this.finish(a, result);
    this.notify();
  }

  /** Tells a handler that its attempt must end, and abandons it if it does not return then: its slot stays in use. */
  private end(a: Attempt, why: Cause): void {
    if (a.why) return; // the first cause counts
    this.logger.info(`attempt ${a.run.attempt} of run ${a.run.id} must end: ${why}`);
    clearTimeout(a.alarm);
    a.alarm = setTimeout(() => {
      this.logger.warn(`the handler of run ${a.run.id} is stuck: it does not return`);
      a.stuck = true;
      if (!a.over) this.finish(a, a.failure());
      this.notify();
    }, this.timing.grace * 1000);
    a.end(why);
  }

  /** Ends an attempt, without a result if this worker no longer holds it. */
  private finish(a: Attempt, result?: Result): void {
    a.over = true;
    this.running.delete(a.run.id);
    if (result) this.unsent.push({ incarnation: a.incarnation, result });
    else this.end(a, "lease_lost");
    this.notify();
  }

  /** Sends results until they are accepted. After a failure they are sent one by one, and one that fails moves behind the others. */
  private async sendLoop(): Promise<void> {
    for (let failures = 0; ;) {
      await this.until(() => this.unsent.length > 0 || this.done);
      if (this.done) return;
      const batch = this.unsent.slice(0, failures > 0 ? 1 : maxResults);
      const results = batch.map((pending) => pending.result);
      let failed: unknown;
      try {
        const { finishTimeout } = this.timing;
        const { verdicts } = await this.client.workerCall(this.incarnation, "finish", { results }, finishTimeout, this.life.signal);
        if (verdicts.length !== batch.length) throw new BelfryError("the server did not return a verdict for every result");
        for (const [i, { run_id }] of results.entries()) {
          if (verdicts[i] === "late") this.logger.info(`a result came too late and changed nothing: run ${run_id}`);
        }
      } catch (error) {
        if (!(error instanceof BelfryError)) throw error;
        if (this.done) return;
        failed = error;
      }
      this.note("finish", failed);
      this.unsent.splice(0, batch.length); // until now it is held
      this.notify();
      failures = failed ? failures + 1 : 0;
      const rejected = failed instanceof ApiError && ["invalid", "bad_request", "too_large"].includes(failed.code);
      if (rejected && batch.length === 1) { // it loses output and log; after that its run is offered again at its deadline
        this.logger.error(`the result of run ${results[0]?.run_id} was rejected: ${failed}`);
        if (!results[0]?.["output"] && !results[0]?.["log"]) continue;
        Object.assign(results[0], { output: "", log: "", log_offset: 0 });
      }
      if (!failed) continue;
      this.unsent.push(...batch);
      await this.until(() => this.done, Math.min(this.pause(failures, 0.05), 2));
    }
  }
}
