// The scenarios of the worker in Go, with a real server and short intervals. BELFRY_TEST_CHAOS=1 adds an outage of a minute with the
// intervals that users have.
import assert from "node:assert/strict";
import { once } from "node:events";
import { after, before, describe, test, type TestContext } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { AttemptEnded, Client, Permanent, RetryAfter, Snooze, Worker, type Handler, type Manifest, type Run, type WorkerOptions } from "@belfry/sdk";
import { eventually, limit, Proxy, startServer, stopServers, type Fault } from "./server.js";

let address: string;
let count = 0;

before(async () => { address = await startServer(); });
after(stopServers);

const quiet = { info() {}, warn() {}, error() {} };

/** A namespace of its own, with a worker whose calls go through a proxy. */
class Setup {
  readonly namespace = `worker-${++count}`;
  readonly client = new Client(address, { namespace: this.namespace });
  proxy!: Proxy;
  worker: any; // with what is private
  ended: Promise<unknown> | undefined; // what run throws

  static async make(t: TestContext, handler: Handler, options: WorkerOptions = {}, fast = true): Promise<Setup> {
    const s = new Setup();
    s.proxy = await Proxy.start(address);
    s.worker = new Worker(new Client(s.proxy.address, { namespace: s.namespace }), { log: quiet, signals: false, ...options });
    if (fast) Object.assign(s.worker.timing, { heartbeat: 0.2, cancelDelay: 1, log: 0.1, longestPause: 0.3, grace: 0.5, claimWait: 1 });
    s.worker.handle("work", handler);
    t.after(async () => {
      s.proxy.fault = () => "";
      await s.end();
      s.proxy.close();
    });
    s.ended = s.worker.run().then(() => undefined, (error: unknown) => error);
    return s;
  }

  end(): Promise<unknown> {
    this.worker.stop();
    return this.ended!;
  }

  async trigger(payload?: unknown, settings: Partial<Manifest> = {}): Promise<string> {
    await this.client.putJob("job", { handler: "work", schedule: "@yearly", overlap: "parallel", retry_base_seconds: 0.1, max_retries: 1, ...settings });
    return this.client.triggerJob("job", payload);
  }

  settled(run: string) {
    return this.client.waitRun(run, { timeoutSeconds: limit / 1000 });
  }

  /** Makes a call in the name of the worker. */
  post(verb: "heartbeat" | "finish", body: unknown): Promise<any> {
    return this.client.workerCall(this.worker.incarnation, verb, body, 10, new AbortController().signal);
  }

  attempt(run: string): any {
    return this.worker.running.get(run);
  }

  /** Ends an attempt as another process would: the run is given away. */
  async giveAway(run: string): Promise<void> {
    const { held, token } = this.attempt(run);
    assert.deepEqual((await this.post("finish", { results: [{ ...held, token, outcome: "interrupted" }] })).verdicts, ["accepted"]);
  }

  calls(verb: string): number {
    return this.proxy.seen.filter((r) => r.path.endsWith(verb)).length;
  }
}

const why = (run: Run): string | undefined => (run.signal.reason as AttemptEnded | undefined)?.why;

async function ended(run: Run): Promise<void> {
  if (!run.signal.aborted) await once(run.signal, "abort");
}

/** A promise and what resolves it. */
function gate(): { open: () => void; opened: Promise<void> } {
  let open = () => {};
  const opened = new Promise<void>((resolve) => { open = resolve; });
  return { open, opened };
}

