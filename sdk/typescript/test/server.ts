// A real server for tests, and a proxy in front of it that can fail.
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import http from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";

export const limit = 60_000; // milliseconds; it only ends a test that would otherwise hang

const scratch = mkdtempSync(join(tmpdir(), "belfry-typescript-"));
const stops: (() => Promise<void>)[] = [];
let binary = process.env["BELFRY_TEST_BINARY"] ?? "";

/** Starts a server and returns its address. It ends with this process, however that ends. */
export async function startServer(...flags: string[]): Promise<string> {
  return startIn(mkdtempSync(join(scratch, "data-")), ...flags);
}

/** Starts a server with a data directory. */
export async function startIn(data: string, ...flags: string[]): Promise<string> {
  if (!binary) {
    binary = join(scratch, "belfry");
    const root = fileURLToPath(new URL("../../..", import.meta.url));
    execFileSync("go", ["build", "-o", binary, "./cmd/belfry"], { cwd: root, stdio: "inherit" });
  }
  const guard = 'exec 3<&0; "$0" serve --listen 127.0.0.1:0 --data "$@" </dev/null 2>&1 & read -r line <&3; kill -KILL $!';
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("BELFRY_")));
  const child = spawn("/bin/sh", ["-c", guard, binary, data, ...flags], { env, stdio: ["pipe", "pipe", "inherit"] });
  const ended = new Promise<void>((resolve) => child.on("exit", () => resolve()));
  stops.push(async () => {
    child.stdin.end();
    await ended;
  });
  return new Promise((resolve, reject) => {
    let said = "";
    child.stdout.on("data", (part) => {
      said += part;
      const found = /API\s+(https?:\/\/\S+)\/api\/v1/.exec(said);
      if (found?.[1]) resolve(found[1]);
    });
    void ended.then(() => reject(new Error(`the server did not start: ${said}`)));
  });
}

/** Ends all servers. */
export async function stopServers(): Promise<void> {
  await Promise.all(stops.map((stop) => stop()));
  rmSync(scratch, { recursive: true, force: true });
}

export async function eventually(condition: () => unknown, what: string): Promise<void> {
  for (const begin = performance.now(); !await condition(); await sleep(20)) {
    if (performance.now() - begin > limit) throw new Error(`still waiting: ${what}`);
  }
}

/**
 * What happens instead of an answer. With "lose" the request is executed and the answer is lost; with "late" the answer waits for
 * heal. A number is an HTTP status.
 */
export type Fault = "" | "refuse" | "lose" | "hang" | "late" | number;

/** Forwards requests, unless fault returns something for a path. */
export class Proxy {
  fault: (path: string) => Fault = () => "";
  readonly seen: { path: string; headers: http.IncomingHttpHeaders }[] = [];
  busy = 0; // requests that the server has not answered yet
  address = "";
  heal!: () => void;
  readonly #healed = new Promise<void>((resolve) => { this.heal = resolve; });
  readonly #agent = new http.Agent({ keepAlive: true });
  #server!: http.Server;

  static async start(target: string): Promise<Proxy> {
    const proxy = new Proxy();
    proxy.#server = http.createServer((request, answer) => proxy.#forward(target, request, answer));
    await new Promise<void>((resolve) => proxy.#server.listen(0, "127.0.0.1", resolve));
    proxy.address = `http://127.0.0.1:${(proxy.#server.address() as AddressInfo).port}`;
    return proxy;
  }

  #forward(target: string, request: http.IncomingMessage, answer: http.ServerResponse): void {
    const path = request.url ?? "";
    this.seen.push({ path, headers: request.headers });
    const fault = this.fault(path);
    if (fault === "hang") return;
    if (fault === "refuse") return void request.socket.destroy();
    if (typeof fault === "number") return void answer.writeHead(fault, { "retry-after": "0" }).end("busy");
    this.busy++;
    const forward = http.request(target + path, { method: request.method, headers: request.headers, agent: this.#agent }, (reply) => {
      if (fault === "lose" || this.fault(path) === "refuse") { // also one that waited since before
        reply.resume();
        request.socket.destroy();
        return;
      }
      void (fault === "late" ? this.#healed : Promise.resolve()).then(() => {
        answer.writeHead(reply.statusCode ?? 500, reply.headers);
        reply.pipe(answer);
      });
    });
    forward.on("close", () => this.busy--);
    forward.on("error", () => request.socket.destroy());
    answer.on("close", () => answer.writableEnded || forward.destroy());
    request.pipe(forward);
  }

  close(): void {
    this.#server.close();
    this.#server.closeAllConnections();
    this.#agent.destroy();
  }
}
