import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { ApiError, BelfryError, Client, Unavailable, type ClientOptions, type Job } from "@belfry/sdk";
import { eventually, Proxy, startIn, startServer, stopServers, type Fault } from "./server.js";

let address: string;
let count = 0;

function connect(server = address, options: ClientOptions = {}): Client {
  return new Client(server, { namespace: `client-${++count}`, ...options });
}

async function proxied(t: { after(stop: () => void): void }, options: ClientOptions = {}) {
  const proxy = await Proxy.start(address);
  t.after(() => proxy.close());
  return { proxy, client: connect(proxy.address, options) };
}

async function all<T>(list: AsyncIterable<T>): Promise<T[]> {
  const items: T[] = [];
  for await (const item of list) items.push(item);
  return items;
}

async function refused(call: Promise<unknown>): Promise<ApiError> {
  const error = await call.then(() => assert.fail("it succeeded"), (e: unknown) => e);
  assert.ok(error instanceof ApiError, String(error));
  return error;
}

before(async () => { address = await startServer(); });
after(stopServers);

describe("client", { concurrency: 4 }, () => {
  test("life of a job", async () => {
    const c = connect();
    const job = await c.createJob({ name: "report", schedule: "0 9 * * *", payload: { pages: 3 }, tags: ["a", "b"] });
    assert.deepEqual([job.name, job.type, job.status, job.revision], ["report", "worker", "scheduled", 1]);
    assert.deepEqual(await c.getJob(job.job_id), await c.getJob("report"));
    assert.equal((await c.patchJob("report", { schedule: "0 10 * * *" })).revision, 2);
    assert.deepEqual((await c.putJob("report", { schedule: "0 10 * * *", payload: { pages: 4 } })).payload, { pages: 4 });
    assert.equal((await c.pauseJob("report")).status, "paused");
    assert.deepEqual((await all(c.listJobs({ status: "paused" }))).map((j) => j.name), ["report"]);
    assert.equal((await c.resumeJob("report", { catchUp: true })).status, "scheduled");
    const run = await c.triggerJob("report", { pages: 5 });
    await eventually(async () => (await c.getRun(run)).fired_at, "the run is fired");
    assert.deepEqual((await all(c.listRuns({ job: "report" }))).map((r) => r.run_id), [run]);
    await assert.rejects(c.waitRun(run, { timeoutSeconds: 0.2 }), Unavailable);
    assert.equal((await c.cancelRun(run)).status, "cancelled");
    assert.equal((await c.waitRun(run)).status, "cancelled");
    await c.deleteJob("report", { cancelRuns: true, deleteHistory: true });
    assert.deepEqual(await all(c.listJobs()), []);
  });

  test("TLS with a CA file", async () => {
    const data = mkdtempSync(join(tmpdir(), "belfry-tls-"));
    const server = await startIn(data, "--tls-auto");
    assert.match(server, /^https:/);
    const script = `import { Client } from "@belfry/sdk";
      for await (const job of new Client(process.argv[1], { retries: 0 }).listJobs()) console.log(job);
      console.log("listed");`;
    const list = (env: NodeJS.ProcessEnv) => execFileSync(process.execPath, ["--input-type=module", "-e", script, server],
      { cwd: fileURLToPath(new URL("..", import.meta.url)), env: { ...process.env, ...env }, stdio: "pipe", encoding: "utf8" });
    assert.equal(list({ NODE_EXTRA_CA_CERTS: join(data, "tls-cert.pem") }), "listed\n");
    assert.throws(() => list({}), /self-signed|SELF_SIGNED|Unavailable/);
    rmSync(data, { recursive: true, force: true });
  });

  test("keys are not sent in the clear", () => {
    for (const server of ["http://belfry.example.com", "10.0.0.1:7070", "http://127.0.0.1.example.com", "http://xlocalhost"]) {
      assert.throws(() => new Client(server, { key: "k" }), /insecurePlainHttp/);
      new Client(server);
      new Client(server, { key: "k", insecurePlainHttp: true });
    }
    for (const server of ["http://127.0.0.1:7070", "localhost:7070", "http://[::1]:7070", "http://a.LOCALHOST", "https://10.0.0.1"]) {
      new Client(server, { key: "k" });
    }
  });

  test("names are escaped", async () => {
    const c = connect();
    for (const name of ["a/b c?d#e%2Fé", "x".repeat(200)]) {
      await c.putJob(name, { schedule: "@daily", handler: "h" });
      assert.equal((await c.getJob(name)).name, name);
    }
    assert.throws(() => c.getJob(""), TypeError);
  });

  test("errors are problem documents", async () => {
    const c = connect();
    const invalid = await refused(c.createJob({ handler: "h", schedule: "61 * * * *", max_retries: 1000 }));
    assert.deepEqual([invalid.status, invalid.code, invalid.detail], [422, "invalid", "the job is not valid"]);
    assert.deepEqual(invalid.fields.map((f) => f.field).sort(), ["max_retries", "schedule"]);
    assert.match(invalid.message, /schedule: /);
    assert.ok(invalid.requestId);
    const missing = await refused(c.getJob("nobody"));
    assert.deepEqual([missing.status, missing.code], [404, "not_found"]);
    await c.createJob({ name: "taken", schedule: "@daily" });
    assert.equal((await refused(c.createJob({ name: "taken", schedule: "@daily" }))).code, "conflict");
  });

  test("idempotency key", async () => {
    const c = connect();
    const create = () => c.createJob({ schedule: "@daily", handler: "h" }, { idempotencyKey: "once" });
    const { job_id } = await create();
    assert.equal((await create()).job_id, job_id);
    const runs = await Promise.all([1, 2, 3].map(() => c.triggerJob(job_id, undefined, { idempotencyKey: "now" })));
    assert.equal(new Set(runs).size, 1);
  });

  test("lists have pages", async () => {
    const c = connect();
    const ids: string[] = [];
    for (let n = 0; n < 120; n++) ids.push((await c.createJob({ schedule: "@daily", handler: "h", tags: ["x"] })).job_id);
    assert.deepEqual((await all(c.listJobs({ tags: ["x"] }))).map((job) => job.job_id), ids.reverse());
  });

  test("namespaces are apart", async () => {
    await connect().putJob("mine", { schedule: "@daily" });
    assert.equal((await refused(connect(`${address}/api/v1/`).getJob("mine"))).code, "not_found");
  });

  test("key", async () => {
    const keys = join(mkdtempSync(join(tmpdir(), "belfry-keys-")), "keys");
    writeFileSync(keys, "ops:9f8Kq27ZtR4mWx8LbVn3JcYd6HsPeuTA\n", { mode: 0o600 });
    const guarded = await startServer("--api-key-file", keys);
    assert.deepEqual(await all(connect(guarded, { key: "9f8Kq27ZtR4mWx8LbVn3JcYd6HsPeuTA" }).listJobs()), []);
    const error = await refused(all(connect(guarded).listJobs()));
    assert.deepEqual([error.status, error.code], [401, "unauthorized"]);
  });

  test("addresses and keys are checked", () => {
    for (const bad of ["ftp://x", "http://", "http://me:secret@host", "http://host/?a=1"]) assert.throws(() => new Client(bad), TypeError);
    assert.throws(() => new Client("localhost:7070", { key: "se\ncret" }), (error: Error) => !error.message.includes("cret"));
    assert.ok(!JSON.stringify(new Client("localhost:7070", { key: "secret" })).includes("secret"));
  });

  test("calls are repeated", async (t) => {
    const { proxy, client } = await proxied(t);
    const jobs: string[] = [];
    for (const fault of ["refuse", "lose", 503, 429] as Fault[]) {
      const faults = [fault];
      proxy.fault = () => faults.pop() ?? "";
      proxy.seen.length = 0;
      const job = await client.createJob({ schedule: "@daily", handler: "h" });
      assert.equal(new Set(proxy.seen.map((r) => r.headers["idempotency-key"])).size, 1);
      assert.equal(proxy.seen.length, 2, String(fault));
      assert.deepEqual((await all(client.listJobs())).map((j: Job) => j.job_id), [job.job_id], String(fault));
      faults.push(fault);
      await client.deleteJob(job.job_id);
      assert.deepEqual(await all(client.listJobs()), jobs, String(fault));
    }
  });

  test("the number of tries is limited", async (t) => {
    const { proxy, client } = await proxied(t, { retries: 1 });
    proxy.fault = () => "refuse";
    await assert.rejects(client.getJob("x"), Unavailable);
    proxy.fault = () => 503;
    const busy = await refused(client.getJob("x"));
    assert.deepEqual([busy.status, busy.code, proxy.seen.length], [503, "unavailable", 4]);
    proxy.fault = () => 404;
    assert.equal((await refused(client.getJob("x"))).code, "not_found");
    assert.equal(proxy.seen.length, 5);
  });

  test("timeout", async (t) => {
    const { proxy, client } = await proxied(t, { retries: 0, timeoutSeconds: 0.2 });
    proxy.fault = () => "hang";
    await assert.rejects(client.getJob("x"), Unavailable);
  });

  test("answers of other servers", async (t) => {
    const { proxy, client } = await proxied(t);
    proxy.fault = () => 200;
    await assert.rejects(client.getJob("x"), BelfryError);
  });

  test("types have the fields of the API", async () => {
    const { components: { schemas } } = await (await fetch(`${address}/api/v1/openapi.json`)).json() as any;
    const source = readFileSync(new URL("../src/models.ts", import.meta.url), "utf8");
    const fields = (name: string): string[] => {
      const found = new RegExp(`interface ${name}(?: extends (\\w+))? \\{([^}]*)\\}`).exec(source);
      assert.ok(found, name);
      return [...found[2]!.matchAll(/(\w+\??):/g)].map((m) => m[1]!).concat(found[1] ? fields(found[1]) : []);
    };
    const aliases = new Map([...source.matchAll(/type (\w+) = ([^;]*);/g)].map((m) => [m[1]!, m[2]!]));
    const types = (name: string): Map<string, string> => {
      const found = new RegExp(`interface ${name}(?: extends (\\w+))? \\{([^}]*)\\}`).exec(source)!;
      const own = [...found[2]!.matchAll(/(\w+)\??: ([^;\n]*)/g)].map((m) => [m[1]!, aliases.get(m[2]!.trim()) ?? m[2]!.trim()] as const);
      return new Map([...(found[1] ? types(found[1]) : []), ...own]);
    };
    for (const [type, schema] of Object.entries({ Manifest: "Manifest", Job: "Job", RunRecord: "Run", Attempt: "Attempt",
      LastResult: "LastResult", RunLog: "RunLog", JobFilter: "JobFilter" })) {
      const have = fields(type);
      assert.deepEqual(have.map((f) => f.replace("?", "")).sort(), Object.keys(schemas[schema].properties).sort(), type);
      for (const name of schemas[schema].required ?? []) assert.ok(have.includes(name), `${type}.${name} is optional`);
      for (const [name, property] of Object.entries<any>(schemas[schema].properties)) {
        for (const value of schemas[property.$ref?.split("/").pop()]?.enum ?? property.enum ?? []) {
          const kind = types(type).get(name);
          assert.ok(kind === "string" || kind?.includes(`"${value}"`), `${type}.${name} is ${kind} without ${value}`);
        }
      }
    }
  });
});
