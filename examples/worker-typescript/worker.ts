// A Belfry worker in TypeScript.
//
//   npm install && npx tsc
//   BELFRY_SERVER=http://127.0.0.1:7070 node worker.js
import { setTimeout as sleep } from "node:timers/promises";
import { Client, Permanent, RetryAfter, Snooze, Worker } from "@belfry/sdk";

const client = new Client(process.env["BELFRY_SERVER"] ?? "http://127.0.0.1:7070", { key: process.env["BELFRY_KEY"] });
const worker = new Worker(client, { concurrency: 4 });

interface Greeting { who?: string; not_before?: number }

// What a handler returns is the output of the run; if it throws, the run is retried.
worker.handle<Greeting>("greet", (run) => {
  const { who, not_before = 0 } = run.payload;
  if (who === undefined) throw new TypeError("who is missing");
  if (who === "") throw new Permanent("nobody to greet");
  const wait = not_before - Date.now() / 1000;
  if (wait > 0) throw new Snooze(wait);
  return `hello, ${who}; key ${run.idempotencyKey}`;
});

// The signal of a run is aborted when its attempt must end: pass it on.
worker.handle<{ pages: number; busy?: number }>("crawl", async (run) => {
  for (let page = 0; page < run.payload.pages; page++) {
    console.log(run.id, "crawls page", page);
    run.log("page", page); // in the log of the run, see: belfry run watch
    await sleep(1000, undefined, { signal: run.signal });
    if (page === run.payload.busy) throw new RetryAfter("the site is busy", 3600);
  }
  return "all pages";
});

console.log("serving greet crawl");
await worker.run(); // until SIGTERM or SIGINT; then it drains