describe("worker", { concurrency: 4 }, () => {
  test("results", async (t) => {
    const s = await Setup.make(t, (run) => {
      run.log("attempt", run.attempt, "\0ü");
      switch (run.payload) {
        case "json": return { key: run.idempotencyKey, year: run.scheduledAt.getUTCFullYear() };
        case "error": throw new RangeError("who");
        case "permanent": throw new TypeError("wrapped", { cause: new Permanent("never") });
        case "later": throw new RetryAfter("busy", 3600);
        case "snooze": if (run.attempt === 1) throw new Snooze(0.001); return "slept";
        case "odd": throw undefined;
        case "nothing": return undefined;
        default: return run.payload;
      }
    });
    const long = "\0" + "é".repeat(40_000);
    const done: Record<string, any> = {};
    for (const kind of ["text", "json", "error", "permanent", "snooze", "odd", "nothing", long]) done[kind] = await s.trigger(kind);
    const later = await s.trigger("later");
    for (const kind of Object.keys(done)) done[kind] = await s.settled(done[kind]);
    assert.deepEqual([done["text"].status, done["text"].output, done["text"].attempt], ["succeeded", "text", 1]);
    assert.deepEqual(JSON.parse(done["json"].output), { key: done["json"].idempotency_key, year: Number(done["json"].scheduled_at.slice(0, 4)) });
    assert.deepEqual([done["error"].status, done["error"].attempt, done["error"].error], ["dead", 2, "RangeError: who"]);
    assert.deepEqual([done["permanent"].reason, done["permanent"].attempt, done["permanent"].error], ["permanent", 1, "TypeError: wrapped"]);
    assert.deepEqual([done["snooze"].status, done["snooze"].attempt, done["snooze"].output], ["succeeded", 2, "slept"]);
    assert.deepEqual([done["odd"].status, done["odd"].error], ["dead", "undefined"]);
    assert.deepEqual([done["nothing"].status, done["nothing"].output], ["succeeded", undefined]);
    assert.deepEqual([done[long].output.slice(0, 2), Buffer.byteLength(done[long].output)], ["\ufffdé", (64 << 10) - 1]);
    assert.equal((await s.client.runLog(done["error"].run_id)).text, "attempt 2 ?ü\n");
    await eventually(async () => (await s.client.getRun(later)).status === "retry", "the run waits");
    const waiting = await s.client.getRun(later);
    assert.equal(waiting.attempts?.[0]?.error, "busy");
    assert.ok(Date.parse(waiting.ready_at) > Date.now() + 3_000_000);
  });

  test("many runs in few slots", async (t) => {
    let busy = 0, most = 0, group = gate(), inside = 0;
    const s = await Setup.make(t, async () => {
      most = Math.max(most, ++busy);
      const mine = group; // nobody ends before three have begun
      if (++inside % 3 === 0) {
        group = gate();
        mine.open();
      }
      await mine.opened;
      busy--;
    }, { concurrency: 3 });
    const runs: string[] = [];
    for (let n = 0; n < 30; n++) runs.push(await s.trigger());
    for (const run of await Promise.all(runs.map((id) => s.settled(id)))) assert.deepEqual([run.status, run.attempt], ["succeeded", 1]);
    assert.equal(most, 3);
  });

  test("log while running", async (t) => {
    const go = gate();
    const s = await Setup.make(t, async (run) => {
      run.log("first");
      await go.opened;
      for (let n = 0; n < 4000; n++) run.log(String(n).padStart(6, "0"), "é".repeat(20));
    });
    const run = await s.trigger();
    await eventually(async () => (await s.client.runLog(run)).text === "first\n", "the log is there while the handler runs");
    go.open();
    await s.settled(run);
    const log = await s.client.runLog(run);
    assert.equal(log.next_offset, 6 + 4000 * 48);
    assert.ok(log.text.endsWith(`003999 ${"é".repeat(20)}\n`));
    assert.equal(log.offset, log.next_offset - Buffer.byteLength(log.text));
    assert.ok(Buffer.byteLength(log.text) <= 64 << 10);
  });

  test("cancel", async (t) => {
    const causes: unknown[] = [];
    const s = await Setup.make(t, async (run) => {
      await ended(run);
      causes.push(why(run));
      if (run.payload) return "done nevertheless";
      throw run.signal.reason;
    });
    const runs = [await s.trigger(), await s.trigger(true)];
    for (const run of runs) {
      await eventually(async () => (await s.client.getRun(run)).status === "running", "it runs");
      await s.client.cancelRun(run);
    }
    const [first, second] = await Promise.all(runs.map((run) => s.settled(run)));
    assert.deepEqual([first!.status, first!.error], ["cancelled", "the run was cancelled"]);
    assert.deepEqual([second!.status, second!.output], ["succeeded", "done nevertheless"]);
    assert.deepEqual(causes, ["cancelled", "cancelled"]);
  });

  test("timeout, and a handler that is stuck", async (t) => {
    const release = gate(), causes: unknown[] = [];
    const s = await Setup.make(t, async (run) => {
      if (run.payload === "stuck") await release.opened;
      await ended(run);
      causes.push(why(run));
      throw run.signal.reason;
    }, { concurrency: 2 });
    for (const id of [await s.trigger("stuck", { timeout_seconds: 1, max_retries: 0 }), await s.client.triggerJob("job", "polite")]) {
      const run = await s.settled(id);
      assert.deepEqual([run.status, run.error, run.attempt], ["dead", "no answer within 1s", 1]);
    }
    assert.deepEqual([causes, s.worker.busy.size], [["timed_out"], 1]); // its slot stays in use
    release.open();
    await eventually(() => s.worker.busy.size === 0, "the slot is free again");
  });

  test("lost lease", async (t) => {
    const seen: Run[] = [];
    const s = await Setup.make(t, async (run) => {
      seen.push(run);
      if (run.attempt > 1) return "second";
      await ended(run);
      return "late";
    }, { concurrency: 1 });
    const run = await s.trigger();
    await eventually(() => seen.length, "it runs");
    await s.giveAway(run);
    assert.equal((await s.settled(run)).output, "second");
    assert.equal(why(seen[0]!), "lease_lost");
  });

  test("an unknown worker gets a new incarnation", async (t) => {
    const seen: Run[] = [];
    const s = await Setup.make(t, async (run) => {
      seen.push(run);
      if (seen.length > 1) return "again";
      await ended(run);
      throw run.signal.reason;
    });
    const run = await s.trigger();
    await eventually(() => seen.length, "it runs");
    const incarnation = s.worker.incarnation;
    await s.giveAway(run);
    await s.post("heartbeat", { leave: true });
    assert.equal((await s.settled(run)).output, "again");
    assert.equal(why(seen[0]!), "lease_lost");
    assert.notEqual(s.worker.incarnation, incarnation);
  });

  test("drain lets handlers finish", async (t) => {
    const started = gate(), go = gate();
    const s = await Setup.make(t, async () => {
      started.open();
      await go.opened;
      return "finished";
    }, { concurrency: 1 });
    const first = await s.trigger();
    await started.opened;
    const second = await s.trigger();
    s.worker.stop();
    await eventually(() => !s.worker.claiming, "nothing more is claimed");
    go.open();
    assert.equal(await s.end(), undefined);
    assert.equal((await s.client.getRun(first)).output, "finished");
    const { status, attempt } = await s.client.getRun(second);
    assert.deepEqual([status, attempt], ["ready", 0]);
    assert.ok(!(await (await fetch(`${address}/api/v1/fleet`)).text()).includes(s.worker.incarnation));
    await assert.rejects(s.worker.run(), TypeError);
  });

  test("drain interrupts", async (t) => {
    const release = gate(), causes: unknown[] = [];
    t.after(release.open);
    const s = await Setup.make(t, async (run) => {
      await ended(run);
      causes.push(why(run));
      if (run.payload === "stuck") await release.opened;
      throw run.signal.reason;
    }, { drainTimeoutSeconds: 0.1 });
    const runs = [await s.trigger("stuck"), await s.trigger("polite")];
    await eventually(() => s.worker.busy.size === 2, "both run");
    assert.equal(await s.end(), undefined);
    assert.deepEqual(causes, ["interrupted", "interrupted"]);
    for (const id of runs) { // returned at once, and no retry was used
      const run = await s.client.getRun(id);
      assert.deepEqual([run.status, run.attempts?.[0]?.outcome], ["ready", "interrupted"]);
    }
  });

  test("drain with results that are not accepted", async (t) => {
    const s = await Setup.make(t, () => "lost");
    s.worker.timing.flush = 0.5;
    s.proxy.fault = (path) => path.endsWith("finish") ? "refuse" : "";
    await s.trigger();
    await eventually(() => s.worker.unsent.length, "there is a result");
    assert.match(String(await s.end()), /1 results/);
  });

  test("results are sent until they are accepted", async (t) => {
    const faults: Fault[] = ["refuse", "lose", 503];
    const s = await Setup.make(t, () => "done");
    s.proxy.fault = (path) => path.endsWith("finish") && faults.shift() || "";
    const run = await s.settled(await s.trigger());
    assert.deepEqual([run.status, run.attempt, run.output], ["succeeded", 1, "done"]);
    await eventually(() => faults.length === 0 && s.calls("finish") === 4, "four tries");
  });

  test("results that are rejected", async (t) => {
    const faults: Fault[] = [413];
    const s = await Setup.make(t, (run) => { run.log("much"); return "much"; }, { concurrency: 1 });
    s.proxy.fault = (path) => path.endsWith("finish") && faults.shift() || "";
    const run = await s.settled(await s.trigger()); // it is sent again without what may be too large
    assert.deepEqual([run.status, run.output, (await s.client.runLog(run.run_id)).text], ["succeeded", undefined, ""]);
    faults.push(413, 413);
    const lost = await s.trigger();
    await eventually(() => faults.length === 0 && s.worker.unsent.length === 0, "the result is dropped");
    assert.equal((await s.client.getRun(lost)).status, "running");
  });

  test("a run that is cancelled before it arrives", async (t) => {
    let started = 0;
    const s = await Setup.make(t, () => void started++);
    s.proxy.fault = (path) => path.endsWith("claim") ? "late" : "";
    const claims = s.calls("claim");
    await eventually(() => s.calls("claim") > claims, "a claim is late");
    const run = await s.trigger();
    await eventually(async () => (await s.client.getRun(run)).status === "running", "it is claimed");
    await s.client.cancelRun(run);
    await eventually(() => s.worker.cancelled.length, "the worker knows");
    s.proxy.heal();
    const done = await s.settled(run);
    assert.deepEqual([done.status, done.error, started], ["cancelled", "the run was cancelled before it was started", 0]);
  });

  test("nothing starts without heartbeats", async (t) => {
    let started = 0;
    const s = await Setup.make(t, () => void started++);
    s.worker.timing.lease = 0.5;
    await s.settled(await s.trigger());
    s.proxy.fault = (path) => path.endsWith("heartbeat") ? "refuse" : "";
    await eventually(() => !s.worker.mayStart() && s.proxy.busy === 0, "the lease expires, and the last claim has ended");
    const run = await s.trigger();
    await eventually(async () => (await s.client.getRun(run)).fired_at, "the run is fired");
    const claims = s.calls("claim");
    await sleep(500); // nothing happens
    assert.deepEqual([s.calls("claim"), (await s.client.getRun(run)).status, started], [claims, "ready", 1]);
    s.proxy.fault = () => "";
    assert.equal((await s.settled(run)).status, "succeeded");
  });

  /** A worker that is cut off keeps its results, comes back by itself and loses nothing. */
  async function outage(t: TestContext, seconds: number, fast: boolean): Promise<void> {
    let started = 0;
    const go = gate();
    const s = await Setup.make(t, async (run) => {
      started++;
      await go.opened;
      return `attempt ${run.attempt}`;
    }, { concurrency: 4 }, fast);
    if (fast) s.worker.timing.lease = 1;
    const runs: string[] = [];
    for (let n = 0; n < 8; n++) runs.push(await s.trigger(undefined, { timeout_seconds: 600 }));
    await eventually(() => started === 4, "four run");
    const { incarnation } = s.worker;
    s.proxy.fault = () => "refuse";
    await eventually(() => s.worker.failing.has("heartbeat"), "the worker notices");
    go.open(); // handlers finish while nothing can be sent
    await eventually(() => s.worker.unsent.length === 4, "results are kept");
    if (fast) await s.post("heartbeat", { leave: true }); // as if it had been silent for too long
    await sleep(seconds * 1000);
    assert.equal(s.worker.unsent.length, 4);
    s.proxy.fault = () => "";
    for (const run of await Promise.all(runs.map((id) => s.settled(id)))) assert.equal(run.status, "succeeded");
    await eventually(() => s.worker.unsent.length === 0 && s.worker.failing.size === 0, "all is sent");
    assert.notEqual(s.worker.incarnation, incarnation);
  }

  test("outage", (t) => outage(t as TestContext, 2, true));
  test("outage of a minute", { skip: process.env["BELFRY_TEST_CHAOS"] ? false : "a minute, for make chaos" }, (t) => outage(t as TestContext, 60, false));
});
